"""Components: one for each host, its type learned once, its row the shortest, its story written down."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.mgmt.named_components import identify_by_host
from usher.db.pool import Connection, connect
from usher.db.statements import Statement
from usher.errors import BadInput, Conflict, NotAllowed, NotFound
from usher.mgmt import admin, caller_identity, components, health, tokens
from usher.mgmt.caller_identity import CallerIdentity
from usher.mgmt.component_names import ComponentType
from usher.mgmt.components import ComponentRecord, NewEvent

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)


async def kinds(
    conn: Connection, id_: int | None = None
) -> list[tuple[str, str | None, str | None]]:
    found = await components.events(conn, id_)
    return [(one.kind, one.before, one.after) for one in reversed(found)]


async def rows(conn: Connection, number: int) -> None:
    await conn.execute("update work.settings set rows = %s", [number])


async def server(conn: Connection, host: str, row: int | None = None) -> ComponentRecord:
    return await identify_by_host(conn, host=host, type="index-server", row=row, now=NOW)


@pytest.mark.seed("000.8")
async def test_a_host_is_one_component_for_ever(conn: Connection) -> None:
    first = await identify_by_host(conn, host="http://10.0.0.7:5000/", now=NOW)
    again = await identify_by_host(conn, host="10.0.0.7:5000", now=NOW + SECOND)
    other = await identify_by_host(conn, host="10.0.0.7:5001", now=NOW)
    assert again == replace(first, seen_at=NOW + SECOND, called_at=NOW + SECOND)
    assert (first.host, first.machine, first.type, first.state) == (
        "10.0.0.7:5000", "10.0.0.7", None, "online",
    )  # fmt: skip
    assert (first.seen_at, first.registered_at, first.health) == (NOW, NOW, "healthy")
    assert other.id != first.id
    assert await components.find(conn, "10.0.0.7:5000") == again
    assert await components.find(conn, "10.0.0.8") is None
    with pytest.raises(NotFound):
        await components.show(conn, "10.0.0.8")
    assert await kinds(conn, first.id) == [("registered", None, None)]


async def test_its_type_is_learned_from_the_first_call_that_tells(conn: Connection) -> None:
    unknown = await identify_by_host(conn, host="c", now=NOW)
    learned = await identify_by_host(conn, host="c", type="Crawler", now=NOW)
    assert (unknown.id, unknown.type) == (learned.id, None)
    assert learned.type == "crawler"
    assert await identify_by_host(conn, host="c", now=NOW) == learned
    for other in ("index-server", "front-end"):
        with pytest.raises(Conflict, match="of type crawler"):
            await identify_by_host(conn, host="c", type=other, now=NOW)
    with pytest.raises(BadInput):
        await identify_by_host(conn, host="c", type="pilot", now=NOW)
    assert await components.show(conn, "c") == learned


async def test_a_sign_of_life_is_written_once_a_second(conn: Connection) -> None:
    one = await identify_by_host(conn, host="c", now=NOW)
    soon = await identify_by_host(conn, host="c", now=NOW + SECOND / 2)
    assert soon.seen_at == NOW + SECOND / 2
    assert (await components.show(conn, "c")).seen_at == NOW
    await identify_by_host(conn, host="c", now=NOW + SECOND)
    assert (await components.show(conn, "c")).seen_at == NOW + SECOND
    earlier = await identify_by_host(conn, host="c", now=NOW - SECOND)
    assert (earlier.id, earlier.seen_at) == (one.id, NOW + SECOND)


async def test_calls_of_one_component_do_not_wait_for_each_other(database: str) -> None:
    async with await connect(database) as one, await connect(database) as two:
        await identify_by_host(one, host="c", type="crawler", now=NOW)
        async with one.transaction():
            await identify_by_host(one, host="c", now=NOW + 5 * SECOND)
            async with asyncio.timeout(5):
                await identify_by_host(two, host="c", now=NOW + 9 * SECOND)
        assert (await components.show(two, "c")).seen_at == NOW + 5 * SECOND


async def test_many_first_calls_at_once_make_one_component(database: str) -> None:
    async def call() -> ComponentRecord:
        async with await connect(database) as own:
            return await identify_by_host(own, host="s:1", type="index-server", now=NOW)

    found = await asyncio.gather(*(call() for _ in range(8)))
    assert len({one.id for one in found}) == 1
    assert {one.row for one in found} == {1}
    async with await connect(database) as conn:
        assert Counter(kind for kind, _, _ in await kinds(conn)) == {
            "registered": 1, "type": 1, "row": 1,
        }  # fmt: skip


async def test_two_roles_at_once_under_one_name_make_one_component(database: str) -> None:
    async def call(kind: str) -> ComponentRecord | Conflict:
        async with await connect(database) as own:
            try:
                return await identify_by_host(own, host="c:1", type=kind, now=NOW)
            except Conflict as error:
                return error

    met = await asyncio.gather(*(call(kind) for kind in ["crawler", "index-builder"] * 4))
    async with await connect(database) as conn:
        [only] = await components.list_components(conn)
    assert {one.type for one in met if isinstance(one, ComponentRecord)} == {only.type}
    assert sum(isinstance(one, Conflict) for one in met) == 4


async def test_roles_at_once_without_a_name_make_one_component_each(database: str) -> None:
    async def call(role: ComponentType) -> ComponentRecord:
        async with await connect(database) as own:
            caller = CallerIdentity("10.0.0.7", (role,), is_named=False)
            return await caller_identity.identify(own, caller, now=NOW)

    roles: list[ComponentType] = ["crawler", "index-builder", "index-server", "front-end"]
    met = await asyncio.gather(*(call(role) for role in roles * 3))
    assert len({one.id for one in met}) == 4
    assert sorted(one.type or "" for one in met[:4]) == sorted(roles)


async def test_a_token_speaks_for_all_roles_at_its_host(conn: Connection) -> None:
    """A caller without it gets no role beside that of the token, and not the one it had before."""
    before = await caller_identity.identify(
        conn, CallerIdentity("10.0.0.7", ("index-builder",), is_named=False), now=NOW
    )
    secret = await tokens.make(conn, "one", "work", "crawler", address="10.0.0.7", now=NOW)
    token = await tokens.check(conn, secret, now=NOW)
    assert token
    with pytest.raises(Conflict):
        await identify_by_host(conn, host="10.0.0.7", type="crawler", token_id=token.id, now=NOW)
    await conn.execute("update work.component set token_id = %s", [token.id])
    for role in ("index-builder", "crawler", "index-server"):
        caller = CallerIdentity("10.0.0.7", (role,), is_named=False)
        with pytest.raises(NotAllowed, match="another token"):
            await caller_identity.identify(conn, caller, now=NOW)
    assert [one.id for one in await components.list_components(conn)] == [before.id]


async def test_servers_that_come_at_once_fill_the_rows_evenly(database: str) -> None:
    async with await connect(database) as conn:
        await rows(conn, 3)

    async def call(number: int) -> int | None:
        async with await connect(database) as own:
            return (await server(own, f"10.0.0.{number}:5000")).row

    found = await asyncio.gather(*map(call, range(1, 10)))
    assert Counter(found) == {1: 3, 2: 3, 3: 3}


async def test_a_row_is_declared_or_the_shortest(conn: Connection) -> None:
    await rows(conn, 3)
    assert [(await server(conn, f"s{i}")).row for i in range(4)] == [1, 2, 3, 1]
    assert (await server(conn, "s9", row=3)).row == 3
    assert (await server(conn, "s10")).row == 2
    moved = await server(conn, "s10", row=1)
    assert moved.row == 1
    assert (await kinds(conn, moved.id))[-2:] == [("row", None, "2"), ("row", "2", "1")]
    assert (await server(conn, "s10")).row == 1
    for wrong in (0, -1, 4, 10**30):
        with pytest.raises(BadInput, match="rows 1 to 3"):
            await server(conn, "s11", row=wrong)
    assert await components.find(conn, "s11") is None
    with pytest.raises(BadInput, match="Only index servers"):
        await identify_by_host(conn, host="c", type="crawler", row=1, now=NOW)
    assert await components.find(conn, "c") is None


@pytest.mark.seed("001.2", "001.3", "001.6")
async def test_states_are_declared(conn: Connection) -> None:
    one = await identify_by_host(conn, host="c", type="crawler", now=NOW)
    later = NOW + SECOND
    bad = await components.declare(conn, one.id, "error", reason="disk\0 full", now=later)
    assert (bad.state, bad.state_reason, bad.state_since) == ("error", "disk full", later)
    assert bad.health == "healthy"
    same = await components.declare(conn, one.id, "error", reason="disk full", now=later + SECOND)
    assert same == bad
    await components.declare(conn, one.id, "paused", now=later)
    assert (await kinds(conn, one.id))[2:] == [
        ("state", "online", "error"), ("state", "error", "paused"),
    ]  # fmt: skip
    for wrong in ("offline", "", "healthy", "Online"):
        with pytest.raises(BadInput):
            await components.declare(conn, one.id, wrong, now=NOW)


async def test_a_server_declares_its_weight(conn: Connection) -> None:
    await rows(conn, 2)
    one = await server(conn, "s")
    heavy = await components.declare(conn, one.id, "online", weight=3, now=NOW)
    assert heavy.weight == 3
    assert (await components.declare(conn, one.id, "online", now=NOW)).weight == 3
    for wrong in (0, -1, 10**9):
        with pytest.raises(BadInput):
            await components.declare(conn, one.id, "online", weight=wrong, now=NOW)


async def test_only_index_servers_are_drained(conn: Connection) -> None:
    await server(conn, "s")
    await identify_by_host(conn, host="c", type="crawler", now=NOW)
    assert (await components.drain(conn, "http://s/", on=True, now=NOW)).draining
    assert (await components.drain(conn, "s", on=True, now=NOW)).draining
    assert [one.condition for one in await components.servers(conn, now=NOW)] == ["draining"]
    assert not (await components.drain(conn, "s", on=False, now=NOW)).draining
    assert [kind for kind, _, _ in await kinds(conn)][-2:] == ["drain", "undrain"]
    with pytest.raises(BadInput):
        await components.drain(conn, "c", on=True, now=NOW)
    with pytest.raises(NotFound):
        await components.drain(conn, "unknown", on=True, now=NOW)


async def test_the_watchdogs_findings_are_kept(conn: Connection) -> None:
    await rows(conn, 2)
    found = [await server(conn, host) for host in ("a:1", "b:1")]
    silent = health.Ping(None, "refused")
    judged, events = (
        list[tuple[int, health.HealthRecord]](),
        list[tuple[int, health.HealthChange]](),
    )
    for one in found:
        record, changes = one.record, list[health.HealthChange]()
        for number in range(3):
            judgement = health.judge(record, silent, NOW + number * SECOND, health.HealthLimits())
            record, changes = judgement.record, [*changes, *judgement.events]
        judged.append((one.id, record))
        events += [(one.id, change) for change in changes]
    assert await components.record_health(conn, judged, events) == {one.id for one in found}
    failed = await components.show(conn, "a:1")
    assert (failed.health, failed.misses, failed.health_reason) == ("failure", 3, "refused")
    assert failed.record == judged[0][1]
    assert (await kinds(conn, failed.id))[-1] == ("health", "healthy", "failure")
    assert {one.condition for one in await components.servers(conn, now=NOW)} == {"unsure"}
    hour = NOW + timedelta(hours=1)
    assert {one.condition for one in await components.servers(conn, now=hour)} == {"gone"}
    assert [one.host for one in await components.list_components(conn, health="failure")] == [
        "a:1", "b:1",
    ]  # fmt: skip
    # A watchdog that fell behind must not undo what its successor found.
    old = [(found[0].id, found[0].record)]
    stale = [(found[0].id, health.HealthChange(NOW, "failure", "healthy", ""))]
    assert await components.record_health(conn, old, stale) == set()
    assert await components.show(conn, "a:1") == failed
    assert (await kinds(conn, failed.id))[-1] == ("health", "healthy", "failure")
    assert await components.record_health(conn, [], []) == set()


async def test_lists_go_on_from_a_host(conn: Connection) -> None:
    for host in ("c", "a", "b"):
        await identify_by_host(conn, host=host, type="crawler", now=NOW)
    await server(conn, "s")
    listed = await components.list_components(conn)
    assert [one.host for one in listed] == ["a", "b", "c", "s"]
    page = await components.list_components(conn, type="crawler", after="a", n=1)
    assert [one.host for one in page] == ["b"]


async def test_a_page_of_the_list_ends_with_all_components_of_a_host(conn: Connection) -> None:
    roles: list[ComponentType] = ["crawler", "index-builder", "front-end"]
    for host in ("a", "b"):
        for role in roles:
            caller = CallerIdentity(host, (role,), is_named=False)
            await caller_identity.identify(conn, caller, now=NOW)
    page = await components.list_components(conn, n=2)
    assert [one.host for one in page] == ["a"] * 3
    page = await components.list_components(conn, after="a", n=2)
    assert [one.host for one in page] == ["b"] * 3
    with pytest.raises(Conflict, match="several components"):
        await components.show(conn, "a")
    assert (await components.show(conn, "a", "crawler")).type == "crawler"


async def test_a_host_belongs_to_its_token_until_that_is_revoked(conn: Connection) -> None:
    ids = []
    for name in ("one", "two"):
        secret = await tokens.make(conn, name, "work", "crawler", now=NOW)
        token = await tokens.check(conn, secret, now=NOW)
        assert token
        ids.append(token.id)
    one, two = ids
    mine = await identify_by_host(conn, host="c", type="crawler", token_id=one, now=NOW)
    assert mine.token_id == one
    assert (await identify_by_host(conn, host="c", token_id=one, now=NOW)).token_id == one
    assert (await identify_by_host(conn, host="c", is_trusted=True, now=NOW)).token_id == one
    for other in (two, None):
        with pytest.raises(NotAllowed):
            await identify_by_host(conn, host="c", token_id=other, now=NOW)
    await tokens.revoke(conn, "one", now=NOW)
    assert (await identify_by_host(conn, host="c", now=NOW)).token_id == one
    assert (await identify_by_host(conn, host="c", token_id=two, now=NOW)).token_id == two


async def test_a_call_that_is_refused_leaves_nothing(database: str) -> None:
    async with await connect(database) as conn:
        for refused in ("http://x/y", "0.0.0.0:1", "a b"):
            with pytest.raises(BadInput):
                await identify_by_host(conn, host=refused, now=NOW)
        with pytest.raises(BadInput):
            await identify_by_host(conn, host="c", type="crawler", row=1, now=NOW)
        assert await components.list_components(conn) == []
        assert await components.events(conn) == []


async def test_mgmts_own_role_is_enough(database: str) -> None:
    async with await connect(make_conninfo(database, user="usher_mgmt")) as conn:
        secret = await tokens.make(conn, "one", "work", "index-server", now=NOW)
        token = await tokens.check(conn, secret, now=NOW)
        assert token
        one = await identify_by_host(
            conn, host="s", type="index-server", token_id=token.id, now=NOW
        )
        await components.declare(conn, one.id, "waiting", weight=2, now=NOW)
        await components.drain(conn, "s", on=True, now=NOW)
        assert await components.record_health(conn, [(one.id, one.record)], []) == {one.id}
        assert await admin.set_rows(conn, 2, now=NOW) == []
        assert await admin.retry(conn, None, now=NOW) == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("delete from work.component")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("update work.event set reason = ''")


@pytest.mark.parametrize("statement", [caller_identity.store.recognise, components.store.find])
async def test_a_component_is_found_by_its_index(conn: Connection, statement: Statement) -> None:
    await conn.execute(
        "insert into work.component (host) select 'h' || n from generate_series(1, 5000) n"
    )
    await conn.execute("analyze work.component")
    values = {"host": "h7", "now": NOW, "roles": ["crawler"], "token": None, "type": None}
    plan = await conn.execute(b"explain " + statement.query, values)
    lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "Seq Scan" not in lines
    assert "component_host_role" in lines


async def test_events_go_on_from_one(conn: Connection) -> None:
    one = await identify_by_host(conn, host="c", now=NOW)
    notes = [NewEvent(NOW, "note", one.id, reason=str(number)) for number in range(5)]
    await components.add_events(conn, *notes, NewEvent(NOW, "note", chunk_id=7))
    last = await components.events(conn, n=2)
    assert [(one.host, one.chunk_id, one.reason) for one in last] == [
        (None, 7, ""),
        ("c", None, "4"),
    ]
    before = await components.events(conn, one.id, 2, before=last[-1].id)
    assert [one.reason for one in before] == ["3", "2"]
