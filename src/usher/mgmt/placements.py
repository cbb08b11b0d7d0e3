"""Placements: which server of each row has which chunk, as `placement_rules` decides and the servers report.

One transaction at a time changes placements, by a lock that ends with it; `plan` makes its own transactions. Triggers
count the placements of each server (work.server_load), so that a chunk costs the same however many there are.

    place_chunks  a chunk was built: one placement in each row; a plan repairs rows without a server later
    plan          a server came, is draining or is gone: chunks move
    loaded        a server has a chunk; when all rows have it, it is propagated
    drop          a copy that moved away is released once its successor is loaded; its server may drop it a moment later
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.messages.index_server import (
    ChunkServer,
    HeldChunk,
    HoldingsComparison,
    SeedHosts,
    ServerChunk,
)
from usher.mgmt import components, incarnation, page_versions, placement_rules
from usher.mgmt.chunk_objects import object_key
from usher.mgmt.health import DEFAULT_LIMITS, HealthLimits
from usher.mgmt.placement_rules import ANSWERS, MovableChunk, PlacedCopy, PlacementServer, Quota

store = load_statements(__file__)
PLACEMENT_LOCK: Final = (
    0x7573_6865_7221  # "usher", 33: one transaction at a time changes placements
)
MAX_MOVES_PER_TRANSACTION: Final = 20_000
MAX_FIRST_PLACEMENTS: Final = 1_000  # of a new server, which waits for the answer
CANDIDATES_PER_MOVE: Final = 2  # leaves a choice that keeps copies on different machines
RELEASED_COPY_RETENTION: Final = timedelta(days=1)  # then MGMT forgets the copy
# A released copy stays longer than a front end uses an old map and waits for answers. Otherwise a front end that asks
# the old server after the drop and the new one before the load misses the chunk (8 of 107 answers during a join).
RELEASED_COPY_DELAY: Final = timedelta(seconds=10)
MAX_COUNTED: Final = 10_000


class PlanResult(NamedTuple):
    """How many missing placements a plan added, and how many it moved."""

    placed: int = 0
    moved: int = 0


@dataclass(frozen=True, slots=True)
class RowShortage:
    """The placements of a row, the chunks without one and the placements not loaded; the last two up to 10,000."""

    row: int
    seats: int
    unseated: int
    wanted: int


async def plan_alone(conn: Connection) -> None:
    """Until the transaction ends no other one changes placements, and no server reports."""
    await store.plan_alone.tuples(conn, lock=PLACEMENT_LOCK)


async def keep_planners_out(conn: Connection) -> None:
    """Until the transaction ends no other one plans; any number of servers may report."""
    await store.keep_planners_out.tuples(conn, lock=PLACEMENT_LOCK)


async def place_chunks(
    conn: Connection,
    chunks: Sequence[int],
    *,
    now: datetime,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> list[int]:
    """Place chunks that were built in this transaction; returns the rows that have no server for them."""
    await plan_alone(conn)
    new = await store.chunks_to_place.column(conn, chunks=list(chunks))
    if not new:
        return []
    servers = await components.servers(conn, now=now, limits=limits)
    rows = await components.row_count(conn)
    where = {server.id: server.row for server in servers}
    held = await _counts(conn)
    counts = {id_: held.get((id_, row), 0) for id_, row in where.items()}
    placed = placement_rules.place_new_chunks(new, servers, counts, rows)
    placements = [
        (id_, chunk, where[id_]) for id_, taken in placed.chunks.items() for chunk in taken
    ]
    await _take(conn, placements, now)
    if placed.missing:
        await store.add_unplaced.run(conn, rows=placed.missing, chunks=new)
    return placed.missing


async def remove_placements(conn: Connection, chunks: Sequence[int], *, copies: bool) -> None:
    """Remove the placements of these chunks; with `copies` also loaded ones. Call `plan_alone` first."""
    if chunks:
        await store.remove_placements.run(conn, chunks=list(chunks), copies=copies)


async def plan(
    conn: Connection,
    *,
    now: datetime,
    limits: HealthLimits = DEFAULT_LIMITS,
    pack: int = MAX_MOVES_PER_TRANSACTION,
) -> PlanResult:
    """Balance all rows with the fewest moves.

    Uses one transaction for each `pack` of moves, unless the connection is in one, so that builders and servers never
    wait long.
    """
    placed = moved = 0
    async with conn.transaction():
        rows = await _adapt_to_row_count(conn, now)
    for row in range(1, rows + 1):
        while True:
            async with conn.transaction():
                done = await _plan_row(conn, row, pack, now, limits)
            placed, moved = placed + done.placed, moved + done.moved
            if done == PlanResult():
                break
    return PlanResult(placed, moved)


async def _adapt_to_row_count(conn: Connection, now: datetime) -> int:
    """Return the number of rows; if it changed, adapt the placements of all chunks."""
    [(rows, before)] = await store.row_counts.tuples(conn)
    if rows != before:
        await plan_alone(conn)
        await store.narrow.run(conn, rows=rows)
        await store.widen.run(conn, rows=rows)
        await store.propagate.run(conn, chunks=None, now=now)
        await store.set_placed_rows.run(conn, rows=rows)
    return int(rows)


async def _plan_row(
    conn: Connection,
    row: int,
    pack: int,
    now: datetime,
    limits: HealthLimits,
    *,
    moving: bool = True,
) -> PlanResult:
    """Make one pack of moves in a row; unless `moving`, only place chunks that have no placement in it."""
    await plan_alone(conn)
    held = await _counts(conn)
    servers = await components.servers(conn, now=now, limits=limits)
    members = [
        _as_of(row, server) for server in servers if server.row == row or (server.id, row) in held
    ]
    waiting = 0
    if any(server.condition == "fit" for server in members):
        waiting = await store.waiting.value(conn, row=row, n=pack)
    counts = {server.id: held.get((server.id, row), 0) for server in members}
    quota = placement_rules.quotas(members, counts, waiting)
    if not moving:
        quota = quota._replace(counts={id_: max(0, n) for id_, n in quota.counts.items()})
    gone = [server.id for server in members if server.condition == "gone"]
    offers = await _offers(conn, row, quota, waiting, pack, gone)
    return (
        await _write(conn, row, placement_rules.moves(members, quota, offers), now)
        if offers
        else PlanResult()
    )


def _as_of(row: int, server: PlacementServer) -> PlacementServer:
    """A server that changed its row gives away its chunks of this row."""
    if server.row == row:
        return server
    leaves = "draining" if server.condition in ANSWERS else server.condition
    return replace(server, row=row, condition=leaves)


async def _offers(
    conn: Connection, row: int, quota: Quota, waiting: int, pack: int, gone: Collection[int] = ()
) -> list[MovableChunk]:
    """The chunks that may move: more than must, at most a pack."""
    must = {id_: -count for id_, count in quota.counts.items() if count < 0}
    rows: list[tuple[Any, ...]] = []
    if waiting:
        rows += await store.unplaced_chunks.tuples(conn, row=row, n=waiting)
    if must:
        room = pack / max(pack, CANDIDATES_PER_MOVE * sum(must.values()))
        rows += await store.movable_chunks.tuples(
            conn,
            row=row,
            givers=list(must),
            most=[max(1, int(CANDIDATES_PER_MOVE * count * room)) for count in must.values()],
            takers=[*(id_ for id_, count in quota.counts.items() if count > 0), *quota.more],
            gone=list(gone),
        )
    return [
        MovableChunk(chunk, giver, wanted_, elsewhere or (), holders or ())
        for chunk, giver, wanted_, elsewhere, holders in rows
    ]


async def _write(
    conn: Connection, row: int, moves: Sequence[placement_rules.Move], now: datetime
) -> PlanResult:
    given = [(move.giver, move.chunk) for move in moves if move.giver is not None]
    if given:
        givers, chunks = zip(*given, strict=True)
        await store.give_placements.run(conn, givers=list(givers), chunks=list(chunks), now=now)
    await _take(conn, [(move.taker, move.chunk, row) for move in moves], now)
    return PlanResult(len(moves) - len(given), len(given))


async def _take(
    conn: Connection, placements: Sequence[tuple[int, int, int]], now: datetime
) -> None:
    """Store placements (server, chunk, row); a chunk that the server still has is loaded at once."""
    if not placements:
        return
    servers, chunks, rows = zip(*placements, strict=True)
    stored = await store.take_placements.tuples(
        conn, servers=list(servers), chunks=list(chunks), rows=list(rows), now=now
    )
    if held := [chunk for chunk, there in stored if there]:
        await store.propagate.run(conn, chunks=held, now=now)


async def _counts(conn: Connection) -> dict[tuple[int, int], int]:
    """The number of placements by server and row."""
    return {(id_, row): number for id_, row, number in await store.placement_counts.tuples(conn)}


async def drop(conn: Connection, *, now: datetime, limits: HealthLimits = DEFAULT_LIMITS) -> int:
    """Release the copies whose successor is loaded; returns how many."""
    await plan_alone(conn)
    servers = await components.servers(conn, now=now, limits=limits)
    sure = [server.id for server in servers if server.condition in ANSWERS]
    await store.forget.run(conn, before=now - RELEASED_COPY_RETENTION)
    return await store.release.run(conn, sure=sure, now=now)


async def leaving(
    conn: Connection, server: int, *, now: datetime, n: int, after: int = 0
) -> list[int]:
    """The chunks that a server may drop now; it confirms with `dropped`."""
    before = now - RELEASED_COPY_DELAY
    return await store.leaving.column(conn, server=server, before=before, n=n, after=after)


async def dropped(
    conn: Connection, server: int, chunks: Sequence[int], *, now: datetime
) -> set[int]:
    """Record that a server dropped these chunks; one that is placed on it must be loaded again. Returns them."""
    await plan_alone(conn)
    return set(await store.dropped.column(conn, server=server, chunks=list(chunks), now=now))


async def returned(
    conn: Connection, server: int, held: Collection[int], *, now: datetime
) -> list[int]:
    """Record that a server is back with exactly these chunks, verified; returns those that it should delete."""
    await plan_alone(conn)
    before = await store.placed.rows(conn, PlacedCopy, server=server)
    result = placement_rules.returned(before, set(held))
    lost = {copy.chunk for copy in before if copy.state != "wanted" and copy.chunk not in set(held)}
    await store.dropped.tuples(conn, server=server, chunks=sorted(lost), now=now)
    there = [copy.chunk for copy in result.copies if copy.state == "loaded"]
    await loaded(conn, server, there, now=now)
    await store.reported.run(conn, server=server)
    return result.stray


async def compare(
    conn: Connection, server: int, held: Sequence[HeldChunk], *, now: datetime
) -> HoldingsComparison:
    """Compare the chunks of a server with a restored database.

    A chunk counts as loaded if it is whole. If documents were removed from it, the database may believe that they are
    searchable: the server loads the chunk again and then learns which copies are stale.
    """
    chunks = [chunk.chunk_id for chunk in held]
    sums: dict[int, str | None] = dict(await store.sums.tuples(conn, chunks=chunks))
    whole = [chunk.chunk_id for chunk in held if is_whole(chunk, sums.get(chunk.chunk_id))]
    rest = set(chunks).difference(whole)
    await dropped(conn, server, sorted(rest), now=now)
    await loaded(conn, server, whole, now=now)
    placed = set(await store.placed.column(conn, server=server))
    return HoldingsComparison(stray=sorted(set(chunks) - placed), reload=sorted(rest & placed))


def is_whole(chunk: HeldChunk, sha256: str | None) -> bool:
    """Whether the file is the one that the database knows, and no document was removed from it."""
    return chunk.documents == chunk.file_documents and sha256 in (None, chunk.sha256)


async def is_unreported(conn: Connection, server: int) -> bool:
    """Whether a server must still compare its chunks after a restore."""
    return bool(await store.is_unreported.value(conn, server=server))


async def loaded(
    conn: Connection, server: int, chunks: Sequence[int], *, now: datetime
) -> set[int]:
    """Record that a server loaded chunks; returns those that are placed on it, also if it reported them before."""
    await keep_planners_out(conn)
    built = await store.lock_chunks.column(conn, chunks=list(chunks))
    placed = set(await store.load.column(conn, server=server, chunks=built, now=now))
    if placed:
        await store.propagate.run(conn, chunks=sorted(placed), now=now)
        await page_versions.loaded(conn, sorted(placed))
        await incarnation.settle(conn, sorted(placed))
    return placed


async def wanted(
    conn: Connection, server: int, *, n: int, after: int = 0, around: bool = False
) -> list[ServerChunk]:
    """The chunks after an id that a server must load; with `around`, those up to this id follow at the end.

    The URL of a chunk in the object store is its key, which the caller signs.
    """
    records = await store.wanted.tuples(conn, server=server, n=n, after=after, around=around)
    return [wanted_chunk(*record) for record in records]


def wanted_chunk(
    id_: int,
    crawler: str,
    builder: str,
    rows: Sequence[int],
    hosts: Sequence[str],
    *rest: Any,  # noqa: ANN401 - peers, checksums and sizes
) -> ServerChunk:
    *values, is_stored = rest
    servers = list(map(ChunkServer, rows, hosts))
    chunk = ServerChunk(id_, crawler, builder, servers, SeedHosts(crawler, builder), *values)
    if is_stored and chunk.index_sha256:
        chunk.url = object_key("index", id_, chunk.index_sha256)
    return chunk


async def fill_new_server(
    conn: Connection, server: components.ComponentRecord, *, now: datetime
) -> bool:
    """Place waiting chunks of a row on a server that never had any; returns whether there were some.

    The watchdog's next plan gives it its share of the chunks of other servers.
    """
    if server.row is None or await store.had_placements.tuples(conn, server=server.id):
        return False
    async with conn.transaction():
        planned = await _plan_row(
            conn, server.row, MAX_FIRST_PLACEMENTS, now, DEFAULT_LIMITS, moving=False
        )
        await store.record_empty_server.run(conn, server=server.id, row=server.row)
    return planned != PlanResult()


async def row_shortages(conn: Connection) -> list[RowShortage]:
    """The shortages of each row."""
    return await store.row_shortages.rows(conn, RowShortage, n=MAX_COUNTED)
