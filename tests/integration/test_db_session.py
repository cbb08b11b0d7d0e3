"""What every session of ours sets, a pool whose server became read-only, and the database's clock."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database, connect
from usher.errors import Unreachable

SETTINGS = {
    "jit": "off",
    "TimeZone": "UTC",
    "idle_in_transaction_session_timeout": "30s",
    "lock_timeout": "10s",
}


async def settings(conn: Connection) -> dict[str, str]:
    shown = await conn.execute(
        "select name, current_setting(name) from unnest(%s::text[]) name", [list(SETTINGS)]
    )
    return dict(await shown.fetchall())


async def test_every_connection_has_the_session_settings(database: str) -> None:
    async with await connect(database) as conn:
        assert await settings(conn) == SETTINGS
    async with Database(database) as db, db.connection() as conn:
        assert await settings(conn) == SETTINGS


async def test_an_option_of_the_operator_wins_but_for_the_time_zone(database: str) -> None:
    dsn = make_conninfo(database, options="-c lock_timeout=3s --jit=on -c TimeZone=Asia/Tokyo")
    async with await connect(dsn, role="usher_reader") as conn:
        chosen = {"lock_timeout": "3s", "jit": "on"}
        assert await settings(conn) == SETTINGS | chosen
        user = await conn.execute("select current_user")
        assert await user.fetchone() == ("usher_reader",)


async def test_no_statement_is_compiled_because_sequential_scans_are_forbidden(
    database: str,
) -> None:
    """The penalty of a forbidden scan made PostgreSQL 15 compile for seconds."""
    async with await connect(database) as conn:
        await conn.execute("create table large as select generate_series(1, 10) number")
        await conn.execute("set enable_seqscan = off")
        await conn.execute("set jit_above_cost = 0")
        plan = await conn.execute("explain analyze select sum(number) from large")
        assert not [line for (line,) in await plan.fetchall() if "JIT" in line]


async def test_a_pool_discards_its_connections_to_a_demoted_primary(database: str) -> None:
    async with Database(database, size=2) as db:
        async with db.connection() as first, db.connection() as second:
            for conn in (first, second):
                await conn.execute("set default_transaction_read_only = on")
        with pytest.raises(Unreachable, match="read-only"):
            async with db.transaction() as conn:
                await conn.execute("create table kept (number int)")
        for _ in range(2):
            async with db.connection() as first, db.connection() as second:
                for conn in (first, second):
                    await conn.execute("create table if not exists kept (number int)")


async def test_work_goes_on_once_the_server_can_be_written_again(database: str) -> None:
    async with Database(database, size=1) as db:
        async with db.connection() as conn:
            await conn.execute("set default_transaction_read_only = on")
        await db.run(lambda conn: conn.execute("create table kept (number int)"))


async def test_a_standby_behind_one_address_is_not_used(database: str) -> None:
    read_only = make_conninfo(database, options="-c default_transaction_read_only=on")
    with pytest.raises(Unreachable, match="read-only"):
        await connect(read_only)


async def test_a_lock_that_is_never_released_does_not_block_for_ever(database: str) -> None:
    dsn = make_conninfo(database, options="-c lock_timeout=100ms")
    async with await connect(database) as holder, Database(dsn) as db:
        await holder.execute("create table kept (number int)")
        async with holder.transaction():
            await holder.execute("lock table kept")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                async with db.transaction() as conn:
                    await conn.execute("insert into kept values (1)")
        await db.run(lambda conn: conn.execute("insert into kept values (2)"))


async def test_the_clock_is_the_databases(database: str) -> None:
    clock = DatabaseClock()
    async with await connect(database) as conn:
        await clock.sync(conn)
        cursor = await conn.execute("select clock_timestamp()")
        [(there,)] = await cursor.fetchall()
    assert abs(clock.now() - there) < timedelta(seconds=2)
    assert abs(clock.skew) < timedelta(seconds=2)
    assert clock.now().tzinfo is not None


async def test_a_pool_keeps_the_databases_clock(database: str) -> None:
    async with Database(database) as db:
        assert not db.clock.is_stale
        assert abs(db.clock.now() - datetime.now(UTC)) < timedelta(seconds=2)


async def test_a_slow_first_sample_of_the_clock_does_not_last(database: str) -> None:
    clock = DatabaseClock()
    async with await connect(database) as conn:
        await conn.execute("create schema slow")
        await conn.execute("""
            create function slow.clock_timestamp() returns timestamptz language sql as
            $$ select pg_catalog.clock_timestamp() from pg_sleep(1.2) $$
        """)
        await conn.execute("set search_path = slow, pg_catalog")
        await clock.sync(conn)
        assert clock.is_stale
        await conn.execute("set search_path = pg_catalog")
        await clock.sync(conn)
        assert not clock.is_stale


async def test_a_slow_answer_does_not_turn_the_clock_back(database: str) -> None:
    """The database reads its clock and answers later: the clock was right, and stays so."""
    clock = DatabaseClock()
    async with await connect(database) as conn:
        await clock.sync(conn)
        await conn.execute("create schema slow")
        await conn.execute("""
            create function slow.clock_timestamp() returns timestamptz language plpgsql as
            $$ declare at timestamptz := pg_catalog.clock_timestamp();
            begin perform pg_sleep(0.8); return at; end $$
        """)
        await conn.execute("set search_path = slow, pg_catalog")
        before = clock.skew
        await clock.sync(conn)
    assert abs(clock.skew - before) < timedelta(seconds=0.2)


async def test_the_clock_follows_a_database_whose_clock_was_set(database: str) -> None:
    clock = DatabaseClock()
    async with await connect(database) as conn:
        await clock.sync(conn)
        await conn.execute("create schema later")
        await conn.execute("""
            create function later.clock_timestamp() returns timestamptz language sql as
            $$ select pg_catalog.clock_timestamp() + interval '1 hour' $$
        """)
        await conn.execute("set search_path = later, pg_catalog")
        await clock.sync(conn)
        assert abs(clock.skew + timedelta(hours=1)) < timedelta(seconds=2)
        await conn.execute("set search_path = pg_catalog")
        await clock.sync(conn)
    assert abs(clock.skew) < timedelta(seconds=2)
