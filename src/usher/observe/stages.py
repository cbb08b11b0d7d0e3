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
from usher.mgmt.incarnation import Unrestored
from usher.mgmt.page_history import QUIET
from usher.mgmt.placements import Missing
from usher.mgmt.watchdog import WatchdogRound
from usher.queue import scheduler
from usher.urls import Scheme, Url

store = load_statements(__file__)
MOST: Final = 10_000
HOSTS: Final = 1_000  # looked at for the page that has waited longest
FEW: Final = 5  # of each kind, by name
TYPES: Final = 1_000  # of jobs
HOUR: Final = timedelta(hours=1)
LATELY: Final = timedelta(days=1)  # who is gone for longer, and has nothing, is not missed


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages by state; `known` is about right if it is not `exact`. `oldest` could be fetched now."""

    waiting: int
    crawling: int
    failed: int
    known: int
    exact: bool
    oldest: datetime | None = None
    oldest_url: str | None = None


@dataclass(frozen=True, slots=True)
class Resting:
    """A host of which pages wait, until when, and why if it is in trouble."""

    name: str
    until: datetime
    troubles: int
    reason: str


@dataclass(frozen=True, slots=True)
class Shut:
    """A host that is paused or blocked, and how many of its pages wait, up to 1,000."""

    name: str
    policy: str
    reason: str
    pages: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of which pages wait: `ready`, `resting` (`troubled` among them) or `held` by a crawler; and others."""

    ready: int
    resting: int
    held: int
    troubled: int
    paused: int
    blocked: int
    due: int
    longest: Sequence[Resting] = ()
    shut: Sequence[Shut] = ()


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks on their way, and since when the first of those waits that wait."""

    crawling: int
    to_build: int
    to_build_since: datetime | None
    building: int
    parked: int
    to_load: int
    to_load_since: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """A host of which pages are held back from disappearing."""

    name: str
    pages: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Outdated copies: those that servers are to take out, pages that wait for a look, and those held back."""

    to_retire: int
    unjudged: int
    held: int
    hosts: Sequence[Held] = ()


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
class Crew:
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
class Failing:
    """A component that is not well; `held` if it has what is wanted."""

    host: str
    type: str | None
    health: str
    state: str
    since: datetime
    reason: str
    held: bool


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A component whose content held foreign pages: in how many chunks, and what the last reporter says."""

    host: str
    type: str | None
    chunks: int
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class FullDisk:
    """A component that stopped because its disk is full."""

    host: str
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class Work:
    """The work area."""

    pages: Pages
    hosts: Hosts
    chunks: Chunks
    rows: Sequence[Missing]
    copies: Copies
    crews: Sequence[Crew]
    failing: Sequence[Failing]
    last_hour: LastHour
    watched: bool  # a watchdog leads
    last_round: WatchdogRound | None  # of the watchdog
    poisoned: Sequence[Poisoned] = ()
    unrestored: Unrestored | None = None
    full_disks: Sequence[FullDisk] = ()

    def working(self, type_: str) -> int:
        """How many components of a type take on work."""
        return sum(crew.number for crew in self.crews if crew.type == type_ and crew.works)

    def answering(self, row: int) -> int:
        """How many index servers of a row are asked."""
        return sum(crew.number for crew in self.crews if crew.row == row and crew.answers)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs of a type; `since` is when the first of those that wait could have run."""

    type: str
    waiting: int
    since: datetime | None
    running: int
    again: int


@dataclass(frozen=True, slots=True)
class Paused:
    """A type of job or a resource whose jobs do not start."""

    kind: Literal["type", "resource"]
    name: str


@dataclass(frozen=True, slots=True)
class Queue:
    """The control area; `done` and `failed` in the last hour."""

    types: Sequence[Jobs]
    done: int
    failed: int
    next_run: datetime | None  # of the tasks that are enabled, the first
    scheduled: bool  # a scheduler leads
    paused: Sequence[Paused] = ()


async def look_at_work(conn: Connection, *, now: datetime) -> Work:
    await store.by_index.tuples(conn)
    quiet, n = now - QUIET, 2 * FEW
    [chunks] = await store.chunks.rows(conn, Chunks, most=MOST)
    [last_hour] = await store.last_hour.rows(conn, LastHour, since=now - HOUR, most=MOST)
    return Work(
        await look_at_pages(conn, now),
        await look_at_hosts(conn, now),
        chunks,
        await placements.missing(conn),
        await look_at_copies(conn),
        await store.crews.rows(conn, Crew, quiet=quiet),
        await store.failing.rows(conn, Failing, quiet=quiet, lately=now - LATELY, n=n),
        last_hour,
        await led(conn, watchdog.LOCK),
        await watchdog.last_round(conn),
        await store.poisoned.rows(conn, Poisoned, lately=now - LATELY, most=MOST, n=FEW),
        await incarnation.unrestored(conn),
        await store.full_disks.rows(conn, FullDisk, prefix=f"{DISK_FULL}%", n=n),
    )


async def look_at_pages(conn: Connection, now: datetime) -> Pages:
    [(waiting, crawling, failed, counted, estimate)] = await store.pages.tuples(conn, most=MOST)
    exact = counted < MOST
    known = counted if exact else max(counted, estimate)
    pages = Pages(waiting, crawling, failed, known, exact)
    for since, host, scheme, path in await store.next_page.tuples(conn, now=now, hosts=HOSTS):
        url = str(Url(Scheme(scheme), host, path))
        return replace(pages, oldest=since, oldest_url=url)
    return pages


async def look_at_hosts(conn: Connection, now: datetime) -> Hosts:
    [counts] = await store.hosts.rows(conn, Hosts, now=now, most=MOST)
    return replace(
        counts,
        longest=await store.resting.rows(conn, Resting, now=now, most=MOST, n=FEW),
        shut=await store.shut_hosts.rows(conn, Shut, most=MOST, n=FEW),
    )


async def look_at_copies(conn: Connection) -> Copies:
    [(to_retire, unjudged, held)] = await store.copies.tuples(conn, most=MOST)
    hosts = await store.held_back.rows(conn, Held, most=MOST, n=FEW) if held else []
    return Copies(to_retire, unjudged, held, hosts)


async def look_at_queue(conn: Connection, *, now: datetime) -> Queue:
    await store.by_index.tuples(conn)
    types = await store.jobs.rows(conn, Jobs, now=now, most=MOST, n=TYPES)
    [(done, failed, next_run)] = await store.ended.tuples(conn, since=now - HOUR, most=MOST)
    paused = await store.paused.rows(conn, Paused, n=TYPES)
    return Queue(types, done, failed, next_run, await led(conn, scheduler.LEADER_LOCK), paused)


async def led(conn: Connection, lock: int) -> bool:
    [(found,)] = await store.led.tuples(conn, lock=lock)
    return bool(found)
