"""Every stage on the way of a URL, read: what waits and since when, what is under way, what failed, and who works.

Comes from the work area and the queue; goes out as values. Nothing is counted further than `MOST`, whatever the tables
hold, so that a look costs the same for ten pages and for ten million.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from usher.component_health import DISK_FULL
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import incarnation, placements, watchdog
from usher.mgmt.incarnation import UnrestoredState
from usher.mgmt.page_history import MAX_WORKER_SILENCE
from usher.mgmt.placements import RowShortage
from usher.mgmt.watchdog import WatchdogRound
from usher.queue import scheduler
from usher.urls import Scheme, Url

store = load_statements(__file__)
MAX_COUNTED: Final = 10_000
MAX_HOSTS_SEARCHED: Final = 1_000  # looked at for the page that has waited longest
MAX_NAMED: Final = 5  # of each kind, by name
MAX_JOB_TYPES: Final = 1_000  # of jobs
HOUR: Final = timedelta(hours=1)
RECENT: Final = timedelta(days=1)  # who is gone for longer, and has nothing, is not missed


@dataclass(frozen=True, slots=True)
class PageCounts:
    """Pages by state; `known` is about right if it is not `exact`. `oldest` could be fetched now."""

    waiting: int
    crawling: int
    failed: int
    known: int
    exact: bool
    oldest: datetime | None = None
    oldest_url: str | None = None


@dataclass(frozen=True, slots=True)
class RestingHost:
    """A host of which pages wait, until when, and why if it is in trouble."""

    name: str
    until: datetime
    troubles: int
    reason: str


@dataclass(frozen=True, slots=True)
class ClosedHost:
    """A host that is paused or blocked, and how many of its pages wait, up to 1,000."""

    name: str
    policy: str
    reason: str
    pages: int


@dataclass(frozen=True, slots=True)
class HostCounts:
    """Hosts of which pages wait: `ready`, `resting` (`troubled` among them) or `held` by a crawler; and others."""

    ready: int
    resting: int
    held: int
    troubled: int
    paused: int
    blocked: int
    due: int
    longest: Sequence[RestingHost] = ()
    shut: Sequence[ClosedHost] = ()


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """Chunks on their way, and since when the first of those waits that wait."""

    crawling: int
    to_build: int
    to_build_since: datetime | None
    building: int
    parked: int
    to_load: int
    to_load_since: datetime | None


@dataclass(frozen=True, slots=True)
class HeldBackHost:
    """A host of which pages are held back from disappearing."""

    name: str
    pages: int


@dataclass(frozen=True, slots=True)
class OutdatedCopies:
    """Outdated copies: those that servers are to take out, pages that wait for a look, and those held back."""

    to_retire: int
    unjudged: int
    held: int
    hosts: Sequence[HeldBackHost] = ()


@dataclass(frozen=True, slots=True)
class LastHour:
    """What was done in the last hour; `pages` only since `pages_since` where there were too many to count."""

    pages: int
    pages_since: datetime | None
    chunks: int
    searches: int

    def pace(self, now: datetime) -> float:
        """Pages a second, as far as they were counted."""
        counted = HOUR if self.pages_since is None else now - self.pages_since
        return self.pages / max(counted.total_seconds(), 1)


@dataclass(frozen=True, slots=True)
class ComponentGroup:
    """So many components that are alike; silent ones were not seen for long, or have stopped."""

    type: str | None
    row: int | None
    state: str
    health: str
    silent: bool
    number: int

    @property
    def well(self) -> bool:
        return self.health != "failure" and not self.silent and self.state != "error"

    @property
    def works(self) -> bool:
        """Whether these take on work now."""
        return self.well and self.state != "paused"

    @property
    def answers(self) -> bool:
        """Whether these, being index servers, are on the map that searches go by."""
        return self.well and self.health == "healthy"


@dataclass(frozen=True, slots=True)
class FailingComponent:
    """A component that is not well; `held` if it has what is wanted."""

    host: str
    type: str | None
    health: str
    state: str
    since: datetime
    reason: str
    held: bool


@dataclass(frozen=True, slots=True)
class SuspectComponent:
    """A component whose content held foreign pages: in how many chunks, and what the last reporter says."""

    host: str
    type: str | None
    chunks: int
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class FullDiskComponent:
    """A component that stopped because its disk is full."""

    host: str
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkStatus:
    """The work area."""

    pages: PageCounts
    hosts: HostCounts
    chunks: ChunkCounts
    rows: Sequence[RowShortage]
    copies: OutdatedCopies
    crews: Sequence[ComponentGroup]
    failing: Sequence[FailingComponent]
    last_hour: LastHour
    watched: bool  # a watchdog leads
    last_round: WatchdogRound | None  # of the watchdog
    poisoned: Sequence[SuspectComponent] = ()
    unrestored: UnrestoredState | None = None
    full_disks: Sequence[FullDiskComponent] = ()

    def working(self, type_: str) -> int:
        """How many components of a type take on work."""
        return sum(crew.number for crew in self.crews if crew.type == type_ and crew.works)

    def answering(self, row: int) -> int:
        """How many index servers of a row are asked."""
        return sum(crew.number for crew in self.crews if crew.row == row and crew.answers)


@dataclass(frozen=True, slots=True)
class JobTypeCounts:
    """Jobs of a type; `since` is when the first of those that wait could have run."""

    type: str
    waiting: int
    since: datetime | None
    running: int
    again: int


@dataclass(frozen=True, slots=True)
class PausedEntry:
    """A type of job or a resource whose jobs do not start."""

    kind: Literal["type", "resource"]
    name: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The control area; `done` and `failed` in the last hour."""

    types: Sequence[JobTypeCounts]
    done: int
    failed: int
    next_run: datetime | None  # of the tasks that are enabled, the first
    scheduled: bool  # a scheduler leads
    paused: Sequence[PausedEntry] = ()


async def read_work(conn: Connection, *, now: datetime) -> WorkStatus:
    await store.by_index.tuples(conn)
    quiet, n = now - MAX_WORKER_SILENCE, 2 * MAX_NAMED
    [chunks] = await store.chunks.rows(conn, ChunkCounts, most=MAX_COUNTED)
    [last_hour] = await store.last_hour.rows(conn, LastHour, since=now - HOUR, most=MAX_COUNTED)
    return WorkStatus(
        await read_pages(conn, now),
        await read_hosts(conn, now),
        chunks,
        await placements.row_shortages(conn),
        await read_outdated_copies(conn),
        await store.crews.rows(conn, ComponentGroup, quiet=quiet),
        await store.failing.rows(conn, FailingComponent, quiet=quiet, lately=now - RECENT, n=n),
        last_hour,
        await has_leader(conn, watchdog.WATCHDOG_LOCK),
        await watchdog.last_round(conn),
        await store.poisoned.rows(
            conn, SuspectComponent, lately=now - RECENT, most=MAX_COUNTED, n=MAX_NAMED
        ),
        await incarnation.unrestored(conn),
        await store.full_disks.rows(conn, FullDiskComponent, prefix=f"{DISK_FULL}%", n=n),
    )


async def read_pages(conn: Connection, now: datetime) -> PageCounts:
    [(waiting, crawling, failed, counted, estimate)] = await store.pages.tuples(
        conn, most=MAX_COUNTED
    )
    exact = counted < MAX_COUNTED
    known = counted if exact else max(counted, estimate)
    pages = PageCounts(waiting, crawling, failed, known, exact)
    for since, host, scheme, path in await store.next_page.tuples(
        conn, now=now, hosts=MAX_HOSTS_SEARCHED
    ):
        url = str(Url(Scheme(scheme), host, path))
        return replace(pages, oldest=since, oldest_url=url)
    return pages


async def read_hosts(conn: Connection, now: datetime) -> HostCounts:
    [counts] = await store.hosts.rows(conn, HostCounts, now=now, most=MAX_COUNTED)
    return replace(
        counts,
        longest=await store.resting.rows(conn, RestingHost, now=now, most=MAX_COUNTED, n=MAX_NAMED),
        shut=await store.shut_hosts.rows(conn, ClosedHost, most=MAX_COUNTED, n=MAX_NAMED),
    )


async def read_outdated_copies(conn: Connection) -> OutdatedCopies:
    [(to_retire, unjudged, held)] = await store.copies.tuples(conn, most=MAX_COUNTED)
    hosts = (
        await store.held_back.rows(conn, HeldBackHost, most=MAX_COUNTED, n=MAX_NAMED)
        if held
        else []
    )
    return OutdatedCopies(to_retire, unjudged, held, hosts)


async def read_queue(conn: Connection, *, now: datetime) -> QueueStatus:
    await store.by_index.tuples(conn)
    types = await store.jobs.rows(conn, JobTypeCounts, now=now, most=MAX_COUNTED, n=MAX_JOB_TYPES)
    [(done, failed, next_run)] = await store.ended.tuples(conn, since=now - HOUR, most=MAX_COUNTED)
    paused = await store.paused.rows(conn, PausedEntry, n=MAX_JOB_TYPES)
    return QueueStatus(
        types, done, failed, next_run, await has_leader(conn, scheduler.LEADER_LOCK), paused
    )


async def has_leader(conn: Connection, lock: int) -> bool:
    [(found,)] = await store.led.tuples(conn, lock=lock)
    return bool(found)
