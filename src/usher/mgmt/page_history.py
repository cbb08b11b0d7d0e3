"""A page's way after the door: its host's pace, its last fetch, its text, its chunks and their copies.

Comes from the number of a host and of a page; goes to whoever explains them. A bounded number of rows, nothing changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import chunks
from usher.mgmt.chunks import Chunk
from usher.urls import Scheme, Url

store = load_statements(__file__)
MAX_STALE_COPIES: Final = 20
MAX_WORKER_SILENCE: Final = timedelta(
    minutes=5
)  # without a sign of life, longer than anybody at work is


@dataclass(frozen=True, slots=True)
class HostRest:
    """A host's pace: when it may be asked next, and what keeps it from being asked sooner."""

    ready_at: datetime | None  # None: at any time
    claim_at: datetime | None  # None: nothing of it waits
    policy: str
    policy_reason: str
    delay: timedelta
    by_robots: bool  # its robots.txt asks for this delay
    held_by: int | None
    holder: str | None
    troubles: int
    trouble: str
    trouble_at: datetime | None
    group: str | None
    group_ready_at: datetime | None

    def until(self, now: datetime) -> datetime | None:
        """Until when nobody may ask it; None if it is ready."""
        found = max(filter(None, (self.ready_at, self.group_ready_at)), default=None)
        return found if found is not None and found > now else None


@dataclass(frozen=True, slots=True)
class PageText:
    """What fetches told of a page beyond the page itself; `original` had the same text before."""

    text64: int | None
    noindex: bool
    indexed_in: int | None
    misses: int
    attempts: int
    reason: str | None
    original: str | None


@dataclass(frozen=True, slots=True)
class ChunkCopy:
    """A chunk on a server of a row; the server `answers` for it, or is in trouble."""

    row: int
    host: str
    state: str
    since: datetime
    answers: bool
    trouble: str


@dataclass(frozen=True, slots=True)
class StaleCopy:
    """A copy that is out of date, and the servers that have it still; held back if too much of its host would go."""

    chunk_id: int
    newer: int | None
    at: datetime
    held: bool
    hosts: Sequence[str]
    answers: bool  # one of them is asked


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """How many rows there are, and how many crawlers and builders take on work."""

    rows: int
    crawlers: int
    builders: int


@dataclass(frozen=True, slots=True)
class PageHistory:
    """All of it: `crawled` is the chunk of its last fetch, `indexed` the one its newest text came in."""

    text: PageText
    crawled: Chunk | None
    indexed: Chunk | None
    copies: Sequence[ChunkCopy]
    outdated: Sequence[StaleCopy]
    workers: WorkerCounts

    @property
    def answering(self) -> list[ChunkCopy]:
        """The copies of its newest text that searches find."""
        return [copy for copy in self.copies if copy.answers]

    @property
    def older(self) -> list[StaleCopy]:
        """The copies of what it was that can still be found."""
        return [one for one in self.outdated if one.answers]


async def host_rest(conn: Connection, domain64: int) -> HostRest:
    """The pace of a host that is there."""
    [found] = await store.host_rest.rows(conn, HostRest, domain64=domain64)
    return found


async def page_history(
    conn: Connection, page: int, chunk: int | None, *, now: datetime
) -> PageHistory:
    """The way of a page that is there, last fetched in that chunk."""
    text = await text_of(conn, page)
    crawled = None if chunk is None else await chunks.show(conn, chunk)
    indexed = crawled
    if text.indexed_in != chunk:
        indexed = None if text.indexed_in is None else await chunks.show(conn, text.indexed_in)
    [workers] = await store.worker_counts.rows(conn, WorkerCounts, quiet=now - MAX_WORKER_SILENCE)
    return PageHistory(
        text,
        crawled,
        indexed,
        await store.chunk_copies.rows(conn, ChunkCopy, chunk=text.indexed_in),
        await store.stale_copies.rows(conn, StaleCopy, page=page, n=MAX_STALE_COPIES),
        workers,
    )


async def text_of(conn: Connection, page: int) -> PageText:
    [(*told, scheme, host, path)] = await store.page_text.tuples(conn, page=page)
    original = None if host is None else str(Url(Scheme(scheme), host, path))
    text64, noindex, indexed_in, misses, attempts, reason = told
    return PageText(text64, noindex, indexed_in, misses, attempts, reason, original)
