"""Builds an index of a released migration on a partitioned guestbook.

PostgreSQL builds no index concurrently on a partitioned table, so it is built on each partition and attached.
"""

import re
from typing import Final

from psycopg import sql

from usher.db.pool import Connection

CREATE: Final = re.compile(
    r"^create index concurrently (?P<name>\w+) on (?:only )?work\.guestbook (?P<rest>[^;]+);",
    re.IGNORECASE | re.MULTILINE,
)
DROP: Final = re.compile(
    r"^drop index concurrently if exists work\.(?P<name>\w+);", re.IGNORECASE | re.MULTILINE
)
PARTITIONS: Final = """
select c.relname::text
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('work.guestbook')
order by 1
"""
IS_INVALID: Final = "select from pg_index where indexrelid = to_regclass(%s) and not indisvalid"
IS_PARTITIONED: Final = "select from pg_class where oid = to_regclass(%s) and relkind = 'I'"


async def run_outside_transaction(conn: Connection, script: str) -> None:
    """Run a script that builds or drops an index concurrently, whatever the form of the guestbook."""
    partitions = [name for (name,) in await (await conn.execute(PARTITIONS)).fetchall()]
    create, drop = CREATE.search(script), DROP.search(script)
    if create and partitions:
        await build_index(conn, create["name"], create["rest"], partitions)
    elif drop and await is_true(conn, IS_PARTITIONED, f"work.{drop['name']}"):
        await conn.execute(sql.SQL("drop index {}").format(sql.Identifier("work", drop["name"])))
    else:
        await conn.execute(script.encode())


async def build_index(conn: Connection, name: str, rest: str, partitions: list[str]) -> None:
    """Build an index partition by partition; repeated after a failure, it continues."""
    whole, definition = sql.Identifier("work", name), sql.SQL(rest)
    create = sql.SQL("create index if not exists {} on only work.guestbook {}")
    await conn.execute(create.format(sql.Identifier(name), definition))
    for partition in partitions:
        part = f"{partition}_{name.removeprefix('guestbook_')}"
        if await is_true(conn, IS_INVALID, f"work.{part}"):  # of an attempt that failed
            drop = sql.SQL("drop index concurrently {}")
            await conn.execute(drop.format(sql.Identifier("work", part)))
        create = sql.SQL("create index concurrently if not exists {} on {} {}")
        table = sql.Identifier("work", partition)
        await conn.execute(create.format(sql.Identifier(part), table, definition))
        attach = sql.SQL("alter index {} attach partition {}")
        await conn.execute(attach.format(whole, sql.Identifier("work", part)))


async def is_true(conn: Connection, query: str, name: str) -> bool:
    return bool(await (await conn.execute(query.encode(), [name])).fetchall())
