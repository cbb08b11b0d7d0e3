"""The state of a schema: dbmate's table compared with the migration files of this program."""

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import sql

from usher.db.pool import Connection
from usher.errors import SchemaOutOfDate
from usher.schema.migration_files import migrations


@dataclass(frozen=True, slots=True)
class SchemaState:
    """Which migrations one schema has, lacks, and has beyond those of this program."""

    schema: str
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def current(self) -> bool:
        return not self.pending and not self.unknown

    @property
    def of_older_checkout(self) -> bool:
        """Whether it has a migration that is older than the first of this program; released ones are never removed."""
        return any(is_before_first(self.schema, version) for version in self.unknown)


async def schema_state(conn: Connection, schema: str) -> SchemaState:
    applied = await applied_versions(conn, schema)
    versions = migrations(schema)
    return SchemaState(
        schema,
        applied=tuple(applied),
        pending=tuple(version for version in versions if version not in applied),
        unknown=tuple(version for version in applied if version not in versions),
    )


async def applied_versions(conn: Connection, schema: str) -> list[str]:
    """Return the applied versions, oldest first; none if there is no such schema."""
    table = await conn.execute("select to_regclass(%s)", [f"{schema}.schema_migrations"])
    if await table.fetchone() == (None,):
        return []
    cursor = await conn.execute(
        sql.SQL("select version from {} order by version").format(migrations_table(schema))
    )
    return [version for (version,) in await cursor.fetchall()]


def migrations_table(schema: str) -> sql.Identifier:
    return sql.Identifier(schema, "schema_migrations")


def is_before_first(schema: str, version: str) -> bool:
    return version < next(iter(migrations(schema)))


def unknown_migrations_error(state: SchemaState) -> SchemaOutOfDate:
    """Return the error for a schema with migrations that this program does not have."""
    if state.of_older_checkout:
        return SchemaOutOfDate(
            f"Schema {state.schema!r} was created by a checkout from before the first release. "
            "This version of Usher cannot upgrade it.",
            hint="Use a new data directory or database, or delete the data with `usher db drop`, then run "
            "`usher db migrate`. Save what you need with the older checkout first (`usher hosts list`).",
        )
    names = ", ".join(state.unknown)
    return SchemaOutOfDate(
        f"Schema {state.schema!r} has migrations that this version of Usher does not know ({names}).",
        hint="A newer version created them: upgrade Usher.",
    )


def out_of_date_error(schemas: Iterable[str]) -> SchemaOutOfDate:
    return SchemaOutOfDate(
        f"The database is behind this program (schema {', '.join(schemas)}).",
        hint="Run `usher db migrate`.",
    )
