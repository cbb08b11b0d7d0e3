"""MGMT looked at: chunks, who holds what, and what was searched for.

Comes from whoever operates or shows MGMT; goes out as rows, always a bounded number of them.
"""

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
from usher.urls import Scheme, Url

store = load_statements(__file__)
Stage = Literal[
    "crawling", "crawled", "building", "built", "propagated", "retired", "error", "parked"
]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)  # on the way of a chunk, then off it
BUILDS: Final[Mapping[str | None, Stage]] = MappingProxyType(
    {None: "crawled", "building": "building", "built": "built"}
)
MAX_COUNTED: Final = 10_000  # counted, of what may be millions
MAX_QUERIES: Final = 100_000
MAX_PAGES_SHOWN: Final = 1_000
MAX_ID: Final = 2**63 - 1


def stage(chunk: Chunk) -> Stage:
    """How far a chunk is, in one word: `error` if its content is lost, `parked` if nobody could build its index.

    `retired` if nothing was left of it.
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
    after: int | None = None,
    n: int = 100,
) -> list[Chunk]:
    """Chunks, the newest first; of a crawler or builder only those that are not propagated, unless asked for.

    `failed` are those in error and those parked.
    """
    return await store.list_chunks.rows(
        conn,
        Chunk,
        stage=stage,
        crawler=crawler,
        builder=builder,
        after=MAX_ID if after is None else after,
        n=n,
    )


@dataclass(frozen=True, slots=True)
class ChunkCount:
    """How many chunks are in a stage; at least that many if it is `MOST`."""

    stage: Stage
    number: int


async def count_chunks(conn: Connection) -> list[ChunkCount]:
    """Every stage with its number, up to `MOST` each."""
    return await store.count_chunks.rows(conn, ChunkCount, most=MAX_COUNTED)


@dataclass(frozen=True, slots=True)
class ComponentHoldings:
    """What a component has in hand: chunks by stage, and as an index server by placement; up to `MOST` each."""

    component_id: int
    crawling: int = 0
    crawled: int = 0
    building: int = 0
    built: int = 0
    wanted: int = 0
    loaded: int = 0
    leaving: int = 0


async def holdings(conn: Connection, ids: Sequence[int]) -> dict[int, ComponentHoldings]:
    """What each of these components has in hand."""
    found = await store.holdings.rows(conn, ComponentHoldings, ids=list(ids), most=MAX_COUNTED)
    return {one.component_id: one for one in found}


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
    """A chunk, its copies and its pages; the chunks that it is made of, and that are made of it."""

    chunk: Chunk
    placements: list[ChunkPlacement]
    pages: list[ChunkPage]
    made_of: list[int]
    merged_into: list[int]


async def show_chunk(conn: Connection, id_: int) -> ChunkDetails:
    """A chunk with its copies and its first pages; those that have gone on into a later chunk are not its own."""
    if (chunk := await chunks.show(conn, id_)) is None:
        raise NotFound(f"There is no chunk {id_}.", hint="usher chunks list")
    placed = await store.placements.rows(conn, ChunkPlacement, chunk=id_)
    pages = await store.pages.tuples(conn, chunk=id_, n=MAX_PAGES_SHOWN)
    found = [
        ChunkPage(page, str(Url(Scheme(scheme), host, path)), state)
        for page, scheme, host, path, state in pages
    ]
    made_of = [source for (source,) in await store.chunk_sources.tuples(conn, chunk=id_)]
    merged_into = [other for (other,) in await store.merged_into.tuples(conn, chunk=id_)]
    return ChunkDetails(chunk, placed, found, made_of, merged_into)


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """How long queries took, in seconds; of the last `MOST_QUERIES` if there were more."""

    number: int
    mean: float
    median: float
    p95: float
    slowest: float


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """What was asked for, how often, and how long it took."""

    term: str
    number: int
    mean: float
    slowest: float
    latest: datetime


@dataclass(frozen=True, slots=True)
class QueryDay:
    """The sums of a day (UTC) whose single queries are no longer kept."""

    day: date
    number: int
    mean: float
    slowest: float


async def query_days(conn: Connection, *, since: datetime) -> list[QueryDay]:
    """The days since then whose single queries are no longer kept."""
    return await store.query_days.rows(conn, QueryDay, since=since.astimezone(UTC).date())


async def query_day_terms(conn: Connection, *, since: datetime, n: int = 20) -> list[QueryTerm]:
    """The most frequent terms of those days, as far as each day keeps them."""
    return await store.query_day_terms.rows(
        conn, QueryTerm, since=since.astimezone(UTC).date(), n=n
    )


async def queries(conn: Connection, *, since: datetime) -> QueryTimes:
    """The queries since then, summed up."""
    [found] = await store.queries.rows(conn, QueryTimes, since=since, most=MAX_QUERIES)
    return found


async def terms(conn: Connection, *, since: datetime, n: int = 20) -> list[QueryTerm]:
    """What was asked for most often since then."""
    return await store.terms.rows(conn, QueryTerm, since=since, most=MAX_QUERIES, n=n)
