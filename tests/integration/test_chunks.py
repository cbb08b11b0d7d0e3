"""Chunks: claimed politely and by one only, reported, lost and found again."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta

import pytest

from support.mgmt.admitted_pages import (
    LEASE,
    NONE,
    NOW,
    SOON,
    admit,
    component,
    delay,
    names,
    pages,
    states,
    url,
)
from usher.db.pool import Connection, Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.door.guestbook import FetchReport
from usher.door.rules import Knock
from usher.mgmt import chunk_pages, chunks
from usher.mgmt.chunks import ClaimedChunk, HostTrouble, PageClaim


@pytest.mark.seed("000.15", "000.16")
async def test_five_links_of_the_host_in_the_order_they_came(database: str) -> None:
    await admit(database, *pages("a.com", 12))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "10.0.0.1:5000")
        packs = [await chunks.claim_links(conn, me, PageClaim(), now=NOW + SOON) for _ in range(3)]
        assert [names(pack.pages) for pack in packs if pack] == [
            pages("a.com", 12)[:5],
            pages("a.com", 12)[5:10],
            pages("a.com", 12)[10:],
        ]
        assert [pack.chunk_id for pack in packs if pack] == sorted(
            {pack.chunk_id for pack in packs if pack}
        )
        assert await chunks.claim_links(conn, me, PageClaim(), now=NOW + SOON) is None
        assert await states(conn) == {"crawling": 12}


@pytest.mark.seed("001.9")
async def test_fewer_than_five_wait_for_others_and_then_go(database: str) -> None:
    await admit(database, *pages("a.com", 3))
    async with await connect(database) as conn:
        me = await component(conn, "c")
        assert await chunks.claim_links(conn, me, PageClaim(), now=NOW + SOON / 2) is None
        strict = PageClaim(wait=timedelta(days=10_000))
        assert await chunks.claim_links(conn, me, strict, now=NOW + timedelta(days=1)) is None
        assert await states(conn) == {"pending": 3}
        pack = await chunks.claim_links(conn, me, PageClaim(), now=NOW + SOON)
        assert pack
        assert names(pack.pages) == pages("a.com", 3)


async def test_the_host_that_rested_longest_goes_first_and_nobody_is_hurried(database: str) -> None:
    await admit(database, *pages("a.com", 20), *pages("b.com", 20))
    async with await connect(database) as conn:
        await delay(conn, 2)
        me = await component(conn, "c")
        now, hosts = NOW, []
        asked: dict[str, datetime] = {}
        for _ in range(300):
            now += timedelta(seconds=0.5)
            pack = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=now)
            if not pack:
                continue
            for host, number in Counter(url(page.url).host for page in pack.pages).items():
                hosts.append(host)
                assert host not in asked or now >= asked[host]
                asked[host] = now + number * timedelta(seconds=2)
        assert Counter(hosts) == {"a.com": 4, "b.com": 4}
        assert await states(conn) == {"crawling": 40}


async def test_hosts_of_one_group_share_a_pace(database: str) -> None:
    await admit(database, *pages("a.com", 10), *pages("b.com", 10), *pages("c.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 1)
        await conn.execute("insert into work.politeness_group (name) values ('shared')")
        await conn.execute(
            "update work.hosts set politeness_group_id = (select id from work.politeness_group) "
            "where name in ('a.com', 'b.com')"
        )
        me = await component(conn, "c")
        first = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW)
        second = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW)
        third = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW + SOON)
        assert first
        assert second
        assert third is None
        hosts = [{url(page.url).host for page in pack.pages} for pack in (first, second)]
        assert {"c.com"} in hosts
        later = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW + 6 * SOON)
        assert later


async def test_eight_crawlers_at_once_share_nothing(database: str) -> None:
    hosts = [f"h{i}.com" for i in range(40)]
    await admit(database, *(page for host in hosts for page in pages(host, 25)))
    async with await connect(database) as conn:
        await delay(conn, 0)
        crawlers = [await component(conn, f"c{i}") for i in range(8)]
    given: list[str] = []
    sizes: Counter[int] = Counter()

    async def crawl(me: int) -> None:
        async with await connect(database) as own:
            misses = 0
            while misses < 3:
                pack = await chunks.claim_links(own, me, PageClaim(wait=NONE), now=NOW + SOON)
                misses = 0 if pack else misses + 1
                given.extend(names(pack.pages) if pack else [])
                sizes[len(pack.pages) if pack else 0] += 1
                await asyncio.sleep(0)

    await asyncio.gather(*map(crawl, crawlers))
    assert len(given) == len(set(given)) == 1000


async def test_a_page_that_comes_for_an_idle_host_is_seen_at_once(database: str) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        now = NOW + SOON
        pack = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=now)
        assert pack
        await chunks.finish_crawl(conn, me, pack.chunk_id, sha256=None, size=None, now=now)
        rows = await conn.execute("select claim_at = 'infinity' from work.hosts")
        assert await rows.fetchall() == [(True,)]
        now += timedelta(days=31)
        await admit(database, "https://a.com/new", now=now)
        pack = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=now)
        assert pack
        assert names(pack.pages) == ["https://a.com/new"]


async def test_a_page_that_slipped_past_an_empty_look_is_found_by_the_next(database: str) -> None:
    await admit(database, *pages("a.com", 1))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        assert await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW)
        assert not await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW)
        # As if the door had looked at the host just before the empty look above, and written its page just after.
        await conn.execute("update work.guestbook set state = 'pending', chunk_id = null")
        assert not await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW + SOON / 2)
        assert await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW + SOON)


async def test_paused_and_blocked_hosts_give_nothing(database: str) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        me = await component(conn, "c")
        await conn.execute("update work.hosts set policy = 'paused'")
        assert await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW) is None
        await conn.execute("update work.hosts set policy = 'open'")
        assert await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW)


async def test_a_failed_page_is_marked_and_another_comes_into_the_chunk(database: str) -> None:
    await admit(database, *pages("a.com", 6))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        pack = await chunks.claim_links(conn, me, PageClaim(), now=NOW + SOON)
        assert pack
        assert await chunks.lock_chunk(conn, me, pack.chunk_id, lease=LEASE, now=NOW + SOON)
        page = await chunk_pages.find_page(conn, url(pack.pages[2].url))
        assert page
        failed = FetchReport(
            page.domain64, page.path, "failure", chunk_id=pack.chunk_id, status=500
        )
        await chunks.report(conn, [failed], now=NOW + SOON)
        more = await chunks.more_links(conn, me, pack.chunk_id, PageClaim(n=1), now=NOW + SOON)
        assert names(more) == [pages("a.com", 6)[5]]
        assert (
            await chunks.more_links(conn, me, pack.chunk_id, PageClaim(n=1), now=NOW + SOON) == []
        )
        assert await states(conn) == {"crawling": 5, "error": 1}
        assert await chunks.finish_crawl(
            conn, me, pack.chunk_id, sha256="f" * 64, size=9, now=NOW + 2 * SOON
        )
        assert await states(conn) == {"crawled": 5, "error": 1}
        assert not await chunks.finish_crawl(
            conn, me, pack.chunk_id, sha256=None, size=None, now=NOW + 2 * SOON
        )


async def test_a_lost_crawler_gives_its_pages_back_and_can_report_no_more(database: str) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        await delay(conn, 0)
        dead, other = await component(conn, "dead"), await component(conn, "other")
        now = NOW + SOON
        for attempt in (1, 2, 3):
            pack = await chunks.claim_links(conn, dead, PageClaim(lease=LEASE), now=now)
            assert pack
            assert len(pack.pages) == 5
            assert await chunks.reap(conn, n=10, now=now + LEASE - SOON) == ([], [])
            now += LEASE
            assert await chunks.reap(conn, n=10, now=now) == ([pack.chunk_id], [])
            assert not await chunks.lock_chunk(conn, dead, pack.chunk_id, lease=LEASE, now=now)
            late = await chunks.finish_crawl(
                conn, dead, pack.chunk_id, sha256=None, size=None, now=now
            )
            assert not late
            assert await states(conn) == {"pending" if attempt < 3 else "error": 5}
        assert await chunks.claim_links(conn, other, PageClaim(wait=NONE), now=now) is None


async def test_renewed_leases_last(database: str) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        me, other = await component(conn, "c"), await component(conn, "d")
        pack = await chunks.claim_links(conn, me, PageClaim(lease=LEASE), now=NOW + SOON)
        assert pack
        later = NOW + timedelta(minutes=4)
        mine = [pack.chunk_id]
        assert await chunks.renew(conn, other, mine, lease=LEASE, now=later) == set()
        assert await chunks.renew(conn, me, mine, lease=LEASE, now=later) == set(mine)
        assert await chunks.reap(conn, n=10, now=NOW + timedelta(minutes=6)) == ([], [])
        gone = NOW + timedelta(minutes=10)
        assert await chunks.renew(conn, me, mine, lease=LEASE, now=gone) == set()


async def crawled(conn: Connection, crawler: int, now: datetime = NOW + SOON) -> int:
    pack = await chunks.claim_links(conn, crawler, PageClaim(wait=NONE), now=now)
    assert pack
    assert await chunks.finish_crawl(conn, crawler, pack.chunk_id, sha256="s", size=5, now=now)
    return pack.chunk_id


async def test_each_chunk_is_built_by_one_and_failures_go_to_another(database: str) -> None:
    await admit(database, *pages("a.com", 20))
    async with await connect(database) as conn:
        await delay(conn, 0)
        crawler = await component(conn, "10.0.0.1:5000")
        one, two = [await component(conn, name, "index-builder") for name in ("b1", "b2")]
        made = [await crawled(conn, crawler) for _ in range(4)]
        first = await chunks.claim_builds(conn, one, n=3, lease=LEASE, now=NOW)
        second = await chunks.claim_builds(conn, two, n=3, lease=LEASE, now=NOW)
        assert [job.chunk_id for job in first] == made[:3]
        assert [job.chunk_id for job in second] == made[3:]
        assert {(job.host, job.sha256, job.bytes) for job in first} == {("10.0.0.1:5000", "s", 5)}
        assert not await chunks.finish_build(conn, two, made[0], sha256="i", size=1, now=NOW)
        assert await chunks.finish_build(conn, one, made[0], sha256="i", size=1, now=NOW)
        assert not await chunks.finish_build(conn, one, made[0], sha256="i", size=1, now=NOW)
        assert await chunks.fail_build(conn, one, made[1], why="cannot read it") == "error"
        assert await chunks.claim_builds(conn, one, n=5, lease=LEASE, now=NOW) == []
        again = await chunks.claim_builds(conn, two, n=5, lease=LEASE, now=NOW)
        assert [job.chunk_id for job in again] == [made[1]]
        _, late = await chunks.reap(conn, n=10, now=NOW + LEASE)
        assert sorted(late) == sorted([made[1], made[2], made[3]])
        third = await chunks.claim_builds(conn, one, n=5, lease=LEASE, now=NOW, alone=True)
        assert {job.chunk_id for job in third} == set(made[1:])
        assert await chunks.fail_build(conn, one, made[1], why="no") == "parked"
        shown = await chunks.show(conn, made[1])
        assert shown
        assert (shown.index_state, shown.reason, shown.build_attempts) == ("parked", "no", 3)


async def test_what_was_lost_with_a_machine_is_done_again(database: str) -> None:
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 0)
        crawler = await component(conn, "c")
        builder = await component(conn, "b", "index-builder")
        built, only_crawled = [await crawled(conn, crawler) for _ in range(2)]
        await chunks.claim_builds(conn, builder, n=1, lease=LEASE, now=NOW)
        await chunks.finish_build(conn, builder, built, sha256="i", size=1, now=NOW)
        assert await chunks.unpropagated(conn, crawler, n=9) == [built, only_crawled]
        assert await chunks.recrawl(conn, crawler, why="gone", now=NOW, n=9) == [only_crawled]
        assert await states(conn) == {"crawled": 5, "pending": 5}
        assert await chunks.rebuild(conn, builder, why="gone") == [built]
        assert await chunks.claim_links(conn, crawler, PageClaim(), now=NOW + timedelta(hours=1))


async def test_a_full_knock_wakes_its_host(database: str) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        await crawled(conn, me)
        await conn.execute("update work.hosts set claim_at = 'infinity'")
        async with Database(database) as db:
            knock = Knock("full", hall_pass=True)
            await Doorkeeper(db).knock(["https://a.com/"], knock=knock, now=NOW)
        pack = await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=NOW + SOON)
        assert pack
        assert len(pack.pages) == 5


async def test_a_host_in_trouble_rests_ever_longer_and_is_forgiven_after_quiet(
    database: str,
) -> None:
    await admit(database, *pages("a.com", 20))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        page = await chunk_pages.find_page(conn, url("https://a.com/0"))
        assert page
        number, now = page.domain64, NOW
        for seconds in (10, 20, 40):
            ready = await chunks.rest_hosts(conn, [HostTrouble(number, "429")], now=now)
            assert ready == {number: now + timedelta(seconds=seconds)}
            soon = now + timedelta(seconds=seconds - 1)
            assert await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=soon) is None
            now += timedelta(seconds=seconds)
            assert await chunks.claim_links(conn, me, PageClaim(wait=NONE), now=now)
        hour = timedelta(hours=1)
        ready = await chunks.rest_hosts(conn, [HostTrouble(number, "503", hour)], now=now)
        assert ready == {number: now + hour}
        assert await chunks.clear_troubles(conn, [number], now=now + timedelta(minutes=5)) == 0
        assert await chunks.clear_troubles(conn, [number], now=now + hour) == 1
        ready = await chunks.rest_hosts(conn, [HostTrouble(number, "429")], now=now + 2 * hour)
        assert ready == {number: now + 2 * hour + timedelta(seconds=10)}
        for _ in range(40):
            ready = await chunks.rest_hosts(
                conn, [HostTrouble(number, "no answer")], now=now + 3 * hour
            )
        assert ready == {number: now + 3 * hour + timedelta(days=1)}


async def test_a_crawl_that_nobody_saw_end_ends_with_the_next_look(database: str) -> None:
    await admit(database, *pages("a.com", 2))
    started = "select crawl_started, next_fetch from work.hosts"
    async with await connect(database) as one, await connect(database) as other:
        await delay(one, 0)
        me, ask = await component(one, "c"), PageClaim(1, wait=NONE)
        first = await chunks.claim_links(one, me, ask, now=NOW)
        assert first
        async with one.transaction():
            settled = await chunks.report(one, [await success(one, first)], now=NOW)
            assert [page.waits for page in settled] == [True]
            second = await chunks.claim_links(other, me, ask, now=NOW)
            assert second
            async with other.transaction():
                await chunks.report(other, [await success(other, second)], now=NOW)
        [(open_since, _)] = await (await one.execute(started)).fetchall()
        assert open_since  # each saw a page of the other's
        assert await chunks.claim_links(one, me, ask, now=NOW + SOON) is None
        [(over, due)] = await (await one.execute(started)).fetchall()
        assert (over, due > NOW) == (None, True)


async def success(conn: Connection, pack: ClaimedChunk) -> FetchReport:
    """The only page of a chunk, fetched."""
    found = await chunk_pages.find_page(conn, url(pack.pages[0].url))
    assert found
    return FetchReport(found.domain64, found.path, "success", pack.chunk_id, 200)
