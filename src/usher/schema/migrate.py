"""Applies and undoes migrations: each in its own transaction, by one process at a time.

It uses the table and the file format of dbmate, so that either tool can continue where the other stopped. Unlike dbmate
it takes a lock.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from usher.db.areas import SCHEMAS, AreaDatabases, with_view_schemas
from usher.db.pool import Connection, connect
from usher.errors import MigrationFailed
from usher.schema import roles
from usher.schema.migration_files import Migration, migrations
from usher.schema.partitioned_index import run_outside_transaction
from usher.schema.state import (
    SchemaState,
    applied_versions,
    migrations_table,
    out_of_date_error,
    schema_state,
    unknown_migrations_error,
)
from usher.telemetry import Log

log = Log("schema")
MIGRATION_LOCK = 0x7573_6865_7201  # "usher", 1: one migrating process in each database
ALL_SCHEMAS = tuple(SCHEMAS)
FAILED_HINT = "Earlier migrations stay applied; this one was rolled back. Correct the cause, then run it again."
FAILED_OUTSIDE_TRANSACTION_HINT = (
    "This migration runs outside a transaction: check what it left, "
    "correct that, then run it again."
)
LOCKED_HINT = (
    "Long transactions, such as a dump, held locks all the time. Nothing of this migration was applied: "
    "end them, then run it again."
)
MIN_SERVER_VERSION = 140000
LOCK_WAIT_SECONDS = 1
LOCK_PAUSE_SECONDS = 2.0  # in which the statements that waited run
LOCK_PATIENCE_SECONDS = 900.0
LOCK_ERRORS = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A migration that was applied or undone."""

    schema: str
    version: str
    name: str


async def status(
    areas: AreaDatabases, schemas: tuple[str, ...] = ALL_SCHEMAS, *, patience: float = 0
) -> list[SchemaState]:
    states = []
    for dsn, here in areas.databases(schemas).items():
        async with await connect(dsn, patience=patience) as conn:
            states += [await schema_state(conn, schema) for schema in here]
    return states


async def migrate(
    areas: AreaDatabases, schemas: tuple[str, ...] = ALL_SCHEMAS, *, patience: float = 0
) -> list[SchemaChange]:
    """Apply every pending migration, except those that another process applied meanwhile."""
    changes: list[SchemaChange] = []
    for dsn, here in areas.databases(schemas).items():
        async with migration_lock(dsn, patience) as conn:
            await check_server(conn)
            for schema in here:
                changes += await apply_pending(conn, schema)
            if changes:
                await roles.close_to_public(conn, here)
            is_embedded = areas.is_embedded_dsn(dsn)
            await renew_grants(conn, is_embedded=is_embedded, changed=bool(changes))
    return changes


async def renew_grants(conn: Connection, *, is_embedded: bool, changed: bool) -> None:
    """Update the roles: always in the embedded server, elsewhere once the operator has created them."""
    if is_embedded and not await roles.exist(conn):
        await roles.create(conn)
    elif changed and await roles.exist(conn):
        await roles.grant(conn)


@asynccontextmanager
async def migration_lock(dsn: str, patience: float = 0) -> AsyncIterator[Connection]:
    """Yield a connection that holds the migration lock, which ends with the connection."""
    async with await connect(dsn, patience=patience) as conn:
        # Another migration may take long, and a restore leaves this session idle.
        await conn.execute("set lock_timeout = 0")
        await conn.execute("select pg_advisory_lock(%s)", [MIGRATION_LOCK])
        yield conn


async def check_server(conn: Connection) -> None:
    if conn.info.server_version < MIN_SERVER_VERSION:
        raise MigrationFailed(
            f"The server is PostgreSQL {conn.info.server_version // 10000}; Usher needs 14 or newer.",
            hint="Upgrade the server, or use the embedded one.",
        )


async def apply_pending(conn: Connection, schema: str) -> list[SchemaChange]:
    await prepare_schema(conn, schema)
    now = await schema_state(conn, schema)
    if now.refused:
        raise unknown_migrations_error(now)
    for version in now.pending:
        migration = migrations(schema)[version]
        await run_migration(conn, schema, migration)
        log.info("migrated", schema=schema, version=version, name=migration.name)
    return [
        SchemaChange(schema, version, migrations(schema)[version].name) for version in now.pending
    ]


async def prepare_schema(conn: Connection, schema: str) -> None:
    """Create the schema and dbmate's table in it."""
    if await applied_versions(conn, schema):
        return
    await conn.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
    await conn.execute(
        sql.SQL("create table if not exists {} (version varchar primary key)").format(
            migrations_table(schema)
        )
    )


async def run_migration(
    conn: Connection, schema: str, migration: Migration, *, undo: bool = False
) -> None:
    """Apply or undo one migration and record that, in one transaction unless its file says otherwise."""
    script, in_transaction = migration.up, migration.up_in_transaction
    record = sql.SQL("insert into {} values ({})")
    if undo:
        script, in_transaction = migration.down, migration.down_in_transaction
        record = sql.SQL("delete from {} where version = {}")
    recorded = record.format(migrations_table(schema), migration.version)
    try:
        if in_transaction:
            await run_in_transaction(conn, script, recorded)
        else:
            await run_outside_transaction(conn, script)
            await conn.execute(recorded)
    except psycopg.DatabaseError as error:
        hint = FAILED_HINT if in_transaction else FAILED_OUTSIDE_TRANSACTION_HINT
        raise MigrationFailed(
            f"Migration {migration.version}_{migration.name} failed: {str(error).strip()}",
            hint=LOCKED_HINT if isinstance(error, LOCK_ERRORS) else hint,
        ) from error


async def run_in_transaction(conn: Connection, script: str, recorded: sql.Composed) -> None:
    """Run a script in a transaction; repeat it while others hold its locks.

    All statements on a table wait behind one that waits for an exclusive lock, so it waits only briefly for each.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCK_PATIENCE_SECONDS
    while True:
        try:
            async with conn.transaction():
                await conn.execute(f"set local lock_timeout = '{LOCK_WAIT_SECONDS}s'".encode())
                await conn.execute(script.encode())
                await conn.execute(recorded)
        except LOCK_ERRORS as error:
            if loop.time() + LOCK_PAUSE_SECONDS > deadline:
                raise
            log.info("migration_waits", reason=error.diag.message_primary)
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        else:
            return


async def rollback(areas: AreaDatabases, schema: str, *, count: int = 1) -> list[SchemaChange]:
    """Undo the newest migrations of one schema."""
    undone = []
    async with migration_lock(areas.dsn(schema)) as conn:
        now = await schema_state(conn, schema)
        if now.unknown:
            raise unknown_migrations_error(now)
        for version in reversed(now.applied[-count:]):
            migration = migrations(schema)[version]
            await run_migration(conn, schema, migration, undo=True)
            undone.append(SchemaChange(schema, version, migration.name))
        # Undoing a migration can create older functions again, which PUBLIC may execute.
        await roles.close_to_public(conn, [schema])
    return undone


async def drop(areas: AreaDatabases, schemas: tuple[str, ...]) -> None:
    """Drop schemas with all their data, in one transaction for each database."""
    for dsn, here in areas.databases(schemas).items():
        async with migration_lock(dsn) as conn, conn.transaction():
            for name in map(sql.Identifier, with_view_schemas(*here)):
                await conn.execute(sql.SQL("drop schema if exists {} cascade").format(name))


async def ensure(
    areas: AreaDatabases, schemas: tuple[str, ...] = ALL_SCHEMAS, *, patience: float = 0
) -> None:
    """Migrate schemas of the embedded server; raise SchemaOutOfDate if those of another server are behind."""
    states = await status(areas, schemas, patience=patience)
    for state in states:
        if state.refused:
            raise unknown_migrations_error(state)
    behind = [state.schema for state in states if state.pending]
    embedded = tuple(schema for schema in behind if areas.is_embedded(schema))
    if len(embedded) < len(behind):
        raise out_of_date_error(schema for schema in behind if schema not in embedded)
    if embedded:
        await migrate(areas, embedded)
