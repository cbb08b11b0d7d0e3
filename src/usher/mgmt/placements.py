"""Placements: which server of each row holds which chunk, as `seating` decides and the servers report.

Comes from builders that finish, servers that load, and the watchdog; goes to work.placement. Seats are given by one
planner at a time, by a lock that ends with the transaction, so whatever writes must be called in one; `plan` makes its
own. The number of seats is kept by the writes, so that a chunk costs the same however many there are.

    seat      a chunk was built: one seat in each row; rows without a server are noted, and repaired by a plan
    plan      what must move does: a server came, is draining, or is gone
    loaded    a server has a chunk; when all rows have it, it is propagated
    drop      what moved away is released, once its successor is loaded; a moment later its server may drop it
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.messages.index_server import HeldChunk
from usher.mgmt import components, incarnation, page_versions, placement_rules
from usher.mgmt.health import Health, HealthLimits
from usher.mgmt.placement_rules import ANSWERS, MovableChunk, PlacedCopy, PlacementServer, Quota

store = load_statements(__file__)
PLACEMENT_LOCK: Final = 0x7573_6865_7221  # "usher", 33: seats are given by one at a time
MAX_MOVES_PER_TRANSACTION: Final = 20_000  # seats given in one transaction
MAX_FIRST_PLACEMENTS: Final = 1_000  # seats given to a new server while it waits for an answer
CANDIDATES_PER_MOVE: Final = 2  # leaves a choice that keeps copies on different machines
DEFAULT_LIMITS: Final = HealthLimits()
RELEASED_COPY_RETENTION: Final = timedelta(days=1)  # for a server to hear that it may drop a copy
# A released copy stays for longer than a front-end goes by an old map and waits for answers: one that asks the old
# server after the drop and the new one before the load would find the chunk nowhere, and not know (seen in 8 of 107
# answers while a server joined).
RELEASED_COPY_DELAY: Final = timedelta(seconds=10)
MAX_COUNTED: Final = 10_000


class PlanResult(NamedTuple):
    """What a plan did: seats for chunks that had none in some row, and seats that moved."""

    seated: int = 0
    moved: int = 0


@dataclass(frozen=True, slots=True)
class WantedChunk:
    """A chunk that a server is to load, who has its content and its index, and how to check them."""

    chunk_id: int
    crawler_host: str
    index_builder_host: str
    index_sha256: str | None
    index_bytes: int | None
    sha256: str | None
    bytes: int | None
    rows: list[tuple[int, str]]  # its seats
    peers: list[str]  # servers that have it already


@dataclass(frozen=True, slots=True)
class ServersMap:
    """The servers to ask, by row; the version changes when they do."""

    rows: list[tuple[int, list[str]]]
    version: str


@dataclass(frozen=True, slots=True)
class FullMap:
    """The same with the chunks that each answers for, and those that a restored database lacks still."""

    rows: list[tuple[int, list[tuple[str, list[int]]]]]
    version: str
    incarnation: str
    unrestored: list[int]


class Comparison(NamedTuple):
    """Chunks that a server has no use for, and those that it has to load again from their files."""

    stray: list[int]
    reload: list[int]


@dataclass(frozen=True, slots=True)
class RowShortage:
    """What a row lacks: chunks without a seat, and seats that are not loaded, each counted up to 10,000."""

    row: int
    seats: int
    unseated: int
    wanted: int


async def plan_alone(conn: Connection) -> None:
    """Until the transaction ends nobody else gives seats, and no server reports."""
    await store.plan_alone.tuples(conn, lock=PLACEMENT_LOCK)


async def keep_planners_out(conn: Connection) -> None:
    """Until the transaction ends no seats are given; any number of servers may report."""
    await store.keep_planners_out.tuples(conn, lock=PLACEMENT_LOCK)


async def place_chunks(
    conn: Connection,
    chunks: Sequence[int],
    *,
    now: datetime,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> list[int]:
    """Seats for chunks that were built in this transaction; returns the rows that have no server for them."""
    await plan_alone(conn)
    new = [id_ for (id_,) in await store.chunks_to_place.tuples(conn, chunks=list(chunks))]
    if not new:
        return []
    servers = await components.servers(conn, now=now, limits=limits)
    rows = await components.row_count(conn)
    where = {one.id: one.row for one in servers}
    held = await _counts(conn)
    counts = {id_: held.get((id_, row), 0) for id_, row in where.items()}
    found = placement_rules.place_new_chunks(new, servers, counts, rows)
    seats = [(id_, chunk, where[id_]) for id_, taken in found.chunks.items() for chunk in taken]
    await _take(conn, seats, now)
    if found.missing:
        await store.add_unplaced.run(conn, rows=found.missing, chunks=new)
    return found.missing


async def remove_placements(conn: Connection, chunks: Sequence[int], *, copies: bool) -> None:
    """Take the places of these chunks away; `copies` those of loaded ones too. Call `plan_alone` first."""
    if chunks:
        await store.remove_placements.run(conn, chunks=list(chunks), copies=copies)


async def plan(
    conn: Connection,
    *,
    now: datetime,
    limits: HealthLimits = DEFAULT_LIMITS,
    pack: int = MAX_MOVES_PER_TRANSACTION,
) -> PlanResult:
    """Seats where they should be, with the fewest moves.

    One transaction for each pack of moves, unless the connection is in one: nobody who builds or loads waits for long.
    """
    seated = moved = 0
    async with conn.transaction():
        rows = await _look_through(conn, now)
    for row in range(1, rows + 1):
        while True:
            async with conn.transaction():
                done = await _plan_row(conn, row, pack, now, limits)
            seated, moved = seated + done.seated, moved + done.moved
            if done == PlanResult():
                break
    return PlanResult(seated, moved)


async def _look_through(conn: Connection, now: datetime) -> int:
    """How many rows there are; if it was another number before, all chunks are looked through once."""
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
    """One pack of moves in a row; unless `moving`, only chunks without a seat get one."""
    await plan_alone(conn)
    held = await _counts(conn)
    servers = await components.servers(conn, now=now, limits=limits)
    here = [_as_of(row, one) for one in servers if one.row == row or (one.id, row) in held]
    waiting = 0
    if any(one.condition == "fit" for one in here):
        [(waiting,)] = await store.waiting.tuples(conn, row=row, n=pack)
    counts = {one.id: held.get((one.id, row), 0) for one in here}
    quota = placement_rules.quotas(here, counts, waiting)
    if not moving:
        quota = quota._replace(counts={id_: max(0, n) for id_, n in quota.counts.items()})
    gone = [one.id for one in here if one.condition == "gone"]
    offers = await _offers(conn, row, quota, waiting, pack, gone)
    return (
        await _write(conn, row, placement_rules.moves(here, quota, offers), now)
        if offers
        else PlanResult()
    )


def _as_of(row: int, server: PlacementServer) -> PlacementServer:
    """A server that went to another row gives away all it has here."""
    if server.row == row:
        return server
    leaves = "draining" if server.condition in ANSWERS else server.condition
    return replace(server, row=row, condition=leaves)


async def _offers(
    conn: Connection, row: int, quota: Quota, waiting: int, pack: int, gone: Collection[int] = ()
) -> list[MovableChunk]:
    """What may move: somewhat more than must, and no more than a pack."""
    must = {id_: -count for id_, count in quota.counts.items() if count < 0}
    found: list[tuple[Any, ...]] = []
    if waiting:
        found += await store.unplaced_chunks.tuples(conn, row=row, n=waiting)
    if must:
        room = pack / max(pack, CANDIDATES_PER_MOVE * sum(must.values()))
        found += await store.movable_chunks.tuples(
            conn,
            row=row,
            givers=list(must),
            most=[max(1, int(CANDIDATES_PER_MOVE * count * room)) for count in must.values()],
            takers=[*(id_ for id_, count in quota.counts.items() if count > 0), *quota.more],
            gone=list(gone),
        )
    return [
        MovableChunk(chunk, giver, wanted_, elsewhere or (), holders or ())
        for chunk, giver, wanted_, elsewhere, holders in found
    ]


async def _write(
    conn: Connection, row: int, moves: Sequence[placement_rules.Move], now: datetime
) -> PlanResult:
    given = [(one.giver, one.chunk) for one in moves if one.giver is not None]
    if given:
        givers, chunks = zip(*given, strict=True)
        await store.give_placements.run(conn, givers=list(givers), chunks=list(chunks), now=now)
    await _take(conn, [(one.taker, one.chunk, row) for one in moves], now)
    return PlanResult(len(moves) - len(given), len(given))


async def _take(conn: Connection, seats: Sequence[tuple[int, int, int]], now: datetime) -> None:
    """Write seats: server, chunk, row; what a server still has is loaded at once."""
    if not seats:
        return
    servers, chunks, rows = zip(*seats, strict=True)
    found = await store.take_placements.tuples(
        conn, servers=list(servers), chunks=list(chunks), rows=list(rows), now=now
    )
    if held := [chunk for chunk, there in found if there]:
        await store.propagate.run(conn, chunks=held, now=now)


async def _counts(conn: Connection) -> dict[tuple[int, int], int]:
    """Seats by server and row."""
    return {(id_, row): seats for id_, row, seats in await store.placement_counts.tuples(conn)}


async def drop(conn: Connection, *, now: datetime, limits: HealthLimits = DEFAULT_LIMITS) -> int:
    """Release the copies whose successor is loaded; returns how many."""
    await plan_alone(conn)
    servers = await components.servers(conn, now=now, limits=limits)
    sure = [one.id for one in servers if one.condition in ANSWERS]
    await store.forget.run(conn, before=now - RELEASED_COPY_RETENTION)
    return await store.release.run(conn, sure=sure, now=now)


async def leaving(
    conn: Connection, server: int, *, now: datetime, n: int, after: int = 0
) -> list[int]:
    """The chunks that a server may drop now; it says so afterwards (`dropped`)."""
    before = now - RELEASED_COPY_DELAY
    found = await store.leaving.tuples(conn, server=server, before=before, n=n, after=after)
    return [id_ for (id_,) in found]


async def dropped(
    conn: Connection, server: int, chunks: Sequence[int], *, now: datetime
) -> set[int]:
    """A server has these no more: if one was its seat, it is to load it again. Returns those that it had."""
    await plan_alone(conn)
    found = await store.dropped.tuples(conn, server=server, chunks=list(chunks), now=now)
    return {id_ for (id_,) in found}


async def returned(
    conn: Connection, server: int, held: Collection[int], *, now: datetime
) -> list[int]:
    """A server comes back with these chunks, checked and sound, and no others; returns those it has no use for."""
    await plan_alone(conn)
    was = [PlacedCopy(*one) for one in await store.placed.tuples(conn, server=server)]
    found = placement_rules.returned(was, set(held))
    lost = {one.chunk for one in was if one.state != "wanted" and one.chunk not in set(held)}
    await store.dropped.tuples(conn, server=server, chunks=sorted(lost), now=now)
    there = [one.chunk for one in found.copies if one.state == "loaded"]
    await loaded(conn, server, there, now=now)
    await store.reported.run(conn, server=server)
    return found.stray


async def compare(
    conn: Connection, server: int, held: Sequence[HeldChunk], *, now: datetime
) -> Comparison:
    """A server compares chunks that it holds with a database that was restored.

    A chunk counts as loaded if it is whole. From any other, documents were taken out that the database may believe
    searchable: the server loads it again, and is then told what is out of date in it.
    """
    chunks = [chunk.chunk_id for chunk in held]
    sums: dict[int, str | None] = dict(await store.sums.tuples(conn, chunks=chunks))
    whole = [chunk.chunk_id for chunk in held if is_whole(chunk, sums.get(chunk.chunk_id))]
    rest = set(chunks).difference(whole)
    await dropped(conn, server, sorted(rest), now=now)
    await loaded(conn, server, whole, now=now)
    placed = {chunk for chunk, *_ in await store.placed.tuples(conn, server=server)}
    stray, again = (sorted(some) for some in (set(chunks) - placed, rest & placed))
    return Comparison(stray, again)


def is_whole(chunk: HeldChunk, sha256: str | None) -> bool:
    """Whether it is the file that the database knows, with all documents: none was taken out in any history."""
    return chunk.documents == chunk.file_documents and sha256 in (None, chunk.sha256)


async def is_unreported(conn: Connection, server: int) -> bool:
    """Whether a server has to compare its chunks since the database was restored."""
    [(is_due,)] = await store.is_unreported.tuples(conn, server=server)
    return bool(is_due)


async def loaded(
    conn: Connection, server: int, chunks: Sequence[int], *, now: datetime
) -> set[int]:
    """A server has loaded chunks that are wanted on it; returns those, also if it said so before."""
    await keep_planners_out(conn)
    built = [id_ for (id_,) in await store.lock_chunks.tuples(conn, chunks=list(chunks))]
    found = {id_ for (id_,) in await store.load.tuples(conn, server=server, chunks=built, now=now)}
    if found:
        await store.propagate.run(conn, chunks=sorted(found), now=now)
        await page_versions.loaded(conn, sorted(found))
        await incarnation.settle(conn, sorted(found))
    return found


async def wanted(
    conn: Connection, server: int, *, n: int, after: int = 0, around: bool = False
) -> list[WantedChunk]:
    """Chunks that a server is to load, those after an id; `around` also those before it, at the end."""
    found = await store.wanted.tuples(conn, server=server, n=n, after=after, around=around)
    return [
        WantedChunk(*(*known, list(zip(rows, hosts, strict=True)), peers))
        for *known, rows, hosts, peers in found
    ]


async def fill_new_server(
    conn: Connection, server: components.ComponentRecord, *, now: datetime
) -> bool:
    """Seat chunks that wait for a server in the row of one that never had a seat; whether there were any.

    The watchdog's next plan gives it its share of what other servers have.
    """
    if server.row is None or await store.had_placements.tuples(conn, server=server.id):
        return False
    async with conn.transaction():
        planned = await _plan_row(
            conn, server.row, MAX_FIRST_PLACEMENTS, now, DEFAULT_LIMITS, moving=False
        )
        await store.record_empty_server.run(conn, server=server.id, row=server.row)
    return planned != PlanResult()


async def servers_map(conn: Connection) -> ServersMap:
    """The servers fit to answer, by row."""
    rows: dict[int, list[str]] = {}
    for row, host, _ in await store.fit_servers.tuples(conn, health="healthy"):
        rows.setdefault(row, []).append(host)
    return ServersMap(list(rows.items()), _version(rows.items()))


async def full_version(conn: Connection, health: Health = "healthy") -> str:
    """The version of the full map, without reading it."""
    servers = await store.fit_servers.tuples(conn, health=health)
    return _version([*await store.map_version.tuples(conn), *servers])


async def full_map(conn: Connection, health: Health = "healthy") -> FullMap:
    """The healthy servers, or with "probation" the second choice, by row, each with the chunks it answers for."""
    # The version first: a map that is newer than its version does no harm.
    version = await full_version(conn, health)
    [(_, _, unrestored, id_), *found] = await store.full_map.tuples(conn, health=health)
    rows: dict[int, list[tuple[str, list[int]]]] = {}
    for row, host, chunks, _ in found:
        rows.setdefault(row, []).append((host, chunks or []))
    return FullMap(list(rows.items()), version, id_, unrestored)


def _version(parts: Iterable[Any]) -> str:
    return hashlib.blake2b(repr(list(parts)).encode(), digest_size=12).hexdigest()


async def row_shortages(conn: Connection) -> list[RowShortage]:
    """What each row lacks."""
    return [RowShortage(*one) for one in await store.row_shortages.tuples(conn, n=MAX_COUNTED)]
