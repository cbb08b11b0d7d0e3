"""Claims and reports read little, whatever waits, rests or is being crawled beside them."""

import pytest

from support.mgmt.admitted_pages import component
from usher.db.pool import Connection, connect

# These tables, or their partitions.
STORED = """
    select oid::regclass::text from pg_class
    where relnamespace = 'work'::regnamespace and relkind = 'r' and relname ~ '^(hosts|chunk|guestbook(_p[0-9]+)?)$'
"""


async def many(conn: Connection, claim_at: str) -> None:
    """Five thousand hosts of ten pages that wait.

    Without autovacuum: after it the server plans again, and the blocks of its catalogs would be counted.
    """
    for (table,) in await (await conn.execute(STORED)).fetchall():
        await conn.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
    await conn.execute("insert into work.domain (tld, number, name) values (1, 1, 'many')")
    await conn.execute(
        f"""
        insert into work.hosts (domain64, name, next_fetch, claim_at, crawl_delay)
        select work.domain64_encode(1, 1, domain.i), 'h' || domain.i || '.many.com', now(), {claim_at}, '0'
        from generate_series(1, 5000) as domain (i)
        """.encode()
    )
    await conn.execute(
        "insert into work.guestbook (domain64, path, state, next_fetch, admitted_at) "
        "select domain64, '/' || i, 'pending', now(), now() - interval '1 hour' "
        "from work.hosts, generate_series(1, 10) i"
    )


async def blocks(conn: Connection, statement: str, *given: object) -> int:
    """How many a statement reads, with all that its functions do."""
    text = f"explain (analyze, buffers, format json) {statement}"
    [[[plan]]] = await (await conn.execute(text.encode(), given)).fetchall()
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


CLAIM = "select * from work.claim_links(%s, %s, %s, %s, null, %s, %s, %s, now())"


def asks(crawler: int, together: int = 1) -> list[str]:
    """What so many crawlers ask for at once, each for five pages."""
    values = (str(crawler), "5", "5", "5", "1 s", "5 min", "f")
    return [f"{{{','.join([value] * together)}}}" for value in values]


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_claim_passes_finished_hosts_once(database: str, *, grouped: bool) -> None:
    """It finds the last host that has pages behind all that have none; the next poll reads nothing of these."""
    async with await connect(database) as conn:
        me = await component(conn, "c")
        await many(conn, "now() - interval '1 hour' + domain.i * interval '1 ms'")
        await conn.execute(
            "update work.guestbook set state = 'crawled' "
            "where domain64 < (select max(domain64) from work.hosts) or id %% 10 >= 5",
            [],
        )
        if grouped:
            await conn.execute("insert into work.politeness_group (name) values ('other')")
        claimed = await (await conn.execute(CLAIM.encode(), asks(me))).fetchall()
        assert len(claimed) == 5
        idle = [await blocks(conn, CLAIM, *asks(me)) for _ in range(3)]
        assert min(idle) < 50
        rows = await conn.execute("select count(*) from work.hosts where claim_at < 'infinity'")
        assert await rows.fetchall() == [(1,)]


async def test_a_claim_passes_hosts_of_a_group_that_rests(database: str) -> None:
    async with await connect(database) as conn:
        me = await component(conn, "c")
        await many(conn, "now() - interval '1 hour' + domain.i * interval '1 ms'")
        await conn.execute(
            "insert into work.politeness_group (name, ready_at) values ('resting', now() + interval '1 hour')"
        )
        await conn.execute(
            "update work.hosts set politeness_group_id = (select id from work.politeness_group) "
            "where domain64 < (select max(domain64) from work.hosts)"
        )
        assert len(await (await conn.execute(CLAIM.encode(), asks(me))).fetchall()) == 5
        assert min([await blocks(conn, CLAIM, *asks(me)) for _ in range(3)]) < 400


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("crowd", ["resting", "idle", "waiting"])
async def test_a_claim_reads_little_whatever_the_guestbook_holds(
    database: str, crowd: str, together: int
) -> None:
    when = {"resting": "now() + interval '1 hour'", "idle": "'infinity'", "waiting": "now()"}[crowd]
    async with await connect(database) as conn:
        me = await component(conn, "c")
        await many(conn, when)
        counts = [await blocks(conn, CLAIM, *asks(me, together)) for _ in range(4)]
        assert min(counts) < 400 * together


@pytest.mark.parametrize("known", ["nothing", "no page is being crawled", "all are being crawled"])
async def test_a_report_reads_little_whatever_is_being_crawled(database: str, known: str) -> None:
    """It does so with each of the statistics that autovacuum may have taken last."""
    async with await connect(database) as conn:
        me = await component(conn, "c")
        await many(conn, "now()")
        if known == "no page is being crawled":
            await conn.execute("analyze work.guestbook")
        await conn.execute(
            "insert into work.chunk (crawler_id, claimed_at, lease_until) "
            "select %s, now(), now() + interval '1 hour' from generate_series(1, 5000)",
            [me],
        )
        await conn.execute(
            "update work.guestbook set state = 'crawling', chunk_id = 1 + id %% 5000", []
        )
        await conn.execute("update work.hosts set crawl_started = now()")
        if known == "all are being crawled":
            await conn.execute("analyze work.guestbook")
        finish = (
            "select * from work.finish_crawl(%s, %s, null, null, %s, %s, %s, '{success,success}', "
            "null, '{1,1}', '{1,1}', null, null, null, '{7,8}', '{f,f}', null, null, now())"
        )
        counts = []
        for chunk, back in ((76, False), (77, True), (78, False), (79, True)):
            rows = await conn.execute(
                "select domain64, path from work.guestbook where chunk_id = %s limit 2", [chunk]
            )
            numbers, paths = zip(*await rows.fetchall(), strict=True)
            counts.append(await blocks(conn, finish, me, chunk, back, list(numbers), list(paths)))
        assert max(counts[2:]) < 450  # the others are planned, too
