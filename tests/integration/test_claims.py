"""Crawlers that ask for pages at the same time: one statement for all, a chunk for each, and nothing that two have."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from support.mgmt.admitted_pages import NONE, NOW, SOON, admit, component, delay, names, pages, url
from usher.api.claim_batcher import MAX_BATCHED_PAGES, MAX_CLAIMS_PER_STATEMENT, ClaimBatcher
from usher.db.pool import Connection, Database, connect
from usher.errors import Unreachable
from usher.mgmt import chunks
from usher.mgmt.chunks import ClaimedChunk, PageClaim

HOSTS = [f"h{i}.com" for i in range(8)]
UNKNOWN_CRAWLER = 999_999


@asynccontextmanager
async def crawlers(
    dsn: str, number: int, seconds: float
) -> AsyncIterator[tuple[Connection, list[int]]]:
    """So many crawlers, and hosts that rest so long between two requests."""
    async with await connect(dsn) as conn:
        await delay(conn, seconds)
        yield conn, [await component(conn, f"c{i}") for i in range(number)]


def hosts_of(pack: ClaimedChunk | None) -> set[str]:
    return {url(page.url).host for page in pack.pages} if pack else set()


async def owners(conn: Connection) -> dict[int, int]:
    rows = await conn.execute("select id, crawler_id from work.chunk")
    return dict(await rows.fetchall())


# -- one statement


async def test_no_crawler_gets_pages_of_a_skipped_host(database: str) -> None:
    await admit(database, *(page for host in HOSTS for page in pages(host, 9)))
    async with crawlers(database, 2, 1) as (conn, both):
        rows = await conn.execute(
            "select domain64 from work.hosts where name = any(%s)", [HOSTS[:6]]
        )
        skipped = [number for (number,) in await rows.fetchall()]
        before = await (
            await conn.execute("select h::text from work.hosts h order by id")
        ).fetchall()
        ask = PageClaim(n=9, skipped_hosts=skipped)
        packs = await chunks.claim_all(conn, [(me, ask) for me in both], now=NOW + SOON)
        assert sorted(host for pack in packs for host in hosts_of(pack)) == HOSTS[6:]
        again = await chunks.claim_links(conn, both[0], ask, now=NOW + 100 * SOON)
        assert again is None
        after = await (
            await conn.execute("select h::text from work.hosts h order by id")
        ).fetchall()
        assert after[:6] == before[:6], "a skipped host keeps its place in the queue"


async def test_each_gets_a_chunk_of_its_own_of_other_hosts(database: str) -> None:
    await admit(database, *(page for host in HOSTS for page in pages(host, 9)))
    async with crawlers(database, 4, 1) as (conn, all_of_them):
        asks = [
            PageClaim(),
            PageClaim(n=8, width=8, depth=1),
            PageClaim(n=2, lease=timedelta(hours=1)),
            PageClaim(),
        ]
        asked = list(zip(all_of_them, asks, strict=True))
        packs = await chunks.claim_all(conn, asked, now=NOW + SOON)
        sizes = [len(pack.pages) if pack else 0 for pack in packs]
        assert sizes == [5, 0, 2, 5], "there are not eight hosts left for the second"
        given = [page for pack in packs if pack for page in names(pack.pages)]
        assert len(given) == len(set(given)) == 12
        hosts = [host for pack in packs for host in hosts_of(pack)]
        assert len(hosts) == len(set(hosts)) == 3
        found = {pack.chunk_id: me for pack, me in zip(packs, all_of_them, strict=True) if pack}
        assert await owners(conn) == found
        rows = await conn.execute(
            "select count(*) from work.guestbook g join work.hosts h using (domain64) "
            "where g.state = 'crawling' and h.ready_at < %s",
            [NOW + 3 * SOON],
        )
        assert await rows.fetchall() == [(0,)], "every host rests for each of its pages"
        leases = await conn.execute("select lease_until - claimed_at from work.chunk order by id")
        minutes = [lease.total_seconds() / 60 for (lease,) in await leases.fetchall()]
        assert minutes == [5, 60, 5]
        alone = await chunks.claim_links(conn, all_of_them[1], asks[1], now=NOW + 100 * SOON)
        assert hosts_of(alone) == set(HOSTS)


async def test_what_is_too_little_for_one_is_left_for_the_next(database: str) -> None:
    await admit(database, *pages("a.com", 3))
    async with crawlers(database, 3, 0) as (conn, (one, two, three)):
        strict, any_ = PageClaim(wait=timedelta(days=9)), PageClaim(n=3)
        asked = [(one, strict), (two, any_), (three, any_)]
        packs = await chunks.claim_all(conn, asked, now=NOW + SOON)
        assert [hosts_of(pack) for pack in packs] == [set(), {"a.com"}, set()]


async def test_nobody_who_comes_later_gets_less_than_was_asked_for(database: str) -> None:
    """Nor waits for long: alone it gets what there is."""
    await admit(database, *pages("a.com", 5), *pages("b.com", 3))
    async with crawlers(database, 2, 0) as (conn, (one, two)):
        await conn.execute("update work.hosts set claim_at = %s where name = 'b.com'", [NOW])
        await conn.execute("update work.hosts set claim_at = %s where name = 'a.com'", [NOW - SOON])
        asked = [(one, PageClaim(wait=NONE)), (two, PageClaim(wait=NONE))]
        first, second = await chunks.claim_all(conn, asked, now=NOW + SOON)
        assert (hosts_of(first), second) == ({"a.com"}, None)
        tail = await chunks.claim_links(conn, two, PageClaim(wait=NONE), now=NOW + SOON)
        assert tail
        assert names(tail.pages) == pages("b.com", 3)


async def test_hosts_of_one_group_are_never_given_to_two(database: str) -> None:
    await admit(database, *(page for host in HOSTS for page in pages(host, 5)))
    async with crawlers(database, 8, 1) as (conn, all_of_them):
        await conn.execute("insert into work.politeness_group (name) values ('shared')")
        await conn.execute(
            "update work.hosts set politeness_group_id = (select id from work.politeness_group) where name <> 'h7.com'"
        )
        asked = [(me, PageClaim(wait=NONE)) for me in all_of_them]
        packs = await chunks.claim_all(conn, asked, now=NOW)
        served = [hosts_of(pack) for pack in packs if pack]
        assert len(served) == 2
        assert {"h7.com"} in served


async def test_who_holds_a_host_holds_it_alone(database: str) -> None:
    await admit(database, *(page for host in HOSTS[:2] for page in pages(host, 5)))
    async with crawlers(database, 2, 1) as (conn, (one, two)):
        asked = [(one, PageClaim(hold=True)), (two, PageClaim())]
        packs = await chunks.claim_all(conn, asked, now=NOW + SOON)
        rows = await conn.execute("select name, held_by from work.hosts order by name")
        held = dict(await rows.fetchall())
        assert packs[0]
        assert {name for name, chunk in held.items() if chunk == packs[0].chunk_id} == hosts_of(
            packs[0]
        )
        assert {name for name, chunk in held.items() if chunk is None} == hosts_of(packs[1])


async def test_those_who_want_the_same_are_served_host_by_host(database: str) -> None:
    await admit(database, *(page for host in HOSTS for page in pages(host, 4)))
    async with crawlers(database, 2, 1) as (conn, all_of_them):
        await in_turn(conn, HOSTS)
        ask = PageClaim(n=5, width=3, depth=2)  # two hosts give two pages and a third gives one
        packs = await chunks.claim_all(conn, [(me, ask) for me in all_of_them], now=NOW + SOON)
        given = [names(pack.pages) if pack else [] for pack in packs]
        for some, hosts in zip(given, (HOSTS[:3], HOSTS[3:6]), strict=True):
            first, second, third = (pages(host, 4) for host in hosts)
            assert sorted(some) == sorted([*first[:2], *second[:2], third[0]])
        rows = await conn.execute(
            "select extract(epoch from claim_at - %s)::integer from work.hosts order by name",
            [NOW + SOON],
        )
        rests = [rest for (rest,) in await rows.fetchall()]
        assert rests[:6] == [2, 2, 1, 2, 2, 1]
        assert max(rests[6:]) < 0


async def test_hosts_that_have_too_few_are_made_up_for_by_others(database: str) -> None:
    few = [page for host in HOSTS[:3] for page in pages(host, 1)]
    await admit(database, *few, *(page for host in HOSTS[3:] for page in pages(host, 5)))
    async with crawlers(database, 3, 0) as (conn, all_of_them):
        await in_turn(conn, HOSTS)
        asked = [(me, PageClaim(width=5)) for me in all_of_them]
        packs = await chunks.claim_all(conn, asked, now=NOW + SOON)
        assert [len(pack.pages) if pack else 0 for pack in packs] == [5, 5, 5]
        given = [page for pack in packs if pack for page in names(pack.pages)]
        assert len(set(given)) == 15
        assert set(few) < set(given)
        asked = [(me, PageClaim(width=1)) for me in all_of_them]
        packs = await chunks.claim_all(conn, asked, now=NOW + 2 * SOON)
        assert [len(pack.pages) if pack else 0 for pack in packs] == [5, 5, 0]


async def test_pages_that_others_change_meanwhile_are_claimed_as_they_are(database: str) -> None:
    """Where a page was found is where it is written, unless it has moved."""
    await admit(database, *(page for host in HOSTS for page in pages(host, 60)))
    async with crawlers(database, 4, 0) as (conn, all_of_them):

        async def unsettle(done: asyncio.Event) -> None:
            async with await connect(database) as other:
                for number in itertools.count():
                    if done.is_set():
                        return
                    await other.execute(
                        "update work.guestbook set next_fetch = next_fetch + interval '1 s' where id in "
                        "(select id from work.guestbook where state = 'pending' and id %% 7 = %s "
                        "order by id for update)",
                        [number % 7],
                    )

        async def claim(me: int) -> list[str]:
            given: list[str] = []
            async with await connect(database) as own:
                for _ in range(12):
                    packs = await chunks.claim_all(own, [(me, PageClaim())] * 2, now=NOW + SOON)
                    for pack in packs:
                        # Fewer than five where the others have the last pages locked.
                        assert pack is None or 1 <= len(pack.pages) <= 5
                        given += names(pack.pages) if pack else []
            return given

        done = asyncio.Event()
        noise = [asyncio.create_task(unsettle(done)) for _ in range(2)]
        found = await asyncio.gather(*(claim(me) for me in all_of_them))
        done.set()
        await asyncio.gather(*noise)
        given = [page for some in found for page in some]
        while pack := (
            await chunks.claim_all(conn, [(all_of_them[0], PageClaim())], now=NOW + SOON)
        )[0]:
            given += names(pack.pages)
        assert len(given) == len(set(given)) == 60 * len(HOSTS), "none was lost or given twice"
        rows = await conn.execute("select count(*) from work.guestbook where state = 'crawling'")
        assert await rows.fetchall() == [(len(given),)]


async def in_turn(conn: Connection, hosts: list[str]) -> None:
    """The first has waited longest."""
    for place, host in enumerate(hosts):
        since = NOW - timedelta(hours=1) + timedelta(seconds=place)
        await conn.execute("update work.hosts set claim_at = %s where name = %s", [since, host])


# -- those who wait


async def test_one_host_is_enough_for_all_who_ask_at_once(database: str) -> None:
    many = 3 * MAX_CLAIMS_PER_STATEMENT
    await admit(database, *pages("a.com", 2 * many))
    async with crawlers(database, many, 0) as (conn, all_of_them), Database(database) as db:
        claims = ClaimBatcher(db)
        packs = await asyncio.gather(*(claims.claim(me, PageClaim(n=2)) for me in all_of_them))
        given = [page for pack in packs if pack for page in names(pack.pages)]
        assert sorted(given) == sorted(pages("a.com", 2 * many))
        assert sorted((await owners(conn)).values()) == sorted(all_of_them)
        assert await claims.claim(all_of_them[0], PageClaim(n=2)) is None


async def test_a_large_chunk_keeps_nobody_waiting(database: str) -> None:
    await admit(database, *pages("a.com", MAX_BATCHED_PAGES + 1), *pages("b.com", 5))
    async with crawlers(database, 2, 0) as (conn, (one, two)), Database(database) as db:
        await conn.execute("update work.hosts set claim_at = %s where name = 'a.com'", [NOW - SOON])
        claims = ClaimBatcher(db)
        async with await connect(database) as other, other.transaction():
            # Its chunk cannot be written as long as no row may refer to its crawler.
            await other.execute("select from work.component where id = %s for update", [one])
            large = asyncio.create_task(claims.claim(one, PageClaim(n=MAX_BATCHED_PAGES + 1)))
            while not await blocked(conn):  # noqa: ASYNC110 - it happens in the server
                await asyncio.sleep(0.01)
            assert hosts_of(await claims.claim(two, PageClaim())) == {"b.com"}
            assert not large.done()
        assert hosts_of(await large) == {"a.com"}


async def blocked(conn: Connection) -> bool:
    rows = await conn.execute(
        "select from pg_locks l join pg_stat_activity a using (pid) "
        "where not l.granted and a.datname = current_database()"
    )
    return bool(await rows.fetchall())


async def test_the_fault_of_one_is_not_that_of_others(database: str) -> None:
    await admit(database, *(page for host in HOSTS for page in pages(host, 5)))
    async with crawlers(database, 4, 0) as (_, all_of_them), Database(database) as db:
        claims = ClaimBatcher(db)
        askers = [*all_of_them, UNKNOWN_CRAWLER]
        told = await asyncio.gather(
            *(claims.claim(me, PageClaim()) for me in askers), return_exceptions=True
        )
        assert [isinstance(one, ClaimedChunk) for one in told] == [True] * 4 + [False]
        assert isinstance(told[-1], psycopg.IntegrityError)


@pytest.mark.parametrize("staying", [0, 2])
async def test_who_does_not_wait_any_more_gets_nothing(database: str, staying: int) -> None:
    await admit(database, *(page for host in HOSTS for page in pages(host, 5)))
    async with crawlers(database, 8, 0) as (conn, all_of_them), Database(database) as db:
        claims = ClaimBatcher(db)
        tasks = [asyncio.create_task(claims.claim(me, PageClaim())) for me in all_of_them]
        await asyncio.sleep(0)  # all wait, none is served
        for task in tasks[staying:]:
            task.cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, ClaimedChunk) for one in told] == [at < staying for at in range(8)]
        assert await claims.claim(all_of_them[7], PageClaim())
        assert len(await owners(conn)) == staying + 1


async def test_all_hear_that_the_database_is_away(database: str) -> None:
    async with crawlers(database, 1, 0), Database(database, patience=0.5) as db:
        claims = ClaimBatcher(db)
    told = await asyncio.gather(
        *(claims.claim(me, PageClaim()) for me in (1, 2, 3)), return_exceptions=True
    )
    assert all(isinstance(one, Exception) for one in told)
    with pytest.raises((Unreachable, psycopg.Error)):
        await claims.claim(1, PageClaim())
