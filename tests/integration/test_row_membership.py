"""A row has one engine, and one on OpenSearch has one index server; which servers count, and who may take over."""

from datetime import datetime, timedelta

import pytest

from support.mgmt.index_servers import NOW, build, seats, set_rows, states
from support.mgmt.named_components import identify_by_host
from usher.db.pool import Connection
from usher.errors import BadInput, Conflict
from usher.messages.components import EngineName
from usher.mgmt import admin, components, placements, row_membership
from usher.mgmt.components import ComponentRecord
from usher.mgmt.placement_rules import PlacementServer, with_row_engines

CLUSTER, OTHER, TANTIVY = "c:1", "c:2", "t:1"
LATER = NOW + timedelta(minutes=1)


async def start(
    conn: Connection,
    host: str,
    row: int | None = 1,
    engine: EngineName | None = "opensearch",
    now: datetime = NOW,
) -> ComponentRecord:
    return await identify_by_host(
        conn, host=host, type="index-server", row=row, engine=engine, now=now
    )


async def load_all(conn: Connection, server: ComponentRecord) -> list[int]:
    """Build chunks, and let the server load those that are placed on it."""
    chunks = await build(conn, 4)
    await placements.loaded(conn, server.id, chunks, now=NOW)
    return chunks


async def stop(conn: Connection, server: ComponentRecord) -> None:
    await components.declare(conn, server.id, "waiting", reason="stopped in order", now=NOW)


async def test_tantivy_joins_no_row_on_opensearch_that_is_away(conn: Connection) -> None:
    cluster = await start(conn, CLUSTER)
    await load_all(conn, cluster)
    for state, reason in (("error", "OpenSearch does not answer"), ("waiting", "stopped in order")):
        await components.declare(conn, cluster.id, state, reason=reason, now=NOW)
        with pytest.raises(Conflict, match="Row 1 is on OpenSearch, by the index server c:1") as no:
            await start(conn, TANTIVY, engine="tantivy", now=LATER)
        assert "start it again with --engine opensearch" in no.value.hint
        assert "usher components rows --set 2" in no.value.hint
        assert "usher components rows --remove 1" in no.value.hint
    assert await components.find(conn, TANTIVY) is None
    with pytest.raises(Conflict, match="No row takes an index server on Tantivy") as no:
        await start(conn, TANTIVY, row=None, engine=None, now=LATER)
    assert no.value.hint == "usher components rows --set 2"
    await set_rows(conn, 2)
    assert (await start(conn, TANTIVY, row=None, engine=None, now=LATER)).row == 2


async def test_opensearch_joins_no_row_on_tantivy(conn: Connection) -> None:
    await start(conn, TANTIVY, engine="tantivy")
    with pytest.raises(Conflict, match="Row 1 is on Tantivy, by the index server t:1") as no:
        await start(conn, CLUSTER, now=LATER)
    assert no.value.hint == (
        "If t:1 is away, start it again. If it never comes back: usher components drain t:1"
    )
    await components.drain(conn, TANTIVY, on=True, now=NOW)
    assert (await start(conn, CLUSTER, now=LATER)).row == 1
    left = await components.show(conn, TANTIVY)
    assert (left.row, left.draining) == (None, True)
    await components.drain(conn, TANTIVY, on=False, now=NOW)
    with pytest.raises(Conflict, match="No row takes"):
        await start(conn, TANTIVY, row=None, engine="tantivy", now=LATER)


async def test_a_drained_server_with_chunks_counts(conn: Connection) -> None:
    await load_all(conn, await start(conn, CLUSTER))
    await components.drain(conn, CLUSTER, on=True, now=NOW)
    with pytest.raises(Conflict, match="Row 1 is on OpenSearch"):
        await start(conn, TANTIVY, engine="tantivy", now=LATER)


async def test_a_second_server_on_opensearch_takes_the_place_of_a_dead_one(
    conn: Connection,
) -> None:
    first = await start(conn, CLUSTER)
    chunks = await load_all(conn, first)
    with pytest.raises(
        Conflict, match="Row 1 has its index server on OpenSearch already: c:1"
    ) as no:
        await start(conn, OTHER)
    assert "stop it" in no.value.hint
    second = await start(conn, OTHER, now=LATER)
    assert second.row == 1
    old = await components.show(conn, CLUSTER)
    assert (old.row, old.draining) == (None, True)
    assert await states(conn) == {"wanted": 4}
    assert set((await seats(conn)).values()) == {second.id}
    assert await placements.returned(conn, second.id, chunks, now=LATER) == []
    assert await states(conn) == {"loaded": 4}  # nothing is loaded again
    with pytest.raises(Conflict, match="already: c:2"):
        await start(conn, CLUSTER, now=LATER)
    await stop(conn, second)
    assert (await start(conn, CLUSTER, now=LATER)).row == 1
    back = await components.show(conn, CLUSTER)
    assert (back.draining, set((await seats(conn)).values())) == (False, {first.id})


async def test_a_chunk_that_the_successor_has_in_another_row_is_placed_again(
    conn: Connection,
) -> None:
    await set_rows(conn, 2)
    first, second = await start(conn, CLUSTER), await start(conn, OTHER, row=2)
    chunks = await build(conn, 2)
    await components.drain(conn, OTHER, on=True, now=NOW)
    moved = await start(conn, OTHER, now=LATER)
    assert (moved.row, (await components.show(conn, CLUSTER)).row) == (1, None)
    assert first.id not in (await seats(conn)).values()
    for _ in range(3):
        await placements.plan(conn, now=LATER)
    assert {chunk for chunk, row in await seats(conn) if row == 1} == set(chunks)
    assert second.id == moved.id


async def test_a_server_with_chunks_keeps_its_engine(conn: Connection) -> None:
    server = await start(conn, CLUSTER)
    await build(conn, 2)
    assert (await start(conn, CLUSTER, engine="tantivy")).engine == "tantivy"
    await load_all(conn, server)
    with pytest.raises(Conflict, match="c:1 has the chunks of row 1 on Tantivy") as no:
        await start(conn, CLUSTER)
    assert no.value.hint.startswith("Start it with --engine tantivy.")
    assert (await start(conn, CLUSTER, engine=None)).engine == "tantivy"  # an older index server


async def test_a_server_learns_the_new_number_of_its_row(conn: Connection) -> None:
    await set_rows(conn, 2)
    await start(conn, TANTIVY, engine="tantivy")
    await start(conn, CLUSTER, row=2)
    await admin.remove_row(conn, 1, now=NOW)
    with pytest.raises(BadInput, match=r"rows 1 to 1\. The row of c:1 is row 1 now") as no:
        await start(conn, CLUSTER, row=2)
    assert no.value.hint == "Start it with --row 1 instead of --row 2; change it in its unit too."
    assert (await start(conn, CLUSTER, row=None)).row == 1
    with pytest.raises(BadInput, match=r"rows 1 to 1\.$"):
        await start(conn, "new:1", row=2)


async def test_the_last_server_of_a_row_with_chunks_stays(conn: Connection) -> None:
    await set_rows(conn, 2)
    await load_all(conn, await start(conn, TANTIVY, engine="tantivy"))
    with pytest.raises(Conflict, match="t:1 is the last index server of row 1, which has 4") as no:
        await start(conn, TANTIVY, row=2, engine="tantivy")
    assert "usher components drain t:1, start it with --row 2" in no.value.hint
    await components.drain(conn, TANTIVY, on=True, now=NOW)
    assert (await start(conn, TANTIVY, row=2, engine="tantivy")).row == 2
    await components.drain(conn, TANTIVY, on=False, now=NOW)
    await start(conn, "t:2", engine="tantivy")
    assert (await start(conn, TANTIVY, engine="tantivy")).row == 1


async def test_fewer_rows_mix_no_engines(conn: Connection) -> None:
    await set_rows(conn, 2)
    await start(conn, TANTIVY, engine="tantivy")
    await start(conn, CLUSTER, row=2)
    with pytest.raises(Conflict, match="c:1 cannot move to another row") as no:
        async with conn.transaction():
            await admin.set_rows(conn, 1, now=NOW)
    assert "usher components rows --remove N" in no.value.hint
    assert (await components.show(conn, CLUSTER)).row == 2
    assert await admin.remove_row(conn, 2, now=NOW) == [CLUSTER]


async def test_a_server_is_checked_before_it_starts(conn: Connection) -> None:
    await row_membership.check_joining(conn, TANTIVY, 1, "tantivy", now=NOW)
    await start(conn, CLUSTER)
    with pytest.raises(Conflict, match="Row 1 is on OpenSearch"):
        await row_membership.check_joining(conn, TANTIVY, 1, "tantivy", now=NOW)
    await row_membership.check_joining(conn, CLUSTER, 1, "tantivy", now=NOW)
    await load_all(conn, await components.show(conn, CLUSTER))
    with pytest.raises(Conflict, match="has the chunks of row 1 on OpenSearch"):
        await row_membership.check_joining(conn, CLUSTER, 1, "tantivy", now=NOW)


async def test_tantivy_in_a_row_on_opensearch_gets_no_chunk(conn: Connection) -> None:
    """Such a row exists only in a database of before the rule."""
    await start(conn, CLUSTER)
    await conn.execute(
        "insert into work.component (host, type, row, health_since) values ('t:1', 'index-server', 1, %s)",
        [NOW - timedelta(days=1)],
    )
    await build(conn, 4)
    for _ in range(2):
        await placements.plan(conn, now=NOW)
    assert set((await seats(conn)).values()) == {(await components.show(conn, CLUSTER)).id}


def test_engines_of_rows_decide_which_servers_take_chunks() -> None:
    servers = [
        PlacementServer(1, 1, "a", engine="opensearch"),
        PlacementServer(2, 1, "b"),
        PlacementServer(3, 1, "c", condition="unsure"),
        PlacementServer(4, 1, "d", condition="gone"),
        PlacementServer(5, 2, "e"),
    ]
    assert [server.condition for server in with_row_engines(servers)] == [
        "fit", "draining", "unsure", "gone", "fit",
    ]  # fmt: skip
