"""`usher add`: knock at the door for URLs in batches, count the answers and show them.

Only the counts of a batch are kept, so memory use does not grow with the number of URLs.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from usher.cli import url_input
from usher.cli.app import App, show_json, show_table
from usher.cli.area_access import READER, open_database
from usher.cli.door_access import open_door
from usher.cli.output import echo, style
from usher.crawl.service import make_fetcher
from usher.door.batch import BatchVerdicts, UrlVerdict
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Reason, Verdict
from usher.errors import NotAllowed
from usher.local.operator_urls import (
    TypedUrls,
    apply_typed,
    retry_typed,
    with_schemes,
    with_working_schemes,
)
from usher.mgmt import page_history
from usher.wording import encodable, json_line, printable, without_password

MAX_LISTED_ANSWERS = 50  # more are only counted
VERDICT_ORDER = list(Verdict)
COLOURS = {Verdict.ADMIT: "green", Verdict.WAIT: "yellow", Verdict.REFUSE: "red"}
REASON_WIDTH = max(map(len, Reason))


@dataclass(slots=True)
class AnswerCounts:
    """The door's answers by reason; `brought` pages were queued with a full knock."""

    reasons: Counter[Reason] = field(default_factory=Counter)
    brought: int = 0

    def add(self, answers: BatchVerdicts) -> None:
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
        """Reasons with their counts: by verdict, then the most frequent first."""
        counts = self.reasons.items()
        return sorted(
            counts, key=lambda count: (VERDICT_ORDER.index(count[0].verdict), -count[1], count[0])
        )

    def as_json(self) -> dict[str, Any]:
        """The same fields as the response of `POST /v1/knock`."""
        return {
            "counts": {verdict.value: self.of(verdict) for verdict in Verdict},
            "reasons": {reason.value: number for reason, number in self.in_order()},
            "brought": self.brought,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """The options of `usher add`."""

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
    def by_person(self) -> bool:
        """Whether a person types the URLs: a job is no person, and neither is a long list of arguments."""
        return len(self.urls) <= MAX_LISTED_ANSWERS and "USHER_JOB_ID" not in os.environ

    @property
    def lists_answers(self) -> bool:
        listed = not self.files and "-" not in self.urls and len(self.urls) <= MAX_LISTED_ANSWERS
        return listed and not self.summary and not self.as_lines


async def add_urls(app: App, options: AddOptions) -> AnswerCounts:
    """Knock for every URL and show the answers."""
    counts, listed, start = AnswerCounts(), list[UrlVerdict](), time.monotonic()
    with ExitStack() as stack:
        files: list[BinaryIO] = [sys.stdin.buffer] if "-" in options.urls else []
        files += [stack.enter_context(path.open("rb")) for path in options.files]
        async with open_door(app) as doorkeeper:
            typed = await prepare_typed(app, doorkeeper, options)
            options = replace(options, urls=(*typed.texts, *(["-"] if "-" in options.urls else [])))
            bar = stack.enter_context(progress(files, visible=shows_progress(app, options, files)))
            async for answers in answer_batches(doorkeeper, options, files, bar):
                counts.add(answers)
                bar.update(counts)
                if options.as_lines:
                    lines = [json_line(answer_json(answer)) for answer in answers.answers]
                    echo("\n".join(lines))
                elif options.lists_answers:
                    listed += answers.answers
            if options.by_person and not options.dry_run:
                await retry_typed(doorkeeper.db, typed, everything=options.hall_pass)
    show_result(app, options, counts, listed, time.monotonic() - start)
    if options.by_person and options.lists_answers and not counts.all_refused:
        await say_if_stopped(app)
    return counts


async def say_if_stopped(app: App) -> None:
    """Tell a person that no crawler runs which could fetch the URLs; nothing if this user may not know."""
    async with open_database(app, "work", READER) as db:
        with suppress(NotAllowed):
            async with db.transaction() as conn:
                running = await page_history.worker_counts(conn, now=db.clock.now())
            if not running.crawlers:
                app.say("No crawler is running; the pages wait.")
                app.say("  → usher up")


async def prepare_typed(app: App, doorkeeper: Doorkeeper, options: AddOptions) -> TypedUrls:
    """Permit private hosts and apply schemes for URLs that a person types, as `usher crawl` does.

    A dry run changes nothing and only reads the schemes.
    """
    typed, db = [url for url in options.urls if url != "-"], doorkeeper.db
    if not options.by_person:
        return TypedUrls(typed)
    if options.dry_run:
        return TypedUrls(await with_schemes(db, typed))
    async with make_fetcher(app.settings) as fetcher:
        working = [with_working_schemes(db, fetcher, [url], say=app.say) for url in typed]
        texts = [text for [text] in await asyncio.gather(*working)]
    return await apply_typed(db, texts)


async def answer_batches(
    doorkeeper: Doorkeeper, options: AddOptions, files: list[BinaryIO], bar: "KnockProgress"
) -> AsyncIterator[BatchVerdicts]:
    how: dict[str, Any] = {"knock": options.knock, "dry_run": options.dry_run}
    named = url_input.batches(url for url in options.urls if url != "-")
    async for answers in doorkeeper.stream(named, **how):
        yield answers
    for file in files:
        if url_input.is_stream(file):
            async for batch in url_input.pipe_batches(file, bar.read):
                yield await doorkeeper.knock(batch, **how)
        else:
            async for answers in doorkeeper.stream(url_input.file_batches(file, bar.read), **how):
                yield answers


class KnockProgress:
    """Progress of a run; this base class shows nothing."""

    def read(self, number: int) -> None:
        """Count bytes of input."""

    def update(self, counts: AnswerCounts) -> None:
        """Show the counts so far."""


def shows_progress(app: App, options: AddOptions, files: list[BinaryIO]) -> bool:
    """Whether stderr is a terminal to which no other output or typed input goes."""
    busy = options.as_lines and sys.stdout.isatty()
    typed = any(file.isatty() for file in files)
    return bool(files) and sys.stderr.isatty() and not (app.quiet or busy or typed)


@contextmanager
def progress(files: list[BinaryIO], *, visible: bool) -> Iterator[KnockProgress]:
    """A progress bar on stderr."""
    if not visible:
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

        class TerminalProgress(KnockProgress):
            def read(self, number: int) -> None:
                screen.advance(task, number)

            def update(self, counts: AnswerCounts) -> None:
                screen.update(task, urls=counts.urls, admitted=counts.of(Verdict.ADMIT))

        yield TerminalProgress()


def show_result(
    app: App, options: AddOptions, counts: AnswerCounts, listed: list[UrlVerdict], seconds: float
) -> None:
    if options.as_json:
        answers = [answer_json(answer) for answer in listed]
        show_json({**counts.as_json(), **({"answers": answers} if options.lists_answers else {})})
    elif options.lists_answers:
        show_answers(listed)
    elif not options.as_lines:
        show_counts(counts)
    if not options.lists_answers:
        app.say(f"{counts.urls:,} URLs in {seconds:.1f} s")
    show_brought(app, counts)
    if options.dry_run:
        app.say("Dry run: nothing was changed.")
    if options.lists_answers and not options.as_json:
        for reason, _ in counts.in_order():
            app.say(f"{reason}: {reason.words}")
    if counts.reasons.keys() & {Reason.PAGE_NOT_DUE, Reason.HOST_NOT_DUE}:
        app.say("  → `usher explain URL` shows when a page is due; --pass fetches it now")


def show_brought(app: App, counts: AnswerCounts) -> None:
    if counts.brought:
        app.say(f"{counts.brought:,} other pages of these hosts were queued too.")


def answer_json(answer: UrlVerdict) -> dict[str, Any]:
    return {
        "url": encodable(answer.given),
        "canonical": str(answer.url) if answer.url else None,
        "verdict": answer.verdict.value,
        "reason": answer.reason.value,
        "detail": encodable(answer.detail),
    }


def show_answers(answers: list[UrlVerdict]) -> None:
    """`admit  new_page  https://…  detail`, one line each."""
    for answer in answers:
        verdict = style(f"{answer.verdict:<6}", fg=COLOURS[answer.verdict])
        url = printable(str(answer.url) if answer.url else without_password(answer.given))
        line = f"{verdict}  {answer.reason:<{REASON_WIDTH}}  {url}  {printable(answer.detail, 500)}"
        echo(line.rstrip())


def show_counts(counts: AnswerCounts) -> None:
    rows = [(reason.verdict, reason, f"{number:,}") for reason, number in counts.in_order()]
    show_table(("VERDICT", "REASON", "URLS"), rows)
