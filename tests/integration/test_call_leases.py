"""Calls renew the leases of components that do not renew them by themselves, for a while."""

from datetime import UTC, datetime, timedelta

from support.mgmt.index_servers import component, rows_of
from usher.db.pool import Connection, connect
from usher.mgmt import chunks
from usher.mgmt.chunks import MAX_LEASES_BY_CALL

LEASE = timedelta(minutes=5)
SECOND = timedelta(seconds=1)
NOW = datetime(2026, 11, 18, 8, tzinfo=UTC)


async def crawl(conn: Connection, crawler: int, claimed: datetime, until: datetime) -> int:
    [(id_,)] = await rows_of(
        conn,
        "insert into work.chunk (crawler_id, claimed_at, lease_until) values (%s, %s, %s) returning id",
        crawler, claimed, until,
    )  # fmt: skip
    return int(id_)


async def build(conn: Connection, builder: int, claimed: datetime, until: datetime) -> int:
    [(id_,)] = await rows_of(
        conn,
        "insert into work.chunk (crawler_id, claimed_at, state, builder_id, index_state, build_claimed_at, "
        "build_lease_until) values (%s, %s, 'crawled', %s, 'building', %s, %s) returning id",
        builder, NOW, builder, claimed, until,
    )  # fmt: skip
    return int(id_)


async def leases(conn: Connection) -> dict[int, datetime]:
    text = "select id, coalesce(lease_until, build_lease_until) from work.chunk"
    return dict(await rows_of(conn, text))


async def test_a_call_renews_what_is_half_over(conn: Connection) -> None:
    me, other = await component(conn, "c", "crawler"), await component(conn, "d", "crawler")
    soon, later, over = NOW + LEASE / 2, NOW + LEASE / 2 + SECOND, NOW
    renewed = await crawl(conn, me, NOW - LEASE / 2, soon)
    fresh = await crawl(conn, me, NOW - SECOND, later)
    expired = await crawl(conn, me, NOW - LEASE, over)
    theirs = await crawl(conn, other, NOW - LEASE / 2, soon)
    built = await build(conn, me, NOW - LEASE / 2, soon)
    await chunks.renew_by_call(conn, me, lease=LEASE, now=NOW)
    assert await leases(conn) == {
        renewed: NOW + LEASE,
        fresh: later,
        expired: over,
        theirs: soon,
        built: NOW + LEASE,
    }


async def test_a_chunk_that_was_forgotten_is_not_renewed_for_ever(conn: Connection) -> None:
    """A crawler that was restarted calls on, and knows nothing of the chunk that it had."""
    me = await component(conn, "c", "crawler")
    crawled = await crawl(conn, me, NOW, NOW + LEASE)
    built = await build(conn, me, NOW, NOW + LEASE)
    moment = NOW
    while min((await leases(conn)).values()) > moment:
        moment += LEASE / 4
        await chunks.renew_by_call(conn, me, lease=LEASE, now=moment)
        assert moment < NOW + (MAX_LEASES_BY_CALL + 2) * LEASE
    assert moment >= NOW + MAX_LEASES_BY_CALL * LEASE
    assert set(await leases(conn)) == {crawled, built}


async def test_it_costs_the_same_however_many_chunks_there_are(database: str) -> None:
    """In a database of its own: chunk ids are not given back when a transaction ends."""
    async with await connect(database) as conn:
        me = await component(conn, "c", "crawler")
        await conn.execute(
            "insert into work.chunk (crawler_id, claimed_at, state, crawled_at) "
            "select %s, now(), 'crawled', now() from generate_series(1, 20000)",
            [me],
        )
        for _ in range(3):
            await crawl(conn, me, NOW, NOW + LEASE)
        await conn.execute("analyze work.chunk")
        query = chunks.store.leases_half_over.query
        values = {"component": me, "half": NOW + LEASE, "earliest_claim": NOW - LEASE, "now": NOW}
        plan = await conn.execute(b"explain (analyze, costs off, timing off) " + query, values)
        lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "Seq Scan" not in lines
    assert "chunk_lease" in lines
    assert "chunk_build_lease" in lines
    assert "Removed by Filter" not in lines
