"""`usher crawl`, `up` and `demo`: run the local stack, and show the progress of a crawl."""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from usher.cli.app import App
from usher.cli.output import echo
from usher.cli.wording import printable
from usher.door.rules import Verdict
from usher.errors import UsherError
from usher.local.crawl import (
    LocalRunOptions,
    LocalStack,
    failure_reasons,
    knock_for_urls,
    running_stack,
    watch_progress,
)
from usher.observe.crawl_progress import CrawlProgress
from usher.shutdown import stop_events
from usher.telemetry import set_up_logging

LINE_SECONDS: Final = 5.0  # between two lines without a terminal
MAX_REASON_CHARACTERS: Final = 1_000
RATE_SECONDS: Final = 10.0  # a rate is measured over these


@dataclass(slots=True)
class PageRate:
    """Pages per second, measured over the last seconds."""

    counts: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, done: int) -> float:
        now = time.monotonic()
        self.counts.append((now, done))
        while len(self.counts) > 2 and now - self.counts[0][0] > RATE_SECONDS:  # noqa: PLR2004 - a difference
            self.counts.popleft()
        (first, before), (last, after) = self.counts[0], self.counts[-1]
        return (after - before) / (last - first) if last > first else 0.0


class ProgressDisplay:
    """The progress on stderr: redrawn on a terminal, else a line every few seconds."""

    def __init__(self, app: App, address: str) -> None:
        self._app, self._address = app, address
        self._rate, self._last = PageRate(), 0.0
        self._live: Live | None = None

    @contextmanager
    def on_terminal(self) -> Iterator[None]:
        if self._app.quiet or not sys.stderr.isatty():
            yield
            return
        with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as self._live:
            yield
        self._live = None

    def show(self, progress: CrawlProgress, reasons: Sequence[tuple[str, int]]) -> None:
        summary = self._summary(progress)
        if self._live is not None:
            lines = [summary, *reason_lines(reasons), f"  Search page: {self._address}"]
            self._live.update(Text("\n".join(lines)))
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self._app.say(summary)

    def _summary(self, progress: CrawlProgress) -> str:
        parts = [
            f"{progress.crawled:,} fetched",
            f"{progress.waiting + progress.crawling:,} waiting",
            f"{progress.indexed:,} searchable",
            f"{self._rate.add(progress.crawled + progress.failed):,.0f} pages/s",
        ]
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        if chunks := progress.chunks_unbuilt + progress.chunks_unpropagated:
            parts.append(f"{chunks} chunks being indexed")
        if progress.full_disk:
            parts.append(progress.full_disk)
        return "  ".join(parts)


def reason_lines(reasons: Sequence[tuple[str, int]]) -> list[str]:
    return [
        f"  {number:,} times: {printable(reason, MAX_REASON_CHARACTERS)}"
        for reason, number in reasons
    ]


@asynccontextmanager
async def start_stack(
    app: App, options: LocalRunOptions
) -> AsyncIterator[tuple[LocalStack, asyncio.Event]]:
    """Run the stack; yields it with the event that Ctrl-C sets. A second Ctrl-C stops it immediately."""
    if app.loaded.origins["log_level"] == "default":
        # This output is for a person; the processes write log files.
        set_up_logging(level="warning", form=app.settings.log_format)
    with stop_events() as (stop, hurry):
        app.say("Starting.")
        async with running_stack(app.loaded, options, stop, hurry, say=app.say) as stack:
            try:
                yield stack, stop
            finally:
                if stop.is_set():
                    app.say("Stopping. Press Ctrl-C again to stop immediately.")


async def crawl(app: App, options: LocalRunOptions, *, serve: bool) -> None:
    async with start_stack(app, options) as (stack, stop):
        await crawl_urls(app, stack, options, stop)
        if serve and not stop.is_set():
            app.say(f"Search page: {stack.address} (press Ctrl-C to stop)")
            await stop.wait()


async def crawl_urls(
    app: App, stack: LocalStack, options: LocalRunOptions, stop: asyncio.Event
) -> None:
    """Crawl from the first knock until every page is searchable; Abort if `stop` is set before."""
    if stop.is_set():
        raise click.Abort
    answers, hosts = await knock_for_urls(stack, options)
    for answer in answers:
        if answer.verdict is Verdict.REFUSE:
            reason = printable(answer.detail or answer.reason, MAX_REASON_CHARACTERS)
            app.say(f"{printable(answer.given)}: {reason} (--again fetches it now)")
    progress = await show_progress(app, stack, hosts, stop)
    if not progress.done:
        raise click.Abort
    if progress.failed and not progress.crawled:
        hint = f"usher explain {options.urls[0]}"
        raise UsherError("No page could be fetched.", hint=hint)


async def show_progress(
    app: App, stack: LocalStack, hosts: Sequence[int], stop: asyncio.Event
) -> CrawlProgress:
    start, display = time.monotonic(), ProgressDisplay(app, stack.address)
    last = CrawlProgress(0, 0, 0, 0, 0, 0, 0, 0)
    with display.on_terminal():
        async for last in watch_progress(stack, hosts, stop):
            display.show(last, await failure_reasons(stack, hosts))
    echo(
        f"{'done' if last.done else 'stopped'}: {last.crawled:,} pages fetched, {last.failed:,} failed, "
        f"{last.indexed:,} searchable, {time.monotonic() - start:.0f} s"
    )
    for line in reason_lines(await failure_reasons(stack, hosts)):
        echo(line)
    return last


async def run_up(app: App, options: LocalRunOptions) -> None:
    async with start_stack(app, options) as (stack, stop):
        if not stop.is_set():
            mgmt = stack.ports.mgmt_url
            echo(f"Search page: {stack.address}, MGMT: {mgmt} (press Ctrl-C to stop)")
        await stop.wait()


async def run_demo(app: App, *, serve: bool, jobs: bool) -> None:
    """Crawl the demo site into its own data directory."""
    from usher.local.demo import serve_site

    own, options = demo_app(app), LocalRunOptions(delay=0, jobs=jobs)
    async with (
        start_stack(own, options) as (stack, stop),
        serve_site(stack.ports.bind("site")) as address,
    ):
        app.say(f"Demo site: {address}")
        await crawl_urls(own, stack, replace(options, urls=[address]), stop)
        if serve and not stop.is_set():
            app.say(f"Search page: {stack.address} (press Ctrl-C to stop)")
            app.say("Try: keeper's cat, fog signals, 1893")
            await stop.wait()


def demo_app(app: App) -> App:
    """The demo with its own directory and default settings: a database that was named is for real pages."""
    overrides = {**app.overrides, "data": app.settings.data / "demo"}
    for name in [*os.environ]:
        if name == "DATABASE_URL" or name.startswith("USHER_"):
            del os.environ[name]
    return App(Path(os.devnull), overrides, app.quiet)
