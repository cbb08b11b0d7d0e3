"""Pages for tests of a partitioned guestbook, and queries about its form."""

from collections.abc import Sequence
from typing import Any

from psycopg.conninfo import make_conninfo

from usher.db.pool import Connection


def other(database: str) -> str:
    """An address whose sessions are not those of Usher, so that they do not stop a conversion."""
    return make_conninfo(database, application_name="psql")


async def fill(conn: Connection, hosts: int = 40, each: int = 10) -> None:
    """Add crawled, waiting and failed pages of hosts in three top-level domains."""
    await conn.execute(
        f"""
        insert into work.domain (tld, number, name)
        select tld, n, 'd' || n from unnest(array[1, 3, 6]) tld, generate_series(1, {hosts}) n;
        insert into work.hosts (domain64, name, next_fetch, claim_at, crawl_started)
        select
            work.domain64_encode((array[1, 3, 6])[1 + n % 3], n, 1), 'www.d' || n || '.' || n % 3, now(), now(), now()
        from generate_series(1, {hosts}) n;
        insert into work.guestbook (domain64, path, state, next_fetch, admitted_at, text64, status, depth)
        select domain64, '/' || i, case i % 3 when 0 then 'pending' when 1 then 'crawled' else 'error' end, now(),
            now(), case i % 3 when 1 then i end, 200, i % 5
        from work.hosts, generate_series(1, {each}) i;
        """.encode()
    )


async def rows(
    conn: Connection, query: str, given: Sequence[object] | None = None
) -> list[tuple[Any, ...]]:
    return list(await (await conn.execute(query.encode(), given)).fetchall())


async def pages(conn: Connection) -> list[tuple[Any, ...]]:
    return await rows(conn, "select g.* from work.guestbook g order by id")


async def tables(conn: Connection) -> list[tuple[Any, ...]]:
    return await rows(
        conn,
        "select relname::text from pg_class where relname like 'guestbook%' and relkind in ('r', 'p') order by 1",
    )
