"""What a person sees while everything runs: how far a crawl is, where to search, and what went wrong."""

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
from usher.local import crawl as stage
from usher.local.crawl import (
    LocalRunOptions,
    LocalStack,
    knock_for_urls,
    running_stack,
    watch_progress,
)
from usher.observe.crawl_progress import CrawlProgress
from usher.shutdown import told_to_stop
from usher.telemetry import set_up_logging

LINE_SECONDS: Final = 5.0  # between two lines where there is no terminal
MAX_REASON_CHARACTERS: Final = 1_000
RATE_SECONDS: Final = 10.0  # seconds that a rate is taken over


@dataclass(slots=True)
class PageRate:
    """Pages a second, lately."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, done: int) -> float:
        now = time.monotonic()
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[0][0] > RATE_SECONDS:  # noqa: PLR2004 - a difference
            self.seen.popleft()
        (first, before), (last, after) = self.seen[0], self.seen[-1]
        return (after - before) / (last - first) if last > first else 0.0


class ProgressDisplay:
    """Lines that are redrawn on a terminal, or one now and then elsewhere; both on stderr."""

    def __init__(self, app: App, address: str) -> None:
        self._app, self._address = app, address
        self._rate, self._last = PageRate(), 0.0
        self._live: Live | None = None

    @contextmanager
    def drawn(self) -> Iterator[None]:
        if self._app.quiet or not sys.stderr.isatty():
            yield
            return
        with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as self._live:
            yield
        self._live = None

    def show(self, now: CrawlProgress, troubles: Sequence[tuple[str, int]]) -> None:
        words = self._words(now, troubles)
        if self._live is not None:
            self._live.update(Text("\n".join(words)))
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self._app.say(words[0])

    def _words(self, now: CrawlProgress, troubles: Sequence[tuple[str, int]]) -> list[str]:
        parts = [
            f"{now.crawled:,} fetched",
            f"{now.waiting + now.crawling:,} waiting",
            f"{now.indexed:,} to be found",
            f"{self._rate.add(now.crawled + now.failed):,.0f} pages/s",
        ]
        if now.failed:
            parts.append(f"{now.failed:,} failed")
        if on_the_way := now.chunks_unbuilt + now.chunks_unpropagated:
            parts.append(f"{on_the_way} chunks on their way to the index")
        if now.full_disk:
            parts.append(now.full_disk)
        lines = ["  ".join(parts)]
        lines += [
            f"  {number:,} times: {printable(reason, MAX_REASON_CHARACTERS)}"
            for reason, number in troubles
        ]
        return [*lines, f"  search meanwhile at {self._address}"]


@asynccontextmanager
async def start_stack(
    app: App, errand: LocalRunOptions
) -> AsyncIterator[tuple[LocalStack, asyncio.Event]]:
    """Everything running, and an event for when somebody says stop; a second time hurries."""
    if (
        app.loaded.origins["log_level"] == "default"
    ):  # a person reads here; the parts' logs have the rest
        set_up_logging(level="warning", form=app.settings.log_format)
    with told_to_stop() as (stop, hurry):
        app.say("starting …")
        async with running_stack(app.loaded, errand, stop, hurry, told=app.say) as house:
            try:
                yield house, stop
            finally:
                if stop.is_set():
                    app.say("ending in order … (once more to end now)")


async def crawl(app: App, errand: LocalRunOptions, *, serve: bool) -> None:
    """Crawl what was named, and show how far it is."""
    async with start_stack(app, errand) as (house, stop):
        await crawl_urls(app, house, errand, stop)
        if serve and not stop.is_set():
            app.say(f"search at {house.address} (Ctrl-C ends)")
            await stop.wait()


async def crawl_urls(
    app: App, house: LocalStack, errand: LocalRunOptions, stop: asyncio.Event
) -> None:
    """From the first knock to the last page that can be found; Abort if somebody says stop before."""
    if not stop.is_set():
        answers, hosts = await knock_for_urls(house, errand)
        for answer in answers:
            if answer.verdict is Verdict.REFUSE:
                why = answer.detail or answer.reason
                app.say(
                    f"{printable(answer.given)}: {printable(why, MAX_REASON_CHARACTERS)} (--again fetches it now)"
                )
        last = await show_progress(app, house, hosts, stop)
        if last.done and last.failed and not last.crawled:
            hint = f"`usher explain {errand.urls[0]}` says more."
            raise UsherError("Nothing could be fetched.", hint=hint)
        if last.done:
            return
    raise click.Abort


async def show_progress(
    app: App, house: LocalStack, hosts: Sequence[int], stop: asyncio.Event
) -> CrawlProgress:
    began, screen, last = (
        time.monotonic(),
        ProgressDisplay(app, house.address),
        CrawlProgress(0, 0, 0, 0, 0, 0, 0, 0),
    )
    with screen.drawn():
        async for now in watch_progress(house, hosts, stop):
            last = now
            screen.show(now, await stage.failure_reasons(house, hosts))
    word = "done" if last.done else "stopped"
    seconds = time.monotonic() - began
    echo(
        f"{word}: {last.crawled:,} pages fetched, {last.failed:,} failed, "
        f"{last.indexed:,} can be found, {seconds:.0f} s"
    )
    for reason, number in await stage.failure_reasons(house, hosts):
        echo(f"  {number:,} times: {printable(reason, MAX_REASON_CHARACTERS)}")
    return last


async def run_up(app: App, errand: LocalRunOptions) -> None:
    async with start_stack(app, errand) as (house, stop):
        if not stop.is_set():
            echo(f"search at {house.address}, MGMT at {house.ports.mgmt_url} (Ctrl-C ends)")
        await stop.wait()


async def run_demo(app: App, *, serve: bool, jobs: bool) -> None:
    """The site that comes with us, crawled into a directory of its own."""
    from usher.local.demo import serve_site

    own = demo_app(app)
    errand = LocalRunOptions(delay=0, jobs=jobs)
    async with (
        start_stack(own, errand) as (house, stop),
        serve_site(house.ports.bind("site")) as address,
    ):
        app.say(f"a small site is served at {address}")
        await crawl_urls(own, house, replace(errand, urls=[address]), stop)
        if serve and not stop.is_set():
            app.say(
                f"search at {house.address} (Ctrl-C ends); try: keeper's cat, fog signals, 1893"
            )
            await stop.wait()


def demo_app(app: App) -> App:
    """The demo in a directory of its own, without settings: a database that was named is for real pages."""
    overrides = {**app.overrides, "data": app.settings.data / "demo"}
    for name in [*os.environ]:
        if name == "DATABASE_URL" or name.startswith("USHER_"):
            del os.environ[name]
    return App(Path(os.devnull), overrides, app.quiet)
