"""Every chunk has one seat in each row, evenly, whatever servers come and go, and no copy goes before its successor."""

from collections import Counter, defaultdict
from datetime import timedelta

import pytest

from support.mgmt.index_servers import (
    MINUTE,
    NOW,
    build,
    built,
    check,
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
    states,
)
from usher.db.pool import Connection
from usher.mgmt import chunks, placements, server_maps
from usher.mgmt.placements import PlanResult, RowShortage

LONG_AGO = NOW - timedelta(hours=1)


async def plan(conn: Connection) -> PlanResult:
    done = await placements.plan(conn, now=NOW)
    await check(conn)
    assert await placements.plan(conn, now=NOW) == PlanResult(), "a plan leaves nothing to do"
    return done


async def may_drop(conn: Connection, id_: int, n: int = 9) -> list[int]:
    """What a server may drop of that which is released now, when front-ends have heard of it."""
    return await placements.leaving(conn, id_, now=NOW + placements.RELEASED_COPY_DELAY, n=n)


@pytest.mark.seed("001.23", "001.26")
async def test_the_example_of_the_seed(conn: Connection) -> None:
    rows = await grid(conn, 5, 5)
    await build(conn, 100)
    held = Counter((await seats(conn)).values())
    assert held == dict.fromkeys((id_ for row in rows for id_ in row), 20)
    assert await plan(conn) == PlanResult()


async def test_one_chunk_after_the_other_is_seated_evenly(conn: Connection) -> None:
    await grid(conn, 2, 3)
    for _ in range(8):
        await build(conn, 1)
        await check(conn)
    assert await plan(conn) == PlanResult()


async def test_a_chunk_built_twice_is_seated_once(conn: Connection) -> None:
    await grid(conn, 3, 2)
    [chunk] = await build(conn, 1)
    before = await seats(conn)
    assert await placements.place_chunks(conn, [chunk, chunk], now=NOW) == []
    assert await seats(conn) == before
    assert len(before) == 3


async def test_copies_sit_on_different_machines(conn: Connection) -> None:
    await set_rows(conn, 3)
    machine = {}
    for row in (1, 2, 3):
        for n in range(3):
            machine[await server(conn, row, f"m{n}:{row}")] = n
    await build(conn, 30)
    new = await server(conn, 1, "m3:1")
    await plan(conn)
    where = defaultdict(set)
    for (chunk, _), id_ in (await seats(conn)).items():
        where[chunk].add((machine | {new: 3})[id_])
    assert all(len(found) == 3 for found in where.values())


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
async def test_a_server_that_joins_gets_exactly_its_share(conn: Connection, servers: int) -> None:
    rows = await grid(conn, 2, servers)
    await build(conn, 23)
    await load(conn, [id_ for row in rows for id_ in row])
    before = await seats(conn)
    new = await server(conn, 1)
    assert await plan(conn) == PlanResult(0, 23 // (servers + 1))
    after = await seats(conn)
    assert moved(before, after).total() == 23 // (servers + 1)
    assert {id_ for seat, id_ in after.items() if before[seat] != id_} == {new}


async def test_what_nobody_has_loaded_moves_without_a_trace(conn: Connection) -> None:
    [[one]] = await grid(conn, 1, 1)
    await build(conn, 10)
    assert await placements.loaded(conn, one, await chunk_ids(conn, 5), now=NOW)
    await server(conn, 1)
    assert await plan(conn) == PlanResult(0, 5)
    assert await states(conn) == {"loaded": 5, "wanted": 5}


async def chunk_ids(conn: Connection, n: int) -> list[int]:
    return [k for (k,) in await rows_of(conn, "select id from work.chunk order by id limit %s", n)]


async def test_no_copy_goes_before_its_successor_is_loaded(conn: Connection) -> None:
    [[old]] = await grid(conn, 1, 1)
    await build(conn, 4)
    await load(conn, [old])
    new = await server(conn, 1)
    await plan(conn)
    assert await placements.drop(conn, now=NOW) == 0
    assert await may_drop(conn, old) == []
    coming = [one.chunk_id for one in await placements.wanted(conn, new, n=9)]
    assert await placements.loaded(conn, new, coming[:1], now=NOW) == set(coming[:1])
    assert await placements.drop(conn, now=NOW) == 1
    assert await may_drop(conn, old) == coming[:1]
    assert await may_drop(conn, old) == coming[:1], "until it says that it did"
    await fail(conn, new, NOW)
    assert await placements.loaded(conn, new, coming[1:], now=NOW) == set(coming[1:])
    assert await placements.drop(conn, now=NOW) == 0, "its successor may be dead"
    await heal(conn, new)
    assert await placements.drop(conn, now=NOW) == 1
    assert await placements.dropped(conn, old, coming, now=NOW) == set(coming)
    assert await may_drop(conn, old) == []
    assert await states(conn) == {"loaded": 4}


async def released(conn: Connection) -> int:
    """A server with a copy that has moved to another, and is released now."""
    [[old]] = await grid(conn, 1, 1)
    await build(conn, 2)
    await load(conn, [old])
    new = await server(conn, 1)
    await plan(conn)
    await load(conn, [new])
    assert await placements.drop(conn, now=NOW) == 1
    return old


async def test_a_released_copy_lingers_until_front_ends_know_its_successor(
    conn: Connection,
) -> None:
    old = await released(conn)
    soon = NOW + placements.RELEASED_COPY_DELAY - timedelta(milliseconds=1)
    assert await placements.leaving(conn, old, now=NOW, n=9) == []
    assert await placements.leaving(conn, old, now=soon, n=9) == []
    assert (
        len(await placements.leaving(conn, old, now=NOW + placements.RELEASED_COPY_DELAY, n=9)) == 1
    )


async def test_a_released_copy_is_forgotten_after_a_day(conn: Connection) -> None:
    old = await released(conn)
    await placements.drop(conn, now=NOW + timedelta(hours=23))
    assert len(await may_drop(conn, old)) == 1
    await placements.drop(conn, now=NOW + timedelta(hours=24))
    assert await may_drop(conn, old) == []


async def test_a_seat_that_its_server_lost_is_wanted_again(conn: Connection) -> None:
    [[one]] = await grid(conn, 1, 1)
    [chunk, other] = await build(conn, 2)
    await load(conn, [one])
    assert await placements.dropped(conn, one, [chunk, 10**9], now=NOW) == {chunk}
    assert [k.chunk_id for k in await placements.wanted(conn, one, n=9)] == [chunk]
    assert await placements.returned(conn, one, {chunk, 77}, now=NOW) == [77]
    assert [k.chunk_id for k in await placements.wanted(conn, one, n=9)] == [other]


async def test_the_dead_give_all_after_the_grace_and_others_nothing(conn: Connection) -> None:
    [[dead, *others], second] = await grid(conn, 2, 4)
    await build(conn, 40)
    await load(conn, [dead, *others, *second])
    before = await seats(conn)
    await fail(conn, dead, NOW - MINUTE)
    assert await plan(conn) == PlanResult(), "it may come back"
    await fail(conn, dead, LONG_AGO)
    assert await plan(conn) == PlanResult(0, 10)
    assert moved(before, await seats(conn)) == {dead: 10}
    assert await states(conn) == {"loaded": 70, "wanted": 10, "leaving": 10}


async def test_a_server_that_returns_keeps_what_is_still_valid(conn: Connection) -> None:
    [[dead, *others]] = await grid(conn, 1, 3)
    await build(conn, 30)
    await load(conn, [dead, *others])
    before = await seats(conn)
    await fail(conn, dead, LONG_AGO)
    await plan(conn)
    await heal(conn, dead)
    assert await plan(conn) == PlanResult(0, 10)
    assert await seats(conn) == before
    assert await states(conn) == {"loaded": 30}


async def test_new_chunks_pass_by_whoever_is_unsure(conn: Connection) -> None:
    [[unsure, *others]] = await grid(conn, 1, 3)
    await fail(conn, unsure, NOW - MINUTE)
    await build(conn, 10)
    assert Counter((await seats(conn)).values()) == dict.fromkeys(others, 5)
    await heal(conn, unsure)
    assert await plan(conn) == PlanResult(0, 3)


async def test_a_server_is_drained_and_answers_until_all_is_elsewhere(conn: Connection) -> None:
    [[going, *others]] = await grid(conn, 1, 3)
    await build(conn, 30)
    await load(conn, [going, *others])
    await drain(conn, going)
    assert await plan(conn) == PlanResult(0, 10)
    assert sum(len(k) for _, row in (await server_maps.full_map(conn)).rows for _, k in row) == 30
    await load(conn, others)
    assert await placements.drop(conn, now=NOW) == 10
    assert len(await may_drop(conn, going, n=99)) == 10


async def test_the_last_server_of_a_row_keeps_what_it_has(conn: Connection) -> None:
    [[last]] = await grid(conn, 1, 1)
    await build(conn, 3)
    await load(conn, [last])
    await fail(conn, last, LONG_AGO)
    assert await plan(conn) == PlanResult()
    assert await build(conn, 1)
    assert [one.unseated for one in await placements.row_shortages(conn)] == [1]
    assert await states(conn) == {"loaded": 3}
    await server(conn, 1)
    assert await plan(conn) == PlanResult(1, 3)


async def test_chunks_wait_for_servers_and_are_shown_as_missing(conn: Connection) -> None:
    await set_rows(conn, 3)
    new = await built(conn, 7)
    assert await placements.place_chunks(conn, new, now=NOW) == [1, 2, 3]
    assert await plan(conn) == PlanResult()
    assert await placements.row_shortages(conn) == [RowShortage(row, 0, 7, 0) for row in (1, 2, 3)]
    first = await server(conn, 1)
    await check_repair(conn, first)
    await server(conn, 3)
    await server(conn, 3)
    assert await build(conn, 1)
    assert await plan(conn) == PlanResult(7, 0)
    assert await placements.row_shortages(conn) == [
        RowShortage(1, 8, 0, 1),
        RowShortage(2, 0, 8, 0),
        RowShortage(3, 8, 0, 8),
    ]


async def check_repair(conn: Connection, first: int) -> None:
    assert await plan(conn) == PlanResult(7, 0)
    assert Counter((await seats(conn)).values()) == {first: 7}
    await load(conn, [first])


async def test_more_rows_are_filled_and_fewer_are_given_up(conn: Connection) -> None:
    [[one]] = await grid(conn, 1, 1)
    await build(conn, 6)
    await load(conn, [one])
    await plan(conn)
    assert await propagated(conn) == 6
    await set_rows(conn, 2)
    two = await server(conn, 2)
    assert await plan(conn) == PlanResult(6, 0)
    await build(conn, 1)
    await load(conn, [one])
    assert await propagated(conn) == 6
    await set_rows(conn, 1)
    await plan(conn)
    assert await propagated(conn) == 7
    assert set((await seats(conn)).values()) == {one}
    assert await placements.wanted(conn, two, n=9) == []


async def propagated(conn: Connection) -> int:
    [(n,)] = await rows_of(conn, "select count(*) from work.chunk where propagated_at is not null")
    return int(n)


async def test_propagated_is_what_every_row_has_loaded(conn: Connection) -> None:
    rows = await grid(conn, 3, 2)
    await build(conn, 4)
    for place, row in enumerate(rows):
        assert await propagated(conn) == 0
        await load(conn, row, now=NOW + place * MINUTE)
    found = await rows_of(conn, "select distinct propagated_at from work.chunk")
    assert found == [(NOW + 2 * MINUTE,)]


async def test_only_a_seat_of_its_own_can_be_acknowledged(conn: Connection) -> None:
    [[one, two]] = await grid(conn, 1, 2)
    new = await build(conn, 2)
    mine = [chunk for (chunk, _), id_ in (await seats(conn)).items() if id_ == one]
    assert await placements.loaded(conn, one, [*new, 10**9], now=NOW) == set(mine)
    assert await placements.loaded(conn, one, new, now=NOW) == set(mine), "again is no harm"
    assert await placements.loaded(conn, two + 100, new, now=NOW) == set()
    assert await placements.loaded(conn, one, [], now=NOW) == set()
    assert await propagated(conn) == 1


async def test_a_chunk_that_must_be_built_again_is_not_offered(conn: Connection) -> None:
    [[one], _] = await grid(conn, 2, 1)
    [chunk, _] = await build(conn, 2)
    [(builder,)] = await rows_of(conn, "select distinct builder_id from work.chunk")
    await placements.loaded(conn, one, [chunk + 1], now=NOW)
    assert await chunks.rebuild(conn, builder, why="gone") == [chunk]
    assert await placements.wanted(conn, one, n=9) == []
    assert await placements.loaded(conn, one, [chunk], now=NOW) == set()
    await conn.execute("update work.chunk set index_state = 'built', built_at = now()")
    assert await placements.place_chunks(conn, [chunk], now=NOW) == []
    assert [k.chunk_id for k in await placements.wanted(conn, one, n=9)] == [chunk]


async def test_what_a_server_is_told_of_a_chunk(conn: Connection) -> None:
    [[one], [two], [three]] = await grid(conn, 3, 1)
    new = await build(conn, 3)
    await load(conn, [two])
    [first, second] = await placements.wanted(conn, one, n=2)
    hosts = dict(await rows_of(conn, "select id, host from work.component"))
    assert (first.crawler_host, first.index_builder_host) == ("crawler:1", "index-builder:1")
    assert (first.chunk_id, first.sha256, first.bytes) == (new[0], "c1", None)
    servers = [(server.row, server.host) for server in first.index_server_host]
    assert servers == [(1, hosts[one]), (2, hosts[two]), (3, hosts[three])]
    assert first.peers == [hosts[two]]
    [last] = await placements.wanted(conn, one, n=2, after=second.chunk_id)
    assert last.chunk_id == new[2]
    await fail(conn, two, NOW)
    [first, *_] = await placements.wanted(conn, one, n=1)
    assert first.peers == []
