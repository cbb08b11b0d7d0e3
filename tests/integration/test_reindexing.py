"""Pages whose anchors changed much are indexed again from their index chunks, a bounded number at a time."""

from datetime import datetime, timedelta

import pytest

from support.mgmt.admitted_pages import NOW
from support.mgmt.compaction import LATER, House, paths
from usher.db.pool import Connection
from usher.messages.builder import AnchorCount
from usher.mgmt import anchors, compaction, compaction_merge, reindexing
from usher.mgmt.anchors import LinkedText
from usher.mgmt.compaction import MAX_OPEN_MERGES, MAX_SOURCES_PER_CHUNK, MERGE_TIMEOUT, MergedChunk
from usher.mgmt.reindexing import MAX_WAIT, MIN_PAGES, WAITING_INTERVAL, DuePage, plan
from usher.mgmt.watchdog import ANCHOR_CHECK_INTERVAL, Watchdog

SOON = NOW + timedelta(hours=3)


class Linked(House):
    """Pages of a.com that link to each other."""

    async def link(self, text: str, linked: str, *linking: str) -> None:
        [(number,)] = await self.ask("select domain64 from work.hosts")
        links = [LinkedText(number, linked, number, path, text) for path in linking]
        await anchors.add_anchors(self.conn, links, now=NOW)
        await anchors.check_all_anchors(self.conn, now=NOW)

    async def reindex(self, now: datetime = SOON, *, by_hand: bool = False) -> MergedChunk | None:
        async with self.conn.transaction():
            return await reindexing.reindex(self.conn, now=now, by_hand=by_hand)

    async def page(self, path: str) -> tuple[int, int, datetime | None]:
        [found] = await self.ask(
            "select work.inlinks(id), indexed_inlinks, reindex_at from work.guestbook "
            "left join work.anchored_page on id = page_id where path = %s",
            path,
        )
        return found[0], found[1], found[2]

    async def finish(self, merge: MergedChunk) -> None:
        """Claimed, built and loaded."""
        assert await self.claim() == [merge.chunk_id]
        await compaction_merge.manifest(self.conn, [merge.chunk_id])
        await anchors.page_links(self.conn, [merge.chunk_id])
        assert await self.built(merge.chunk_id)
        await self.load(merge.chunk_id)


@pytest.fixture
async def linked(conn: Connection) -> Linked:
    return await Linked.of_mgmt(conn)


async def test_a_builder_is_told_what_links_say(linked: Linked) -> None:
    await linked.link("lighthouse", "/0", "/10", "/11", "/12")
    await linked.link("tower", "/0", "/10")
    await linked.run("update work.guestbook set depth = 2 where path = '/0'")
    chunk = await linked.fetch("/0", "/1")
    assert await linked.claim(compact=False) == [chunk]
    [page, other] = (await anchors.page_links(linked.conn, [chunk]))[chunk]
    assert (page.key, page.depth, page.inlinks) == ("a.com/0", 2, 3)
    assert page.anchors == [AnchorCount("lighthouse", 3), AnchorCount("tower", 1)]
    assert (other.key, other.depth, other.inlinks, other.anchors) == ("a.com/1", 0, 0, [])
    assert await linked.page("/0") == (3, 3, None)
    assert await linked.reindex(by_hand=True) is None


async def test_a_page_is_indexed_again_when_its_linking_pages_doubled(linked: Linked) -> None:
    await linked.link("lighthouse", "/0", "/10", "/11")
    chunk = await linked.crawl("/0", "/1", "/2", "/3")
    await anchors.page_links(linked.conn, [chunk])
    await linked.link("lighthouse", "/0", "/12")
    assert await linked.page("/0") == (3, 2, None)
    await linked.link("lighthouse", "/0", "/13")
    assert await linked.page("/0") == (4, 2, NOW + anchors.REINDEX_PAUSE)
    assert await linked.reindex(NOW) is None
    merge = await linked.reindex()
    assert merge
    assert (merge.sources, merge.pages) == ([chunk], 1)
    await linked.finish(merge)
    assert await linked.indexed("/0") == {merge.chunk_id}
    assert await linked.indexed("/1", "/2", "/3") == {chunk}
    assert await linked.page("/0") == (4, 4, None)
    assert await linked.retire(0) == [(chunk, "/0")]
    assert await linked.reindex() is None
    assert (await linked.compact()).made == [merge.chunk_id]


async def test_a_page_waits_until_its_chunk_is_in_every_row(linked: Linked) -> None:
    chunk = await linked.crawl("/0", rows=[0])
    await linked.link("lighthouse", "/0", "/10")
    assert await linked.reindex() is None  # a row lacks a chunk
    await linked.load(chunk, [1])
    await linked.run("update work.chunk set propagated_at = null")
    assert await linked.reindex() is None
    assert (await linked.page("/0"))[2] == SOON + WAITING_INTERVAL
    await linked.run("update work.chunk set propagated_at = now()")
    assert await linked.reindex() is None
    assert await linked.reindex(SOON + 2 * MAX_WAIT)


async def test_a_page_without_a_text_gets_its_anchors_with_its_next_visit(linked: Linked) -> None:
    await linked.link("lighthouse", "/0", "/10")
    assert await linked.reindex() is None
    assert (await linked.page("/0"))[2] is None
    chunk = await linked.fetch("/0")
    [page] = (await anchors.page_links(linked.conn, [chunk]))[chunk]
    assert page.anchors == [AnchorCount("lighthouse", 1)]


async def test_a_page_that_was_crawled_again_meanwhile_stays_where_it_is(linked: Linked) -> None:
    await linked.crawl("/0", "/1")
    await linked.link("lighthouse", "/0", "/10")
    await linked.link("tower", "/1", "/10")
    merge = await linked.reindex()
    assert merge
    assert await linked.claim() == [merge.chunk_id]
    await compaction_merge.manifest(linked.conn, [merge.chunk_id])
    new = await linked.fetch("/0")
    assert await linked.built(merge.chunk_id)
    assert await linked.indexed("/0") == {new}
    assert await linked.indexed("/1") == {merge.chunk_id}


async def test_pages_of_a_merge_that_failed_are_due_again_a_day_later(linked: Linked) -> None:
    await linked.crawl("/0")
    await linked.link("lighthouse", "/0", "/10")
    merge = await linked.reindex()
    assert merge
    assert await linked.reindex(SOON + timedelta(hours=2)) is None
    later = SOON + MERGE_TIMEOUT + timedelta(hours=2)
    assert (await linked.compact(later)).given_up == [merge.chunk_id]
    again = await linked.reindex(later)
    assert again
    assert again.sources == merge.sources


async def test_compaction_brings_new_anchors_and_merges_small_chunks(linked: Linked) -> None:
    await linked.crawl("/0", "/1", "/2", "/3")
    await linked.crawl("/4", "/5", "/6", "/7")
    small = []
    for number, path in enumerate(("/0", "/4")):
        await linked.link("lighthouse", path, "/10")
        merge = await linked.reindex(SOON + timedelta(minutes=number))
        assert merge
        await linked.finish(merge)
        small.append(merge.chunk_id)
    for row in (0, 1):
        await linked.retire(row)
    await linked.run("update work.compaction_candidate set check_at = '-infinity'")
    [merge] = (await linked.compact(LATER)).begun
    assert merge.sources == small


async def test_merges_are_shared_with_compaction(linked: Linked) -> None:
    for number in range(MAX_OPEN_MERGES + 1):
        await linked.crawl(*paths(number))
        await linked.link("lighthouse", paths(number)[0], "/39")
        begun = await linked.reindex()
        assert bool(begun) == (number < MAX_OPEN_MERGES)


def test_the_plan_is_bounded_and_waits_for_more() -> None:
    def due(number: int, chunk: int | None, at: datetime = NOW) -> DuePage:
        return DuePage(number, at, chunk, None if chunk is None else chunk > 0)

    few = [due(number, 1) for number in range(MIN_PAGES - 1)]
    assert plan(few, now=NOW) == ({}, {})
    assert plan(few, now=NOW, by_hand=True).sources == {1: list(range(MIN_PAGES - 1))}
    assert plan(few, now=NOW + MAX_WAIT).sources
    assert plan([*few, due(999, 2)], now=NOW).sources.keys() == {1, 2}
    scattered = [due(number, number + 1) for number in range(2 * MAX_SOURCES_PER_CHUNK)]
    sources, times = plan(scattered, now=NOW)
    assert len(sources) == len(times) == MAX_SOURCES_PER_CHUNK
    absent = [due(1, None), due(2, -1)]
    assert plan(absent, now=NOW) == ({}, {1: None, 2: NOW + WAITING_INTERVAL})


async def test_what_is_begun_by_hand_needs_no_pause(linked: Linked) -> None:
    await linked.crawl("/0")
    await linked.link("lighthouse", "/0", "/10")
    assert await linked.reindex(NOW, by_hand=True)
    [(reason,)] = await linked.ask("select reason from work.event where kind = 'reindexing'")
    assert reason.startswith("new anchors or templates for 1 pages of chunks ")
    assert await linked.ask(
        "select pages from work.compaction_candidate where pages = %s",
        compaction.PAGES_PER_MERGED_CHUNK,
    )


async def test_the_watchdog_checks_all_anchors_now_and_then(linked: Linked) -> None:
    watchdog = Watchdog("")
    await linked.crawl("/0")
    await watchdog.reindex(linked.conn, NOW)
    [(number,)] = await linked.ask("select domain64 from work.hosts")
    link = LinkedText(number, "/0", number, "/10", "lighthouse")
    await anchors.add_anchors(linked.conn, [link], now=NOW)
    await watchdog.reindex(linked.conn, NOW + ANCHOR_CHECK_INTERVAL / 2)
    assert (await linked.page("/0"))[2] is None
    checked = NOW + ANCHOR_CHECK_INTERVAL
    await watchdog.reindex(linked.conn, checked)
    due = checked + anchors.REINDEX_PAUSE
    assert (await linked.page("/0"))[2] == due
    await watchdog.reindex(linked.conn, due)
    assert await linked.ask("select from work.chunk_source") == []
    await watchdog.reindex(linked.conn, due + MAX_WAIT)
    assert len(await linked.ask("select from work.chunk_source")) == 1
