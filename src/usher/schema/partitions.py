"""The two forms of the guestbook: one table, or partitions by ranges of domain64 (docs/database.md, ADR 0033).

A conversion reads the definition of the present table from the catalogs, creates the other form under a new name,
copies the pages, and gives the copy the name, indexes, triggers, privileges and dependent objects of the old table,
all in one transaction. So it works with every version of the schema, and a killed conversion changes nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from usher.db.areas import AreaDatabases
from usher.db.pool import Connection, connect
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict
from usher.schema.migrate import migration_lock
from usher.schema.state import (
    guestbook_partitions,
    out_of_date_error,
    schema_state,
    unknown_migrations_error,
)
from usher.telemetry import Log

store = load_statements(__file__)
log = Log("schema")
SAMPLED_PAGES: Final = 2_000_000
# Fails instead of waiting behind a dump: meanwhile every other statement on the guestbook would wait too.
LOCK_SECONDS: Final = 5
TABLE: Final = sql.Identifier("work", "guestbook")
COPY: Final = sql.Identifier("work", "guestbook_new")
ID_SEQUENCE: Final = sql.Identifier("work", "guestbook_id_seq")


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The present and the planned form of the guestbook, and its size.

    Bounds are the first number of each partition but the first; None if the guestbook is one table. The pages of the
    parts are estimates, and so is the number of hosts.
    """

    present: tuple[int, ...] | None
    bounds: tuple[int, ...] | None
    pages: int
    table_bytes: int
    bytes: int
    part_pages: tuple[int, ...]
    hosts: int | None = None  # None if they were not counted

    @property
    def changes(self) -> bool:
        """Whether there is something to do: one table is not copied into one table."""
        return self.bounds is not None or self.present is not None

    @property
    def partitions(self) -> int:
        return len(self.bounds) + 1 if self.bounds is not None else 1


@dataclass(frozen=True, slots=True)
class SampledPart:
    """A part of the guestbook, as counted in a sample of its pages."""

    first_host: int
    hosts: int
    pages: int


@dataclass(frozen=True, slots=True)
class GuestbookDefinition:
    """What a new guestbook gets from the present one: columns, keys, and commands."""

    columns: list[str]
    storage: str | None
    keys: list[tuple[str, str, list[str], str | None]]
    indexes: list[str]
    triggers: list[tuple[str, bool]]
    drops: list[str]
    functions: list[str]
    views: list[str]
    privileges: list[str]
    last_id: int
    is_issued: bool


async def present_bounds(conn: Connection) -> tuple[int, ...] | None:
    """Return where the partitions of the guestbook begin, without the first; None if it is one table."""
    bounds = await store.present_bounds.value(conn)
    return None if bounds is None else tuple(bounds)


async def plan(
    areas: AreaDatabases, partitions: int, *, must_be_alone: bool = False
) -> PartitionPlan:
    """Return the plan for so many partitions with equal numbers of pages; 1 is one table.

    With `must_be_alone` it fails where `partition` would fail now.
    """
    async with await connect(areas.dsn("work")) as conn, conn.transaction():
        await check_schema(conn)
        if must_be_alone:
            await check_alone(conn)
        await conn.execute("set local statement_timeout = 0")
        return await plan_here(conn, partitions)


async def plan_here(conn: Connection, partitions: int) -> PartitionPlan:
    present = await present_bounds(conn)
    [(pages, table_bytes, size)] = await store.size.tuples(conn)
    if partitions == 1:
        return PartitionPlan(present, None, pages, table_bytes, size, (pages,))
    percent = 100 * min(1.0, SAMPLED_PAGES / max(pages, 1))
    parts = await equal_parts(conn, partitions, percent)
    bounds = tuple(part.first_host for part in parts[1:])
    part_pages = tuple(round(part.pages * 100 / percent) for part in parts)
    hosts = sum(part.hosts for part in parts)
    return PartitionPlan(present, bounds, pages, table_bytes, size, part_pages, hosts)


async def equal_parts(conn: Connection, partitions: int, percent: float) -> list[SampledPart]:
    """Return parts with equal numbers of pages; fewer if a host has more pages than a part."""
    fractions = [number / partitions for number in range(partitions)]
    parts = await store.equal_parts.rows(conn, SampledPart, fractions=fractions, percent=percent)
    if len(parts) <= 1:
        raise BadInput(
            "The guestbook has pages of too few hosts to divide them.",
            hint="Partition it when it has pages of many hosts; below 100 million pages one table is enough.",
        )
    return parts


async def check_schema(conn: Connection) -> None:
    """Raise SchemaOutOfDate unless the work schema is that of this program."""
    now = await schema_state(conn, "work")
    if now.pending:
        raise out_of_date_error([now.schema])
    if now.unknown:
        raise unknown_migrations_error(now)


async def check_alone(conn: Connection) -> None:
    """Raise Conflict if other processes of Usher use the database, or the guestbook has what a copy would lose."""
    if sessions := await store.other_sessions.tuples(conn):
        names = ", ".join(f"{name} ({count})" for name, count in sessions)
        raise Conflict(
            f"Other Usher processes use the database: {names}. They would wait until the guestbook is copied.",
            hint="Stop MGMT, watchdog, scheduler, manager and commands on all machines, then run it again.",
        )
    if lost := await store.foreign_objects.column(conn):
        raise Conflict(
            f"The guestbook has objects that are not Usher's and would be lost: {', '.join(lost)}.",
            hint="Drop them, run it again, and create them again.",
        )


async def partition(areas: AreaDatabases, partitions: int) -> PartitionPlan:
    """Divide the guestbook into so many partitions, or make it one table; return what was done."""
    async with migration_lock(areas.dsn("work")) as conn:
        await check_schema(conn)
        await conn.execute("set statement_timeout = 0")
        # Without this the server continues for hours after a killed client. Some systems cannot detect one.
        with suppress(psycopg.errors.InvalidParameterValue):
            await conn.execute("set client_connection_check_interval = '5s'")
        await check_alone(conn)
        done = await plan_here(conn, partitions)
        if done.changes:
            log.info("guestbook_partitioning", partitions=done.partitions, pages=done.pages)
            await convert(conn, done.bounds)
            log.info("guestbook_partitioned", partitions=done.partitions, pages=done.pages)
        return done


async def convert(conn: Connection, bounds: Sequence[int] | None) -> None:
    """Copy the guestbook into partitions that begin at these numbers, or into one table, in one transaction."""
    try:
        async with conn.transaction():
            await conn.execute(f"set local lock_timeout = '{LOCK_SECONDS}s'".encode())
            await conn.execute(sql.SQL("lock table {} in access exclusive mode").format(TABLE))
            definition = await read_definition(conn)
            for command in commands(definition, bounds):
                await conn.execute(command)
    except psycopg.errors.LockNotAvailable as error:
        raise Conflict(
            "Another session holds a lock on the guestbook, such as a dump or a query.",
            hint="Wait until it ends, then run it again. Nothing was changed.",
        ) from error
    except psycopg.errors.DependentObjectsStillExist as error:
        raise Conflict(
            f"Objects that are not Usher's depend on the guestbook: {error.diag.message_detail}",
            hint="Drop them, run it again, and create them again. Nothing was changed.",
        ) from error


async def read_definition(conn: Connection) -> GuestbookDefinition:
    functions = await store.dependent_functions.tuples(conn)
    views = await store.dependent_views.tuples(conn)
    [(last_id, is_issued)] = await store.sequence_state.tuples(conn)
    return GuestbookDefinition(
        columns=await store.columns.column(conn),
        storage=await store.storage_options.value(conn),
        keys=await store.keys.tuples(conn),
        indexes=await store.indexes.column(conn),
        triggers=await store.triggers.tuples(conn),
        drops=[drop for drop, _ in [*views, *functions]],
        functions=[create for _, create in functions],
        views=[create for _, create in views],
        privileges=await store.privileges.column(conn),
        last_id=last_id,
        is_issued=is_issued,
    )


async def drop_commands(conn: Connection) -> list[sql.SQL | sql.Composed]:
    """Return the commands that drop a partitioned guestbook before a restore; none if it is one table or not there.

    The script of pg_restore drops only the objects of the dump, which has other partitions or none.
    """
    if not await guestbook_partitions(conn):
        return []
    dependents = [
        *await store.dependent_views.tuples(conn),
        *await store.dependent_functions.tuples(conn),
    ]
    drops = [sql.SQL(drop) for drop, _ in dependents]
    return [*drops, sql.SQL("drop table {}").format(TABLE)]


def commands(
    old: GuestbookDefinition, bounds: Sequence[int] | None
) -> Iterator[sql.SQL | sql.Composed]:
    """Yield the commands of a conversion, in order."""
    parts = partition_names(bounds)
    yield from copy_commands(old, bounds, parts)
    yield from map(sql.SQL, old.drops)
    yield sql.SQL("drop table {}").format(TABLE)
    yield sql.SQL("alter table {} rename to guestbook").format(COPY)
    for name in parts:
        rename = sql.SQL("alter table {} rename to {}")
        yield rename.format(new_name(name), sql.Identifier(name))
    yield sql.SQL(
        "alter table {} alter column id add generated always as identity (sequence name {})"
    ).format(TABLE, ID_SEQUENCE)
    yield sql.SQL("select setval({}, {}, {})").format(
        ID_SEQUENCE.as_string(), old.last_id, old.is_issued
    )
    yield from key_commands(old, is_partitioned=bounds is not None)
    yield from map(sql.SQL, old.indexes)
    yield from storage_commands(old, parts)
    for command in [*old.functions, *old.views, *old.privileges]:
        yield sql.SQL(command)
    yield from trigger_commands(old, parts)
    yield sql.SQL("analyze {}").format(TABLE)


def partition_names(bounds: Sequence[int] | None) -> list[str]:
    return [] if bounds is None else [f"guestbook_p{at:02}" for at in range(1, len(bounds) + 2)]


def new_name(name: str) -> sql.Identifier:
    """Return the name of a partition until those of the old table are dropped."""
    return sql.Identifier("work", f"{name}_new")


def copy_commands(
    old: GuestbookDefinition, bounds: Sequence[int] | None, parts: Sequence[str]
) -> Iterator[sql.SQL | sql.Composed]:
    """Create the new table without indexes, and copy the pages."""
    create = sql.SQL(
        "create table {} (like {} including all excluding indexes excluding identity){}"
    )
    by_range = sql.SQL("" if bounds is None else " partition by range (domain64)")
    yield create.format(COPY, TABLE, by_range)
    limits = [sql.SQL("minvalue"), *map(sql.Literal, bounds or ()), sql.SQL("maxvalue")]
    for name, low, high in zip(parts, limits, limits[1:], strict=False):
        part = sql.SQL("create table {} partition of {} for values from ({}) to ({})")
        yield part.format(new_name(name), COPY, low, high)
    columns = sql.SQL(", ").join(map(sql.Identifier, old.columns))
    yield sql.SQL("insert into {} ({}) select {} from {}").format(COPY, columns, columns, TABLE)


def key_commands(
    old: GuestbookDefinition, *, is_partitioned: bool
) -> Iterator[sql.SQL | sql.Composed]:
    """Add the keys; those of a partitioned table must contain domain64.

    It comes last in the primary key, so that the index finds a page by its id alone.
    """
    for name, kind, columns, options in old.keys:
        key = columns
        if kind == "primary key":
            key = ["id", "domain64"] if is_partitioned else ["id"]
        add = sql.SQL("alter table {} add constraint {} {} ({}){}")
        yield add.format(
            TABLE,
            sql.Identifier(name),
            sql.SQL(kind),
            sql.SQL(", ").join(map(sql.Identifier, key)),
            sql.SQL(f" with ({options})" if options else ""),
        )


def storage_commands(
    old: GuestbookDefinition, parts: Sequence[str]
) -> Iterator[sql.SQL | sql.Composed]:
    """Set the storage parameters of the tables that hold the pages: a partitioned table has none."""
    tables = [sql.Identifier("work", name) for name in parts] or [TABLE]
    for table in tables:
        if old.storage:
            yield sql.SQL("alter table {} set ({})").format(table, sql.SQL(old.storage))


def trigger_commands(
    old: GuestbookDefinition, parts: Sequence[str]
) -> Iterator[sql.SQL | sql.Composed]:
    """Create the triggers; those for statements also on each partition, so that none can be emptied directly."""
    for command, is_for_statement in old.triggers:
        yield sql.SQL(command)
        for name in parts if is_for_statement else ():
            yield sql.SQL(command.replace(" ON work.guestbook ", f" ON work.{name} ", 1))
