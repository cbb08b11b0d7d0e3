"""The progress and the result of a crawl, as a person reads them."""

import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from usher.cli.app import App
from usher.door.rules import Reason
from usher.local.crawl import MAX_PROBLEMS, CrawlView
from usher.observe.causes import system_causes
from usher.observe.crawl_progress import HostPaceView, PageProblem, RunCounts
from usher.settings import Settings
from usher.urls import Url
from usher.wording import counted, duration_text, printable

LINE_SECONDS: Final = 10.0  # between two lines without a terminal
MAX_REASON_CHARACTERS: Final = 1_000
RATE_SECONDS: Final = 10.0  # a rate is measured over these
MIN_RATE_SECONDS: Final = 3.0  # an earlier estimate of the time left would be a guess
MAX_HOSTS_SHOWN: Final = 3
MAX_LIVE_PROBLEMS: Final = 3  # the result has more
PACE_SOURCES: Final = {
    "host": "set for this host",
    "robots": "the site's limit, from its robots.txt",
    "group": "the limit of its group of hosts",
    "settings": "the default",
}
SKIPPED_LINKS: Final = {
    Reason.HOST_FULL: "beyond the maximum number of pages (for more: `usher crawl --max-pages N {urls}`)",
    Reason.TOO_DEEP: "beyond the maximum depth (for more: `usher crawl --max-depth N {urls}`)",
    Reason.FILTERED: "excluded by filters (see `usher hosts show {host}`)",
    Reason.HOST_UNKNOWN: "on other hosts (name them to crawl them)",
    Reason.PRIVATE_HOST: "on private hosts (name them to crawl them)",
    Reason.HOST_BLOCKED: "on blocked hosts (see `usher hosts list --policy blocked`)",
}


@dataclass(slots=True)
class PageRate:
    """Pages per second, measured over the last seconds."""

    counts: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, done: int) -> None:
        now = time.monotonic()
        self.counts.append((now, done))
        while len(self.counts) > 2 and now - self.counts[0][0] > RATE_SECONDS:  # noqa: PLR2004 - a difference
            self.counts.popleft()

    @property
    def per_second(self) -> float:
        (first, before), (last, after) = self.counts[0], self.counts[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def seconds_for(self, pages: int) -> float | None:
        """The time that so many pages take at this rate; None if it is not known yet."""
        is_known = self.counts[-1][0] - self.counts[0][0] >= MIN_RATE_SECONDS
        return pages / self.per_second if is_known and self.per_second > 0 else None


class ProgressDisplay:
    """The progress on stderr: redrawn on a terminal, else a line every few seconds."""

    def __init__(self, app: App, address: str, *, has_delay_option: bool = True) -> None:
        self._app, self._address, self._has_delay_option = app, address, has_delay_option
        self._rate, self._start = PageRate(), time.monotonic()
        self._last = self._start  # the first line after a while: a small crawl needs none
        self._live: Live | None = None
        self._causes: list[str] = []  # of the last line, without numbers

    @property
    def elapsed(self) -> timedelta:
        return timedelta(seconds=time.monotonic() - self._start)

    @contextmanager
    def on_terminal(self) -> Iterator[None]:
        if self._app.quiet or not sys.stderr.isatty():
            yield
            return
        with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as self._live:
            yield
        self._live = None

    def show(self, view: CrawlView) -> None:
        live = view.live
        # Pages of open chunks are in no table yet.
        fetched = max(view.run.fetched, live.fetched if live else 0)
        self._rate.add(live.attempted if live else fetched)
        summary = self._summary(view, fetched)
        if self._live is not None:
            problems = view.problems[:MAX_LIVE_PROBLEMS]
            lines = [summary, *self._pace(view), *problem_lines(problems)]
            lines += cause_lines(self._app.settings, view)
            self._live.update(Text("\n".join([*lines, f"  Search page: {self._address}"])))
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            lines = [summary, *self._pace(view), *self._new_causes(view)]
            self._app.say("  ".join(line.strip() for line in lines))

    def _summary(self, view: CrawlView, fetched: int) -> str:
        progress, run = view.progress, view.run
        unreported = fetched - run.fetched
        waiting = max(0, progress.waiting + progress.crawling - unreported)
        has_earlier = progress.searchable > run.searchable
        earlier = f" ({progress.searchable:,} with earlier runs)" if has_earlier else ""
        parts = [
            f"{fetched:,} fetched",
            f"{waiting:,} waiting",
            f"{run.searchable:,} searchable{earlier}",
            f"{run.failed:,} failed" if run.failed else "",
            f"{run.blocked:,} blocked by robots.txt" if run.blocked else "",
            f"{self._rate.per_second:,.1f} pages/s",
            duration_text(self.elapsed),
            self._time_left(waiting) if fetched else "",
        ]
        if chunks := progress.chunks_unbuilt + progress.chunks_unpropagated:
            parts.append(f"{counted(chunks, 'chunk')} being indexed")
        return "  ".join(filter(None, parts))

    def _pace(self, view: CrawlView) -> list[str]:
        return pace_lines(view.paces, has_delay_option=self._has_delay_option)

    def _new_causes(self, view: CrawlView) -> list[str]:
        """The causes, unless the crawl goes on and the last ones differ only in numbers such as the free space."""
        causes = cause_lines(self._app.settings, view)
        last, self._causes = self._causes, [re.sub(r"[\d,.]+", "", cause) for cause in causes]
        return [] if self._causes == last and self._rate.per_second else causes

    def _time_left(self, waiting: int) -> str:
        seconds = self._rate.seconds_for(waiting) if waiting else None
        is_long = seconds is not None and seconds >= 1
        return f"about {duration_text(timedelta(seconds=seconds or 0))} left" if is_long else ""


def cause_lines(settings: Settings, view: CrawlView) -> list[str]:
    """Why the crawl cannot go on, in the words of `usher status` and `usher doctor`."""
    listed = system_causes(settings, error=view.outage, clock_skew_seconds=view.clock_skew_seconds)
    causes = [f"  {cause.words} → {cause.next_step}" for cause in listed]
    waiting = view.progress.waiting_component
    return [f"  {printable(waiting, MAX_REASON_CHARACTERS)}", *causes] if waiting else causes


def pace_lines(paces: Sequence[HostPaceView], *, has_delay_option: bool) -> list[str]:
    """The hosts that are being crawled, and the pace of the slowest, which the command may have an option for."""
    if not paces:
        return []
    names = ", ".join(printable(pace.host) for pace in paces[:MAX_HOSTS_SHOWN])
    more = len(paces) - MAX_HOSTS_SHOWN
    hosts = f"{names} and {more} more" if more > 0 else names
    slowest = paces[0]
    is_changeable = has_delay_option and slowest.set_by != "group"
    change = "; change it with --delay" if is_changeable else ""
    return [f"  {hosts}: {pace_text(slowest.delay)}, {PACE_SOURCES[slowest.set_by]}{change}"]


def pace_text(delay: timedelta) -> str:
    seconds = delay.total_seconds()
    if not seconds:
        return "no pause between requests"
    if seconds > 1:
        return f"1 request every {seconds:g} s"
    rate = round(1 / seconds, 1)
    return "1 request/s" if rate == 1 else f"{rate:g} requests/s"


def problem_lines(problems: Sequence[PageProblem]) -> list[str]:
    return [
        f"  {counted(problem.pages, 'page')}: {printable(problem.reason, MAX_REASON_CHARACTERS)}"
        f" (for example {printable(problem.example)})"
        for problem in problems
    ]


def counts_text(counts: RunCounts) -> str:
    blocked = f"{counts.blocked:,} blocked by robots.txt, " if counts.blocked else ""
    fetched = f"{counted(counts.fetched, 'page')} fetched, {counts.failed:,} failed"
    unloaded = f", {counts.unloaded:,} not in the index yet" if counts.unloaded else ""
    return f"{fetched}, {blocked}{counts.searchable:,} searchable{unloaded}"


def result_lines(
    view: CrawlView, elapsed: timedelta, urls: Sequence[Url], settings: Settings
) -> Iterator[str]:
    """What this run fetched, what failed or was skipped and why, each with the command that lists it; then all runs.

    If the crawl is not done, also what hinders it.
    """
    progress, run = view.progress, view.run
    every = RunCounts(
        progress.crawled,
        progress.blocked,
        progress.failed,
        progress.indexed,
        unloaded=progress.unloaded,
    )
    state = "done" if progress.done else "stopped"
    yield f"{state}: {counts_text(run)}, {elapsed.total_seconds():.0f} s"
    if replace(run, gone=0) != every:
        yield f"  With earlier runs: {counts_text(every)}"
    yield from problem_lines([*view.problems, *view.unsearchable])
    if MAX_PROBLEMS in (len(view.problems), len(view.unsearchable)):
        yield "  There may be more reasons: usher pages list"
    if run.failed:
        yield "  List failed pages: usher pages errors"
    if run.blocked:
        yield "  List blocked pages: usher pages list --result blocked"
    yield from skipped_lines(view, urls)
    causes = [] if progress.done else cause_lines(settings, view)
    unstored = (view.live.fetched if view.live else 0) - run.fetched
    if causes and unstored > 0:
        verb = "is" if unstored == 1 else "are"
        yield f"  {counted(unstored, 'page')} could not be stored and {verb} fetched again by the next run."
    yield from causes


def skipped_lines(view: CrawlView, urls: Sequence[Url]) -> Iterator[str]:
    """What this run skipped, and how to crawl it."""
    hosts = list(dict.fromkeys(url.host for url in urls))
    host = printable(hosts[0]) if len(hosts) == 1 else "HOST"
    given = printable(str(urls[0])) if len(urls) == 1 else "URL…"
    links = view.live.links.totals if view.live else {}
    for reason, text in SKIPPED_LINKS.items():
        if number := links.get(reason.value, 0):
            yield f"  Skipped {counted(number, 'link')} {text.format(host=host, urls=given)}"
    if view.skipped:
        verb = "waits" if view.skipped == 1 else "wait"
        yield f"  {counted(view.skipped, 'page')} of other hosts {verb}: `usher up` crawls them"
