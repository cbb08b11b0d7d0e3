"""Run the local stack, and crawl URLs on it until every page is fetched and searchable.

A crawl that was stopped or killed continues with the next run.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Final

from usher.background import wait_up_to
from usher.crawl.warc.archive import checked_archive
from usher.db.areas import AreaDatabases, open_areas
from usher.db.pool import Database
from usher.db.statements import load_statements
from usher.door import admin
from usher.door.admin import HostChange, HostDetails
from usher.door.batch import UrlVerdict
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Verdict
from usher.errors import BadInput, Unreachable
from usher.local import restore_marker
from usher.local.crash_recorder import CrashRecorder
from usher.local.host_selection import (
    HostSelection,
    count_skipped,
    select_hosts,
    write_skipped,
)
from usher.local.live_counts import LiveCounts
from usher.local.operator_urls import prepare_hosts
from usher.local.port_claim import check_front, claim_ports
from usher.local.ports import ADD_HINT, Ports, already_running, exclusive_run, is_run_locked
from usher.local.recrawl import knock_again, knock_beyond_limits
from usher.local.roles import role_names
from usher.local.row_check import check_row
from usher.local.supervisor import LOG_DIRECTORY, ShowMessage, Supervisor, usher_command
from usher.log_file import LogLimits
from usher.object_store.address import StoreAddress
from usher.observe.crawl_progress import (
    CrawlProgress,
    HostPaceView,
    PageProblem,
    RunCounts,
    paces,
    page_problems,
    read_progress,
    read_run,
    unsearchable_pages,
)
from usher.private_files import make_data_directory
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import LoadedSettings
from usher.urls import Scheme, Url, UrlRefusal, parse
from usher.wording import without_password

store = load_statements(__file__)
# Large chunks need fewer files and calls. They are handed out soon because a user waits.
CHUNK_SETTINGS: Final = MappingProxyType({"chunk_pages": 50, "chunk_wait": 0.2})
MAX_PROBLEMS: Final = 10
MAX_WATCHED_HOSTS: Final = 1_000
MAX_URL_CHARACTERS: Final = 80  # in an error
POLL_SECONDS: Final = 0.5
POLL_SHARE: Final = 0.1  # of the time that reading the progress of a large crawl may take


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunOptions:
    """The options of `usher crawl`, `up` and `demo`; None keeps the setting of the host."""

    urls: Sequence[str] = ()
    delay: float | None = None  # seconds
    max_pages: int | None = None
    max_depth: int | None = None
    again: bool = False
    keep_warc: Path | StoreAddress | None = None  # the archive
    front: str = ""  # HOST:PORT of the search page
    jobs: bool = False  # whether scheduler and manager run
    index_server: bool = True  # whether the stack has its own
    is_demo: bool = False  # whose user has none of these options

    def parse_urls(self) -> list[Url]:
        urls = []
        for text in self.urls:
            url = parse(text)
            if isinstance(url, UrlRefusal):
                shown = without_password(text[:MAX_URL_CHARACTERS])
                raise BadInput(f"{shown!r} cannot be crawled: {url.detail}")
            if url.scheme not in (Scheme.HTTP, Scheme.HTTPS):
                detail = f"Usher fetches only http and https, not {url.scheme.word}."
                raise BadInput(f"{str(url)[:MAX_URL_CHARACTERS]!r} cannot be crawled: {detail}")
            urls.append(url)
        return urls


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStack:
    """The stack of a data directory: its ports, the address of its search page, and its work database.

    `running_processes` starts its processes.
    """

    loaded: LoadedSettings
    options: LocalRunOptions
    ports: Ports
    door: Database
    reader: Database
    chunk_before: int  # the last chunk before this run
    lock: int  # the file that its processes keep open
    crashes: CrashRecorder

    @property
    def address(self) -> str:
        return f"http://{self.options.front or self.ports.bind('front')}/"


@dataclass(frozen=True, slots=True)
class Admission:
    """The door's answers to the URLs of a run, and which hosts it crawls.

    `refetched` is the number of known pages of a host that it fetches to follow links beyond an old limit.
    """

    answers: Sequence[UrlVerdict]
    hosts: HostSelection
    refetched: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CrawlView:
    """What a person sees of a crawl at one moment: the pages of all runs, and of this one.

    `live` are the pages of this run, also of open chunks.
    """

    progress: CrawlProgress
    run: RunCounts
    unsearchable: Sequence[PageProblem] = ()
    problems: Sequence[PageProblem] = ()
    paces: Sequence[HostPaceView] = ()
    live: LiveCounts | None = None
    skipped: int = 0  # pages that wait on hosts that this run does not crawl
    clock_skew_seconds: float = 0.0
    outage: Unreachable | None = None  # why the database could not be read; the rest is older


@asynccontextmanager
async def open_stack(
    loaded: LoadedSettings, options: LocalRunOptions, *, say: ShowMessage
) -> AsyncIterator[LocalStack]:
    """Lock the data directory, open the database and claim the ports; no process of the stack runs yet."""
    settings, hint = loaded.settings, running_hint(options)
    if is_run_locked(settings.data):
        raise already_running(settings.data, hint)
    if options.keep_warc:
        await checked_archive(options.keep_warc, settings)
    say(f"Starting Usher. Data directory: {settings.data}")
    with open_areas(settings) as areas:
        make_data_directory(settings.data)
        async with exclusive_run(settings.data, say=say, hint=hint) as lock:
            if options.front:
                check_front(options.front)
            restore_marker.check_marker(settings.data)
            await migrate.ensure(areas, migrate.ALL_SCHEMAS, patience=settings.connect_timeout)
            async with (
                await open_database(areas, "usher_mgmt") as mgmt,
                await open_database(areas, "usher_door") as door,
                await open_database(areas, "usher_reader") as reader,
                CrashRecorder(mgmt) as crashes,
            ):
                unused = {"site", *(["front"] if options.front else [])}
                ports = await claim_ports(mgmt, settings.data, say=say, unused=unused)
                crashes.ports = ports
                yield LocalStack(
                    loaded=loaded,
                    options=options,
                    ports=ports,
                    door=door,
                    reader=reader,
                    chunk_before=await chunk_before_run(mgmt),
                    lock=lock,
                    crashes=crashes,
                )


def running_hint(options: LocalRunOptions) -> str:
    """What to type instead of a crawl while Usher runs in the data directory."""
    if not options.urls:
        return ADD_HINT
    whole = "--full --pass " if options.again else ""
    hints = [f"Add it to that run: `usher add {whole}{' '.join(map(quote, options.urls))}`"]
    limits = [
        f"{name} {value:g}"
        for name, value in (
            ("--delay", options.delay),
            ("--max-pages", options.max_pages),
            ("--max-depth", options.max_depth),
        )
        if value is not None
    ]
    if limits:
        names = " ".join(quote(url.host) for url in options.parse_urls())
        hints.append(f"set the limits: `usher hosts set {names} {' '.join(limits)}`")
    return f"{', then '.join(hints)}. Or use another directory with --data."


@asynccontextmanager
async def running_processes(
    stack: LocalStack,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    *,
    say: ShowMessage,
    selection: HostSelection,
) -> AsyncIterator[Supervisor]:
    """Start every role and wait until all are ready, or until `stop` is set; stop them at the end."""
    data, options = stack.loaded.settings.data, stack.options
    if options.index_server:
        await check_row(stack.reader, stack.ports, stack.loaded.settings.engine)
    say(f"Starting {', '.join(role_names(jobs=options.jobs, index_server=options.index_server))}.")
    os.environ.update(process_environment(stack.loaded))
    if selection.skipped:
        write_skipped(data, selection)
    supervisor = Supervisor(
        process_command(stack.loaded, options, skips_hosts=bool(selection.skipped)),
        data / LOG_DIRECTORY,
        log_limits=LogLimits(stack.loaded.settings.log_bytes, stack.loaded.settings.log_files),
        say=say,
        stop=stop,
        hurry=hurry,
        open_files=[stack.lock],
        on_crash=stack.crashes.add,
    )
    async with supervisor:
        yield supervisor


async def chunk_before_run(db: Database) -> int:
    """The last chunk before this run."""
    async with db.transaction() as conn:
        return int(await store.chunk_before_run.value(conn))


def process_command(
    loaded: LoadedSettings, options: LocalRunOptions, *, skips_hosts: bool
) -> Callable[[str], list[str]]:
    """The command line of each role process, by its name."""
    words = ["--config", str(loaded.file)] if loaded.file else []
    words += ["--data", str(loaded.settings.data), "role-process"]
    words += ["--keep-warc", absolute(options.keep_warc)] if options.keep_warc else []
    words += ["--front", options.front] if options.front else []
    words += ["--jobs"] if options.jobs else []
    words += ["--skip-hosts"] if skips_hosts else []
    words += [] if options.index_server else ["--no-index-server"]
    return lambda name: usher_command(*words, name)


def absolute(place: Path | StoreAddress) -> str:
    return str(place.absolute() if isinstance(place, Path) else place)


def process_environment(loaded: LoadedSettings) -> Mapping[str, str]:
    """The chunk settings as environment variables, unless the operator set them."""
    return {
        f"USHER_{name.upper()}": str(value)
        for name, value in CHUNK_SETTINGS.items()
        if loaded.origins[name] == "default"
    }


async def open_database(areas: AreaDatabases, role: str) -> Database:
    dsn = areas.dsn("work")
    return Database(dsn, size=2, role=await usable_role(dsn, role))


async def knock_for_urls(stack: LocalStack, options: LocalRunOptions) -> Admission:
    """Knock for the URLs and change their hosts.

    Before the processes start: the first claim of the crawler already has the new delay.
    """
    texts = await prepare_hosts(stack.door, options.urls, retry=True)
    urls = replace(options, urls=texts).parse_urls()
    names = list(dict.fromkeys(url.host for url in urls))
    refetched = {}
    if options.again:
        answers = await knock_again(stack.door, urls, options.max_pages)
    else:
        refetched = await knock_beyond_limits(
            stack.door,
            await host_details(stack, names),
            max_pages=options.max_pages,
            max_depth=options.max_depth,
        )
        answers = (await Doorkeeper(stack.door).knock([str(url) for url in urls])).answers
    for answer in answers:
        if answer.verdict is Verdict.REFUSE and answer.url is None:
            raise BadInput(f"{answer.given} was refused: {answer.detail or answer.reason}")
    if change := host_change(options):
        async with stack.door.transaction() as conn:
            await admin.change_host(conn, names=names, **change)
    hosts = await host_details(stack, names)
    async with stack.reader.transaction() as conn:
        return Admission(answers, await select_hosts(conn, hosts), refetched)


async def host_details(stack: LocalStack, names: Sequence[str]) -> list[HostDetails]:
    """The registered hosts among these."""
    async with stack.door.transaction() as conn:
        hosts = [await admin.show_host(conn, name=name) for name in names]
    return [host for host in hosts if host is not None]


def host_change(options: LocalRunOptions) -> HostChange:
    change: HostChange = {}
    if options.delay is not None:
        change["crawl_delay"] = timedelta(seconds=options.delay)
    if options.max_pages is not None:
        change["max_pages"] = options.max_pages
    if options.max_depth is not None:
        change["max_depth"] = options.max_depth
    return change


async def watch_progress(
    stack: LocalStack, supervisor: Supervisor, selection: HostSelection, stop: asyncio.Event
) -> AsyncIterator[CrawlView]:
    """The progress, twice a second, until the crawl is done; or, if `stop` is set, until the crawler has stopped.

    The database of a large crawl or of a busy machine is read less often; the pages that arrive are counted meanwhile.
    While it cannot be used, the crawl waits for it.
    """
    loop = asyncio.get_running_loop()
    view: CrawlView | None = None
    async with LiveCounts(stack.ports) as live:
        while True:
            await live.read_links()
            start = loop.time()
            view = await read_view_again(stack, selection, live, view)
            seconds = 0.0 if view.outage else loop.time() - start
            yield view
            if view.progress.done and view.outage is None:
                return
            if stop.is_set():
                # It reports the pages of its open chunks when it stops.
                await supervisor.stop_process("crawler")
                yield await read_view(stack, selection, live)
                return
            read_next = loop.time() + seconds / POLL_SHARE
            while not await wait_up_to(POLL_SECONDS, stop) and loop.time() < read_next:
                await live.read_pages()
                yield view


async def read_view_again(
    stack: LocalStack, selection: HostSelection, live: LiveCounts, last: CrawlView | None
) -> CrawlView:
    """The present progress; the last one with the reason if the database cannot be used."""
    try:
        return await read_view(stack, selection, live)
    except Unreachable as error:
        if last is None:
            raise
        await live.read_pages()
        return replace(last, outage=error)


async def read_view(stack: LocalStack, selection: HostSelection, live: LiveCounts) -> CrawlView:
    """The present progress. Pages are counted after the database was read, so none is counted twice."""
    async with stack.reader.transaction() as conn:
        # A redirect, for example to www, adds hosts that the user did not name.
        opened = await store.open_crawls.column(
            conn, skipped=list(selection.skipped), n=MAX_WATCHED_HOSTS
        )
        numbers = sorted({*selection.named, *opened})
        progress = await read_progress(conn, numbers)
        after = stack.chunk_before
        run = await read_run(conn, numbers, after=after)
        problems = await page_problems(conn, numbers, after=after, n=MAX_PROBLEMS)
        unsearchable = await unsearchable_pages(conn, numbers, after=after, n=MAX_PROBLEMS)
        speeds = await paces(conn, numbers)
        skipped = await count_skipped(conn, selection)
    await live.read_pages()
    skew = stack.reader.clock.skew.total_seconds()
    return CrawlView(progress, run, unsearchable, problems, speeds, live, skipped, skew)
