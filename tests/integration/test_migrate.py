"""The schema's steps: applied once, by one, whole or not at all, by us or by dbmate."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from support.db.fixtures import all_in
from support.processes.commands import usher
from usher import __version__
from usher.db.areas import SCHEMAS, Area, AreaDatabases
from usher.db.pool import Connection, connect
from usher.errors import MigrationFailed, SchemaOutOfDate
from usher.schema import migrate, migration_files, roles, state
from usher.schema.dump import schema_ddl
from usher.schema.state import applied_versions
from usher.versions import minor_version

OWN = minor_version(__version__)
assert OWN
DBMATE = Path(sys.executable).parent / "dbmate"


def dbmate(dsn: str, schema: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the plain dbmate tool as an operator would."""
    options = [
        "--no-dump-schema",
        "--migrations-dir",
        str(migration_files.SCHEMA_DIRECTORY / schema),
    ]
    options += ["--migrations-table", f"{schema}.schema_migrations"]
    environment = {**os.environ, "DATABASE_URL": url(dsn)}
    return subprocess.run(
        [DBMATE, *options, *words], env=environment, capture_output=True, text=True, check=False
    )


def url(dsn: str) -> str:
    """The DSN as a URL, the only form that dbmate reads."""
    parts = conninfo_to_dict(dsn)
    place = urlencode({"host": parts["host"], "port": parts["port"], "sslmode": "disable"})
    return f"postgres://{parts['user']}:{parts['password']}@/{parts['dbname']}?{place}"


def step(up: str, down: str = "", *, in_transaction: bool = True) -> migration_files.Migration:
    return migration_files.Migration(
        version="99990101000000",
        name="last",
        up=up,
        down=down,
        up_in_transaction=in_transaction,
        down_in_transaction=in_transaction,
    )


def know(monkeypatch: pytest.MonkeyPatch, known: dict[str, migration_files.Migration]) -> None:
    """Let this program know these migrations of the schema work."""
    for module in (migrate, state):
        monkeypatch.setattr(
            module,
            "migrations",
            lambda schema: known if schema == "work" else migration_files.migrations(schema),
        )


@pytest.mark.seed("002.4", "003.4")
async def test_all_steps_are_applied_once(empty_database: str) -> None:
    places = all_in(empty_database)
    made = await migrate.migrate(places)
    assert {change.schema for change in made} == set(SCHEMAS)
    assert await migrate.migrate(places) == []
    assert all(state.current for state in await migrate.status(places))


async def test_six_at_once_make_each_step_once(empty_database: str) -> None:
    places = all_in(empty_database)
    made = await asyncio.gather(*(migrate.migrate(places) for _ in range(6)))
    expected = sum(len(migration_files.migrations(schema)) for schema in SCHEMAS)
    assert sum(map(len, made)) == expected


@pytest.mark.seed("003.4", "004.33")
async def test_dbmate_goes_on_where_we_stopped_and_the_other_way_round(empty_database: str) -> None:
    for schema in SCHEMAS:
        done = dbmate(empty_database, schema, "up")
        assert done.returncode == 0, done.stderr
    assert await migrate.migrate(all_in(empty_database)) == []
    done = dbmate(empty_database, "work", "rollback")
    assert done.returncode == 0, done.stderr
    made = await migrate.migrate(all_in(empty_database))
    assert [change.schema for change in made] == ["work"]
    done = dbmate(empty_database, "work", "status")
    assert "Pending: 0" in done.stdout


@pytest.mark.seed("004.33", "004.34")
async def test_dbmate_makes_the_same_schema(empty_database: str, places: AreaDatabases) -> None:
    for schema in SCHEMAS:
        dbmate(empty_database, schema, "up")
    names = tuple(SCHEMAS)
    assert await schema_ddl(all_in(empty_database), names) == await schema_ddl(places, names)


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_down_leaves_only_the_list_of_steps_and_up_again_gives_the_same(
    places: AreaDatabases, schema: str
) -> None:
    before = await schema_ddl(places, (schema,))
    undone = await migrate.rollback(places, schema, count=99)
    assert len(undone) == len(migration_files.migrations(schema))
    left = re.findall(r"^CREATE (.*?)(?: \(|;)", await schema_ddl(places, (schema,)), re.MULTILINE)
    assert left == [f"SCHEMA {schema}", f"TABLE {schema}.schema_migrations"]
    await migrate.migrate(places)
    assert await schema_ddl(places, (schema,)) == before


async def test_a_failing_step_leaves_nothing_of_itself(
    places: AreaDatabases, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = step("create table work.half (); select 1/0")
    known = {**migration_files.migrations("work"), broken.version: broken}
    know(monkeypatch, known)
    with pytest.raises(MigrationFailed, match="division by zero"):
        await migrate.migrate(places, ("work",))
    async with await connect(database) as conn:
        found = await conn.execute("select to_regclass('work.half')")
        assert await found.fetchone() == (None,)
        assert broken.version not in await applied_versions(conn, "work")


async def test_a_step_outside_a_transaction(
    places: AreaDatabases, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = "create index concurrently slow_index on work.hosts (next_fetch)"
    slow = step(up, "drop index concurrently work.slow_index", in_transaction=False)
    known = {**migration_files.migrations("work"), slow.version: slow}
    know(monkeypatch, known)
    await migrate.migrate(places, ("work",))
    async with await connect(database) as conn:
        assert slow.version in await applied_versions(conn, "work")
    assert [change.version for change in await migrate.rollback(places, "work")] == [slow.version]


async def test_a_database_of_a_newer_usher_is_left_alone(
    places: AreaDatabases, database: str
) -> None:
    async with await connect(database) as conn:
        await conn.execute("insert into work.schema_migrations values ('99990101000000')")
    for work in (migrate.migrate(places), migrate.ensure(places), migrate.rollback(places, "work")):
        with pytest.raises(SchemaOutOfDate, match="99990101000000"):
            await work


@pytest.mark.parametrize(
    ("comment", "works"),
    [
        (f"Works with Usher {OWN} and newer.", True),
        (f"Works with Usher {OWN.major}.0 and newer.", True),
        (f"Works with Usher {OWN.major}.{OWN.minor + 1} and newer.", False),
        (f"Works with Usher {OWN.major + 1}.0 and newer.", False),
        ("Works with everything.", False),
    ],
)
async def test_a_newer_schema_is_used_if_it_is_made_for_this_version_too(
    places: AreaDatabases, database: str, comment: str, *, works: bool
) -> None:
    async with await connect(database) as conn:
        await conn.execute("insert into work.schema_migrations values ('99990101000000')")
        statement = sql.SQL("comment on table work.schema_migrations is {}").format(comment)
        await conn.execute(statement)
    [work, *others] = await migrate.status(places)
    assert (work.usable, work.refused, work.current) == (works, not works, False)
    assert all(state.current for state in others)
    environment = {"DATABASE_URL": database}
    if works:
        assert await migrate.migrate(places) == []
        await migrate.ensure(places)
        assert usher("status", environment=environment).code == 0
        assert "newer than this Usher, which works" in usher("doctor", environment=environment).out
    else:
        for call in (migrate.migrate(places), migrate.ensure(places)):
            with pytest.raises(SchemaOutOfDate, match="99990101000000"):
                await call
        refused = usher("hosts", "list", environment=environment)
        assert refused.code == 6
        assert "upgrade Usher" in refused.err
    with pytest.raises(SchemaOutOfDate):  # this program cannot undo what it does not know
        await migrate.rollback(places, "work")


async def test_a_newer_schema_that_lacks_a_migration_of_this_program_is_refused(
    places: AreaDatabases, database: str
) -> None:
    """Another branch created it."""
    async with await connect(database) as conn:
        await conn.execute("update work.schema_migrations set version = '99990101000000'")
        statement = "comment on table work.schema_migrations is {}"
        words = f"Works with Usher {OWN} and newer."
        await conn.execute(sql.SQL(statement).format(words))
    with pytest.raises(SchemaOutOfDate, match="99990101000000"):
        await migrate.ensure(places)


async def test_statements_do_not_queue_behind_a_migration_that_waits(
    places: AreaDatabases, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dump holds a lock on the table that the migration changes; reads and writes of others go on meanwhile."""
    last = step("alter table work.component add column zone text not null default ''")
    know(monkeypatch, {**migration_files.migrations("work"), last.version: last})
    async with await connect(database) as dump, await connect(database) as other:
        await other.execute("set statement_timeout = '8s'")
        async with dump.transaction():
            await dump.execute("lock table work.component in access share mode")
            migrating = asyncio.create_task(migrate.migrate(places, ("work",)))
            waits = (
                "select count(*) from pg_locks where not granted and mode = 'AccessExclusiveLock'"
            )
            for host in ("a:1", "b:1", "c:1"):
                await wait_until(other, waits)
                await other.execute("insert into work.component (host) values (%s)", [host])
            assert not migrating.done()
        assert [change.version for change in await migrating] == [last.version]
        zones = await other.execute("select host, zone from work.component order by host")
        assert await zones.fetchall() == [("a:1", ""), ("b:1", ""), ("c:1", "")]


async def wait_until(conn: Connection, query: str) -> None:
    async with asyncio.timeout(60):
        while await (await conn.execute(query.encode())).fetchone() == (0,):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the condition is another session's


async def test_a_migration_that_never_gets_its_lock_changes_nothing(
    places: AreaDatabases, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = step("create table work.half (); alter table work.component add column zone text")
    know(monkeypatch, {**migration_files.migrations("work"), last.version: last})
    monkeypatch.setattr(migrate, "LOCK_PATIENCE_SECONDS", 2.5)
    async with await connect(database) as dump, dump.transaction():
        await dump.execute("lock table work.component in access share mode")
        with pytest.raises(MigrationFailed, match="lock timeout") as failed:
            await migrate.migrate(places, ("work",))
        assert "a dump, held locks" in failed.value.hint
    async with await connect(database) as conn:
        found = await conn.execute("select to_regclass('work.half')")
        assert await found.fetchone() == (None,)
        assert last.version not in await applied_versions(conn, "work")


async def test_a_database_of_an_older_checkout_is_refused_until_it_is_dropped(
    places: AreaDatabases, database: str
) -> None:
    """Checkouts from before the first release have other versions, all lower than the first of this program."""
    async with await connect(database) as conn:
        await conn.execute("update work.schema_migrations set version = '20261115000001'")
    for work in (migrate.migrate(places), migrate.ensure(places), migrate.rollback(places, "work")):
        with pytest.raises(SchemaOutOfDate, match="before the first release") as refused:
            await work
        assert "usher db drop" in refused.value.hint
    await migrate.drop(places, ("work",))
    await migrate.migrate(places)
    assert all(state.current for state in await migrate.status(places))


async def test_a_server_of_the_operators_own_is_never_migrated_in_passing(
    empty_database: str,
) -> None:
    with pytest.raises(SchemaOutOfDate, match="behind"):
        await migrate.ensure(all_in(empty_database))
    assert all(not state.applied for state in await migrate.status(all_in(empty_database)))


@pytest.mark.seed("003.1")
async def test_three_areas_in_three_databases(empty_database: str, database: str) -> None:
    places = AreaDatabases(
        {Area.WORK: database, Area.CONTROL: empty_database, Area.SEARCH: database}
    )
    made = await migrate.migrate(places)
    assert {change.schema for change in made} == {"control"}
    async with await connect(empty_database) as conn:
        assert await applied_versions(conn, "work") == []


@pytest.mark.seed("002.1", "002.2")
async def test_drop_removes_only_what_it_names(places: AreaDatabases) -> None:
    await migrate.drop(places, ("feeds", "multimatch"))
    applied = {state.schema: bool(state.applied) for state in await migrate.status(places)}
    assert applied == {"work": True, "control": True, "feeds": False, "multimatch": False}


async def test_a_schema_that_is_not_what_its_steps_make_is_told_in_words(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = all_in(empty_database)
    await migrate.migrate(places)
    async with await connect(empty_database) as conn:
        if not await roles.exist(conn):
            await roles.create(conn)
        await conn.execute("alter table work.hosts rename to lease_holders")
    know(monkeypatch, {**migration_files.migrations("work"), "99990101000000": step("select 1")})
    with pytest.raises(MigrationFailed, match=r'Schema work lacks .* "work\.hosts"'):
        await migrate.migrate(places)
