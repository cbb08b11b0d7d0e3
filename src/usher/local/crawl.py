"""Run the local stack, and crawl URLs on it until every page is fetched and searchable.

A crawl that was stopped or killed continues with the next run.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from usher.crawl import private_permission
from usher.db.areas import AreaDatabases, open_areas
from usher.db.pool import Database
from usher.db.statements import load_statements
from usher.door import admin, private_access
from usher.door.admin import HostChange
from usher.door.batch import UrlVerdict
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Verdict
from usher.errors import BadInput
from usher.local.ports import Ports, exclusive_run
from usher.local.supervisor import ShowMessage, Supervisor, usher_command
from usher.observe.crawl_progress import CrawlProgress, read_progress
from usher.private_files import make_data_directory
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import LoadedSettings
from usher.urls import Url, UrlRefusal, parse

store = load_statements(__file__)
# Large chunks need fewer files and calls. They are handed out soon because a user waits.
CHUNK_SETTINGS: Final = MappingProxyType({"chunk_pages": 50, "chunk_wait": 0.2})
MAX_FAILURE_REASONS: Final = 3
MAX_WATCHED_HOSTS: Final = 1_000
POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunOptions:
    """The options of `usher crawl`, `up` and `demo`; None keeps the setting of the host."""

    urls: Sequence[str] = ()
    delay: float | None = None  # seconds
    max_pages: int | None = None
    max_depth: int | None = None
    again: bool = False
    keep_warc: bool = False
    front: str = ""  # HOST:PORT of the search page
    jobs: bool = False  # whether scheduler and manager run

    def parse_urls(self) -> list[Url]:
        urls = []
        for text in self.urls:
            url = parse(text)
            if isinstance(url, UrlRefusal):
                raise BadInput(f"{text[:80]!r} cannot be crawled: {url.detail}")
            urls.append(url)
        return urls


@dataclass(frozen=True, slots=True)
class LocalStack:
    """The running stack: its ports, the address of its search page, and its work database."""

    ports: Ports
    address: str
    door: Database
    reader: Database


@asynccontextmanager
async def running_stack(
    loaded: LoadedSettings,
    options: LocalRunOptions,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    *,
    say: ShowMessage,
) -> AsyncIterator[LocalStack]:
    """Start every role and wait until all are ready, or until `stop` is set; stop them at the end."""
    settings = loaded.settings
    with open_areas(settings) as areas:
        make_data_directory(settings.data)
        async with exclusive_run(settings.data, say=say) as lock:
            await migrate.ensure(areas, migrate.ALL_SCHEMAS, patience=settings.connect_timeout)
            ports = Ports.reserve(settings.data)
            os.environ.update(process_environment(loaded))
            supervisor = Supervisor(
                process_command(loaded, options),
                settings.data / "logs",
                say=say,
                stop=stop,
                hurry=hurry,
                open_files=[lock],
            )
            async with (
                supervisor,
                await open_database(areas, "usher_door") as door,
                await open_database(areas, "usher_reader") as reader,
            ):
                address = f"http://{options.front or ports.bind('front')}/"
                yield LocalStack(ports, address, door, reader)


def process_command(loaded: LoadedSettings, options: LocalRunOptions) -> Callable[[str], list[str]]:
    """The command line of each role process, by its name."""
    words = ["--config", str(loaded.file)] if loaded.file else []
    words += ["--data", str(loaded.settings.data), "role-process"]
    words += ["--keep-warc"] if options.keep_warc else []
    words += ["--front", options.front] if options.front else []
    words += ["--jobs"] if options.jobs else []
    return lambda name: usher_command(*words, name)


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


async def knock_for_urls(
    stack: LocalStack, options: LocalRunOptions
) -> tuple[list[UrlVerdict], list[int]]:
    """Knock for the URLs; return the door's answers and the numbers of their hosts."""
    urls = options.parse_urls()
    await allow_private_hosts(stack, urls)
    knock = Knock("full", hall_pass=True) if options.again else Knock()
    batch = await Doorkeeper(stack.door).knock([str(url) for url in urls], knock=knock)
    for answer in batch.answers:
        if answer.verdict is Verdict.REFUSE and answer.url is None:
            raise BadInput(f"{answer.given} was refused: {answer.detail or answer.reason}")
    names = list(dict.fromkeys(url.host for url in urls))
    async with stack.door.transaction() as conn:
        if change := host_change(options):
            await admin.change_host(conn, names=names, **change)
        hosts = [await admin.show_host(conn, name=name) for name in names]
    return batch.answers, [host.domain64 for host in hosts if host is not None]


async def allow_private_hosts(stack: LocalStack, urls: Sequence[Url]) -> None:
    """Permit connections to hosts that are not public, because the operator named them."""
    for url in urls:
        permission = await private_permission.needed_permission(url)
        if permission is not None:
            async with stack.door.transaction() as conn:
                await private_access.grant(conn, url, permission)


def host_change(options: LocalRunOptions) -> HostChange:
    change: HostChange = {}
    if options.delay is not None:
        change["crawl_delay"] = timedelta(seconds=options.delay)
    if options.max_pages is not None:
        change["max_pages"] = options.max_pages
    if options.max_depth is not None:
        change["max_depth"] = options.max_depth
    return change


async def failure_reasons(stack: LocalStack, hosts: Sequence[int]) -> list[tuple[str, int]]:
    """The most common reasons why pages failed, with their numbers."""
    async with stack.reader.transaction() as conn:
        rows = await store.failure_reasons.tuples(conn, hosts=list(hosts), n=MAX_FAILURE_REASONS)
    return [(str(reason), int(number)) for reason, number in rows]


async def watch_progress(
    stack: LocalStack, hosts: Sequence[int], stop: asyncio.Event
) -> AsyncIterator[CrawlProgress]:
    """The progress, twice a second, until the crawl is done or `stop` is set."""
    while True:
        async with stack.reader.transaction() as conn:
            # A redirect, for example to www, adds hosts that the user did not name.
            crawled = await store.open_crawls.tuples(conn, n=MAX_WATCHED_HOSTS)
            progress = await read_progress(conn, sorted({*hosts, *(host for (host,) in crawled)}))
        yield progress
        if progress.done or stop.is_set():
            return
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
