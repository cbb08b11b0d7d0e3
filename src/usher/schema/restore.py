"""Restores schemas from a dump, each in one transaction with its ids, grants and the incarnation.

`pg_restore` writes the script and `psql` runs it, so that everything is in the same transaction: no process sees old
data under the present incarnation, or gets an id that was issued before.
"""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from psycopg import sql

from usher.db.areas import SCHEMAS, AreaDatabases
from usher.db.pool import Connection, split_password
from usher.db.statements import load_statements
from usher.errors import BadInput, UsherError
from usher.schema import partitions, roles
from usher.schema.dump import PORTABLE_OPTIONS, client_program, read_manifest
from usher.schema.migrate import migration_lock
from usher.schema.migration_files import migrations
from usher.schema.state import is_before_first, schema_state, unknown_migrations_error

store = load_statements(__file__)
RESTORE_OPTIONS: Final = ("--clean", "--if-exists", "--file=-", *PORTABLE_OPTIONS)
PSQL_OPTIONS: Final = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
READ_BYTES: Final = 1 << 20
MAX_ATTEMPTS: Final = 5  # working components can cause deadlocks
# Raises sequences to those of the database that is replaced.
RAISE_IDS: Final = sql.SQL("""
select pg_catalog.setval(
    pg_catalog.format('%I.%I', s.schemaname, s.sequencename)::regclass, greatest(s.last_value, k.last_value)
)
from pg_catalog.pg_sequences s
join unnest({names}::text[], {last_values}::bigint[]) as k (name, last_value) on k.name = s.sequencename
where s.schemaname = {schema}
""")
# Ids continue at the next billion, as work.begin_incarnation does in the work area.
ADVANCE_IDS: Final = sql.SQL("""
select pg_catalog.setval(
    pg_catalog.format('%I.%I', schemaname, sequencename)::regclass,
    (coalesce(last_value, 0) / 1000000000 + 1) * 1000000000
)
from pg_catalog.pg_sequences
where schemaname = {schema}
""")
# Removals of the database that is replaced stay in force: no restore may bring a removed page back.
KEEP_REMOVAL: Final = sql.SQL("""
insert into work.removal (target, host, subdomains, paths, prefix, reason, removed_by, removed_at)
values ({target}, {host}, {subdomains}, {paths}::text[], {prefix}, {reason}, {removed_by}, {removed_at})
on conflict do nothing
""")
Script = Sequence[sql.SQL | sql.Composed]


async def restore(
    areas: AreaDatabases,
    source: Path,
    schemas: tuple[str, ...],
    *,
    replace: bool,
    pg_bin: str = "",
) -> None:
    """Restore a dump; each schema in one transaction, so that a failure changes nothing."""
    manifest, chosen = checked_manifest(source, schemas)
    for dsn, here in areas.databases(chosen).items():
        async with migration_lock(dsn) as conn:
            for schema in here:
                await check_target(conn, schema, replace=replace)
                major = conn.info.server_version // 10000
                read = [client_program("pg_restore", major, pg_bin), *RESTORE_OPTIONS]
                write = [client_program("psql", major, pg_bin), *PSQL_OPTIONS]
                first, last = await surrounding_scripts(conn, schema, manifest[schema], source.name)
                archive = str(source / f"{schema}.dump")
                await run_script([*read, archive], write, dsn, first, last)
            await roles.close_to_public(conn, here)


def checked_manifest(
    source: Path, schemas: tuple[str, ...]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the version of each schema of a dump, and the chosen schemas; refuse what cannot be restored."""
    manifest = read_manifest(source)
    chosen = tuple(
        schema for schema in SCHEMAS if schema in manifest and schema in (schemas or manifest)
    )
    if missing := [schema for schema in schemas if schema not in manifest]:
        raise BadInput(f"{source} contains no schema {', '.join(missing)}.")
    for schema in chosen:
        if is_before_first(schema, manifest[schema]):
            raise BadInput(
                f"{source} is from a checkout before the first release, which this version of Usher cannot restore.",
                hint="Restore it with that checkout.",
            )
        if manifest[schema] not in migrations(schema):
            raise BadInput(
                f"{source} is from a newer version of Usher.", hint="Upgrade Usher first."
            )
    return manifest, chosen


async def incarnate(areas: AreaDatabases, reason: str) -> None:
    """Advance the ids and the incarnation of databases that were restored by other means than `usher db restore`."""
    for dsn, here in areas.databases().items():
        async with migration_lock(dsn) as conn, conn.transaction():
            for schema in here:
                if (await schema_state(conn, schema)).applied:
                    for statement in advance_statements(schema, {}, reason):
                        await conn.execute(statement)


async def check_target(conn: Connection, schema: str, *, replace: bool) -> None:
    """Refuse to replace a schema that exists, or that a newer version created."""
    now = await schema_state(conn, schema)
    if now.unknown:
        raise unknown_migrations_error(now)
    if now.applied and not replace:
        raise BadInput(
            f"Schema {schema!r} exists, and a restore would replace all its data.",
            hint="Add --replace if that is what you want.",
        )


async def surrounding_scripts(
    conn: Connection, schema: str, version: str, name: str
) -> tuple[bytes, bytes]:
    """Return the scripts before and after that of a schema, in the same transaction."""
    issued: dict[str, int] = dict(await store.issued_ids.tuples(conn, schema=schema))
    last = [*advance_statements(schema, issued, f"restored from {name}")]
    is_present_version = version == list(migrations(schema))[-1]
    if schema == "work" and is_present_version:
        last += await keep_removals(conn)
    if is_present_version and await roles.exist(conn):
        last += roles.grant_statements(schema)  # the archive does not contain them
    first = await lock_tables(conn, schema)
    if schema == "work":
        first += await partitions.drop_commands(conn)
    return as_text(conn, first), as_text(conn, last)


async def keep_removals(conn: Connection) -> Script:
    """Return statements that store the removals in force again, if the restored schema lacks them."""
    names = (
        "target",
        "host",
        "subdomains",
        "paths",
        "prefix",
        "reason",
        "removed_by",
        "removed_at",
    )
    if "removal" not in await store.tables.column(conn, schema="work"):
        return []
    rows = await store.removals_in_force.tuples(conn)
    return [KEEP_REMOVAL.format(**dict(zip(names, row, strict=True))) for row in rows]


def as_text(conn: Connection, script: Script) -> bytes:
    return b"".join(statement.as_bytes(conn) + b";\n" for statement in script)


async def lock_tables(conn: Connection, schema: str) -> list[sql.SQL | sql.Composed]:
    """Lock all tables that are replaced, so that a deadlock with a component comes now and not after hours."""
    names = await store.tables.column(conn, schema=schema)
    if not names:
        return []
    tables = sql.SQL(", ").join(sql.Identifier(schema, name) for name in names)
    return [sql.SQL("lock table {} in access exclusive mode").format(tables)]


def advance_statements(schema: str, issued: Mapping[str, int], reason: str) -> Script:
    """Return statements that advance ids past all that were issued; the work area gets a new incarnation."""
    raise_ids = RAISE_IDS.format(
        names=list(issued), last_values=list(issued.values()), schema=schema
    )
    if schema == "work":
        return [raise_ids, sql.SQL("select work.begin_incarnation({})").format(reason)]
    return [raise_ids, ADVANCE_IDS.format(schema=schema)]


async def run_script(
    read: list[str], write: list[str], dsn: str, first: bytes, last: bytes
) -> None:
    """Run the script of pg_restore with psql; repeat it after a deadlock."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        source = await asyncio.create_subprocess_exec(*read, stdout=PIPE, stderr=PIPE)
        address, secret = split_password(dsn)
        target = await asyncio.create_subprocess_exec(
            *write,
            f"--dbname={address}",
            env={**os.environ, **secret, "PGCLIENTENCODING": "UTF8"},
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
        )
        failure = await pipe_script(source, target, first, last)
        if not failure:
            return
        if "deadlock detected" not in failure or attempt == MAX_ATTEMPTS:
            raise UsherError(failure)


async def pipe_script(source: Process, target: Process, first: bytes, last: bytes) -> str:
    """Return why the script failed; empty if it was committed, which needs both programs to succeed."""
    try:
        _, source_error, target_error = await asyncio.gather(
            write_transaction(source, target, first, last), stderr_text(source), stderr_text(target)
        )
        await asyncio.gather(source.wait(), target.wait())
    finally:
        kill_process(source)
        kill_process(target)
    if source.returncode and source.returncode > 0:
        return f"pg_restore failed: {source_error}"
    return f"psql failed: {target_error}" if target.returncode else ""


def kill_process(process: Process) -> None:
    with suppress(ProcessLookupError):  # usually it has ended
        process.kill()


async def write_transaction(source: Process, target: Process, first: bytes, last: bytes) -> None:
    """Write the whole transaction; it commits only if pg_restore succeeds."""
    assert source.stdout  # noqa: S101 - it is a pipe
    assert target.stdin  # noqa: S101
    try:
        target.stdin.write(b"begin;\n" + first)
        while piece := await source.stdout.read(READ_BYTES):
            target.stdin.write(piece)
            await target.stdin.drain()
        if await source.wait() == 0:
            target.stdin.write(last + b"commit;\n")
            await target.stdin.drain()
        target.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        kill_process(source)  # psql has ended; its stderr has the reason


async def stderr_text(process: Process) -> str:
    assert process.stderr  # noqa: S101 - it is a pipe
    return (await process.stderr.read()).decode(errors="replace").strip()
