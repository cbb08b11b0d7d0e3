"""A restored database: no copy counts until its server compared it, ids continue, and no chunk is lost too early."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.compaction import House
from support.mgmt.index_servers import (
    NOW,
    build,
    component,
    drain,
    grid,
    load,
    rows_of,
    server,
    states,
)
from support.mgmt.mgmt_process import mgmt
from support.mgmt.plain_components import Component, at_once
from support.processes.commands import usher
from usher.api.incarnation_cache import IncarnationCache
from usher.db.pool import Connection, Database, connect
from usher.index.holdings import INSTALLATION_DIGITS
from usher.messages.index_server import HeldChunk, HoldingsComparison
from usher.mgmt import chunks, incarnation, missing_chunks, placements, server_maps
from usher.mgmt.missing_chunks import MissingFile
from usher.mgmt.placements import PlanResult

STEP = 1_000_000_000
UNRESTORED = "select chunk_id from work.unrestored order by 1"


@pytest.fixture
async def conn(database: str) -> AsyncIterator[Connection]:
    """A database of its own: the sequences of a transaction that is undone stay where they are."""
    async with await connect(database) as connection, connection.transaction(force_rollback=True):
        yield connection


@pytest.fixture
async def house(conn: Connection) -> House:
    return await House.of_mgmt(conn)


def whole(chunk: int, documents: int = 3) -> HeldChunk:
    return HeldChunk(chunk, documents, documents, f"sum {chunk}")


async def unrestored(conn: Connection) -> list[int]:
    return [chunk for (chunk,) in await rows_of(conn, UNRESTORED)]


async def wanted(conn: Connection, server_id: int) -> list[int]:
    return [chunk.chunk_id for chunk in await placements.wanted(conn, server_id, n=99)]


async def test_a_new_incarnation_has_another_id_and_ids_that_were_never_issued(
    conn: Connection,
) -> None:
    before = await incarnation.current(conn)
    [last] = await build(conn, 1)
    after = await incarnation.begin(conn, "restored")
    assert after != before.id
    assert (await incarnation.current(conn)).id == after
    [new] = await build(conn, 1)
    assert new == STEP + 1 > last
    assert after[-INSTALLATION_DIGITS:] == before.id[-INSTALLATION_DIGITS:]
    await incarnation.begin(conn, "restored again")
    assert await build(conn, 1) == [2 * STEP + 1]
    assert await component(conn, "new:1", "crawler") > STEP


async def test_no_copy_counts_as_loaded_until_its_server_compared_it(conn: Connection) -> None:
    [[one], [two]] = await grid(conn, 2, 1)
    first, second = await build(conn, 2)
    await load(conn, [one, two])
    await incarnation.begin(conn, "restored")
    assert await states(conn) == {"wanted": 4}
    assert await unrestored(conn) == [first, second]
    drawn = await server_maps.full_map(conn)
    assert drawn.unrestored == [first, second]
    assert [held for _, servers in drawn.rows for _, held in servers] == [[], []]
    held = [HeldChunk(first, 3, 3), HeldChunk(second, 2, 3), HeldChunk(77, 1, 1)]
    assert await placements.compare(conn, one, held, now=NOW) == HoldingsComparison([77], [second])
    assert await placements.returned(conn, one, {first}, now=NOW) == []
    assert await wanted(conn, one) == [second], "documents of it were taken out in another history"
    assert await unrestored(conn) == [first, second], "the other row has none"
    await placements.compare(conn, two, [HeldChunk(first, 3, 3)], now=NOW)
    assert await unrestored(conn) == [second]
    await load(conn, [one, two])
    assert await unrestored(conn) == []
    assert (await server_maps.full_map(conn)).version != drawn.version


async def test_another_file_or_none_is_loaded_again(conn: Connection) -> None:
    [[one]] = await grid(conn, 1, 1)
    same, other, lost = await build(conn, 3)
    await conn.execute("update work.chunk set index_sha256 = 'sum ' || id")
    await load(conn, [one])
    await incarnation.begin(conn, "restored")
    held = [whole(same), HeldChunk(other, 3, 3, "sum 0"), HeldChunk(lost, 3)]
    found = await placements.compare(conn, one, held, now=NOW)
    assert found == HoldingsComparison([], [other, lost])


async def test_a_comparison_without_a_restore_finds_what_the_server_lacks(
    conn: Connection,
) -> None:
    [[one]] = await grid(conn, 1, 1)
    good, poor = await build(conn, 2)
    await load(conn, [one])
    held = [HeldChunk(good, 1, 1), HeldChunk(poor, 0, 1)]
    assert await placements.compare(conn, one, held, now=NOW) == HoldingsComparison([], [poor])
    assert await wanted(conn, one) == [poor]


async def test_a_move_under_way_is_undone(conn: Connection) -> None:
    [[old, new]] = await grid(conn, 1, 2)
    await build(conn, 4)
    await load(conn, [old, new])
    await drain(conn, old)
    await placements.plan(conn, now=NOW)
    assert await states(conn) == {"loaded": 2, "leaving": 2, "wanted": 2}
    await incarnation.begin(conn, "restored")
    query = "select component_id, count(*) from work.placement where unreported group by 1"
    assert dict(await rows_of(conn, query)) == {old: 2, new: 2}
    assert await states(conn) == {"wanted": 4}


async def test_seats_stay_until_their_servers_have_reported(conn: Connection) -> None:
    [[one]] = await grid(conn, 1, 1)
    held = await build(conn, 4)
    await load(conn, [one])
    await incarnation.begin(conn, "restored")
    await server(conn, 1)
    assert await placements.plan(conn, now=NOW) == PlanResult()
    await placements.compare(conn, one, [HeldChunk(chunk, 1, 1) for chunk in held], now=NOW)
    await placements.returned(conn, one, set(held), now=NOW)
    assert await placements.plan(conn, now=NOW) == PlanResult(0, 2)


async def test_nothing_is_lost_while_a_server_that_may_have_it_has_not_reported(
    house: House,
) -> None:
    chunk = await house.crawl("/0")
    await incarnation.begin(house.conn, "restored")
    first, second = house.servers
    await placements.returned(house.conn, first, set(), now=NOW)
    loss = [MissingFile(chunk, "it is not there")]
    assert await missing_chunks.lose_indexes(house.conn, first, loss, now=NOW) == {}
    assert await chunks.rebuild(house.conn, house.builder, why="it is gone") == []
    await placements.returned(house.conn, second, set(), now=NOW)
    assert await missing_chunks.lose_indexes(house.conn, first, loss, now=NOW) == {chunk: "build"}


async def test_answers_are_partial_until_lost_pages_were_crawled_again(house: House) -> None:
    chunk, settle = await house.crawl("/0"), incarnation.settle
    await incarnation.begin(house.conn, "restored")
    for row in (0, 1):
        await placements.returned(house.conn, house.servers[row], set(), now=NOW)
    loss = MissingFile(chunk, "it is not there")
    await missing_chunks.lose_indexes(house.conn, house.servers[0], [loss], now=NOW)
    for builder in (house.other, house.builder, house.other):
        assert await house.claim(builder, compact=False) == [chunk]
        await chunks.fail_build(house.conn, builder, chunk, why="it is gone")
    assert await settle(house.conn) == 0
    assert await missing_chunks.lose_content(house.conn, house.other, loss, now=NOW)
    assert await settle(house.conn) == 0, "its page waits"
    again = await house.crawl("/0", rows=(0,))
    assert await settle(house.conn) == 0, "one row lacks it"
    await house.load(again, (1,))
    assert await settle(house.conn) == 1


# -- with MGMT and the command, as processes


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode()).fetchall()


async def test_mgmt_sees_a_database_that_went_back_in_time(database: str) -> None:
    changes: list[int] = []
    async with Database(database, role="usher_mgmt") as db:
        present = IncarnationCache(db, lambda: changes.append(1), fresh_seconds=0)
        before = await present.id()
        ask(database, "select setval('work.chunk_id_seq', 900)")
        assert (await present.id(), changes) == (before, [])
        ask(database, "select setval('work.chunk_id_seq', 100)")
        assert (await present.id() != before, changes) == (True, [1])
        [(reason,)] = ask(database, "select reason from work.incarnation")
        assert "went back in time" in reason
        assert ask(database, "select last_value from work.chunk_id_seq") == [(STEP,)]


def test_an_index_server_that_cannot_compare_loads_all_again(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log") as running:
        server_ = Component(running, host="s:1")
        server_.post("/set_component_state", state="online", type="index-server", row=1)
        [(id_,)] = ask(database, "select id from work.component where host = 's:1'")
        chunk = asyncio.run(loaded_by(database, id_))
        assert server_.post("/v1/holdings", chunk_ids=[chunk])["stray"] == []
        ask(database, "select work.begin_incarnation('restored')")
        refused = server_.ask(
            "POST", "/set_chunk_loaded", {"chunk_ids": [chunk]}, {"X-Usher-Incarnation": "old"}
        )
        assert refused.problem == (412, "other_incarnation")
        [(present,)] = ask(database, "select id::text from work.incarnation")
        assert refused.headers["x-usher-incarnation"] == present
        assert server_.post("/v1/holdings", chunk_ids=[chunk])["stray"] == [chunk]
        assert [one["chunk_id"] for one in server_.get("/get_chunks")] == [chunk]
        server_.post("/set_chunk_loaded", chunk_ids=[chunk])
        assert ask(database, UNRESTORED) == []


async def loaded_by(dsn: str, server_id: int) -> int:
    async with await connect(dsn) as conn:
        [chunk] = await build(conn, 1)
        await load(conn, [server_id])
    return chunk


async def test_the_command_starts_a_new_incarnation_in_every_schema(database: str) -> None:
    before = ask(database, "select id from work.incarnation")
    ran = usher(
        "db", "incarnate", "--yes", "--reason", "recovery", environment={"DATABASE_URL": database}
    )
    assert ran.code == 0, ran.err
    assert ask(database, "select id from work.incarnation") != before
    assert ask(database, "select reason from work.incarnation") == [("recovery",)]
    behind = f"select count(*) from pg_sequences where last_value is distinct from {STEP}"
    assert ask(database, behind) == [(0,)]
    async with await connect(database) as conn:
        await build(conn, 1)
