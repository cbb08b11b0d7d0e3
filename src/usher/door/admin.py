"""The operator's desk: hosts looked at and changed by hand, numbers brought in and taken out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypedDict, Unpack

from psycopg.types.json import Jsonb
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range as SqlRange

from usher import domain64
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door.hosts import DoorSettings

store = load_statements(__file__)
Policy = Literal["open", "paused", "blocked"]
ScopeKind = Literal["host", "domain", "listed", "any"]
FilterList = list[dict[str, object]]
MAX_PAGES_COUNTED = 10_000


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


async def list_hosts(
    conn: Connection,
    *,
    after: str = "",
    policy: Policy | None = None,
    contains: str | None = None,
    due_at: datetime | None = None,
    within: domain64.Range | None = None,
    n: int = 100,
) -> list[HostSummary]:
    low, high = (within.start, within.end) if within else (None, None)
    return await store.list_hosts.rows(
        conn,
        HostSummary,
        after=after,
        policy=policy,
        contains=contains,
        due_at=due_at,
        low=low,
        high=high,
        n=n,
    )


@dataclass(frozen=True, slots=True)
class HostDetails:
    """A host with all that can be set for it."""

    id: int
    domain64: int
    name: str
    scheme: int
    next_fetch: datetime
    crawl_started: datetime | None
    cadence: timedelta | None
    house_cadence: timedelta
    adaptive: bool
    crawl_delay: timedelta | None
    policy: str
    policy_reason: str
    scope: ScopeKind
    scope_ranges: Multirange[int]
    filters: FilterList
    max_pages: int | None
    house_max_pages: int
    max_depth: int | None
    house_max_depth: int
    revision: int

    @property
    def most_pages(self) -> int:
        return self.house_max_pages if self.max_pages is None else self.max_pages

    @property
    def deepest(self) -> int:
        return self.house_max_depth if self.max_depth is None else self.max_depth


async def show_host(conn: Connection, *, name: str) -> HostDetails | None:
    return await store.show_host.row(conn, HostDetails, name=name)


async def count_pages(
    conn: Connection, *, number: int, most: int = MAX_PAGES_COUNTED
) -> dict[str, int]:
    """Pages of a host by state, each counted up to `most`."""
    return dict(await store.count_pages.tuples(conn, domain64=number, most=most))


async def count_known_pages(conn: Connection, *, number: int, most: int) -> int:
    """Pages of a host in any state, counted up to `most`."""
    ((known,),) = await store.count_known_pages.tuples(conn, domain64=number, most=most)
    return int(known)


async def change_policy(
    conn: Connection, *, names: Sequence[str], policy: Policy, reason: str = ""
) -> list[str]:
    """The names of the hosts that are there and now have this policy."""
    found = await store.change_policy.tuples(conn, names=list(names), policy=policy, reason=reason)
    return [name for (name,) in found]


class HostChange(TypedDict, total=False):
    """What to set for a host; the first four are the house's again where they are None."""

    cadence: timedelta | None
    crawl_delay: timedelta | None
    max_pages: int | None
    max_depth: int | None
    adaptive: bool
    scope: ScopeKind
    ranges: Sequence[domain64.Range]
    filters: FilterList


async def change_host(
    conn: Connection, *, names: Sequence[str], **given: Unpack[HostChange]
) -> list[str]:
    """Set what is given for the hosts that are there, and keep the rest; returns their names."""
    found = await store.change_host.tuples(
        conn,
        names=list(names),
        cadence=given.get("cadence"),
        crawl_delay=given.get("crawl_delay"),
        max_pages=given.get("max_pages"),
        max_depth=given.get("max_depth"),
        unset=[name for name, value in given.items() if value is None],
        adaptive=given.get("adaptive"),
        scope=given.get("scope"),
        scope_ranges=multirange(given["ranges"]) if "ranges" in given else None,
        filters=Jsonb(given["filters"]) if "filters" in given else None,
    )
    return [name for (name,) in found]


def multirange(ranges: Sequence[domain64.Range]) -> Multirange[int]:
    return Multirange([SqlRange(one.start, one.end) for one in ranges])


async def change_settings(
    conn: Connection,
    *,
    cadence: timedelta | None = None,
    filters: FilterList | None = None,
    max_pages: int | None = None,
    max_depth: int | None = None,
) -> DoorSettings:
    """Set what holds for every host that does not say otherwise."""
    found = await store.change_settings.row(
        conn,
        DoorSettings,
        cadence=cadence,
        filters=None if filters is None else Jsonb(filters),
        max_pages=max_pages,
        max_depth=max_depth,
    )
    assert found is not None  # noqa: S101 - the table has one row, by its own rule
    return found


class RecrawlEntrance(NamedTuple):
    """Where to knock for a whole host (its root if there is no path), and how many of its pages are being crawled."""

    host: str
    scheme: int | None
    path: str | None
    crawling: int


async def recrawl_entrances(conn: Connection, *, hosts: Sequence[int]) -> list[RecrawlEntrance]:
    """The entrance of each host, given by its domain64."""
    rows = await store.recrawl_entrances.tuples(conn, hosts=list(hosts))
    return [RecrawlEntrance(*row) for row in rows]


async def export_numbers(
    conn: Connection, *, after: int = 0, n: int = 10_000
) -> list[tuple[int, str]]:
    return [
        (number, name) for number, name in await store.export_numbers.tuples(conn, after=after, n=n)
    ]


async def import_domains(conn: Connection, *, domains: Sequence[tuple[int, int, str]]) -> int:
    """Register domains under their published numbers: (tld code, number, name); how many were new."""
    tlds, numbers, names = zip(*domains, strict=True) if domains else ((), (), ())
    return await store.import_domains.run(
        conn, tlds=list(tlds), numbers=list(numbers), names=list(names)
    )


async def import_hosts(
    conn: Connection, *, numbers: Sequence[tuple[int, str]], now: datetime
) -> list[tuple[int, str]]:
    """Register hosts under their published numbers; those that were new."""
    given = {"domain64s": [number for number, _ in numbers], "names": [name for _, name in numbers]}
    return [
        (number, name) for number, name in await store.import_hosts.tuples(conn, **given, now=now)
    ]
