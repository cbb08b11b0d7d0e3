"""Dumps: whole or absent, from one moment, and back into one database or three."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from psycopg import sql

from support.db.fixtures import all_in
from usher.db.areas import SCHEMAS, Area, AreaDatabases
from usher.db.pool import connect
from usher.door import hosts, removals
from usher.errors import BadInput, UsherError
from usher.mgmt import incarnation
from usher.removal_rules import parse_target
from usher.schema import dump, migrate, restore, roles

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
ALL = tuple(SCHEMAS)
NAMES = ["example.com", "www.bbc.co.uk", "localhost:8000"]


async def fill(dsn: str) -> dict[str, hosts.Host]:
    async with await connect(dsn) as conn:
        return await hosts.register(conn, names=NAMES, now=NOW)


async def found(dsn: str) -> dict[str, hosts.Host]:
    async with await connect(dsn) as conn:
        return {host.name: host for host in await hosts.find(conn, names=NAMES)}


@pytest.mark.seed("002.2")
async def test_a_dump_comes_back_as_it_was(
    places: AreaDatabases, database: str, empty_database: str, tmp_path: Path
) -> None:
    before = await fill(database)
    await dump.dump(places, tmp_path / "backup", ALL)
    there = all_in(empty_database)
    await restore.restore(there, tmp_path / "backup", (), replace=False)
    assert await found(empty_database) == before
    assert await dump.schema_ddl(there, ALL) == await dump.schema_ddl(places, ALL)
    assert await migrate.migrate(there) == []
    async with await connect(empty_database) as conn:
        assert (await roles.check(conn)).good
        await hosts.register(
            conn, names=["new.example.com"], now=NOW
        )  # identities go on after the last


async def test_one_database_into_three_places(
    places: AreaDatabases, database: str, empty_database: str, tmp_path: Path
) -> None:
    before = await fill(database)
    await dump.dump(places, tmp_path / "backup", ALL)
    await migrate.drop(places, ("work",))
    apart = AreaDatabases(
        {Area.WORK: empty_database, Area.CONTROL: database, Area.SEARCH: database}
    )
    await restore.restore(apart, tmp_path / "backup", ("work",), replace=False)
    assert await found(empty_database) == before


async def test_restoring_over_something_needs_to_be_told(
    places: AreaDatabases, database: str, tmp_path: Path
) -> None:
    before = await fill(database)
    await dump.dump(places, tmp_path / "backup", ALL)
    async with await connect(database) as conn:
        await conn.execute("update work.hosts set next_fetch = next_fetch + interval '1 day'")
    changed = await found(database)
    with pytest.raises(BadInput, match="exists, and a restore would replace"):
        await restore.restore(places, tmp_path / "backup", (), replace=False)
    assert await found(database) == changed != before
    await restore.restore(places, tmp_path / "backup", (), replace=True)
    assert await found(database) == before


async def test_a_failing_restore_leaves_what_was_there(
    places: AreaDatabases, database: str, tmp_path: Path
) -> None:
    before = await fill(database)
    await dump.dump(places, tmp_path / "backup", ("work",))
    archive = tmp_path / "backup" / "work.dump"
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(UsherError, match="pg_restore failed"):
        await restore.restore(places, tmp_path / "backup", (), replace=True)
    assert await found(database) == before


@pytest.mark.soak
async def test_a_restore_that_the_server_ends_because_of_a_deadlock_is_tried_again(
    places: AreaDatabases, database: str, tmp_path: Path
) -> None:
    before = await fill(database)
    await dump.dump(places, tmp_path / "backup", ("work",))
    waits = "select count(*) from pg_locks where not granted and relation = 'work.token'::regclass"
    async with await connect(database) as conn, await connect(database) as other:
        # psql looks for deadlocks after ten seconds, and the other connection never.
        name = sql.Identifier(conn.info.dbname)
        await conn.execute(sql.SQL("alter database {} set deadlock_timeout = '10s'").format(name))
        await other.execute("set deadlock_timeout = '1h'")
        await other.execute("set lock_timeout = 0")
        async with asyncio.TaskGroup() as group, other.transaction(force_rollback=True):
            await other.execute("lock table work.token in access exclusive mode")
            group.create_task(restore.restore(places, tmp_path / "backup", (), replace=True))
            for _ in range(600):
                if await (await conn.execute(waits)).fetchone() == (1,):
                    break
                await asyncio.sleep(0.05)
            await other.execute("lock table work.chunk in access exclusive mode")
    assert await found(database) == before


async def test_ids_continue_after_all_that_were_issued_before_and_after_the_dump(
    places: AreaDatabases, database: str, tmp_path: Path
) -> None:
    async with await connect(database) as conn:
        await dump.dump(places, tmp_path / "backup", ALL)
        old = await incarnation.current(conn)
        await conn.execute("select setval('work.chunk_id_seq', 1500000000)")
        await conn.execute("select setval('control.job_id_seq', 700)")
        await restore.restore(places, tmp_path / "backup", (), replace=True)
        new = await incarnation.current(conn)
        assert (new.id != old.id, new.last_chunk) == (True, 2_000_000_000)
        jobs = await conn.execute("select last_value from control.job_id_seq")
        assert await jobs.fetchone() == (1_000_000_000,)


async def test_a_failing_dump_leaves_no_directory(empty_database: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no schema 'work'"):
        await dump.dump(all_in(empty_database), tmp_path / "backup", ALL)
    assert list(tmp_path.iterdir()) == []


async def test_an_existing_directory_is_not_written_over(
    places: AreaDatabases, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BadInput, match="exists already"):
        await dump.dump(places, tmp_path / "mine", ALL)
    assert (tmp_path / "mine").read_text() == "mine"


async def test_a_dump_of_an_older_checkout_is_refused(
    places: AreaDatabases, tmp_path: Path
) -> None:
    (tmp_path / dump.MANIFEST).write_text('{"schemas": {"work": "20261117000090"}}')
    with pytest.raises(BadInput, match="before the first release"):
        await restore.restore(places, tmp_path, (), replace=True)


@pytest.mark.parametrize(
    "manifest", ["", "{}", "not json", '{"schemas": {"work": "99990101000000"}}']
)
async def test_what_is_no_dump_or_too_new_is_refused(
    places: AreaDatabases, tmp_path: Path, manifest: str
) -> None:
    (tmp_path / dump.MANIFEST).write_text(manifest)
    with pytest.raises(BadInput):
        await restore.restore(places, tmp_path, (), replace=True)


async def test_a_restore_brings_no_removed_page_back(
    places: AreaDatabases, database: str, tmp_path: Path
) -> None:
    """A removal after the dump stays in force, with its record; one of the dump is there once."""

    async def remove(text: str) -> None:
        target = parse_target(text)
        async with await connect(database) as conn:
            await removals.add_removal(
                conn, target, reason="it's a \\ notice", author="anna", now=NOW
            )

    await fill(database)
    await remove("example.com/before")
    await dump.dump(places, tmp_path / "backup", ALL)
    await remove("https://example.com/after/")
    await restore.restore(places, tmp_path / "backup", (), replace=True)
    async with await connect(database) as conn:
        listed = await removals.list_removals(conn)
        assert sorted(removal.target for removal in listed) == [
            "example.com/after/*",
            "example.com/before",
        ]
        assert {removal.reason for removal in listed} == {"it's a \\ notice"}
        assert [rule.prefix for rule in await removals.rules(conn)] == [None, "/after/"]
