"""Races about hosts, each forced: a knock beside the end of a crawl, and hosts that a chunk holds."""

import asyncio
from datetime import timedelta

import pytest

from support.db.concurrent import blocked, in_transaction
from support.db.invariants import violations
from support.mgmt.admitted_pages import LEASE, NONE, NOW, SOON, admit, component, delay, url
from usher.db.pool import Connection, connect
from usher.door import guestbook, hosts
from usher.door.guestbook import FetchReport, PackedUrls
from usher.door.rules import Knock, Reason
from usher.mgmt import chunk_pages, chunks
from usher.mgmt.chunks import ClaimedChunk, HostTrouble, PageClaim

DAY = timedelta(days=1)
SIX_HOURS = timedelta(hours=6)
FIRST, SECOND = "https://a.com/first", "https://a.com/second"


async def check(conn: Connection) -> None:
    assert await violations(conn) == []


# -- a knock beside the end of a crawl


async def knock_for(conn: Connection, path: str) -> Reason | None:
    """The answer for one more page of a.com."""
    [found] = await hosts.find(conn, names=["a.com"])
    batch = PackedUrls()
    batch.add(found.domain64, 1, path, 1)
    [judgement], _ = await guestbook.knock(
        conn, batch, knock=Knock(), settings_revision=1, now=NOW + SOON
    )
    return judgement.reason


async def last_page(conn: Connection) -> tuple[int, ClaimedChunk]:
    """A crawler has the only page of a.com."""
    await delay(conn, 0)
    crawler = await component(conn, "c")
    pack = await chunks.claim_links(conn, crawler, PageClaim(1, wait=NONE), now=NOW)
    assert pack
    return crawler, pack


async def finish(conn: Connection, crawler: int, pack: ClaimedChunk) -> None:
    page = await chunk_pages.find_page(conn, url(FIRST))
    assert page
    outcome = FetchReport(page.domain64, page.path, "success", pack.chunk_id, 200)
    done = await chunks.finish_crawl(
        conn, crawler, pack.chunk_id, sha256=None, size=None, now=NOW + SOON, reports=[outcome]
    )
    assert done


async def crawl_is_open(conn: Connection) -> bool:
    rows = await conn.execute("select crawl_started is not null from work.hosts")
    [(is_open,)] = await rows.fetchall()
    return bool(is_open)


async def test_a_crawl_stays_open_for_a_page_that_is_being_admitted(database: str) -> None:
    await admit(database, FIRST)
    async with await connect(database) as door, await connect(database) as mgmt:
        crawler, pack = await last_page(mgmt)
        async with door.transaction():
            assert await knock_for(door, "/second") == Reason.NEW_PAGE
            await finish(mgmt, crawler, pack)  # without waiting for the door
        assert await crawl_is_open(mgmt)
        await check(mgmt)


async def test_a_knock_opens_the_crawl_that_ends_meanwhile(database: str) -> None:
    await admit(database, FIRST)
    async with await connect(database) as door, await connect(database) as mgmt:
        crawler, pack = await last_page(mgmt)
        async with mgmt.transaction():
            await finish(mgmt, crawler, pack)
            knocking = asyncio.create_task(in_transaction(door, knock_for(door, "/second")))
            await blocked(knocking, mgmt)
        assert await knocking == Reason.NEW_PAGE
        assert await crawl_is_open(mgmt)
        await check(mgmt)


async def test_a_crawl_still_ends_if_the_knock_beside_it_is_undone(database: str) -> None:
    await admit(database, FIRST)
    async with await connect(database) as door, await connect(database) as mgmt:
        crawler, pack = await last_page(mgmt)
        async with door.transaction(force_rollback=True):
            assert await knock_for(door, "/second") == Reason.NEW_PAGE
            await finish(mgmt, crawler, pack)
        assert await crawl_is_open(mgmt)
        assert await chunks.claim_links(mgmt, crawler, PageClaim(1), now=NOW + 2 * SOON) is None
        assert not await crawl_is_open(mgmt)


# -- a knock beside a host that falls asleep


async def drowsy(database: str) -> int:
    """A host without pages that the next claim puts to sleep for good; the crawler that claims."""
    await admit(database, FIRST)
    async with await connect(database) as conn:
        crawler, pack = await last_page(conn)
        await finish(conn, crawler, pack)
        await conn.execute(
            "update work.hosts set empty_checks = 11, claim_at = %s, ready_at = %s, crawl_started = %s",
            [NOW, NOW, NOW],
        )
    return crawler


async def look(conn: Connection, crawler: int) -> None:
    assert await chunks.claim_links(conn, crawler, PageClaim(1, wait=NONE), now=NOW + SOON) is None


async def test_a_host_stays_awake_for_a_page_that_is_being_admitted(database: str) -> None:
    crawler = await drowsy(database)
    async with await connect(database) as door, await connect(database) as mgmt:
        async with door.transaction():
            assert await knock_for(door, "/second") == Reason.NEW_PAGE
            await look(mgmt, crawler)
        await check(mgmt)
        pack = await chunks.claim_links(mgmt, crawler, PageClaim(1, wait=NONE), now=NOW + 2 * SOON)
        assert pack
        assert [page.url for page in pack.pages] == [SECOND]


async def test_a_knock_wakes_the_host_that_falls_asleep_meanwhile(database: str) -> None:
    crawler = await drowsy(database)
    async with await connect(database) as door, await connect(database) as mgmt:
        async with mgmt.transaction():
            await look(mgmt, crawler)
            knocking = asyncio.create_task(in_transaction(door, knock_for(door, "/second")))
            await blocked(knocking, mgmt)
        assert await knocking == Reason.NEW_PAGE
        await check(mgmt)
        assert await chunks.claim_links(mgmt, crawler, PageClaim(1, wait=NONE), now=NOW + 2 * SOON)


# -- hosts that a chunk holds


async def held(database: str, conn: Connection) -> tuple[int, ClaimedChunk, int]:
    """A crawler that holds a.com alone, its chunk, and the host's number."""
    await admit(database, FIRST, SECOND)
    await delay(conn, 1)
    crawler = await component(conn, "c")
    pack = await chunks.claim_links(conn, crawler, PageClaim(1, wait=NONE, hold=True), now=NOW)
    [host] = await hosts.find(conn, names=["a.com"])
    assert pack
    return crawler, pack, host.domain64


@pytest.mark.parametrize("rest", [timedelta(minutes=1), SIX_HOURS])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_host_rests_as_long_as_it_asked_however_the_chunk_ends(
    database: str, rest: timedelta, *, grouped: bool, is_lost: bool
) -> None:
    async with await connect(database) as conn:
        crawler, pack, number = await held(database, conn)
        if grouped:
            await conn.execute("insert into work.politeness_group (name) values ('g')")
            await conn.execute(
                "update work.hosts set politeness_group_id = (select id from work.politeness_group)"
            )
        await chunks.rest_hosts(conn, [HostTrouble(number, "HTTP 429", rest)], now=NOW)
        end = NOW + 4 * SOON
        if is_lost:
            await chunks.fail_crawls(conn, [pack.chunk_id], why="gone", now=end)
        else:
            await finish(conn, crawler, pack)
        other = await component(conn, "d")
        assert await chunks.claim_links(conn, other, PageClaim(1), now=NOW + rest - SOON) is None
        assert await chunks.claim_links(conn, other, PageClaim(1, wait=NONE), now=NOW + rest)


async def test_a_group_rests_as_long_as_one_of_its_hosts_asked(database: str) -> None:
    await admit(database, "https://b.com/")
    async with await connect(database) as conn:
        await delay(conn, 1)
        await conn.execute("insert into work.politeness_group (name) values ('g')")
        await conn.execute("update work.hosts set politeness_group_id = 1, claim_at = 'infinity'")
        [b] = await hosts.find(conn, names=["b.com"])
        crawler, pack, _ = await held(database, conn)
        await conn.execute("update work.hosts set politeness_group_id = 1")
        await chunks.rest_hosts(conn, [HostTrouble(b.domain64, "HTTP 429", SIX_HOURS)], now=NOW)
        await finish(conn, crawler, pack)
        late = NOW + SIX_HOURS - SOON
        assert await chunks.claim_links(conn, crawler, PageClaim(1, wait=NONE), now=late) is None


async def test_every_sign_of_life_keeps_the_hosts_of_a_chunk(database: str) -> None:
    async with await connect(database) as conn:
        crawler, pack, _ = await held(database, conn)
        other = await component(conn, "d")
        late = NOW + LEASE - SOON
        assert await chunks.lock_chunk(conn, crawler, pack.chunk_id, lease=LEASE, now=late)
        ask = PageClaim(1, wait=NONE)
        assert await chunks.claim_links(conn, other, ask, now=late + LEASE - SOON) is None
        assert await chunks.claim_links(conn, other, ask, now=late + LEASE)
