"""Seats of many chunks through PostgreSQL: built in packs, a server gone, its share and no more moved."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from support.mgmt.index_servers import NOW, built, fail, grid, rows_of
from usher.db.pool import Connection, connect
from usher.mgmt import placements
from usher.mgmt.placements import PlanResult

CHUNKS, ROWS, SERVERS, PACK = 100_000, 5, 20, 10_000  # 100 servers in all
LONG_AGO, LATER = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
SEATS = """
select row, component_id, count(*) from work.placement where state <> 'leaving' group by 1, 2
"""
WRONG = """
select count(*) from (
    select chunk_id from work.placement where state <> 'leaving' group by chunk_id
    having count(*) <> %s or count(distinct row) <> %s or count(distinct component_id) <> %s
) k
"""


@contextmanager
def timed(figures: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    figures[name] = round(time.perf_counter() - start, 2)


async def even(conn: Connection, gone: int = 0) -> None:
    """One copy of every chunk in every row, on five servers, and none has two more than another of its row."""
    [(wrong,)] = await rows_of(conn, WRONG, ROWS, ROWS, ROWS)
    assert wrong == 0
    held: dict[int, list[int]] = {}
    for row, id_, seats in await rows_of(conn, SEATS):
        assert id_ != gone
        held.setdefault(row, []).append(seats)
    for row, counts in held.items():
        assert sum(counts) == CHUNKS
        assert len(counts) == SERVERS - (1 if gone and row == 1 else 0)
        assert max(counts) - min(counts) <= 1
    kept = await rows_of(
        conn, "select component_id, row, placements from work.server_load where placements > 0"
    )
    assert sorted((row, id_, seats) for id_, row, seats in kept) == sorted(
        await rows_of(conn, SEATS)
    )


@pytest.mark.soak
async def test_a_hundred_thousand_chunks_on_a_hundred_servers(
    database: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if "debian" in request.node.callspec.id:
        pytest.skip("once is enough")
    figures: dict[str, float] = {}
    async with await connect(database) as conn:
        rows = await grid(conn, ROWS, SERVERS)
        new = await built(conn, CHUNKS)
        with timed(figures, "seat_all"):
            for at in range(0, CHUNKS, PACK):
                async with conn.transaction():
                    assert await placements.place_chunks(conn, new[at : at + PACK], now=NOW) == []
        await conn.execute("analyze work.placement, work.chunk, work.component")
        await even(conn)
        with timed(figures, "seat_one"):
            async with conn.transaction():
                assert await placements.place_chunks(conn, new[:1], now=NOW) == []
        with timed(figures, "load_5"):
            async with conn.transaction():
                some = [one.chunk_id for one in await placements.wanted(conn, rows[2][3], n=5)]
                assert await placements.loaded(conn, rows[2][3], some, now=NOW) == set(some)
        for plan in ("plan_first", "plan_idle"):  # the first looks all chunks through
            with timed(figures, plan):
                assert await placements.plan(conn, now=NOW) == PlanResult()
        gone, share = rows[0][0], CHUNKS // SERVERS
        await fail(conn, gone, LONG_AGO)
        with timed(figures, "plan_one_gone"):
            assert await placements.plan(conn, now=LATER) == PlanResult(0, share)
        [(new_seats,)] = await rows_of(
            conn, "select count(*) from work.placement where since = %s", LATER
        )
        assert new_seats == share
        await even(conn, gone)
    assert figures["plan_idle"] < 0.5
    with capsys.disabled():
        print(f"\n{CHUNKS:,} chunks x {ROWS} rows x {ROWS * SERVERS} servers, seconds: {figures}")  # noqa: T201
