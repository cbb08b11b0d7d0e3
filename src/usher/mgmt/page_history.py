"""The history of a page after the door, for `usher explain`: its host's rest, its last fetch, its chunks and copies."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import chunks
from usher.mgmt.chunks import Chunk
from usher.urls import url_text

store = load_statements(__file__)
MAX_STALE_COPIES: Final = 20
MAX_WORKER_SILENCE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HostRest:
    """When a host may be asked next, and why not sooner."""

    ready_at: datetime | None  # None: at any time
    claim_at: datetime | None  # None: no page of it waits
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
        """When the host is ready; None if it is ready now."""
        ready = max(filter(None, (self.ready_at, self.group_ready_at)), default=None)
        return ready if ready is not None and ready > now else None


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of a page as its fetches reported it; `original` is the page that had the same text before."""

    text64: int | None
    noindex: bool
    indexed_in: int | None
    misses: int
    attempts: int
    reason: str | None
    original: str | None


@dataclass(frozen=True, slots=True)
class ChunkCopy:
    """A chunk on a server of a row; `answers` if searches find it there, else the `trouble` of the server."""

    row: int
    host: str
    state: str
    since: datetime
    answers: bool
    trouble: str


@dataclass(frozen=True, slots=True)
class StaleCopy:
    """A stale copy, and the servers that still have it; `held` if too many pages of its host would disappear."""

    chunk_id: int
    newer: int | None
    at: datetime
    held: bool
    hosts: Sequence[str]
    answers: bool  # searches find it on one of them


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """The number of rows, and of running components: crawlers and builders that work, index servers, all types."""

    rows: int
    crawlers: int
    builders: int
    index_servers: int
    running: int


@dataclass(frozen=True, slots=True)
class PageHistory:
    """The history of a page: `crawled` is the chunk of its last fetch, `indexed` the chunk with its newest text."""

    text: PageText
    crawled: Chunk | None
    indexed: Chunk | None
    copies: Sequence[ChunkCopy]
    outdated: Sequence[StaleCopy]
    workers: WorkerCounts

    @property
    def answering(self) -> list[ChunkCopy]:
        """The copies of the newest text that searches find."""
        return [copy for copy in self.copies if copy.answers]

    @property
    def older(self) -> list[StaleCopy]:
        """The stale copies that searches still find."""
        return [copy for copy in self.outdated if copy.answers]


async def host_rest(conn: Connection, domain64: int) -> HostRest:
    """The rest of a registered host."""
    return await store.host_rest.only(conn, HostRest, domain64=domain64)


async def page_history(
    conn: Connection, page: int, chunk: int | None, *, now: datetime, ended: Sequence[str] = ()
) -> PageHistory:
    """The history of a page that was last fetched in this chunk; `ended` components do not run."""
    stopped = list(ended)
    text = await text_of(conn, page)
    crawled = None if chunk is None else await chunks.show(conn, chunk)
    indexed = crawled
    if text.indexed_in != chunk:
        indexed = None if text.indexed_in is None else await chunks.show(conn, text.indexed_in)
    return PageHistory(
        text,
        crawled,
        indexed,
        await store.chunk_copies.rows(conn, ChunkCopy, chunk=text.indexed_in, ended=stopped),
        await store.stale_copies.rows(
            conn, StaleCopy, page=page, n=MAX_STALE_COPIES, ended=stopped
        ),
        await worker_counts(conn, now=now, ended=stopped),
    )


async def worker_counts(
    conn: Connection, *, now: datetime, ended: Sequence[str] = ()
) -> WorkerCounts:
    quiet = now - MAX_WORKER_SILENCE
    return await store.worker_counts.only(conn, WorkerCounts, quiet=quiet, ended=list(ended))


async def text_of(conn: Connection, page: int) -> PageText:
    [(*fields, scheme, host, path)] = await store.page_text.tuples(conn, page=page)
    original = None if host is None else url_text(scheme, host, path)
    text64, noindex, indexed_in, misses, attempts, reason = fields
    return PageText(text64, noindex, indexed_in, misses, attempts, reason, original)
