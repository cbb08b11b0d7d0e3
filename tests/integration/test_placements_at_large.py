"""Placements under many hands at once, over long random lives, in great numbers; and the maps made of them."""

import asyncio
import random
import time
from collections import Counter
from datetime import timedelta

import pytest

from support.mgmt.index_servers import (
    NOW,
    build,
    built,
    check,
    component,
    drain,
    fail,
    grid,
    heal,
    load,
    moved,
    rows_of,
    seats,
    server,
    set_rows,
)
from support.models.placements import droppable
from usher.db.pool import Connection, connect
from usher.mgmt import placements, server_maps
from usher.mgmt.placement_rules import PlacedCopy, PlacementServer
from usher.mgmt.placements import PlanResult

LONG_AGO = NOW - timedelta(hours=1)


async def test_the_map_has_whoever_is_fit(conn: Connection) -> None:
    [[one, two], [three, four]] = await grid(conn, 2, 2)
    hosts = dict(await rows_of(conn, "select id, host from work.component"))
    full = [(1, [hosts[one], hosts[two]]), (2, [hosts[three], hosts[four]])]
    first = await server_maps.servers_map(conn)
    assert [(row, sorted(names)) for row, names in first.rows] == [
        (row, sorted(names)) for row, names in full
    ]
    assert await server_maps.servers_map(conn) == first
    await build(conn, 3)
    assert (await server_maps.servers_map(conn)).version == first.version, "chunks are not in it"
    await drain(conn, one)
    assert (await server_maps.servers_map(conn)) == first, "it answers until all is elsewhere"
    await fail(conn, two, NOW)
    await conn.execute("update work.component set health = 'probation' where id = %s", [three])
    await conn.execute("update work.component set state = 'error' where id = %s", [four])
    second = await server_maps.servers_map(conn)
    assert second.rows == [(1, [hosts[one]])]
    assert second.version != first.version
    second_choice = await server_maps.full_map(conn, "probation")
    assert [(row, {host for host, _ in servers}) for row, servers in second_choice.rows] == [
        (1, {hosts[two]}),
        (2, {hosts[three], hosts[four]}),
    ], "all others, also one that failed: it may answer before the watchdog's next round"


async def test_the_full_map_has_each_chunk_once_a_row_while_it_moves(conn: Connection) -> None:
    [[one]] = await grid(conn, 1, 1)
    new = await build(conn, 6)
    assert answering(await server_maps.full_map(conn)) == []
    await load(conn, [one])
    two = await server(conn, 1)
    await placements.plan(conn, now=NOW)
    seen = {await server_maps.full_version(conn)}
    for step in (2, 1):
        assert answering(await server_maps.full_map(conn)) == new
        some = [k.chunk_id for k in await placements.wanted(conn, two, n=step)]
        await placements.loaded(conn, two, some, now=NOW)
        seen.add(await server_maps.full_version(conn))
    await placements.drop(conn, now=NOW)
    found = await server_maps.full_map(conn)
    assert answering(found) == new
    assert found.version not in seen
    assert len(seen) == 3


def answering(found: server_maps.FullMap) -> list[int]:
    return sorted(chunk for _, servers in found.rows for _, chunks in servers for chunk in chunks)


async def test_a_server_that_went_to_another_row_gives_up_its_seats(conn: Connection) -> None:
    [[one, two], _] = await grid(conn, 2, 2)
    await build(conn, 12)
    await load(conn, [one, two])
    await conn.execute("update work.component set row = 2 where id = %s", [one])
    await placements.plan(conn, now=NOW)
    await check(conn)
    found = await seats(conn)
    assert {id_ for (_, row), id_ in found.items() if row == 1} == {two}


async def test_a_copy_serves_one_row_and_the_other_shows_what_it_lacks(conn: Connection) -> None:
    """The only server of a row goes to another, which has no other server."""
    [[one]] = await grid(conn, 1, 1)
    await set_rows(conn, 2)
    await build(conn, 5)
    await load(conn, [one])
    await conn.execute("update work.component set row = 2 where id = %s", [one])
    await placements.plan(conn, now=NOW)
    await check(conn)
    assert {row for _, row in await seats(conn)} == {2}
    assert [lack.unseated for lack in await placements.row_shortages(conn)] == [5, 0]
    await server(conn, 1)
    await placements.plan(conn, now=NOW)
    await check(conn)
    assert len(await seats(conn)) == 10


@pytest.mark.parametrize("seed", range(4))
async def test_a_long_life(conn: Connection, seed: int) -> None:
    """Whatever happens in whatever order, a plan brings balance, and no row loses a copy it had."""
    chance = random.Random(seed)  # noqa: S311 - a life that can be lived again
    rows = await grid(conn, 3, 2)
    alive = [id_ for row in rows for id_ in row]
    held: set[tuple[int, int]] = set()
    for _ in range(40):
        one = chance.choice(alive)
        match chance.choice(["build", "join", "fail", "die", "heal", "drain", "load", "drop"]):
            case "build":
                await build(conn, chance.randrange(1, 9))
            case "join":
                alive.append(await server(conn, chance.randrange(1, 4)))
            case "fail":
                await fail(conn, one, NOW)
            case "die":
                await fail(conn, one, LONG_AGO)
            case "heal":
                await heal(conn, one)
            case "drain":
                await conn.execute(
                    "update work.component set draining = not draining where id = %s", [one]
                )
            case "load":
                await load(conn, chance.sample(alive, len(alive) // 2))
            case "drop":
                await drop_as_the_rule_says(conn)
        await placements.plan(conn, now=NOW)
        await check(conn)
        now_held = set(await rows_of(conn, COUNTED_ON))
        assert held <= now_held
        held = now_held


# Where a row can answer for a chunk: every copy that its server was not told to drop.
COUNTED_ON = """
    select distinct chunk_id, row from work.placement where state <> 'wanted' and released_at is null
"""
COPIES = "select chunk_id, row, component_id, state from work.placement where released_at is null"


async def drop_as_the_rule_says(conn: Connection) -> None:
    """The statement releases what `droppable` would, and nothing else."""
    copies = [PlacedCopy(*one) for one in await rows_of(conn, COPIES)]
    fit = await rows_of(
        conn,
        "select id, row from work.component where type = 'index-server' and health = 'healthy'",
    )
    due = droppable(copies, [PlacementServer(id_, row, "") for id_, row in fit])
    assert await placements.drop(conn, now=NOW) == len(due)
    left = {PlacedCopy(*one) for one in await rows_of(conn, COPIES)}
    assert left == set(copies) - set(due)


async def test_rows_that_load_at_once_propagate(database: str) -> None:
    async with await connect(database) as conn:
        rows = await grid(conn, 4, 1)
        new = await build(conn, 40)

    async def report(id_: int) -> None:
        async with await connect(database) as own:
            for chunk in random.sample(new, len(new)):
                async with own.transaction():
                    await placements.loaded(own, id_, [chunk], now=NOW)

    await asyncio.gather(*(report(id_) for [id_] in rows))
    async with await connect(database) as conn:
        left = await rows_of(conn, "select id from work.chunk where propagated_at is null")
        assert left == []
        await check(conn)


async def test_planners_builders_and_servers_at_once(database: str) -> None:
    async with await connect(database) as conn:
        rows = await grid(conn, 2, 2)
        first = await build(conn, 60)
        more = await built(conn, 60)
        joined = [await server(conn, 1), await server(conn, 2)]
        await component(conn, "other:1", "crawler")
    servers = [*joined, *(id_ for row in rows for id_ in row)]

    async def watch() -> None:
        async with await connect(database, role="usher_mgmt") as own:
            for _ in range(15):
                await placements.plan(own, now=NOW)
                async with own.transaction():
                    await placements.drop(own, now=NOW)

    async def builds(mine: list[int]) -> None:
        async with await connect(database, role="usher_mgmt") as own:
            for chunk in mine:
                async with own.transaction():
                    await placements.place_chunks(own, [chunk], now=NOW)

    async def serve(id_: int) -> None:
        async with await connect(database, role="usher_mgmt") as own:
            for _ in range(25):
                async with own.transaction():
                    some = [one.chunk_id for one in await placements.wanted(own, id_, n=5)]
                    assert await placements.loaded(own, id_, some, now=NOW) <= set(some)
                gone = await placements.leaving(
                    own, id_, now=NOW + placements.RELEASED_COPY_DELAY, n=5
                )
                async with own.transaction():
                    await placements.dropped(own, id_, gone, now=NOW)

    # All seat all: who comes second finds them seated.
    await asyncio.gather(watch(), watch(), builds(more), builds(more[::-1]), *map(serve, servers))
    async with await connect(database) as conn:
        await placements.plan(conn, now=NOW)
        await load(conn, servers)
        await check(conn)
        assert len(await seats(conn)) == 2 * (len(first) + len(more))
        assert await rows_of(conn, "select id from work.chunk where propagated_at is null") == []


async def test_a_thousand_chunks_in_one_call(conn: Connection) -> None:
    await grid(conn, 3, 5)
    new = await built(conn, 1_000)
    start = time.perf_counter()
    assert await placements.place_chunks(conn, new, now=NOW) == []
    assert time.perf_counter() - start < 5
    assert set(Counter((await seats(conn)).values()).values()) == {200}


async def test_a_join_among_ten_thousand_chunks(conn: Connection) -> None:
    rows = await grid(conn, 3, 4)
    await build(conn, 10_000)
    await conn.execute("update work.placement set state = 'loaded'")
    await conn.execute("analyze work.placement, work.chunk, work.component")
    before = await seats(conn)
    joined = [await server(conn, row) for row in (1, 2, 3)]
    start = time.perf_counter()
    assert await placements.plan(conn, now=NOW) == PlanResult(0, 6_000)
    took = time.perf_counter() - start
    assert took < 10
    assert moved(before, await seats(conn)) == {id_: 500 for row in rows for id_ in row}
    await check(conn)
    start = time.perf_counter()
    assert await placements.plan(conn, now=NOW) == PlanResult()
    assert time.perf_counter() - start < 2, "a look when nothing is to do costs nothing"
    await load(conn, joined)
    assert await placements.drop(conn, now=NOW) == 6_000


async def test_packs_do_the_same_as_one_plan(conn: Connection) -> None:
    [[one, two], _] = await grid(conn, 2, 2)
    await fail(conn, one, LONG_AGO)
    await fail(conn, two, LONG_AGO)
    await build(conn, 50)
    await heal(conn, one)
    assert await placements.plan(conn, now=NOW, pack=7) == PlanResult(50, 0)
    await check(conn)
    await heal(conn, two)
    assert await placements.plan(conn, now=NOW, pack=7) == PlanResult(0, 25)
    await check(conn)
    await server(conn, 1)
    assert await placements.plan(conn, now=NOW, pack=7) == PlanResult(0, 16)
    await check(conn)
    await fail(conn, two, LONG_AGO)
    assert await placements.plan(conn, now=NOW, pack=7) == PlanResult(0, 17)
    await check(conn)
