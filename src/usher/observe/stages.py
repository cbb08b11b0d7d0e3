"""Read the state of every stage: what waits and since when, what is in progress, what failed, and the components.

Nothing is counted beyond `MAX_COUNTED`, so that a reading costs the same for ten pages and for ten million. The field
names of the dataclasses are those of `usher status --json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from usher.component_health import DISK_FULL, STORE_PROBLEM
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import incarnation, placements, watchdog
from usher.mgmt.incarnation import UnrestoredState
from usher.mgmt.page_history import MAX_WORKER_SILENCE
from usher.mgmt.placements import RowShortage
from usher.mgmt.running_versions import running_versions
from usher.mgmt.watchdog import WatchdogRound
from usher.queue import scheduler
from usher.urls import url_text
from usher.versions import RunningVersions

store = load_statements(__file__)
MAX_COUNTED: Final = 10_000
MAX_HOSTS_SEARCHED: Final = 1_000  # for the page that has waited longest
MAX_NAMED: Final = 5  # of each kind
MAX_JOB_TYPES: Final = 1_000
MIN_FAILED_JOBS: Final = 3  # in a row, before the type itself is suspected
HOUR: Final = timedelta(hours=1)
RECENT: Final = timedelta(days=1)  # a component without chunks is reported for this long


@dataclass(frozen=True, slots=True)
class GuestbookCounts:
    """Pages by state; `known` is an estimate unless `exact`. `oldest` is ready to be fetched."""

    waiting: int
    crawling: int
    failed: int
    known: int
    exact: bool
    oldest: datetime | None = None
    oldest_url: str | None = None


@dataclass(frozen=True, slots=True)
class RestingHost:
    """A host with waiting pages that may not be requested yet, with the reason if it failed."""

    name: str
    until: datetime
    troubles: int
    reason: str


@dataclass(frozen=True, slots=True)
class ClosedHost:
    """A host that is paused or blocked, and the number of its waiting pages, up to 1,000."""

    name: str
    policy: str
    reason: str
    pages: int


@dataclass(frozen=True, slots=True)
class HostCounts:
    """Hosts with waiting pages: `ready`, `resting` (of these `troubled` failed) or `held` by a crawler; and others."""

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
    """Chunks by stage, and since when the oldest of them waits."""

    crawling: int
    to_build: int
    to_build_since: datetime | None
    building: int
    parked: int
    to_load: int
    to_load_since: datetime | None


@dataclass(frozen=True, slots=True)
class HeldBackHost:
    """A host with pages that are held back from removal."""

    name: str
    pages: int


@dataclass(frozen=True, slots=True)
class OutdatedCopies:
    """Outdated copies: to be removed by servers, not checked yet, and held back."""

    to_retire: int
    unjudged: int
    held: int
    hosts: Sequence[HeldBackHost] = ()


@dataclass(frozen=True, slots=True)
class LastHour:
    """What was done in the last hour; if there were too many `pages`, they are counted since `pages_since`."""

    pages: int
    pages_since: datetime | None
    chunks: int
    searches: int

    def pace(self, now: datetime) -> float:
        """Pages per second, over the time that was counted."""
        counted = HOUR if self.pages_since is None else now - self.pages_since
        return self.pages / max(counted.total_seconds(), 1)


@dataclass(frozen=True, slots=True)
class ComponentGroup:
    """Components of one type, row, state and health; silent ones stopped or gave no sign of life recently."""

    type: str | None
    row: int | None
    state: str
    health: str
    silent: bool
    number: int
    stopped: bool = False  # they stopped in order

    @property
    def well(self) -> bool:
        return self.health != "failure" and not self.silent and self.state != "error"

    @property
    def works(self) -> bool:
        """Whether these components accept work."""
        return self.well and self.state != "paused"

    @property
    def answers(self) -> bool:
        """Whether these index servers are queried by front-ends."""
        return self.well and self.health == "healthy"


@dataclass(frozen=True, slots=True)
class ClusterServer:
    """The index server of a row on OpenSearch; `problem` is what it reports, empty if it reports none."""

    row: int
    host: str
    runs: bool
    problem: str


@dataclass(frozen=True, slots=True)
class FailingComponent:
    """A component that is not healthy; `held` if it has chunks that are needed."""

    host: str
    type: str | None
    health: str
    state: str
    since: datetime
    reason: str
    held: bool


@dataclass(frozen=True, slots=True)
class ForeignPageSource:
    """A component whose chunks contained pages that were not assigned to it, with the last report."""

    host: str
    type: str | None
    chunks: int
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class CrashedProcess:
    """A process of `usher up` or `usher crawl` that crashed recently and was restarted."""

    process: str
    number: int
    last: datetime
    reason: str  # of the last crash, with its log


@dataclass(frozen=True, slots=True)
class WaitingComponent:
    """A component that takes no more work because its disk is full or the object store is away."""

    host: str
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkStatus:
    """The state of the work area."""

    pages: GuestbookCounts
    hosts: HostCounts
    chunks: ChunkCounts
    rows: Sequence[RowShortage]
    copies: OutdatedCopies
    crews: Sequence[ComponentGroup]
    failing: Sequence[FailingComponent]
    last_hour: LastHour
    watched: bool  # a watchdog is active
    last_round: WatchdogRound | None
    poisoned: Sequence[ForeignPageSource] = ()
    unrestored: UnrestoredState | None = None
    waiting_components: Sequence[WaitingComponent] = ()
    crashes: Sequence[CrashedProcess] = ()
    versions: RunningVersions = field(default_factory=RunningVersions)
    clusters: Sequence[ClusterServer] = ()

    @property
    def running(self) -> bool:
        """Whether a watchdog or any component runs."""
        return self.watched or any(crew.well for crew in self.crews)

    @property
    def stopped(self) -> bool:
        """Whether nothing runs, and every component stopped in order."""
        return not self.running and all(crew.stopped for crew in self.crews)

    def working(self, type_: str) -> int:
        """The number of components of a type that accept work."""
        return sum(crew.number for crew in self.crews if crew.type == type_ and crew.works)

    def cluster_server(self, row: int) -> ClusterServer | None:
        """The index server of a row that is on OpenSearch."""
        return next((server for server in self.clusters if server.row == row), None)

    def answering(self, row: int) -> int:
        """The number of index servers of a row that are queried."""
        return sum(crew.number for crew in self.crews if crew.row == row and crew.answers)


@dataclass(frozen=True, slots=True)
class JobTypeCounts:
    """Jobs of one type; `since` is when the oldest waiting job could have run."""

    type: str
    waiting: int
    since: datetime | None
    running: int
    again: int


@dataclass(frozen=True, slots=True)
class PausedEntry:
    """A paused job type or resource; `waiting` is the number of jobs that wait for a resource, up to 1,000."""

    kind: Literal["type", "resource"]
    name: str
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class FailingType:
    """A job type of which every job that ended in the last hour failed, and their number."""

    type: str
    failed: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The state of the control area; `done` and `failed` in the last hour."""

    types: Sequence[JobTypeCounts]
    done: int
    failed: int
    next_run: datetime | None  # of the enabled tasks
    scheduled: bool  # a scheduler is active
    paused: Sequence[PausedEntry] = ()
    failing: Sequence[FailingType] = ()


async def read_work(conn: Connection, *, now: datetime, ended: Sequence[str] = ()) -> WorkStatus:
    """The state of the work area; `ended` components, by address, do not run."""
    await store.prefer_indexes.tuples(conn)
    quiet, n = now - MAX_WORKER_SILENCE, 2 * MAX_NAMED
    return WorkStatus(
        await read_pages(conn, now),
        await read_hosts(conn, now),
        await store.chunks.only(conn, ChunkCounts, most=MAX_COUNTED),
        await placements.row_shortages(conn),
        await read_outdated_copies(conn),
        await store.component_groups.rows(conn, ComponentGroup, quiet=quiet, ended=list(ended)),
        await store.failing.rows(conn, FailingComponent, quiet=quiet, lately=now - RECENT, n=n),
        await store.last_hour.only(conn, LastHour, since=now - HOUR, most=MAX_COUNTED),
        await has_leader(conn, watchdog.WATCHDOG_LOCK),
        await watchdog.last_round(conn),
        await store.suspects.rows(
            conn, ForeignPageSource, lately=now - RECENT, most=MAX_COUNTED, n=MAX_NAMED
        ),
        await incarnation.unrestored(conn),
        await store.waiting_components.rows(
            conn, WaitingComponent, prefixes=[f"{DISK_FULL}%", f"{STORE_PROBLEM}%"], n=n
        ),
        await store.crashes.rows(
            conn, CrashedProcess, lately=now - RECENT, most=MAX_COUNTED, n=MAX_NAMED
        ),
        await running_versions(conn),
        await store.cluster_servers.rows(
            conn, ClusterServer, quiet=quiet, ended=list(ended), n=MAX_COUNTED
        ),
    )


async def read_pages(conn: Connection, now: datetime) -> GuestbookCounts:
    [(waiting, crawling, failed, counted, estimate)] = await store.pages.tuples(
        conn, most=MAX_COUNTED
    )
    exact = counted < MAX_COUNTED
    known = counted if exact else max(counted, estimate)
    pages = GuestbookCounts(waiting, crawling, failed, known, exact)
    for since, host, scheme, path in await store.next_page.tuples(
        conn, now=now, hosts=MAX_HOSTS_SEARCHED
    ):
        return replace(pages, oldest=since, oldest_url=url_text(scheme, host, path))
    return pages


async def read_hosts(conn: Connection, now: datetime) -> HostCounts:
    return replace(
        await store.hosts.only(conn, HostCounts, now=now, most=MAX_COUNTED),
        longest=await store.resting.rows(conn, RestingHost, now=now, most=MAX_COUNTED, n=MAX_NAMED),
        shut=await store.closed_hosts.rows(conn, ClosedHost, most=MAX_COUNTED, n=MAX_NAMED),
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
    await store.prefer_indexes.tuples(conn)
    types = await store.jobs.rows(conn, JobTypeCounts, now=now, most=MAX_COUNTED, n=MAX_JOB_TYPES)
    [(done, failed, next_run, *failures)] = await store.ended.tuples(
        conn, since=now - HOUR, most=MAX_COUNTED, least=MIN_FAILED_JOBS, n=MAX_NAMED
    )
    failing = [FailingType(*each) for each in zip(*failures, strict=True)]
    paused = await store.paused.rows(conn, PausedEntry, n=MAX_JOB_TYPES)
    scheduled = await has_leader(conn, scheduler.LEADER_LOCK)
    return QueueStatus(types, done, failed, next_run, scheduled, paused, failing)


async def has_leader(conn: Connection, lock: int) -> bool:
    return bool(await store.has_leader.value(conn, lock=lock))
