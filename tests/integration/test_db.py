"""The way to PostgreSQL: transactions, wake-up calls, and a server that goes away and comes back."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from support.db.failover_pair import rows_on, standby
from support.processes.free_port import free_port
from support.processes.killable import eventually, kill_9, supervisor_pids
from usher.db.embedded.server_lease import lease_server
from usher.db.pool import (
    Connection,
    Database,
    DatabaseNotification,
    complete_dsn,
    connect,
    split_password,
)
from usher.db.statements import Statements, load_statements
from usher.errors import BadSetting, SchemaOutOfDate, Unreachable
from usher.telemetry import metrics_text


async def count(conn: Connection) -> int:
    found = await conn.execute("select count(*) from work.tld")
    (number,) = await found.fetchone() or (0,)
    return int(number)


async def add(conn: Connection) -> None:
    await conn.execute("insert into work.tld values (100, 'test')")


async def test_a_transaction_is_kept_at_its_end_and_undone_by_an_exception(database: str) -> None:
    async with Database(database) as db:
        async with db.transaction() as conn:
            before = await count(conn)
        with pytest.raises(ZeroDivisionError):
            async with db.transaction() as conn:
                await add(conn)
                raise ZeroDivisionError
        async with db.transaction() as conn:
            assert await count(conn) == before
            await add(conn)
        async with db.transaction() as conn:
            assert await count(conn) == before + 1


async def test_errors_of_ours_pass_and_the_drivers_keep_their_type(database: str) -> None:
    async with Database(database) as db:
        with pytest.raises(psycopg.errors.UniqueViolation):
            async with db.transaction() as conn:
                await conn.execute("insert into work.tld values (1, 'gov')")
        with pytest.raises(SchemaOutOfDate, match="nothing_here"):
            async with db.transaction() as conn:
                await conn.execute("select * from work.nothing_here")


async def test_work_goes_on_when_its_connections_are_cut(database: str) -> None:
    async with Database(database, size=2) as db, await connect(database) as other:
        await db.run(count)
        await other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert await db.run(count) > 0


async def test_work_that_others_stood_in_the_way_of_is_begun_anew(database: str) -> None:
    """Two that take the same lines in another order: the server ends one of them, and both are done."""
    begun, both = list[int](), asyncio.Event()

    async def take(conn: Connection, first: int, second: int) -> None:
        await conn.execute("set local deadlock_timeout = '50ms'")
        more = "update kept set taken = taken + 1 where number = %s"
        await conn.execute(more, [first])
        begun.append(first)
        if len(begun) > 1:
            both.set()
        await both.wait()
        await conn.execute(more, [second])

    async with Database(database) as db:
        async with db.transaction() as conn:
            await conn.execute("create table kept (number int, taken int default 0)")
            await conn.execute("insert into kept values (1), (2)")
        async with asyncio.timeout(60):
            await asyncio.gather(
                db.run(lambda conn: take(conn, 1, 2)), db.run(lambda conn: take(conn, 2, 1))
            )
        async with db.transaction() as conn:
            found = await conn.execute("select number, taken from kept order by 1")
            assert await found.fetchall() == [(1, 2), (2, 2)]
    assert len(begun) > 2


async def test_a_replaced_type_costs_a_connection_and_no_work(
    database: str, tmp_path: Path
) -> None:
    """As a restore does: the plans that connections keep are of the old types."""
    (tmp_path / "bays.sql").write_text("-- name: states\n-- All.\nselect state from bay.page\n")
    create = (
        "create schema bay; create domain bay.state as text; create table bay.page (state bay.state); "
        "insert into bay.page values ('idle')"
    )
    statements = Statements(tmp_path / "bays.sql")
    async with Database(database) as db:

        async def states(conn: Connection) -> list[str]:
            return await statements.states.column(conn)

        async with db.transaction() as conn:
            await conn.execute(create.encode())
        for autocommit in (False, True):
            for _ in range(10):  # the driver prepares what it often runs
                assert await db.run(states, autocommit=True) == ["idle"]
            async with await connect(database) as other:
                await other.execute(f"drop schema bay cascade; {create}".encode())
            assert await db.run(states, autocommit=autocommit) == ["idle"]


async def test_wake_up_calls_survive_a_cut_line(database: str) -> None:
    async with Database(database) as db, await connect(database) as other:
        calls = db.listen("door")
        assert await anext(calls) == DatabaseNotification("door", missed=True)
        await other.execute("notify door, 'one'")
        assert await anext(calls) == DatabaseNotification("door", "one")
        await other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%'"
        )
        assert await anext(calls) == DatabaseNotification("door", missed=True)
        await other.execute("notify door, 'two'")
        assert await anext(calls) == DatabaseNotification("door", "two")
        await calls.aclose()


async def test_work_waits_out_a_killed_server(data: Path) -> None:
    with lease_server(data) as lease:
        async with Database(lease.dsn, patience=20) as db:
            await db.run(lambda conn: conn.execute("create table kept (number int)"))
            postmaster = lease.cluster.pid()
            kill_9(postmaster)
            await db.run(lambda conn: conn.execute("insert into kept values (1)"))
            assert lease.cluster.pid() != postmaster
            async with db.transaction() as conn:
                found = await conn.execute("select number from kept")
                assert await found.fetchall() == [(1,)]


async def test_the_standby_takes_over(data: Path) -> None:
    """A real failover: a primary and its streaming standby, kill -9, promote, work goes on."""
    with lease_server(data / "one", port=free_port()) as first:
        second = standby(first.cluster, data / "two", free_port())
        first_port, second_port = first.cluster.tcp_port, second.tcp_port
        password = (data / "one" / "password").read_text().strip()
        dsn = f"host=127.0.0.1,127.0.0.1 port={first_port},{second_port} user=usher password={password} dbname=usher"
        second.start()
        try:
            async with Database(dsn, patience=20) as db:
                await db.run(lambda conn: conn.execute("create table kept (number int)"))
                await db.run(lambda conn: conn.execute("insert into kept values (1)"))
                assert eventually(lambda: rows_on(second.dsn()) == [(1,)])
                kill_9(supervisor_pids(data / "one")[0])  # or it would bring the primary back
                kill_9(first.cluster.pid())
                second.promote()
                await db.run(lambda conn: conn.execute("insert into kept values (2)"))
            assert rows_on(second.dsn()) == [(1,), (2,)]
        finally:
            second.stop()


@pytest.mark.parametrize(
    ("dsn", "error", "words"),
    [
        ("postgresql://[broken", BadSetting, "not a PostgreSQL address"),
        ("host=127.0.0.1 colour=red", BadSetting, "not a PostgreSQL address"),
        ("postgresql://u:secret word@h", BadSetting, "not a PostgreSQL address"),
        ("postgresql://x:secret@127.0.0.1:1/none", Unreachable, "refused"),
        ("postgresql:///x?host=/nowhere/at/all", Unreachable, "No such file"),
    ],
)
async def test_bad_addresses_are_told_without_their_password(
    dsn: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        await connect(dsn)
    assert "secret" not in str(caught.value)


async def test_a_final_refusal_is_not_tried_again(database: str) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(Unreachable, match="does not exist"):
            await connect(f"{database} dbname=nothing_here", patience=60)


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usher.db.pool.FIRST_PAUSE_SECONDS", 0.01)
    async with asyncio.timeout(5):
        with pytest.raises(Unreachable):
            await connect("postgresql://127.0.0.1:1/none", patience=0.2)


def test_several_servers_mean_the_one_that_leads() -> None:
    assert "target_session_attrs=read-write" in complete_dsn("host=a,b")
    assert "target_session_attrs=any" in complete_dsn("host=a,b target_session_attrs=any")
    assert "target_session_attrs=read-write" in complete_dsn("host=a"), "it may be a load balancer"


def test_another_programs_command_line_has_no_password() -> None:
    dsn, environment = split_password("postgresql://me:secret@here/db")
    assert "secret" not in dsn
    assert environment == {"PGPASSWORD": "secret"}


@dataclass(frozen=True, slots=True)
class Tld:
    code: int
    name: str


@pytest.fixture
def store(tmp_path: Path) -> Statements:
    (tmp_path / "tlds.sql").write_text(
        "-- name: find\n-- One by its name.\nselect code, name from work.tld where name = %(name)s;\n\n"
        "-- name: all\nselect code, name from work.tld order by code;\n\n"
        "-- name: forget\ndelete from work.tld where name = any(%(names)s);\n"
    )
    return load_statements(str(tmp_path / "tlds.py"))


async def test_statements_give_typed_rows(conn: Connection, store: Statements) -> None:
    assert await store.find.row(conn, Tld, name="gov") == Tld(1, "gov")
    assert await store.find.row(conn, Tld, name="none") is None
    assert (await store.all.rows(conn, Tld))[:2] == [Tld(1, "gov"), Tld(2, "mil")]
    assert await store.forget.run(conn, names=["gov", "mil", "none"]) == 2
    with pytest.raises(LookupError, match="one row at most"):
        await store.all.row(conn, Tld)
    assert b'usher_db_seconds_count{statement="tlds.find"}' in metrics_text()


def test_statement_names_are_exact(store: Statements, tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="has no statement named 'fnid'"):
        _ = store.fnid
    (tmp_path / "twice.sql").write_text("-- name: a\nselect 1;\n-- name: a\nselect 2;\n")
    with pytest.raises(ValueError, match="named twice: a"):
        load_statements(str(tmp_path / "twice.py"))
