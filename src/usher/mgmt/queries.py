"""Read-only queries about chunks, components and searches; each returns a bounded number of rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Final, Literal, get_args

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.mgmt import chunks
from usher.mgmt.chunks import Chunk
from usher.urls import url_text

store = load_statements(__file__)
Stage = Literal[
    "crawling", "crawled", "building", "built", "propagated", "retired", "error", "parked"
]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)  # in order; the last two are failures
BUILDS: Final[Mapping[str | None, Stage]] = MappingProxyType(
    {None: "crawled", "building": "building", "built": "built"}
)
MAX_COUNTED: Final = 10_000  # the limit of every count
MAX_QUERIES: Final = 100_000
MAX_PAGES_SHOWN: Final = 1_000
MAX_ID: Final = 2**63 - 1


def stage(chunk: Chunk) -> Stage:
    """The stage of a chunk: `error` if its content is lost, `parked` if no builder could build its index.

    `retired` if no live page is left in it.
    """
    if chunk.propagated_at is not None:
        return "retired" if chunk.index_state == "retired" else "propagated"
    if chunk.state != "crawled":
        return "crawling" if chunk.state == "crawling" else "error"
    return BUILDS.get(chunk.index_state, "parked")


async def list_chunks(
    conn: Connection,
    *,
    stage: Stage | Literal["failed"] | None = None,
    crawler: int | None = None,
    builder: int | None = None,
    reason: str | None = None,
    after: int | None = None,
    n: int = 100,
) -> list[Chunk]:
    """Chunks, the newest first; of a crawler or builder only those that are not propagated, unless `stage` is given.

    The stage `failed` means `error` or `parked`.
    """
    return await store.list_chunks.rows(
        conn,
        Chunk,
        stage=stage,
        crawler=crawler,
        builder=builder,
        reason=reason,
        after=MAX_ID if after is None else after,
        n=n,
    )


@dataclass(frozen=True, slots=True)
class ChunkCount:
    """The number of chunks in a stage, counted up to MAX_COUNTED."""

    stage: Stage
    number: int


async def count_chunks(conn: Connection) -> list[ChunkCount]:
    """The number of chunks in every stage."""
    return await store.count_chunks.rows(conn, ChunkCount, most=MAX_COUNTED)


@dataclass(frozen=True, slots=True)
class ComponentHoldings:
    """The chunks of a component by stage, or by placement for an index server; each counted up to MAX_COUNTED."""

    component_id: int
    crawling: int = 0
    crawled: int = 0
    building: int = 0
    built: int = 0
    wanted: int = 0
    loaded: int = 0
    leaving: int = 0


async def holdings(conn: Connection, ids: Sequence[int]) -> dict[int, ComponentHoldings]:
    """The holdings of each of these components."""
    rows = await store.holdings.rows(conn, ComponentHoldings, ids=list(ids), most=MAX_COUNTED)
    return {row.component_id: row for row in rows}


@dataclass(frozen=True, slots=True)
class ChunkPlacement:
    """One copy of a chunk."""

    row: int
    host: str
    state: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """A page of a chunk."""

    id: int
    url: str
    state: str


@dataclass(frozen=True, slots=True)
class ChunkDetails:
    """A chunk with its copies and pages, its source chunks, and the chunks that compaction made of it."""

    chunk: Chunk
    placements: list[ChunkPlacement]
    pages: list[ChunkPage]
    made_of: list[int]
    merged_into: list[int]


async def show_chunk(conn: Connection, id_: int) -> ChunkDetails:
    """A chunk with its copies and its first pages; pages that moved to a later chunk are left out. Raises NotFound."""
    if (chunk := await chunks.show(conn, id_)) is None:
        raise NotFound(f"There is no chunk {id_}.", hint="usher chunks list")
    placed = await store.placements.rows(conn, ChunkPlacement, chunk=id_)
    pages = [
        ChunkPage(page, url_text(scheme, host, path), state)
        for page, scheme, host, path, state in await store.pages.tuples(
            conn, chunk=id_, n=MAX_PAGES_SHOWN
        )
    ]
    made_of = await store.chunk_sources.column(conn, chunk=id_)
    merged_into = await store.merged_into.column(conn, chunk=id_)
    return ChunkDetails(chunk, placed, pages, made_of, merged_into)


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """How long the last queries took in seconds, up to MAX_QUERIES of them."""

    number: int
    mean: float
    median: float
    p95: float
    slowest: float


@dataclass(frozen=True, slots=True)
class QueryTermTimes:
    """A search term, how often it was searched, and how long that took."""

    term: str
    number: int
    mean: float
    slowest: float
    latest: datetime


@dataclass(frozen=True, slots=True)
class QueryDay:
    """The statistics of a day (UTC) whose single queries were deleted."""

    day: date
    number: int
    mean: float
    slowest: float


async def query_days(conn: Connection, *, since: datetime) -> list[QueryDay]:
    """The days since then whose single queries were deleted."""
    return await store.query_days.rows(conn, QueryDay, since=since.astimezone(UTC).date())


async def query_day_terms(
    conn: Connection, *, since: datetime, n: int = 20
) -> list[QueryTermTimes]:
    """The most frequent terms of those days."""
    return await store.query_day_terms.rows(
        conn, QueryTermTimes, since=since.astimezone(UTC).date(), n=n
    )


async def queries(conn: Connection, *, since: datetime, most: int = MAX_QUERIES) -> QueryTimes:
    """The times of the queries since then, at most this many of the latest."""
    return await store.queries.only(conn, QueryTimes, since=since, most=most)


async def terms(
    conn: Connection,
    *,
    since: datetime,
    n: int = 20,
    most: int = MAX_QUERIES,
    without_results: bool = False,
) -> list[QueryTermTimes]:
    """The most frequent terms since then, of the last `most` queries, or of those of them without results."""
    return await store.terms.rows(
        conn, QueryTermTimes, since=since, most=most, n=n, without_results=without_results
    )


@dataclass(frozen=True, slots=True)
class BusyHost:
    """A host and the number of its pages that were fetched."""

    name: str
    pages: int


async def busiest_hosts(conn: Connection, *, since: datetime, n: int, most: int) -> list[BusyHost]:
    """The hosts with the most pages fetched since then, of the last `most` pages."""
    return await store.busiest_hosts.rows(conn, BusyHost, since=since, n=n, most=most)
