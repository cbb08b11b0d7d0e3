"""One crawl from its first page to the search page, on one machine.

Comes from URLs that somebody named; goes to the door, and to whoever watches until every page that led from there is
fetched and can be found. What was left undone, by a kill or by Ctrl-C, goes on the next time.
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
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.door import admin, private_access
from usher.door.admin import HostChange
from usher.door.batch import UrlVerdict
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Verdict
from usher.errors import BadInput
from usher.local.ports import Ports, exclusive_run
from usher.local.supervisor import Supervisor, usher_command
from usher.observe.crawl_progress import CrawlProgress, read_progress
from usher.private_files import make_data_directory
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import LoadedSettings
from usher.urls import Url, UrlRefusal, parse

store = load_statements(__file__)
# Larger, so that files and calls are few, and soon given, for here somebody waits.
CHUNK_SETTINGS: Final = MappingProxyType({"chunk_pages": 50, "chunk_wait": 0.2})
MAX_FAILURE_REASONS: Final = 3
MAX_WATCHED_HOSTS: Final = 1_000  # watched at once
POLL_SECONDS: Final = 0.5
ShowMessage = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunOptions:
    """What is to be crawled, and how; what is None stays as it is."""

    urls: Sequence[str] = ()
    delay: float | None = None  # seconds
    max_pages: int | None = None
    max_depth: int | None = None
    again: bool = False
    keep_warc: bool = False
    front: str = ""
    jobs: bool = False  # whether scheduler and manager run too

    def read(self) -> list[Url]:
        found = [parse(text) for text in self.urls]
        for text, url in zip(self.urls, found, strict=True):
            if isinstance(url, UrlRefusal):
                raise BadInput(f"{text[:80]!r} cannot be crawled: {url.detail}")
        return [url for url in found if isinstance(url, Url)]


@dataclass(frozen=True, slots=True)
class LocalStack:
    """Everything, running: where it is searched, and the door."""

    ports: Ports
    address: str  # of the search page
    troupe: Supervisor
    door: Database
    reader: Database


@asynccontextmanager
async def running_stack(
    loaded: LoadedSettings,
    errand: LocalRunOptions,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    *,
    told: ShowMessage,
) -> AsyncIterator[LocalStack]:
    """Every role on this machine, around the embedded server or the one that was named, or `stop` was set before."""
    settings = loaded.settings
    with open_areas(settings) as found:
        make_data_directory(settings.data)
        async with exclusive_run(settings.data, told=told) as lock:
            await migrate.ensure(found, migrate.ALL_SCHEMAS, patience=settings.connect_timeout)
            ports = Ports.kept(settings.data)
            os.environ.update(process_environment(loaded))
            troupe = Supervisor(
                process_command(loaded, errand),
                settings.data / "logs",
                told=told,
                stop=stop,
                hurry=hurry,
                kept_open=[lock],
            )
            async with (
                troupe,
                await open_database(found, "usher_door") as door,
                await open_database(found, "usher_reader") as reader,
            ):
                address = f"http://{errand.front or ports.bind('front')}/"
                yield LocalStack(ports, address, troupe, door, reader)


def process_command(loaded: LoadedSettings, errand: LocalRunOptions) -> Callable[[str], list[str]]:
    """What starts a part, by its name."""
    words = ["--config", str(loaded.file)] if loaded.file else []
    words += ["--data", str(loaded.settings.data), "part"]
    words += ["--keep-warc"] if errand.keep_warc else []
    words += ["--front", errand.front] if errand.front else []
    words += ["--jobs"] if errand.jobs else []
    return lambda part: usher_command(*words, part)


def process_environment(loaded: LoadedSettings) -> Mapping[str, str]:
    """What the parts are told by their environment: how chunks are."""
    return {
        f"USHER_{name.upper()}": str(value)
        for name, value in CHUNK_SETTINGS.items()
        if loaded.origins[name] == "default"
    }


async def open_database(found: AreaDatabases, role: str) -> Database:
    dsn = found.dsn("work")
    return Database(dsn, size=2, role=await usable_role(dsn, role))


async def knock_for_urls(
    house: LocalStack, errand: LocalRunOptions
) -> tuple[list[UrlVerdict], list[int]]:
    """Knock for what was named; the door's answers, and the hosts to watch."""
    urls = errand.read()
    await allow_private_hosts(house, urls)
    keeper = Doorkeeper(house.door)
    knock = Knock("full", hall_pass=True) if errand.again else Knock()
    told = await keeper.knock([str(url) for url in urls], knock=knock)
    refused = [one for one in told.answers if one.verdict is Verdict.REFUSE and one.url is None]
    if refused:
        raise BadInput(
            f"{refused[0].given} was not let in: {refused[0].detail or refused[0].reason}"
        )
    names = list(dict.fromkeys(url.host for url in urls))
    async with house.door.transaction() as conn:
        await change_hosts(conn, names, errand)
        shown = [await admin.show_host(conn, name=name) for name in names]
    return told.answers, [host.domain64 for host in shown if host is not None]


async def allow_private_hosts(house: LocalStack, urls: Sequence[Url]) -> None:
    """Store a permission for each URL whose host is not public: the operator named it."""
    for url in urls:
        permission = await private_permission.needed_permission(url)
        if permission is not None:
            async with house.door.transaction() as conn:
                await private_access.grant(conn, url, permission)


async def change_hosts(conn: Connection, names: Sequence[str], errand: LocalRunOptions) -> None:
    given: HostChange = {}
    if errand.delay is not None:
        given["crawl_delay"] = timedelta(seconds=errand.delay)
    if errand.max_pages is not None:
        given["max_pages"] = errand.max_pages
    if errand.max_depth is not None:
        given["max_depth"] = errand.max_depth
    if given:
        await admin.change_host(conn, names=names, **given)


async def failure_reasons(house: LocalStack, hosts: Sequence[int]) -> list[tuple[str, int]]:
    """What pages failed for, the commonest first, a few of them."""
    async with house.reader.transaction() as conn:
        found = await store.troubles.tuples(conn, hosts=list(hosts), n=MAX_FAILURE_REASONS)
    return [(str(reason), int(number)) for reason, number in found]


async def watch_progress(
    house: LocalStack, hosts: Sequence[int], stop: asyncio.Event
) -> AsyncIterator[CrawlProgress]:
    """How far it is, twice a second, until it is done or somebody says stop."""
    while True:
        async with house.reader.transaction() as conn:
            # A site that sends elsewhere, to www for one, has more hosts than were named.
            open_database = [
                number for (number,) in await store.open_crawls.tuples(conn, n=MAX_WATCHED_HOSTS)
            ]
            now = await read_progress(conn, sorted({*hosts, *open_database}))
        yield now
        if now.done or stop.is_set():
            return
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
