"""Hosts that a chunk holds: no other crawler requests them until it reports, or its lease ends."""

from datetime import datetime, timedelta

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
    url,
)
from usher.db.pool import Connection, connect
from usher.door.guestbook import FetchReport, FetchResult
from usher.mgmt import chunk_pages, chunks, robots
from usher.mgmt.chunks import ClaimedChunk, HostTrouble, PageClaim
from usher.mgmt.robots import RobotsReport
from usher.urls import Scheme

HOLD = PageClaim(2, wait=NONE, hold=True)


async def claim(conn: Connection, me: int, now: datetime = NOW) -> ClaimedChunk | None:
    return await chunks.claim_links(conn, me, HOLD, now=now)


async def report(conn: Connection, me: int, pack: ClaimedChunk, now: datetime) -> None:
    for page in pack.pages:
        found = await chunk_pages.find_page(conn, url(page.url))
        assert found
        outcome = FetchReport(found.domain64, found.path, "success", pack.chunk_id, 200)
        await chunks.report(conn, [outcome], now=now)
    assert await chunks.finish_crawl(conn, me, pack.chunk_id, sha256=None, size=None, now=now)


async def test_a_host_is_one_crawlers_until_it_reports(database: str) -> None:
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 1)
        me, other = await component(conn, "c"), await component(conn, "d")
        pack = await claim(conn, me)
        assert pack
        assert await claim(conn, other, NOW + LEASE / 2) is None
        await report(conn, me, pack, NOW + LEASE / 2)
        assert await claim(conn, other, NOW + LEASE / 2) is None  # it was asked just now
        assert await claim(conn, other, NOW + LEASE / 2 + SOON)


async def test_a_lease_that_is_renewed_keeps_the_host_and_one_that_ends_frees_it(
    database: str,
) -> None:
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 1)
        me, other = await component(conn, "c"), await component(conn, "d")
        pack = await claim(conn, me)
        assert pack
        late = NOW + LEASE - SOON
        held = await chunks.renew(conn, me, [pack.chunk_id], lease=LEASE, now=late)
        assert held == {pack.chunk_id}
        assert await claim(conn, other, NOW + LEASE + SOON) is None
        over = late + LEASE + SOON
        assert (await chunks.reap(conn, n=10, now=over))[0] == [pack.chunk_id]
        assert await claim(conn, other, over) is None  # the dead one may have asked just now
        again = await claim(conn, other, over + SOON)
        assert again
        assert names(again.pages) == names(pack.pages)


async def test_a_crawler_that_begins_anew_frees_what_it_held(database: str) -> None:
    await admit(database, *pages("a.com", 2))
    async with await connect(database) as conn:
        await delay(conn, 1)
        me = await component(conn, "c")
        pack = await claim(conn, me)
        assert pack
        lost = await chunks.restart_crawler(conn, me, n=100, now=NOW + SOON)
        assert lost == [pack.chunk_id]
        assert await claim(conn, me, NOW + SOON) is None
        assert await claim(conn, me, NOW + 2 * SOON)


async def test_hosts_without_a_rest_are_held_only_until_their_robots_are_known(
    database: str,
) -> None:
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me, other = await component(conn, "c"), await component(conn, "d")
        pack = await claim(conn, me)
        assert pack
        assert await claim(conn, other, NOW + SOON) is None
        await robots.store_robots(conn, "a.com", Scheme.HTTPS, RobotsReport(404), now=NOW)
        assert await claim(conn, other, NOW + SOON)  # it need not wait for the report
        await report(conn, me, pack, NOW + SOON)
        assert await claim(conn, me, NOW + SOON)


async def test_a_host_rests_as_its_robots_ask_unless_somebody_said_otherwise(database: str) -> None:
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 1)
        me = await component(conn, "c")
        asked = RobotsReport(200, "User-agent: *\nCrawl-delay: 7", crawl_delay=timedelta(seconds=7))
        await robots.store_robots(conn, "a.com", Scheme.HTTPS, asked, now=NOW)
        pack = await claim(conn, me)
        assert pack
        assert pack.pages[0].crawl_delay == 7 * SOON
        await report(conn, me, pack, NOW)
        assert await claim(conn, me, NOW + 6 * SOON) is None
        await conn.execute("update work.hosts set crawl_delay = '2 s'")
        pack = await claim(conn, me, NOW + 7 * SOON)
        assert pack
        assert pack.pages[0].crawl_delay == 2 * SOON


async def test_trouble_outlasts_the_hold(database: str) -> None:
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        await delay(conn, 1)
        me = await component(conn, "c")
        pack = await claim(conn, me)
        assert pack
        number = (await chunk_pages.find_page(conn, url("https://a.com/0"))).domain64  # type: ignore[union-attr]
        await report(conn, me, pack, NOW)
        await chunks.rest_hosts(conn, [HostTrouble(number, "HTTP 429", 30 * SOON)], now=NOW)
        assert await claim(conn, me, NOW + 29 * SOON) is None
        assert await claim(conn, me, NOW + 30 * SOON)


async def settled(
    conn: Connection, me: int, *, result: FetchResult, status: int, now: datetime
) -> str:
    """One more crawl of the only page; in which chunk its text is afterwards."""
    await conn.execute("update work.guestbook set state = 'pending', admitted_at = now()")
    await conn.execute("update work.hosts set claim_at = '-infinity', ready_at = '-infinity'")
    pack = await chunks.claim_links(conn, me, PageClaim(1, wait=NONE), now=now)
    assert pack
    found = await chunk_pages.find_page(conn, url(pack.pages[0].url))
    assert found
    one = FetchReport(found.domain64, found.path, result, pack.chunk_id, status, text64=7)
    await chunks.report(conn, [one], now=now)
    rows = await conn.execute(
        "select case when indexed_in is null then 'nowhere' when indexed_in = chunk_id then 'here' "
        "else 'before' end from work.guestbook"
    )
    return str((await rows.fetchall())[0][0])


async def test_what_can_be_found_of_a_page_is_in_the_chunk_it_came_in(database: str) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        story = [
            ("success", 200, "here"),
            ("unchanged", 304, "before"),
            ("failure", 503, "before"),
            ("gone", 404, "before"),  # once is not enough
            ("gone", 404, "nowhere"),
            ("success", 200, "here"),
            ("gone", 410, "nowhere"),
            ("success", 200, "here"),
            ("moved", 301, "nowhere"),
            ("success", 200, "here"),
            ("barred", None, "nowhere"),
        ]
        seen = [
            await settled(conn, me, result=result, status=status, now=NOW)  # type: ignore[arg-type]
            for result, status, _ in story
        ]
        assert seen == [where for *_, where in story]


async def test_the_same_text_elsewhere_is_marked_with_its_original(database: str) -> None:
    await admit(database, *pages("a.com", 3), *pages("b.com", 2))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me = await component(conn, "c")
        pack = await chunks.claim_links(conn, me, PageClaim(5, wait=NONE), now=NOW)
        assert pack
        outcomes = []
        for page in pack.pages:
            found = await chunk_pages.find_page(conn, url(page.url))
            assert found
            text = None if page.url.endswith("/2") else 7
            outcomes.append(
                FetchReport(found.domain64, found.path, "success", pack.chunk_id, 200, text64=text)
            )
        for part in (outcomes[:2], outcomes[2:]):
            await chunks.report(conn, part, now=NOW)
        rows = await conn.execute(
            "select g.id, g.same_as from work.guestbook g order by same_as nulls first, id"
        )
        marks = await rows.fetchall()
        first = min(id_ for id_, _ in marks)
        marked = [same for _, same in marks if same is not None]
        assert len(marked) == 3
        assert set(marked) == {first}


async def test_robots_that_cannot_be_had_are_asked_for_again_later_each_time(database: str) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        kept = await robots.store_robots(
            conn, "a.com", Scheme.HTTPS, RobotsReport(200, "Disallow: /"), now=NOW
        )
        assert kept
        assert kept.expires_at == NOW + timedelta(days=1)
        waits = []
        for _ in range(3):
            kept = await robots.store_robots(
                conn, "a.com", Scheme.HTTPS, RobotsReport(503), now=NOW
            )
            assert kept
            waits.append((kept.expires_at - NOW).total_seconds() / 60)
        assert waits == [10, 20, 40]
        assert kept.body == "Disallow: /"
        assert (
            await robots.store_robots(conn, "nowhere.com", Scheme.HTTPS, RobotsReport(200), now=NOW)
            is None
        )
