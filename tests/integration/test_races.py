"""Races in the work area, each forced: one connection is held at the critical point while another works."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from support.db.concurrent import blocked, in_transaction
from support.db.invariants import violations
from support.mgmt.admitted_pages import NONE, NOW, url
from support.mgmt.compaction import LATER, House
from support.mgmt.index_servers import fail
from usher.db.pool import Connection, connect
from usher.door.guestbook import FetchReport
from usher.mgmt import chunk_pages, chunks, missing_chunks, page_versions, placements
from usher.mgmt.chunks import ClaimedChunk, PageClaim
from usher.mgmt.missing_chunks import MissingFile

DAY = timedelta(days=1)
SIX_HOURS = timedelta(hours=6)
FIRST, SECOND = "https://a.com/first", "https://a.com/second"


@pytest.fixture
async def house(conn: Connection) -> House:
    return await House.of_mgmt(conn)


@pytest.fixture
async def shared(database: str) -> AsyncIterator[House]:
    """A house in a database of its own, for tests with two connections."""
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        yield house


async def check(conn: Connection) -> None:
    assert await violations(conn) == []


# -- chunks that are lost


async def lose_crawl(house: House, chunk: int, *, crawled: bool = True) -> None:
    """The chunk's content will not come: it waits to be built (`crawled`), or is being crawled."""
    assert await chunks.fail_crawls(house.conn, [chunk], why="gone", now=NOW, crawled=crawled) == [
        chunk
    ]
    await check(house.conn)


async def page_state(house: House, path: str) -> tuple[str, int | None]:
    [row] = await house.ask("select state, indexed_in from work.guestbook where path = %s", path)
    return row[0], row[1]


async def claim(house: House, *paths: str) -> ClaimedChunk:
    await house.run(
        "update work.guestbook set state = 'pending', admitted_at = now() where path = any(%s)",
        [*paths],
    )
    await house.run(
        "update work.hosts set claim_at = '-infinity', ready_at = '-infinity', crawl_started = %s",
        NOW,
    )
    ask = PageClaim(len(paths), wait=NONE)
    pack = await chunks.claim_links(house.conn, house.crawler, ask, now=NOW)
    assert pack
    return pack


async def report(
    house: House,
    pack: ClaimedChunk,
    path: str,
    status: int = 200,
    *,
    etag: str = "x",
    text: int = 1,
) -> str:
    """Report one page alone; the state it is in then."""
    page = await chunk_pages.find_page(house.conn, url(f"https://a.com{path}"))
    assert page
    outcome = FetchReport(
        page.domain64, path, "success" if status == 200 else "unchanged", pack.chunk_id, status,
        content_sha1=etag, etag=etag, text64=text,
    )  # fmt: skip
    [settled] = await chunks.report(house.conn, [outcome], now=NOW)
    return settled.state


async def test_a_page_reported_before_its_chunk_was_lost_is_crawled_again(house: House) -> None:
    pack = await claim(house, "/0", "/1")
    await report(house, pack, "/0")
    await lose_crawl(house, pack.chunk_id, crawled=False)
    assert await page_state(house, "/0") == ("pending", None)
    again = await claim(house, "/0")
    assert [(page.etag, page.text64) for page in again.pages] == [(None, None)]


async def test_a_page_reported_without_details_is_crawled_again(house: House) -> None:
    pack = await claim(house, "/0", "/1")
    page = await chunk_pages.find_page(house.conn, url("https://a.com/0"))
    assert page
    untold = FetchReport(page.domain64, "/0", "unchanged", pack.chunk_id)
    await chunks.report(house.conn, [untold], now=NOW)
    await lose_crawl(house, pack.chunk_id, crawled=False)
    assert await page_state(house, "/0") == ("pending", None)


async def test_a_page_that_waits_again_forgets_the_chunk_that_is_lost(house: House) -> None:
    chunk = await house.fetch("/0")
    await house.run(
        "update work.guestbook set state = 'pending', admitted_at = now() where path = '/0'"
    )
    await lose_crawl(house, chunk)
    assert await page_state(house, "/0") == ("pending", None)


async def test_unchanged_does_not_settle_a_page_whose_copy_was_lost_meanwhile(house: House) -> None:
    older = await house.crawl("/0")
    lost = await claim(house, "/0")
    await report(house, lost, "/0", etag="new", text=2)
    await chunks.finish_crawl(
        house.conn, house.crawler, lost.chunk_id, sha256=None, size=None, now=NOW
    )
    again = await claim(house, "/0")
    assert [page.etag for page in again.pages] == ["new"]
    await lose_crawl(house, lost.chunk_id)
    assert await page_state(house, "/0") == ("crawling", older)
    await house.run("update work.hosts set claim_at = 'infinity'")
    assert await report(house, again, "/0", 304) == "pending"
    await check(house.conn)
    once_more = await claim(house, "/0")
    assert [(page.etag, page.text64) for page in once_more.pages] == [(None, None)]
    assert await report(house, once_more, "/0", 304) == "crawled", "only once"


async def test_a_page_keeps_the_copy_it_had_before_the_lost_one(house: House) -> None:
    older = await house.crawl("/0")
    pack = await claim(house, "/0", "/1")
    await report(house, pack, "/0", etag="new")
    await lose_crawl(house, pack.chunk_id, crawled=False)
    assert await page_state(house, "/0") == ("pending", older)
    again = await claim(house, "/0")
    assert [page.etag for page in again.pages] == [None], "the older copy is not what that names"


async def test_a_lost_copy_is_never_replaced_by_one_that_was_lost_before(house: House) -> None:
    first = await house.fetch("/0")
    second = await house.fetch("/0")
    await lose_crawl(house, first)
    await lose_crawl(house, second)
    assert await page_state(house, "/0") == ("pending", None)


async def test_a_copy_that_is_being_lost_is_not_taken_back(shared: House, database: str) -> None:
    first = await shared.fetch("/0")
    second = await shared.fetch("/0")
    async with await connect(database) as other:
        async with shared.conn.transaction():
            await lose_crawl(shared, first)
            losing = asyncio.create_task(
                in_transaction(
                    other,
                    chunks.fail_crawls(other, [second], why="gone", now=NOW, crawled=True),
                )
            )
            await blocked(losing, shared.conn)
        assert await losing == [second]
    assert await page_state(shared, "/0") == ("pending", None)
    await check(shared.conn)


# -- content that is lost beside a build


async def test_content_that_is_lost_while_its_build_ends_is_not_needed(
    shared: House, database: str
) -> None:
    chunk = await shared.fetch("/0")
    assert await shared.claim() == [chunk]
    async with await connect(database) as watchdog:
        async with shared.conn.transaction():
            assert await shared.built(chunk)
            losing = asyncio.create_task(
                in_transaction(
                    watchdog, chunks.recrawl(watchdog, shared.crawler, why="gone", now=NOW, n=9)
                )
            )
            await blocked(losing, shared.conn)
        assert await losing == []
    assert (await shared.states())[chunk] == "built"
    await shared.load(chunk)
    await check(shared.conn)


async def test_a_build_that_ends_while_its_content_is_lost_is_refused(
    shared: House, database: str
) -> None:
    chunk = await shared.fetch("/0")
    assert await shared.claim() == [chunk]
    async with await connect(database) as watchdog:
        async with watchdog.transaction():
            lost = await chunks.recrawl(watchdog, shared.crawler, why="gone", now=NOW, n=9)
            assert lost == [chunk]
            building = asyncio.create_task(shared.built(chunk))
            await blocked(building, watchdog)
        assert await building is False
    await check(shared.conn)


async def test_compaction_goes_on_after_builder_and_crawler_are_gone(house: House) -> None:
    sparse = await house.sparse()
    chunk = await house.crawl("/30", rows=())
    assert await chunks.rebuild(house.conn, house.builder, why="gone") == [chunk]
    assert await chunks.recrawl(house.conn, house.crawler, why="gone", now=NOW, n=9) == [chunk]
    await check(house.conn)
    [begun] = (await house.compact(LATER)).begun
    assert begun.sources == sparse


async def test_a_server_that_returns_with_a_lost_chunk_drops_it(house: House) -> None:
    chunk = await house.crawl("/0", rows=(0,))
    await fail(house.conn, house.servers[0], NOW - DAY)
    losses = [MissingFile(chunk, "it is not there")]
    became = await missing_chunks.lose_indexes(house.conn, house.servers[1], losses, now=NOW)
    assert became == {chunk: "build"}
    assert await chunks.recrawl(house.conn, house.crawler, why="gone", now=NOW, n=9) == [chunk]
    await check(house.conn)
    assert await placements.returned(house.conn, house.servers[0], {chunk}, now=NOW) == [chunk]


# -- pages that were held back


async def gone(house: House, *, held_back: bool) -> tuple[int, list[str]]:
    """Most pages of a host are gone, too many to disappear unseen; the chunk they were in, and the pages."""
    paths = [f"/{n}" for n in range(20)]
    chunk = await house.crawl(*paths)
    empty = await house.fetch(*paths, result="gone", status=410)
    assert await house.claim() == [empty]
    assert await house.built(empty)
    if held_back:
        assert set((await page_versions.judge(house.conn, n=100, now=NOW)).values()) == {False}
    return chunk, paths


@pytest.mark.parametrize("held_back", [True, False])
async def test_old_copies_of_pages_that_return_are_taken_out(
    house: House, *, held_back: bool
) -> None:
    old, paths = await gone(house, held_back=held_back)
    await house.crawl(*paths[:2])
    await page_versions.judge(house.conn, n=100, now=NOW)
    assert await house.retire(0) == [(old, path) for path in paths[:2]]
    [(number,)] = await house.ask("select domain64 from work.hosts")
    assert await page_versions.held_back(house.conn, number) == 18


async def test_a_page_that_returned_and_is_lost_has_its_old_copy(house: House) -> None:
    old, paths = await gone(house, held_back=True)
    chunk = await house.fetch(paths[0])
    await lose_crawl(house, chunk)
    assert await page_state(house, paths[0]) == ("pending", old)
    assert await house.retire(0) == []
