"""MGMT looked at and changed by hand: chunks by stage, who holds what, rows, queries."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from support.mgmt.named_components import identify_by_host
from usher.db.pool import Connection, connect
from usher.errors import BadInput, Conflict
from usher.mgmt import admin, components, placements, queries
from usher.mgmt.chunks import Chunk
from usher.mgmt.components import ComponentRecord

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PLACE = "insert into work.placement (chunk_id, component_id, row, state, since) values (%s, %s, %s, %s, %s)"


async def server(conn: Connection, host: str) -> ComponentRecord:
    return await identify_by_host(conn, host=host, type="index-server", now=NOW)


async def chunk(conn: Connection, crawler: int, **known: object) -> int:
    given = {"crawler_id": crawler, "claimed_at": NOW, "state": "crawled", **known}
    words = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    text = f"insert into work.chunk ({words[0]}) values ({words[1]}) returning id"
    [(id_,)] = await (await conn.execute(text.encode(), given)).fetchall()
    return int(id_)


async def every_stage(conn: Connection) -> dict[str, int]:
    """A chunk in each stage, of one crawler and one builder, with a copy in row 1."""
    crawler = await identify_by_host(conn, host="c", type="crawler", now=NOW)
    builder = await identify_by_host(conn, host="b", type="index-builder", now=NOW)
    built = {"index_state": "built", "builder_id": builder.id, "built_at": NOW}
    leased = {"index_state": "building", "build_lease_until": NOW, "builder_id": builder.id}
    stages: dict[str, dict[str, object]] = {
        "crawling": {"state": "crawling", "lease_until": NOW},
        "crawled": {},
        "building": leased,
        "built": built,
        "propagated": {**built, "propagated_at": NOW},
        "retired": {**built, "propagated_at": NOW, "index_state": "retired"},
        "error": {"state": "error", "reason": "lost"},
        "parked": {"index_state": "parked", "build_attempts": 3, "reason": "no"},
    }
    return {stage: await chunk(conn, crawler.id, **known) for stage, known in stages.items()}


async def test_chunks_are_listed_by_stage_and_holder(conn: Connection) -> None:
    made = await every_stage(conn)
    for stage in queries.STAGES:
        found = await queries.list_chunks(conn, stage=stage)
        assert [(one.id, queries.stage(one)) for one in found] == [(made[stage], stage)]
    newest = sorted(made.values(), reverse=True)

    def ids(found: list[Chunk]) -> list[int]:
        return [one.id for one in found]

    assert ids(await queries.list_chunks(conn)) == newest
    assert ids(await queries.list_chunks(conn, after=newest[2], n=2)) == newest[3:5]
    assert ids(await queries.list_chunks(conn, stage="failed")) == [made["parked"], made["error"]]
    crawler, builder = [await components.show(conn, host) for host in ("c", "b")]
    kept = [id_ for id_ in newest if id_ not in (made["propagated"], made["retired"])]
    assert ids(await queries.list_chunks(conn, crawler=crawler.id)) == kept
    assert ids(await queries.list_chunks(conn, builder=builder.id)) == [
        made["built"],
        made["building"],
    ]
    done = await queries.list_chunks(conn, builder=builder.id, stage="propagated")
    assert ids(done) == [made["propagated"]]
    counts = await queries.count_chunks(conn)
    assert [(one.stage, one.number) for one in counts] == [(stage, 1) for stage in queries.STAGES]
    held = await queries.holdings(conn, [crawler.id, builder.id])
    assert held[crawler.id] == queries.ComponentHoldings(crawler.id, crawling=1, crawled=4)
    assert held[builder.id] == queries.ComponentHoldings(builder.id, building=1, built=1)


async def test_failed_chunks_are_found_by_their_index(conn: Connection) -> None:
    crawler = await identify_by_host(conn, host="c", type="crawler", now=NOW)
    await conn.execute(
        "insert into work.chunk (crawler_id, claimed_at, state, index_state, propagated_at) "
        "select %s, now(), 'crawled', 'built', now() from generate_series(1, 20000)",
        [crawler.id],
    )
    await chunk(conn, crawler.id, state="error")
    await conn.execute("analyze work.chunk")
    given = {
        **dict.fromkeys(("crawler", "builder", "reason")),
        "stage": "failed",
        "after": 2**63 - 1,
        "n": 100,
    }
    plan = await conn.execute(b"explain " + queries.store.list_chunks.query, given)
    assert "chunk_failed" in "\n".join(line for (line,) in await plan.fetchall())


async def test_parked_chunks_are_offered_again(conn: Connection) -> None:
    made = await every_stage(conn)
    again = await admin.retry(conn, [made["parked"], made["built"], 10**12], now=NOW)
    assert [one.what for one in again] == ["waiting", "same", "missing"]
    [freed] = await queries.list_chunks(conn, stage="crawled", n=1)
    assert (freed.id, freed.build_attempts, freed.reason) == (made["parked"], 0, "")
    assert await admin.retry(conn, None, now=NOW) == []
    [last] = await components.events(conn, n=1)
    assert (last.kind, last.chunk_id) == ("unparked", made["parked"])


async def test_fewer_rows_only_if_nothing_is_lost(conn: Connection) -> None:
    made = await every_stage(conn)
    assert await admin.set_rows(conn, 3, now=NOW) == []
    servers = [await server(conn, f"s{number}") for number in range(3)]
    copy = [made["propagated"], servers[2].id, 3, "loaded", NOW]
    await conn.execute(PLACE, copy)
    with pytest.raises(Conflict):
        await admin.set_rows(conn, 1, now=NOW)
    assert await components.row_count(conn) == 3
    await conn.execute(PLACE, [made["propagated"], servers[0].id, 1, "loaded", NOW])
    assert sorted(await admin.set_rows(conn, 1, now=NOW)) == ["s1", "s2"]
    assert {one.row for one in await components.list_components(conn, type="index-server")} == {1}
    shown = await queries.show_chunk(conn, made["propagated"])
    assert [(one.row, one.host, one.state) for one in shown.placements] == [
        (1, "s0", "loaded"), (3, "s2", "loaded"),
    ]  # fmt: skip
    for wrong in (0, -1, 1001, 10**30):
        with pytest.raises(BadInput):
            await admin.set_rows(conn, wrong, now=NOW)


async def test_a_removed_row_leaves_its_number_to_the_last(conn: Connection) -> None:
    made = await every_stage(conn)
    await admin.set_rows(conn, 3, now=NOW)
    servers = [await server(conn, f"s{number}") for number in range(3)]
    await conn.execute(PLACE, [made["propagated"], servers[0].id, 1, "loaded", NOW])
    with pytest.raises(Conflict, match="in row 1 only"):
        await admin.remove_row(conn, 1, now=NOW)
    for wrong in (0, 4):
        with pytest.raises(BadInput, match="rows 1 to 3"):
            await admin.remove_row(conn, wrong, now=NOW)
    await conn.execute(PLACE, [made["propagated"], servers[2].id, 3, "loaded", NOW])
    await conn.execute(PLACE, [made["built"], servers[2].id, 3, "wanted", NOW])
    await placements.plan(conn, now=NOW)
    assert await admin.remove_row(conn, 1, now=NOW) == ["s0"]
    await placements.plan(conn, now=NOW)
    assert await components.row_count(conn) == 2
    await server(conn, "s0")  # it calls once more
    rows = {
        one.host: one.row for one in await components.list_components(conn, type="index-server")
    }
    assert rows == {"s0": None, "s1": 2, "s2": 1}
    shown = await queries.show_chunk(conn, made["propagated"])
    assert [(one.row, one.host, one.state) for one in shown.placements] == [
        (1, "s2", "loaded"), (2, "s1", "wanted"),
    ]  # fmt: skip
    shown = await queries.show_chunk(conn, made["built"])
    assert {(one.row, one.host) for one in shown.placements} == {(1, "s2"), (2, "s1")}
    assert await admin.remove_row(conn, 2, now=NOW) == ["s1"]
    with pytest.raises(BadInput, match="only row"):
        await admin.remove_row(conn, 1, now=NOW)


async def test_rows_do_not_end_while_a_copy_is_dropped(database: str) -> None:
    """The only other copy goes in a transaction that ends later than the look for it."""
    async with await connect(database) as conn, await connect(database) as other:
        made = await every_stage(conn)
        await admin.set_rows(conn, 2, now=NOW)
        servers = [await server(conn, f"s{number}") for number in range(2)]
        for row, one in enumerate(servers, 1):
            await conn.execute(PLACE, [made["propagated"], one.id, row, "loaded", NOW])
        async with other.transaction():
            await placements.dropped(other, servers[0].id, [made["propagated"]], now=NOW)
            fewer = asyncio.create_task(in_one(conn, 1))
            await asyncio.sleep(0.3)
            assert not fewer.done()
        with pytest.raises(Conflict):
            await fewer
        assert await components.row_count(conn) == 2


async def in_one(conn: Connection, rows: int) -> list[str]:
    async with conn.transaction():
        return await admin.set_rows(conn, rows, now=NOW)


async def test_what_was_asked_for_is_summed_up(conn: Connection) -> None:
    for term, seconds in (("cats", 0.1), ("cats", 0.3), ("dogs", 2.0)):
        await conn.execute(
            "insert into work.query_stat (at, term, seconds) values (%s, %s, %s)",
            [NOW, term, seconds],
        )
    found = await queries.queries(conn, since=NOW)
    assert (found.number, found.median, found.slowest) == (3, 0.3, 2.0)
    assert [(one.term, one.number) for one in await queries.terms(conn, since=NOW)] == [
        ("cats", 2), ("dogs", 1),
    ]  # fmt: skip
    none = await queries.queries(conn, since=NOW + SECOND)
    assert none == queries.QueryTimes(0, 0, 0, 0, 0)
