"""How far a schema is: what dbmate's table says next to the files of this program."""

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import sql

from usher.db.pool import Connection
from usher.errors import SchemaOutOfDate
from usher.schema.migration_files import migrations


@dataclass(frozen=True, slots=True)
class SchemaState:
    """How far one schema is."""

    schema: str
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def current(self) -> bool:
        return not self.pending and not self.unknown

    @property
    def of_older_checkout(self) -> bool:
        """Whether it has a version from before the first of this program's; released versions are never removed."""
        return any(is_before_first(self.schema, version) for version in self.unknown)


async def schema_state(conn: Connection, schema: str) -> SchemaState:
    applied = await applied_versions(conn, schema)
    known = migrations(schema)
    return SchemaState(
        schema,
        applied=tuple(applied),
        pending=tuple(version for version in known if version not in applied),
        unknown=tuple(version for version in applied if version not in known),
    )


async def applied_versions(conn: Connection, schema: str) -> list[str]:
    """What has been applied, oldest first; nothing where there is no such schema yet."""
    there = await conn.execute("select to_regclass(%s)", [f"{schema}.schema_migrations"])
    if await there.fetchone() == (None,):
        return []
    found = await conn.execute(
        sql.SQL("select version from {} order by version").format(migrations_table(schema))
    )
    return [version for (version,) in await found.fetchall()]


def migrations_table(schema: str) -> sql.Identifier:
    return sql.Identifier(schema, "schema_migrations")


def is_before_first(schema: str, version: str) -> bool:
    return version < next(iter(migrations(schema)))


def unknown_migrations_error(found: SchemaState) -> SchemaOutOfDate:
    """Return the error for a schema with migrations that this program does not have."""
    if found.of_older_checkout:
        return SchemaOutOfDate(
            f"Schema {found.schema!r} is of a checkout from before the first release, which this Usher cannot upgrade.",
            hint="Use a new data directory or database, or delete the data with `usher db drop`, then run "
            "`usher db migrate`. Save what you need with the older checkout first (`usher hosts list`).",
        )
    return SchemaOutOfDate(
        f"Schema {found.schema!r} has steps this Usher does not know ({', '.join(found.unknown)}).",
        hint="A newer Usher made them: upgrade this one.",
    )


def out_of_date_error(schemas: Iterable[str]) -> SchemaOutOfDate:
    return SchemaOutOfDate(
        f"The database is behind this program (schema {', '.join(schemas)}).",
        hint="Run `usher db migrate`.",
    )
