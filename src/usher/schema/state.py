"""The state of a schema: dbmate's table compared with the migration files of this program.

A migration after the first release states in a comment on dbmate's table with which versions of Usher the schema works,
so that processes of the version before continue while an upgrade is in progress.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from usher import __version__
from usher.db.pool import Connection
from usher.errors import SchemaOutOfDate
from usher.schema.migration_files import migrations
from usher.versions import minor_version

WORKS_WITH: Final = re.compile(r"Works with Usher (\d+\.\d+) and newer\.")


@dataclass(frozen=True, slots=True)
class SchemaState:
    """Which migrations one schema has, lacks, and has beyond those of this program."""

    schema: str
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    unknown: tuple[str, ...]
    works_with: str = ""  # the oldest minor version of Usher that works with the unknown migrations
    partitions: int = 0  # of the guestbook; 0 if it is one table

    @property
    def current(self) -> bool:
        return not self.pending and not self.unknown

    @property
    def usable(self) -> bool:
        """Whether this program works with the schema: it is current, or newer and made for this version too."""
        return not self.pending and not self.refused

    @property
    def refused(self) -> bool:
        """Whether it has migrations with which this program does not work."""
        if not self.unknown:
            return False
        oldest, own = minor_version(self.works_with), minor_version(__version__)
        return bool(self.pending) or oldest is None or own is None or own < oldest

    @property
    def of_older_checkout(self) -> bool:
        """Whether it has a migration that is older than the first of this program; released ones are never removed."""
        return any(is_before_first(self.schema, version) for version in self.unknown)


async def schema_state(conn: Connection, schema: str) -> SchemaState:
    applied = await applied_versions(conn, schema)
    versions = migrations(schema)
    unknown = tuple(version for version in applied if version not in versions)
    return SchemaState(
        schema,
        applied=tuple(applied),
        pending=tuple(version for version in versions if version not in applied),
        unknown=unknown,
        works_with=await works_with(conn, schema) if unknown else "",
        partitions=await guestbook_partitions(conn) if schema == "work" else 0,
    )


async def guestbook_partitions(conn: Connection) -> int:
    """Return the number of partitions of the guestbook; 0 if it is one table, or there is none."""
    cursor = await conn.execute(
        "select count(*) from pg_inherits where inhparent = to_regclass('work.guestbook')"
    )
    [count] = await cursor.fetchone() or (0,)
    return int(count)


async def works_with(conn: Connection, schema: str) -> str:
    """The oldest minor version of Usher that works with the schema; empty if no migration states one."""
    cursor = await conn.execute(
        "select obj_description(to_regclass(%s), 'pg_class')", [f"{schema}.schema_migrations"]
    )
    [comment] = await cursor.fetchone() or [None]
    match = WORKS_WITH.fullmatch(comment or "")
    return match[1] if match else ""


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
    needed = f"; they need Usher {state.works_with} or newer" if state.works_with else ""
    return SchemaOutOfDate(
        f"Schema {state.schema!r} has migrations that this Usher, {__version__}, does not know ({names}){needed}.",
        hint="A newer version created them: upgrade Usher.",
    )


def out_of_date_error(schemas: Iterable[str]) -> SchemaOutOfDate:
    return SchemaOutOfDate(
        f"The database is behind this program (schema {', '.join(schemas)}).",
        hint="Run `usher db migrate`.",
    )
