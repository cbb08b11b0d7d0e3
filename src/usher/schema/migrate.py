"""Brings each schema to the state this program knows, one step a transaction, one process at a time.

Comes from migration files; goes to the schemas. dbmate's table and format are kept, so either tool can go on
where the other stopped; dbmate takes no lock, we do.
"""

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
MIGRATION_LOCK = 0x7573_6865_7201  # "usher", 1: one migrating process a database
ALL_SCHEMAS = tuple(SCHEMAS)
FAILED_HINT = (
    "The migrations before it are kept, nothing of this one is. Mend the cause, then run it again."
)
FAILED_OUTSIDE_TRANSACTION_HINT = (
    "This step runs outside a transaction: look at what it left, mend it, then run it again."
)
MIN_SERVER_VERSION = 140000


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One step made or undone."""

    schema: str
    version: str
    name: str


async def status(
    places: AreaDatabases, schemas: tuple[str, ...] = ALL_SCHEMAS, *, patience: float = 0
) -> list[SchemaState]:
    found = []
    for dsn, here in places.databases(schemas).items():
        async with await connect(dsn, patience=patience) as conn:
            found += [await schema_state(conn, schema) for schema in here]
    return found


async def migrate(
    places: AreaDatabases, schemas: tuple[str, ...] = ALL_SCHEMAS, *, patience: float = 0
) -> list[SchemaChange]:
    """Apply every pending step; what others applied while we waited for the lock is done already."""
    made: list[SchemaChange] = []
    for dsn, here in places.databases(schemas).items():
        async with migration_lock(dsn, patience) as conn:
            await check_server(conn)
            for schema in here:
                made += await apply_pending(conn, schema)
            if made:
                await roles.close_to_public(conn, here)
            await renew_grants(conn, ours=places.is_ours(dsn), changed=bool(made))
    return made


async def renew_grants(conn: Connection, *, ours: bool, changed: bool) -> None:
    """Roles follow the schemas: always in our own server, elsewhere once the operator has made them."""
    if ours and not await roles.exist(conn):
        await roles.create(conn)
    elif changed and await roles.exist(conn):
        await roles.grant(conn)


@asynccontextmanager
async def migration_lock(dsn: str, patience: float = 0) -> AsyncIterator[Connection]:
    """A connection that alone may change schemas; the server frees the lock if we die."""
    async with await connect(dsn, patience=patience) as conn:
        # Another migration may take long, and what restores a dump leaves this session idle.
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
    if now.unknown:
        raise unknown_migrations_error(now)
    for version in now.pending:
        step = migrations(schema)[version]
        await apply_migration(conn, schema, step)
        log.info("migrated", schema=schema, version=version, name=step.name)
    return [
        SchemaChange(schema, version, migrations(schema)[version].name) for version in now.pending
    ]


async def prepare_schema(conn: Connection, schema: str) -> None:
    """The schema and dbmate's own table in it."""
    if await applied_versions(conn, schema):
        return
    await conn.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
    await conn.execute(
        sql.SQL("create table if not exists {} (version varchar primary key)").format(
            migrations_table(schema)
        )
    )


async def apply_migration(conn: Connection, schema: str, step: Migration) -> None:
    """One step up and its line in the table, together or not at all."""
    record = sql.SQL("insert into {} values ({})").format(migrations_table(schema), step.version)
    await run_migration_script(conn, step, step.up, record, in_transaction=step.up_in_transaction)


async def undo_migration(conn: Connection, schema: str, step: Migration) -> None:
    record = sql.SQL("delete from {} where version = {}").format(
        migrations_table(schema), step.version
    )
    await run_migration_script(
        conn, step, step.down, record, in_transaction=step.down_in_transaction
    )


async def run_migration_script(
    conn: Connection, step: Migration, script: str, record: sql.Composed, *, in_transaction: bool
) -> None:
    try:
        if in_transaction:
            async with conn.transaction():
                await conn.execute(script.encode())
                await conn.execute(record)
        else:
            await conn.execute(script.encode())
            await conn.execute(record)
    except psycopg.DatabaseError as error:
        raise MigrationFailed(
            f"Migration {step.version}_{step.name} failed: {str(error).strip()}",
            hint=FAILED_HINT if in_transaction else FAILED_OUTSIDE_TRANSACTION_HINT,
        ) from error


async def rollback(places: AreaDatabases, schema: str, *, count: int = 1) -> list[SchemaChange]:
    """Undo the newest migrations of one schema."""
    undone = []
    async with migration_lock(places.dsn(schema)) as conn:
        now = await schema_state(conn, schema)
        if now.unknown:
            raise unknown_migrations_error(now)
        for version in reversed(now.applied[-count:]):
            step = migrations(schema)[version]
            await undo_migration(conn, schema, step)
            undone.append(SchemaChange(schema, version, step.name))
        # Undoing a step can create older functions again, which are open to PUBLIC.
        await roles.close_to_public(conn, [schema])
    return undone


async def drop(places: AreaDatabases, schemas: tuple[str, ...]) -> None:
    """Remove schemas with everything in them, each database in one transaction."""
    for dsn, here in places.databases(schemas).items():
        async with migration_lock(dsn) as conn, conn.transaction():
            for name in map(sql.Identifier, with_view_schemas(*here)):
                await conn.execute(sql.SQL("drop schema if exists {} cascade").format(name))


async def ensure(
    places: AreaDatabases, schemas: tuple[str, ...] = ALL_SCHEMAS, *, patience: float = 0
) -> None:
    """Schemas ready for use: an embedded server is brought up to date, any other only looked at."""
    states = await status(places, schemas, patience=patience)
    for found in states:
        if found.unknown:
            raise unknown_migrations_error(found)
    behind = [found.schema for found in states if found.pending]
    ours = tuple(schema for schema in behind if places.is_embedded(schema))
    if len(ours) < len(behind):
        raise out_of_date_error(schema for schema in behind if schema not in ours)
    if ours:
        await migrate(places, ours)
