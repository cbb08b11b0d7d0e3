"""Hot statements read only the partitions of their hosts; a page that is known by its id alone is found by index."""

from collections.abc import AsyncIterator

import pytest
from psycopg.conninfo import make_conninfo

from support.mgmt.admitted_pages import component
from usher.db.pool import Connection, connect
from usher.schema import partitions

PARTITIONS = 6
# Counters of the session that it has not sent to the server yet: for each partition the started scans, and new rows.
COUNTERS = """
select right(relname::text, 3), coalesce(seq_scan, 0), coalesce(idx_scan, 0), n_tup_ins
from pg_stat_xact_user_tables
where relname like 'guestbook\\_p%'
"""
HOST = "work.domain64_encode(1, 1, 450)"
CLAIM = "select * from work.claim_links(array[%s]::bigint[], '{4}', '{2}', '{2}', null, '{0 s}', '{1 h}', '{f}', now())"
REPORT = (
    "select * from work.settle(%s, %s, %s, '{success,success}', '{200,200}', '{2,2}', '{1,1}', "
    "null, null, null, %s, '{f,f}', null, null, now())"
)
KNOCK = """
insert into work.guestbook (domain64, path, next_fetch, state, admitted_at)
select n, '/new', now(), 'pending', now() from unnest(%s::bigint[]) n
on conflict (domain64, path) do update set priority = 0
"""


@pytest.fixture
async def divided(database: str) -> AsyncIterator[Connection]:
    """A guestbook of 600 hosts with ten pages each, in six partitions of equal size, and one crawler."""
    async with await connect(make_conninfo(database, application_name="psql")) as conn:
        await conn.execute(
            """
            insert into work.domain (tld, number, name) values (1, 1, 'many');
            insert into work.hosts (domain64, name, next_fetch, claim_at, crawl_delay)
            select work.domain64_encode(1, 1, i), 'h' || i || '.many.gov', now(), 'infinity', '0'
            from generate_series(1, 600) i;
            insert into work.guestbook (domain64, path, state, next_fetch, admitted_at, text64)
            select domain64, '/' || i, 'pending', now(), now() - interval '1 hour', i
            from work.hosts, generate_series(1, 10) i
            """
        )
        plan = await partitions.plan_here(conn, PARTITIONS)
        assert plan.partitions == PARTITIONS
        await partitions.convert(conn, plan.bounds)
        await conn.execute("set enable_seqscan = off")
        await conn.execute("set enable_bitmapscan = off")
        yield conn


async def numbers(conn: Connection, *hosts: int) -> list[int]:
    rows = await conn.execute(
        "select work.domain64_encode(1, 1, n) from unnest(%s::int[]) n", [list(hosts)]
    )
    return [number for (number,) in await rows.fetchall()]


class Counters:
    """What the statements of this session did in each partition since this was created."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.before: dict[str, tuple[int, ...]] = {}

    async def now(self) -> dict[str, tuple[int, ...]]:
        rows = await (await self.conn.execute(COUNTERS.encode())).fetchall()
        return {name: tuple(counts) for name, *counts in rows}

    async def start(self) -> None:
        self.before = await self.now()

    async def read(self) -> dict[str, tuple[int, ...]]:
        """Sequential scans, scans of indexes and new rows, of those partitions that have any."""
        changes = {
            name: tuple(
                new - old for new, old in zip(counts, self.before.get(name, (0, 0, 0)), strict=True)
            )
            for name, counts in (await self.now()).items()
        }
        return {name: counts for name, counts in sorted(changes.items()) if any(counts)}


async def claimed(conn: Connection, *hosts: int) -> list[tuple[int, int, str]]:
    """Let a crawler claim two pages of each of these hosts; return chunk, id and path of each."""
    await conn.execute(
        "update work.hosts set claim_at = now() where domain64 = any(%s)",
        [await numbers(conn, *hosts)],
    )
    rows = await conn.execute(CLAIM.encode(), [await component(conn, "c")])
    return [(row[1], row[2], row[5]) for row in await rows.fetchall()]


async def test_a_claim_reads_the_partitions_of_its_hosts(divided: Connection) -> None:
    async with divided.transaction():
        counters = Counters(divided)
        await counters.start()
        assert len(await claimed(divided, 150, 450)) == 4
        assert await counters.read() == {"p02": (0, 1, 0), "p05": (0, 1, 0)}


async def test_claimed_pages_are_those_of_their_hosts(divided: Connection) -> None:
    """The same place in another partition has another page, which stays as it was."""
    async with divided.transaction():
        pages = await claimed(divided, 150, 450)
        rows = await divided.execute(
            "select id, domain64 from work.guestbook where state = 'crawling' order by id"
        )
        ids, hosts = zip(*await rows.fetchall(), strict=True)
    assert list(ids) == sorted(id_ for _, id_, _ in pages)
    assert sorted(set(hosts)) == await numbers(divided, 150, 450)


@pytest.mark.parametrize("texts", [None, [77_777, 88_888]])
async def test_a_report_reads_the_partitions_of_its_pages(
    divided: Connection, texts: list[int] | None
) -> None:
    """Pages with the same text may be in any partition: each is asked for both texts, by index.

    PostgreSQL 17 counts one scan if both are on one page of the index, earlier versions count two.
    """
    async with divided.transaction():
        pages = await claimed(divided, 150, 450)
    first, hosts = [pages[0], pages[-1]], await numbers(divided, 150, 450)
    given = [hosts, [path for _, _, path in first], [chunk for chunk, _, _ in first], texts]
    async with divided.transaction():
        counters = Counters(divided)
        await counters.start()
        assert len(await (await divided.execute(REPORT.encode(), given)).fetchall()) == 2
        read = await counters.read()
    own = {read.pop("p02"), read.pop("p05")}
    assert all(sequential == 0 and by_index <= 6 for sequential, by_index, _ in own)
    assert list(read) == (["p01", "p03", "p04", "p06"] if texts else [])
    assert set(read.values()) <= {(0, 1, 0), (0, 2, 0)}


async def test_new_pages_go_to_the_partitions_of_their_hosts(divided: Connection) -> None:
    async with divided.transaction():
        counters = Counters(divided)
        await counters.start()
        await divided.execute(KNOCK.encode(), [await numbers(divided, 150, 450)])
        read = await counters.read()
    assert {name: new for name, (_, _, new) in read.items()} == {"p02": 1, "p05": 1}


async def test_a_page_is_found_by_its_id_in_every_partition_by_index(divided: Connection) -> None:
    async with divided.transaction():
        counters = Counters(divided)
        await counters.start()
        rows = await divided.execute(
            "select g.path from unnest('{7,4507}'::bigint[]) p (id) "
            "cross join lateral (select path from work.guestbook where id = p.id offset 0) g"
        )
        assert len(await rows.fetchall()) == 2
        assert await counters.read() == {f"p{n:02}": (0, 2, 0) for n in range(1, PARTITIONS + 1)}


HOT = {
    "page": "select * from work.guestbook where domain64 = (select {host}) and path = '/1'",
    "queue": (
        "select id from work.guestbook where domain64 = (select {host}) and state = 'pending' "
        "order by priority, id"
    ),
    "update": (
        "update work.guestbook g set depth = 1 from (select 4491::bigint as id, {host} as domain64 offset 0) p "
        "where g.id = p.id and g.domain64 = p.domain64"
    ),
}


@pytest.mark.parametrize("name", HOT)
async def test_a_plan_skips_the_other_partitions(divided: Connection, name: str) -> None:
    """The number of the host is known only when the statement runs."""
    query = f"explain (analyze) {HOT[name].format(host=HOST)}"
    plan = "\n".join(line for (line,) in await (await divided.execute(query.encode())).fetchall())
    assert plan.count("never executed") >= PARTITIONS - 1
    assert "Seq Scan" not in plan
