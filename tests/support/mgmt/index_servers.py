"""Index servers and built chunks for tests, written straight into the database, and what must hold of their seats."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from usher.db.pool import Connection
from usher.mgmt import placements

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Seats = dict[tuple[int, int], int]


async def rows_of(conn: Connection, text: str, *given: object) -> list[tuple[Any, ...]]:
    return await (await conn.execute(text.encode(), given or None)).fetchall()


async def component(conn: Connection, host: str, type_: str, row: int | None = None) -> int:
    [(id_,)] = await rows_of(
        conn,
        "insert into work.component (host, type, row, machine, health_since) values (%s, %s, %s, %s, %s) "
        "on conflict (host, coalesce(type, '')) do update set host = excluded.host returning id",
        host, type_, row, host.partition(":")[0], NOW - MINUTE,
    )  # fmt: skip
    return int(id_)


async def server(conn: Connection, row: int, host: str = "") -> int:
    [(n,)] = await rows_of(conn, "select count(*) from work.component")
    return await component(conn, host or f"s{n}", "index-server", row)


async def grid(conn: Connection, rows: int, servers: int) -> list[list[int]]:
    """Rows of servers, each on a machine of its own."""
    await set_rows(conn, rows)
    return [[await server(conn, row) for _ in range(servers)] for row in range(1, rows + 1)]


async def set_rows(conn: Connection, rows: int) -> None:
    await conn.execute("update work.settings set rows = %s", [rows])


async def built(conn: Connection, n: int) -> list[int]:
    """Chunks whose index was built, not yet seated."""
    crawler, builder = await maker(conn, "crawler"), await maker(conn, "index-builder")
    found = await rows_of(
        conn,
        "insert into work.chunk (state, crawler_id, claimed_at, crawled_at, index_state, builder_id, built_at, sha256) "
        "select 'crawled', %s, %s, %s, 'built', %s, %s, 'c' || n from generate_series(1, %s) n returning id",
        crawler, NOW, NOW, builder, NOW, n,
    )  # fmt: skip
    return [id_ for (id_,) in found]


async def maker(conn: Connection, type_: str) -> int:
    """The first of that type, or a new one."""
    found = await rows_of(conn, "select min(id) from work.component where type = %s", type_)
    return found[0][0] or await component(conn, f"{type_}:1", type_)


async def build(conn: Connection, n: int, now: datetime = NOW) -> list[int]:
    new = await built(conn, n)
    await placements.place_chunks(conn, new, now=now)
    return new


async def fail(conn: Connection, server: int, since: datetime) -> None:
    await conn.execute(
        "update work.component set health = 'failure', health_since = %s where id = %s",
        [since, server],
    )


async def heal(conn: Connection, server: int) -> None:
    await conn.execute("update work.component set health = 'healthy' where id = %s", [server])


async def drain(conn: Connection, server: int) -> None:
    await conn.execute("update work.component set draining = true where id = %s", [server])


async def seats(conn: Connection) -> Seats:
    """Which server has the seat of a chunk in a row."""
    found = await rows_of(
        conn, "select chunk_id, row, component_id from work.placement where state <> 'leaving'"
    )
    return {(chunk, row): id_ for chunk, row, id_ in found}


async def states(conn: Connection) -> Counter[str]:
    return Counter(
        dict(await rows_of(conn, "select state, count(*) from work.placement group by 1"))
    )


def moved(before: Seats, after: Seats) -> Counter[int]:
    """How many seats each server lost."""
    return Counter(id_ for seat, id_ in before.items() if after.get(seat) != id_)


async def load(conn: Connection, servers: Iterable[int], now: datetime = NOW) -> None:
    """They load all they are asked to."""
    for id_ in servers:
        while some := await placements.wanted(conn, id_, n=1000):
            ids = [one.chunk_id for one in some]
            assert await placements.loaded(conn, id_, ids, now=now) == set(ids)


async def check(conn: Connection) -> None:
    """What holds after every plan: one copy a row, balance, kept counts, no unplaced chunk where a server is fit."""
    servers = await rows_of(
        conn,
        "select id, row from work.component where type = 'index-server' and health = 'healthy' and not draining",
    )
    [(rows,)] = await rows_of(conn, "select rows from work.settings")
    found = await seats(conn)
    held = Counter(found.values())
    by_row = defaultdict(list)
    for id_, row in servers:
        by_row[row].append(held[id_])
    chunks = [
        k for (k,) in await rows_of(conn, "select id from work.chunk where built_at is not null")
    ]
    for row in range(1, rows + 1):
        if by_row[row]:
            assert max(by_row[row]) - min(by_row[row]) <= 1
            assert all((chunk, row) in found for chunk in chunks)
    kept = await rows_of(
        conn,
        "select component_id, sum(placements) from work.server_load group by 1 having sum(placements) <> 0",
    )
    assert {id_: int(n) for id_, n in kept} == dict(held)
    await check_noted(conn, rows)


async def check_noted(conn: Connection, rows: int) -> None:
    """Every seat that is missing is noted, and no other."""
    noted = await rows_of(conn, "select chunk_id, row from work.unplaced_chunk")
    lacking = await rows_of(
        conn,
        "select k.id, r from work.chunk k, generate_series(1, %s) r where k.index_state = 'built' and not exists "
        "(select from work.placement p where p.chunk_id = k.id and p.row = r and p.state <> 'leaving')",
        rows,
    )
    assert sorted(noted) == sorted(lacking)
