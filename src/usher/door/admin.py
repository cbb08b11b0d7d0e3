"""What the operator does with hosts: list, show and change them, and export and import their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypedDict, Unpack

from psycopg.types.json import Jsonb
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range as SqlRange

from usher import domain64
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import guestbook
from usher.door.hosts import DoorSettings
from usher.door.scope import ScopeKind
from usher.urls import Url
from usher.wording import counted

store = load_statements(__file__)
Policy = Literal["open", "paused", "blocked"]
FilterList = list[dict[str, object]]
MAX_PAGES_COUNTED = 10_000
MAX_PAGES_DROPPED = 50_000


@dataclass(frozen=True, slots=True)
class HostSummary:
    """A host in a list."""

    domain64: int
    name: str
    scheme: int
    next_fetch: datetime
    crawl_started: datetime | None
    cadence: timedelta
    policy: str
    policy_reason: str


class HostFilter(TypedDict, total=False):
    """Which hosts to list; a condition that is None or missing does not apply."""

    policy: Policy | None
    contains: str | None  # in the name
    due_at: datetime | None
    cadence: timedelta | None
    reason: str | None  # a part of the reason of the policy


async def list_hosts(
    conn: Connection,
    *,
    after: str = "",
    within: domain64.Range | None = None,
    n: int = 100,
    **conditions: Unpack[HostFilter],
) -> list[HostSummary]:
    """Hosts by name, after this one."""
    low, high = (within.start, within.end) if within else (None, None)
    given = {**dict.fromkeys(HostFilter.__annotations__), **conditions}
    return await store.list_hosts.rows(
        conn, HostSummary, after=after, low=low, high=high, n=n, **given
    )


@dataclass(frozen=True, slots=True)
class HostDetails:
    """A host with its settings and the general ones."""

    id: int
    domain64: int
    name: str
    scheme: int
    next_fetch: datetime
    crawl_started: datetime | None
    cadence: timedelta | None
    general_cadence: timedelta
    adaptive: bool
    crawl_delay: timedelta | None
    policy: str
    policy_reason: str
    scope: ScopeKind
    scope_ranges: Multirange[int]
    filters: FilterList
    max_pages: int | None
    general_max_pages: int
    max_depth: int | None
    general_max_depth: int
    revision: int

    @property
    def effective_max_pages(self) -> int:
        return self.general_max_pages if self.max_pages is None else self.max_pages

    @property
    def effective_max_depth(self) -> int:
        return self.general_max_depth if self.max_depth is None else self.max_depth


async def show_host(conn: Connection, *, name: str) -> HostDetails | None:
    return await store.show_host.row(conn, HostDetails, name=name)


async def count_pages(
    conn: Connection, *, number: int, most: int = MAX_PAGES_COUNTED
) -> dict[str, int]:
    """The number of pages of a host in each state, each counted up to `most`."""
    return dict(await store.count_pages.tuples(conn, domain64=number, most=most))


async def count_known_pages(conn: Connection, *, number: int, most: int) -> int:
    """The number of pages of a host, counted up to `most`."""
    return int(await store.count_known_pages.value(conn, domain64=number, most=most))


async def change_policy(
    conn: Connection, *, names: Sequence[str], policy: Policy, reason: str = ""
) -> list[str]:
    """Set the policy of hosts; returns the registered ones among them."""
    return await store.change_policy.column(conn, names=list(names), policy=policy, reason=reason)


@dataclass(frozen=True, slots=True)
class StoppedCrawl:
    """A host whose waiting pages were dropped: how many, and whether its crawl is over."""

    name: str
    domain64: int
    pages: int
    is_over: bool = False

    @property
    def text(self) -> str:
        end = "the crawl is over" if self.is_over else "pages that wait or are being fetched remain"
        return f"{counted(self.pages, 'waiting page')} dropped; {end}"


async def stop_crawls(
    conn: Connection, *, names: Sequence[str], now: datetime
) -> list[StoppedCrawl]:
    """Drop the waiting pages of hosts, up to MAX_PAGES_DROPPED, and end their crawls; returns the registered hosts."""
    await guestbook.disable_sequential_scans(conn)
    stopped = await store.drop_waiting.rows(
        conn, StoppedCrawl, names=list(names), most=MAX_PAGES_DROPPED, now=now
    )
    numbers = [host.domain64 for host in stopped]
    over = set(await guestbook.close_crawls(conn, domain64s=numbers, now=now))
    return [replace(host, is_over=host.domain64 in over) for host in stopped]


class HostChange(TypedDict, total=False):
    """What to change in a host; None for one of the first four restores the general setting."""

    cadence: timedelta | None
    crawl_delay: timedelta | None
    max_pages: int | None
    max_depth: int | None
    adaptive: bool
    scope: ScopeKind
    ranges: Sequence[domain64.Range]
    filters: FilterList


async def change_host(
    conn: Connection, *, names: Sequence[str], **changes: Unpack[HostChange]
) -> list[str]:
    """Change the given settings of hosts; returns the registered ones among them."""
    return await store.change_host.column(
        conn,
        names=list(names),
        cadence=changes.get("cadence"),
        crawl_delay=changes.get("crawl_delay"),
        max_pages=changes.get("max_pages"),
        max_depth=changes.get("max_depth"),
        unset=[name for name, value in changes.items() if value is None],
        adaptive=changes.get("adaptive"),
        scope=changes.get("scope"),
        scope_ranges=multirange(changes["ranges"]) if "ranges" in changes else None,
        filters=Jsonb(changes["filters"]) if "filters" in changes else None,
    )


async def use_schemes(conn: Connection, urls: Sequence[Url]) -> set[int]:
    """Request these pages with these schemes, because the operator typed them; return the hosts of changed pages."""
    hosts = await store.use_schemes.column(
        conn,
        hosts=[url.host for url in urls],
        paths=[url.path for url in urls],
        schemes=[int(url.scheme) for url in urls],
        now=await server_time(conn),
    )
    return set(hosts)


async def retry_failures(conn: Connection, hosts: Sequence[int]) -> int:
    """Try again at once what failed at these hosts, because a person asks for them; returns the number of pages."""
    [number] = await store.retry_failures.column(
        conn, hosts=list(hosts), now=await server_time(conn)
    )
    return int(number)


def multirange(ranges: Sequence[domain64.Range]) -> Multirange[int]:
    return Multirange([SqlRange(r.start, r.end) for r in ranges])


async def change_settings(
    conn: Connection,
    *,
    cadence: timedelta | None = None,
    filters: FilterList | None = None,
    max_pages: int | None = None,
    max_depth: int | None = None,
) -> DoorSettings:
    """Change the general settings of hosts; None keeps a setting."""
    return await store.change_settings.only(
        conn,
        DoorSettings,
        cadence=cadence,
        filters=None if filters is None else Jsonb(filters),
        max_pages=max_pages,
        max_depth=max_depth,
    )


class RecrawlEntrance(NamedTuple):
    """Where to knock for a whole host (its root if there is no path), and how many of its pages are being crawled."""

    host: str
    scheme: int | None
    path: str | None
    crawling: int


async def recrawl_entrances(conn: Connection, *, hosts: Sequence[int]) -> list[RecrawlEntrance]:
    """The entrance of each host, given by its domain64."""
    return await store.recrawl_entrances.rows(conn, RecrawlEntrance, hosts=list(hosts))


async def export_numbers(
    conn: Connection, *, after: int = 0, n: int = 10_000
) -> list[tuple[int, str]]:
    return await store.export_numbers.tuples(conn, after=after, n=n)


async def import_domains(conn: Connection, *, domains: Sequence[tuple[int, int, str]]) -> int:
    """Register domains (TLD code, number, name) with published numbers; returns how many were new."""
    tlds, numbers, names = zip(*domains, strict=True) if domains else ((), (), ())
    return await store.import_domains.run(
        conn, tlds=list(tlds), numbers=list(numbers), names=list(names)
    )


async def import_hosts(
    conn: Connection, *, numbers: Sequence[tuple[int, str]], now: datetime
) -> list[tuple[int, str]]:
    """Register hosts with published numbers; returns the new ones."""
    domain64s, names = [number for number, _ in numbers], [name for _, name in numbers]
    return await store.import_hosts.tuples(conn, domain64s=domain64s, names=names, now=now)
