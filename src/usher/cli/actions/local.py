"""`usher crawl`, `up` and `demo`: run the local stack, and show the progress of a crawl."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Final

import click

from usher.cli.actions.local_progress import MAX_REASON_CHARACTERS, ProgressDisplay, result_lines
from usher.cli.app import App, announce
from usher.cli.output import echo
from usher.cli.queue_access import queue_transaction
from usher.crawl.service import make_fetcher
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door.batch import UrlVerdict
from usher.door.rules import Reason, Verdict
from usher.errors import UsherError
from usher.local.crawl import (
    Admission,
    CrawlView,
    LocalRunOptions,
    LocalStack,
    knock_for_urls,
    open_stack,
    running_processes,
    watch_progress,
)
from usher.local.default_tasks import RECRAWL_NAME, add_default_tasks, jobs_find_the_database
from usher.local.host_selection import EVERY_HOST, HostSelection
from usher.local.operator_urls import has_scheme, with_working_schemes
from usher.local.ports import DEMO_DIRECTORY, StoredPorts
from usher.local.supervisor import Supervisor
from usher.object_store.store import check_chunk_store
from usher.observe.crawl_progress import last_result, read_progress
from usher.shutdown import stop_events
from usher.telemetry import Log, log_failure, set_up_logging
from usher.urls import Scheme, Url, parse
from usher.wording import counted, printable

log = Log("stage")
# Reasons for which the door does not admit a page that an earlier crawl fetched or will fetch.
CONTINUED: Final = frozenset({Reason.PAGE_NOT_DUE, Reason.HOST_NOT_DUE, Reason.ALREADY_WAITING})
REFUSAL_TEXTS: Final = {
    Reason.PAGE_NOT_DUE: "fetched before, and not due yet; --again fetches it now",
    Reason.HOST_NOT_DUE: "the host is not due yet; --again fetches it now",
}
FAILED_TEXT: Final = (
    "its last fetch failed: {reason}. The next attempt is not due yet; --again fetches it now"
)
# Parts of the reasons of the crawler.
NO_ADDRESS: Final = "the name "
REFUSED: Final = "the connection was refused"
NO_HTTPS: Final = re.compile(
    "TLS|certificate|no connection within|connection was (refused|lost)|closed the connection"
)


@dataclass(frozen=True, slots=True)
class LocalRun:
    """The open stack; Ctrl-C sets `stop`, a second one sets `hurry`, which stops it immediately."""

    app: App
    stack: LocalStack
    stop: asyncio.Event
    hurry: asyncio.Event


@asynccontextmanager
async def start_run(app: App, options: LocalRunOptions) -> AsyncIterator[LocalRun]:
    """Open the stack; `start_processes` starts its processes."""
    if app.loaded.origins["log_level"] == "default" and not app.settings.log_file:
        # This output is for a person; the processes write log files.
        set_up_logging(level="warning", form=app.settings.log_format)
    if problem := await check_chunk_store(app.settings):
        app.say(f"The object store does not answer; work waits for it. {problem}")
    with stop_events() as (stop, hurry):
        announcement = log_failure(asyncio.create_task(announce_stop(app, stop)), log)
        try:
            async with open_stack(app.loaded, options, say=app.say) as stack:
                yield LocalRun(app, stack, stop, hurry)
        finally:
            announcement.cancel()


@asynccontextmanager
async def start_processes(
    run: LocalRun, selection: HostSelection = EVERY_HOST
) -> AsyncIterator[Supervisor]:
    processes = running_processes(
        run.stack, run.stop, run.hurry, say=run.app.say, selection=selection
    )
    async with processes as supervisor:
        try:
            yield supervisor
        finally:
            if not run.stop.is_set():
                run.app.say("Stopping.")


async def announce_stop(app: App, stop: asyncio.Event) -> None:
    await stop.wait()
    app.say("Stopping. Press Ctrl-C again to stop immediately.")


async def crawl(app: App, options: LocalRunOptions, *, serve: bool) -> None:
    options.parse_urls()  # fails if one is invalid, before anything is started
    async with start_run(app, options) as run:
        stack = run.stack
        async with crawled_urls(run, options):
            if serve and not run.stop.is_set():
                app.say(f"Search page: {stack.address} (press Ctrl-C to stop)")
                await run.stop.wait()
    if not serve:
        app.say(f"To search, {serve_advice(stack)}")
        app.say("  (`usher crawl --then serve` keeps the search page open.)")


def serve_advice(stack: LocalStack) -> str:
    """How to serve the search page after a crawl: a port that was only for this run may be another next time."""
    if front := stack.options.front:
        return f"run `usher up --front {quote(front)}` and open {stack.address}"
    if "front" in StoredPorts.read(stack.loaded.settings.data).replaced:
        return "run `usher up` and open the address that it prints."
    return f"run `usher up` and open {stack.address}"


@asynccontextmanager
async def crawled_urls(run: LocalRun, options: LocalRunOptions) -> AsyncIterator[None]:
    """Crawl until every page is searchable, then yield while the stack runs; Abort if it is stopped before."""
    typed = options.urls[0]
    options, selection = await admit_urls(run, options)
    if run.stop.is_set():
        raise aborted(run)
    async with start_processes(run, selection) as supervisor:
        if run.stop.is_set():
            raise aborted(run)
        view = await show_progress(run, supervisor, selection, options)
        if not view.progress.done:
            raise aborted(run)
        if message := failure_text(view):
            raise UsherError(message, hint=failure_hint(typed, options.urls[0], view))
        yield


def aborted(run: LocalRun) -> click.Abort:
    """Tell the user how to continue."""
    run.app.say("To continue, run the same command again.")
    return click.Abort()


async def admit_urls(
    run: LocalRun, options: LocalRunOptions
) -> tuple[LocalRunOptions, HostSelection]:
    """Knock for the URLs and show what the door refused; return the options with complete URLs, and the hosts."""
    app, stack = run.app, run.stack
    async with make_fetcher(app.settings) as fetcher:
        urls = await with_working_schemes(stack.door, fetcher, options.urls, say=app.say)
    options = replace(options, urls=urls)
    admission = await knock_for_urls(stack, options)
    for host, pages in admission.refetched.items():
        verb = "is" if pages == 1 else "are"
        app.say(
            f"{printable(host)}: {counted(pages, 'page')} {verb} fetched again,"
            " to follow links beyond the old limit."
        )
    await show_refusals(app, stack, admission)
    return options, admission.hosts


def failure_hint(typed: str, complete: str, view: CrawlView) -> str:
    """What to do after a crawl that fetched nothing: type http if https was only assumed and may be the cause."""
    reasons = [problem.reason for problem in view.problems]
    if reasons and all(NO_ADDRESS in reason for reason in reasons):
        return "Check the spelling of the name, and the network of this machine."
    url = parse(complete)
    is_assumed = isinstance(url, Url) and not has_scheme(typed, url) and url.scheme is Scheme.HTTPS
    if isinstance(url, Url) and is_assumed and all(map(NO_HTTPS.search, reasons)):
        http = replace(url, scheme=Scheme.HTTP)
        return f"https was assumed. If the site has no https, type: usher crawl {http}"
    if reasons and all(REFUSED in reason for reason in reasons):
        return "Check the port, and whether the site runs. Then run the same command again."
    return f"usher explain {quote(complete)}"


async def show_refusals(app: App, stack: LocalStack, admission: Admission) -> None:
    """Tell the user which URLs the door refused, or that an earlier crawl continues."""
    answers = admission.answers
    refused = [answer for answer in answers if answer.verdict is Verdict.REFUSE]
    async with stack.reader.transaction() as conn:
        progress = await read_progress(conn, admission.hosts.named)
        waiting = progress.waiting + progress.crawling
        if waiting and any(answer.reason in CONTINUED for answer in answers):
            app.say(f"Continuing the crawl: {counted(waiting, 'page')} waiting.")
            refused = [answer for answer in refused if answer.reason not in CONTINUED]
        for answer in refused:
            reason = await refusal_text(conn, answer)
            app.say(f"{printable(answer.given)}: {printable(reason, MAX_REASON_CHARACTERS)}")


async def refusal_text(conn: Connection, answer: UrlVerdict) -> str:
    """Why the door refused a URL; of a page that is not due, what its last fetch brought."""
    text = REFUSAL_TEXTS.get(answer.reason) or answer.detail or answer.reason
    if answer.reason is not Reason.PAGE_NOT_DUE or answer.url is None:
        return text
    last = await last_result(conn, answer.url)
    if last is not None and last.result == "blocked":
        forbidden = last.reason.replace("robots.txt:", "robots.txt forbids it:", 1)
        return f"{forbidden}; --again reads robots.txt again"
    if last is not None and last.result == "error":
        return FAILED_TEXT.format(reason=last.reason)
    return text


def failure_text(view: CrawlView) -> str:
    """Why the crawl failed: all its pages failed or were blocked, or none is searchable. Empty if it succeeded."""
    progress, run = view.progress, view.run
    attempted = bool(run.failed or run.blocked) or not progress.crawled
    if attempted and not run.fetched and (progress.failed or progress.blocked):
        return "No page could be fetched."
    if not progress.indexed or (run.gone and not run.indexed):
        return (
            "Nothing is searchable."
            if not progress.indexed
            else "No page of this run is searchable."
        )
    return ""


async def show_progress(
    run: LocalRun, supervisor: Supervisor, selection: HostSelection, options: LocalRunOptions
) -> CrawlView:
    """Show the progress until the crawl is done or stopped, then the result and what to do next."""
    app, stack = run.app, run.stack
    display = ProgressDisplay(app, stack.address, has_delay_option=not options.is_demo)
    with display.on_terminal():
        async for view in watch_progress(stack, supervisor, selection, run.stop):
            display.show(view)
    for line in result_lines(view, display.elapsed, options.parse_urls(), app.settings):
        echo(app.hint(line))
    return view


async def run_up(app: App, options: LocalRunOptions) -> None:
    async with start_run(app, options) as run, start_processes(run):
        if not run.stop.is_set():
            await add_tasks(app)
            mgmt = run.stack.ports.mgmt_url
            announce(f"Search page: {run.stack.address}, MGMT: {mgmt} (press Ctrl-C to stop)")
        await run.stop.wait()


async def add_tasks(app: App) -> None:
    """Add the default tasks at the first `usher up`, and tell the user about them."""
    if not jobs_find_the_database(app.loaded):
        app.say(
            "Usher does not recrawl by itself: jobs do not get the database from the environment."
        )
        app.say("  → set database_url in usher.toml")
        return
    async with queue_transaction(app) as conn:
        is_new = await add_default_tasks(conn, now=await server_time(conn))
    if is_new:
        app.say(f"Due hosts are recrawled every night: usher tasks show {RECRAWL_NAME}")


async def run_demo(app: App, *, serve: bool, jobs: bool) -> None:
    """Crawl the demo site into its own data directory."""
    from usher.local.demo import serve_site

    own, options = demo_app(app), LocalRunOptions(delay=0, jobs=jobs, is_demo=True)
    async with (
        start_run(own, options) as run,
        serve_site(run.stack.ports.bind("site")) as address,
    ):
        app.say(f"Demo site: {address}")
        async with crawled_urls(run, replace(options, urls=[address])):
            if serve and not run.stop.is_set():
                app.say(f"Search page: {run.stack.address} (press Ctrl-C to stop)")
                app.say("Try: keeper's cat, fog signals, 1893")
                await run.stop.wait()


def demo_app(app: App) -> App:
    """The demo with its own directory and default settings: a database that was named is for real pages."""
    overrides = {**app.overrides, "data": app.settings.data / DEMO_DIRECTORY}
    for name in [*os.environ]:
        if name == "DATABASE_URL" or (name.startswith("USHER_") and name != "USHER_COMMAND"):
            del os.environ[name]
    return App(Path(os.devnull), overrides, app.quiet)
