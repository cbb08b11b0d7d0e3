"""A partitioned guestbook after a restore, a migration, a killed conversion, and under the existing tests."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from support.db.fixtures import PARTITIONED, all_in
from support.db.partitioned import fill, other, pages, rows, tables
from support.processes.commands import clean, usher
from usher.db.areas import AreaDatabases
from usher.db.embedded.server_lease import lease_server
from usher.db.pool import Connection, connect
from usher.schema import dump, migrate, partitions, restore, roles
from usher.schema.migration_files import Migration

pytestmark = pytest.mark.soak

WORK = ("work",)
TREE = Path(__file__).parents[2]
COPYING = (
    'select pid from pg_stat_activity where query like \'insert into "work"."guestbook_new"%\''
)
# The existing tests of these topics, which also run on a partitioned guestbook.
MODULES = (
    "integration/test_doorkeeper.py", "integration/test_guestbook.py", "integration/test_hints.py",
    "integration/test_limits.py", "integration/test_claims.py", "integration/test_chunks.py",
    "integration/test_chunks_plans.py", "integration/test_chunk_ends.py", "integration/test_settle.py",
    "integration/test_hold.py", "integration/test_races.py", "integration/test_host_races.py",
    "integration/test_late_links.py", "integration/test_missing.py", "integration/test_versions.py",
    "integration/test_removals.py", "integration/test_page_removal.py", "integration/test_compact.py",
    "integration/test_compact_plans.py", "integration/test_page_keys.py", "integration/test_page_list.py",
    "integration/test_reindexing.py", "integration/test_anchors.py", "integration/test_site_templates.py",
    "integration/test_open_crawls.py", "integration/test_console_plans.py", "integration/test_explain.py",
    "integration/test_dump.py", "integration/test_roles.py", "interface/test_recrawl_cli.py",
    "interface/test_remove.py", "interface/test_mgmt_links.py", "house/test_rules.py",
)  # fmt: skip
# These look for the name of an index or the written schema of one table, or see that PostgreSQL reads an empty
# partition without an index.
OF_ONE_TABLE = (
    "integration/test_compact_plans.py::test_candidates_are_found_by_what_happened",
    "integration/test_missing.py::test_pages_are_found_by_index_however_many_there_are",
    "integration/test_site_templates.py::test_no_statement_reads_a_table_from_end_to_end",
    "house/test_rules.py::test_schema_sql_matches_the_migrations",
)


@pytest.mark.parametrize("forms", [(4, 0), (4, 1), (4, 6), (1, 3)])
async def test_a_restore_brings_back_the_form_of_the_dump(
    places: AreaDatabases,
    database: str,
    empty_database: str,
    tmp_path: Path,
    forms: tuple[int, int],
) -> None:
    """The target is empty, one table, or has more partitions."""
    dumped, present = forms
    async with await connect(other(database)) as conn:
        await fill(conn)
        before = await pages(conn)
    await partitions.partition(places, dumped)
    definition = await dump.schema_ddl(places, WORK)
    await dump.dump(places, tmp_path / "dump", WORK)
    target = all_in(empty_database)
    if present:
        await migrate.migrate(target)
        async with await connect(empty_database) as conn:
            await fill(conn)
        await partitions.partition(target, present)
    await restore.restore(target, tmp_path / "dump", (), replace=True)
    assert await dump.schema_ddl(target, WORK) == definition
    async with await connect(empty_database) as conn:
        assert await pages(conn) == before
        assert (await roles.check(conn)).good


ADD = """
alter table work.guestbook
    add column zone text not null default 'a' constraint guestbook_zone_short check (length(zone) < 9);
comment on column work.guestbook.zone is 'Where.';
create or replace function work.page_zone(page work.guestbook) returns text
    language sql immutable as $$ select page.zone $$;
"""
INDEX = "create index concurrently guestbook_zone ON work.guestbook using btree (zone, id) where zone <> 'a';"


async def test_a_later_migration_works_on_both_forms(places: AreaDatabases, database: str) -> None:
    """It gives the same definition whether the guestbook was divided before or after it."""
    add = Migration(
        "30000101000001", "add", ADD, "", up_in_transaction=True, down_in_transaction=True
    )
    down = "drop index concurrently if exists work.guestbook_zone;"
    index = Migration(
        "30000101000002", "index", INDEX, down, up_in_transaction=False, down_in_transaction=False
    )
    async with await connect(other(database)) as conn:
        await fill(conn)
        bounds = (await partitions.plan(places, 3)).bounds
        await partitions.convert(conn, bounds)
        for step in (add, index):
            await migrate.run_migration(conn, "work", step)
        assert await rows(conn, "select work.page_zone(g) from work.guestbook g limit 1") == [
            ("a",)
        ]
        names = "{work.guestbook_zone,work.guestbook_p02_zone}"
        valid = f"select indisvalid from pg_index where indexrelid = any('{names}'::regclass[])"
        assert await rows(conn, valid) == [(True,), (True,)]
        with pytest.raises(psycopg.errors.CheckViolation):
            await conn.execute("update work.guestbook set zone = 'much too long'")
        await partitions.convert(conn, None)
        assert await rows(conn, valid.replace("guestbook_p02", "guestbook")) == [(True,)]
        await partitions.convert(conn, bounds)
        await migrate.run_migration(conn, "work", index, undo=True)
        assert (
            await rows(
                conn,
                "select from pg_class where relname ~ 'guestbook.*zone' and relkind in ('i', 'I')",
            )
            == []
        )


def child(database: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "usher", "db", "partition", "--yes", *words]
    return subprocess.Popen(
        command,
        env=clean({"DATABASE_URL": database}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


async def copying(conn: Connection) -> int:
    """Return the process of the server that copies pages."""
    for _ in range(600):
        if sessions := await rows(conn, COPYING):
            return int(sessions[0][0])
        await asyncio.sleep(0.02)
    raise AssertionError("nothing was copied")


@pytest.mark.parametrize("present", [1, 3])
async def test_a_killed_conversion_changes_nothing(
    places: AreaDatabases, database: str, present: int
) -> None:
    """The server notices that the client is gone, and rolls back, although it waits for the end of a statement."""
    async with await connect(other(database)) as conn:
        await fill(conn, hosts=90, each=1500)
        await partitions.partition(places, present)
        before, form = await tables(conn), await partitions.present_bounds(conn)
        process = child(database, "--partitions", "5")
        await copying(conn)
        process.kill()
        process.communicate()
        for _ in range(600):
            if not await rows(conn, COPYING):
                break
            await asyncio.sleep(0.05)
        assert await rows(conn, COPYING) == []
        assert await partitions.present_bounds(conn) == form
        assert await tables(conn) == before
        assert await rows(conn, "select count(*) from work.guestbook") == [(90 * 1500,)]
    done = usher(
        "db", "partition", "--partitions", "5", "--yes", environment={"DATABASE_URL": database}
    )
    assert done.code == 0, done.err


async def test_a_killed_server_changes_nothing(data: Path) -> None:
    """PostgreSQL ends all sessions if one is killed, and recovers."""
    with lease_server(data) as lease:
        await migrate.migrate(all_in(lease.dsn))
        async with await connect(other(lease.dsn)) as conn:
            await fill(conn, hosts=90, each=1500)
            process = child(lease.dsn, "--partitions", "5")
            os.kill(await copying(conn), signal.SIGKILL)
        _, error = process.communicate()
        assert process.returncode == 5, error
        async with await connect(other(lease.dsn), patience=60) as conn:
            assert await partitions.present_bounds(conn) is None
            assert await tables(conn) == [("guestbook",)]
            assert await rows(conn, "select count(*) from work.guestbook") == [(90 * 1500,)]


def test_existing_tests_pass_on_a_partitioned_guestbook() -> None:
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    names = [f"tests/{name}" for name in MODULES]
    without = [word for name in OF_ONE_TABLE for word in ("--deselect", f"tests/{name}")]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not soak and not debian", *without, *names],
        cwd=TREE,
        env={**environment, PARTITIONED: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
