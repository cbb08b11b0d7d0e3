"""Knocks from the command line: judged batch after batch, counted, shown.

Nothing is kept of a batch but its counts, so memory stays flat however many URLs come.
"""

import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from usher.cli import url_input
from usher.cli.app import App, show_json, show_table
from usher.cli.door_access import open_door
from usher.cli.output import echo, style
from usher.cli.wording import encodable, json_line, printable, without_password
from usher.door.batch import Answer, Answers
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Reason, Verdict

MAX_LISTED_ANSWERS = 50  # answers that are shown one by one
VERDICT_ORDER = list(Verdict)
COLOURS = {Verdict.ADMIT: "green", Verdict.WAIT: "yellow", Verdict.REFUSE: "red"}
REASON_WIDTH = max(map(len, Reason))


@dataclass(slots=True)
class AnswerCounts:
    """What the door has said so far."""

    reasons: Counter[Reason] = field(default_factory=Counter)
    brought: int = 0

    def add(self, answers: Answers) -> None:
        self.reasons += answers.counts()
        self.brought += answers.brought

    def of(self, verdict: Verdict) -> int:
        return sum(number for reason, number in self.reasons.items() if reason.verdict is verdict)

    @property
    def urls(self) -> int:
        return self.reasons.total()

    @property
    def all_refused(self) -> bool:
        return 0 < self.urls == self.of(Verdict.REFUSE)

    def in_order(self) -> list[tuple[Reason, int]]:
        """The reasons met: admitting ones first, the most frequent first among each verdict's."""
        met = self.reasons.items()
        return sorted(met, key=lambda one: (VERDICT_ORDER.index(one[0].verdict), -one[1], one[0]))

    def as_json(self) -> dict[str, Any]:
        """As `POST /v1/knock` answers, so that one program can read both."""
        return {
            "counts": {verdict.value: self.of(verdict) for verdict in Verdict},
            "reasons": {reason.value: number for reason, number in self.in_order()},
            "brought": self.brought,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """What a person asked for: which URLs, and how to answer."""

    urls: tuple[str, ...]
    files: tuple[Path, ...]
    full: bool
    hall_pass: bool
    dry_run: bool
    summary: bool
    as_lines: bool
    as_json: bool

    @property
    def knock(self) -> Knock:
        return Knock("full" if self.full else "single", self.hall_pass)

    @property
    def few(self) -> bool:
        """Whether each answer is shown."""
        listed = not self.files and "-" not in self.urls and len(self.urls) <= MAX_LISTED_ANSWERS
        return listed and not self.summary and not self.as_lines

    @property
    def named(self) -> list[str]:
        return [url for url in self.urls if url != "-"]


async def add_urls(app: App, asked: AddOptions) -> AnswerCounts:
    """Knock for every URL asked for, and show what the door answers."""
    tally, shown, start = AnswerCounts(), list[Answer](), time.monotonic()
    with ExitStack() as opened:
        files: list[BinaryIO] = [sys.stdin.buffer] if "-" in asked.urls else []
        files += [opened.enter_context(path.open("rb")) for path in asked.files]
        async with open_door(app) as doorkeeper:
            bar = opened.enter_context(progress(files, shown=shows_progress(app, asked, files)))
            async for answers in answer_batches(doorkeeper, asked, files, bar):
                tally.add(answers)
                bar.judged(tally)
                if asked.as_lines:
                    show_json_lines(answers)
                elif asked.few:
                    shown += answers.answers
    show_result(app, asked, tally, shown, time.monotonic() - start)
    return tally


async def answer_batches(
    doorkeeper: Doorkeeper, asked: AddOptions, files: list[BinaryIO], bar: "KnockProgress"
) -> AsyncIterator[Answers]:
    how: dict[str, Any] = {"knock": asked.knock, "dry_run": asked.dry_run}
    async for answers in doorkeeper.stream(url_input.batches(asked.named), **how):
        yield answers
    for file in files:
        if url_input.is_stream(file):
            async for batch in url_input.pipe_batches(file, bar.read):
                yield await doorkeeper.knock(batch, **how)
        else:
            async for answers in doorkeeper.stream(url_input.file_batches(file, bar.read), **how):
                yield answers


class KnockProgress:
    """How far it is; this one shows nothing."""

    def read(self, number: int) -> None:
        """So many more bytes were read."""

    def judged(self, tally: AnswerCounts) -> None:
        """So far the door has come."""


def shows_progress(app: App, asked: AddOptions, files: list[BinaryIO]) -> bool:
    """Whether a person looks on: at a terminal that nothing else is printed to meanwhile."""
    busy = asked.as_lines and sys.stdout.isatty()
    typed = any(file.isatty() for file in files)
    return bool(files) and sys.stderr.isatty() and not (app.quiet or busy or typed)


@contextmanager
def progress(files: list[BinaryIO], *, shown: bool) -> Iterator[KnockProgress]:
    """A bar on stderr."""
    if not shown:
        yield KnockProgress()
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.fields[urls]:,} judged, {task.fields[admitted]:,} admitted"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as screen:
        sizes = [url_input.file_size(file) for file in files]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        task = screen.add_task("", total=total, urls=0, admitted=0)

        class Drawn(KnockProgress):
            def read(self, number: int) -> None:
                screen.advance(task, number)

            def judged(self, tally: AnswerCounts) -> None:
                screen.update(task, urls=tally.urls, admitted=tally.of(Verdict.ADMIT))

        yield Drawn()


def show_result(
    app: App, asked: AddOptions, tally: AnswerCounts, shown: list[Answer], seconds: float
) -> None:
    """The result on stdout as asked for, the talk on stderr."""
    if asked.as_json:
        answers = {"answers": [answer_json(one) for one in shown]} if asked.few else {}
        show_json({**tally.as_json(), **answers})
    elif asked.few:
        show_answers(shown)
    elif not asked.as_lines:
        show_counts(tally)
    if not asked.few:
        app.say(f"{tally.urls:,} URLs in {seconds:.1f} s")
    show_remarks(app, asked, tally)


def show_remarks(app: App, asked: AddOptions, tally: AnswerCounts) -> None:
    if tally.brought:
        app.say(f"with them {tally.brought:,} other pages of their hosts")
    if asked.dry_run:
        app.say("this was a dry run: nothing has changed")
    if tally.reasons.keys() & {Reason.PAGE_NOT_DUE, Reason.HOST_NOT_DUE}:
        app.say("  → `usher explain URL` says when a page is due; --pass lets it in before")


def answer_json(answer: Answer) -> dict[str, Any]:
    return {
        "url": encodable(answer.given),
        "canonical": str(answer.url) if answer.url else None,
        "verdict": answer.verdict.value,
        "reason": answer.reason.value,
        "detail": encodable(answer.detail),
    }


def show_json_lines(answers: Answers) -> None:
    echo("\n".join(json_line(answer_json(answer)) for answer in answers.answers))


def show_answers(answers: list[Answer]) -> None:
    """`admit  new_page  https://…  detail`, a line each."""
    for answer in answers:
        verdict = style(f"{answer.verdict:<6}", fg=COLOURS[answer.verdict])
        url = printable(str(answer.url) if answer.url else without_password(answer.given))
        line = f"{verdict}  {answer.reason:<{REASON_WIDTH}}  {url}  {printable(answer.detail, 500)}"
        echo(line.rstrip())


def show_counts(tally: AnswerCounts) -> None:
    rows = [(reason.verdict, reason, f"{number:,}") for reason, number in tally.in_order()]
    show_table(("VERDICT", "REASON", "URLS"), rows)
