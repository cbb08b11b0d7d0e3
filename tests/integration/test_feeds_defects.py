"""Each of the ancestor's defects in feeds has a test that the ancestor would fail; here are those with no other home.

30 test_feeds_poll.test_first_poll_then_nothing_new_30, test_feeds_defects.test_slow_and_large_feeds_are_cut_30
31 test_feeds_poll.test_an_error_is_reported_and_cleared_31
32 test_feeds_store.test_content_is_kept_and_the_clean_text_survives_32,
   test_feeds_partial.test_no_poll_erases_a_page_32
33 test_feeds_store.test_dates_do_not_drift_33, test_feeds_defects.test_dates_follow_the_database_clock_33
34 test_feeds_store.test_an_item_without_guid_is_one_34,
   test_feeds_poll.test_many_polls_at_once_keep_each_item_once_34_43
35 test_feeds_store.test_long_and_odd_texts_35_50, test_feeds_defects.test_long_and_odd_texts_from_a_server_35_50
36 test_feeds_store.test_places_stay_where_they_are_36
37 test_feeds_store.test_authors_and_ratings_are_shared_37
38 test_feeds_store.test_media_are_kept_once_and_keep_their_numbers_38_39
39 test_feeds_store.test_media_are_kept_once_and_keep_their_numbers_38_39
40 test_feeds_store.test_details_that_an_item_lost_are_deleted_40
41 test_feeds_poll.test_an_html_page_instead_of_a_feed_deletes_nothing_41
42 test_feeds_partial.test_each_page_is_fetched_once_42
43 test_feeds_store.test_a_bad_item_is_reported_and_the_others_stored_43,
   test_feeds_defects.test_one_bad_item_from_a_server_43
44 test_feeds_store.test_changed_fields_of_the_feed_are_stored_44,
   test_feeds_copies.test_the_first_item_is_the_original_and_others_are_copies
45 test_feeds_store.test_what_the_ancestor_never_filled_45, test_feeds_defects.test_what_a_poll_fills_45
46 test_feeds_clean.test_the_threshold_of_the_feed_is_used_46
47 test_feeds_poll.test_an_item_whose_guid_is_its_only_address_knocks_47,
   test_feeds_defects.test_items_without_any_link_47
48 test_feeds_poll.test_changes_of_the_operator_during_a_poll_stay_48,
   test_feeds_defects.test_concurrent_polls_lose_nothing_48
49 test_feeds_store.test_a_thousand_items_take_a_handful_of_statements_49,
   test_feeds_defects.test_a_quiet_poll_is_cheap_49
50 test_feeds_store.test_long_and_odd_texts_35_50, test_feeds_defects.test_long_and_odd_texts_from_a_server_35_50
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.feeds.polling import ROLES, PollingSetup, polling_setup
from support.site.website import Response, Website, Wire
from usher import private_hosts
from usher.crawl.http.fetch import Fetcher, FetchLimits
from usher.db.pool import Database
from usher.feeds.poll.feed_poll import poll
from usher.feeds.poll.shared_statements import SharedStatements
from usher.feeds.store.databases import FeedDatabases
from usher.telemetry import DB_SECONDS

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n\r\n<rss version='2.0'><channel>"
EMOJI = "\N{GRINNING FACE} \N{MATHEMATICAL BOLD CAPITAL A}"
ATOM = "http://www.w3.org/2005/Atom"
SPACES = (
    "xmlns:media='http://search.yahoo.com/mrss/' xmlns:ev='http://purl.org/rss/1.0/modules/event/'"
)


@pytest.fixture
async def setup(database: str) -> AsyncIterator[PollingSetup]:
    async with polling_setup(database) as setup:
        yield setup


def feed(*items: str, about: str = "<title>News</title>") -> Response:
    text = f"<rss version='2.0' {SPACES}><channel>{about}{''.join(items)}</channel></rss>"
    return Response(text.encode(), content_type="application/rss+xml; charset=utf-8")


def test_every_defect_has_its_tests() -> None:
    there = {
        f"{file.stem}.{name}"
        for folder in ("integration", "unit")
        for file in Path(__file__).parents[1].glob(f"{folder}/test_feeds_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    named = re.findall(r"^(\d\d) (.+(?:\n   .+)?)$", __doc__ or "", re.MULTILINE)
    assert [int(number) for number, _ in named] == list(range(30, 51))
    assert {test for _, tests in named for test in re.split(r",\s+", tests)} <= there


async def test_slow_and_large_feeds_are_cut_30(database: str, site: Website) -> None:
    """The ancestor read on for as long, and as much, as the server sent; here 50 MB end at the limit."""

    async def endless() -> AsyncGenerator[bytes, None]:
        yield HEAD
        for _ in range(50):
            yield b" " * 1_000_000

    async def slow() -> AsyncGenerator[bytes, None]:
        yield HEAD
        await asyncio.sleep(20)

    limits = FetchLimits(total=1.0, body=2_000_000)
    fetcher = Fetcher("t", limits=limits, allow=private_hosts.parse_allow_list("127.0.0.0/8"))
    async with Database(database, role=ROLES[0]) as db, fetcher:
        setup = PollingSetup(FeedDatabases(db, None, ROLES, database, 5), fetcher)
        large = await setup.poll(await setup.add(site.add("/large", Wire(endless))))
        late = await setup.poll(await setup.add(site.add("/slow", Wire(slow))))
    assert (large.kind, late.kind) == ("failed", "failed")
    assert "longer than" in large.words
    assert all(one.sent < 30_000_000 for one in site.served)


async def test_dates_follow_the_database_clock_33(setup: PollingSetup, site: Website) -> None:
    """The ancestor took local time for UTC, and did not know `published`."""
    dates = (
        "<published>2026-11-01T12:00:00+02:00</published><updated>2026-11-02T00:00:00Z</updated>"
    )
    entry = f"<entry><id>urn:1</id>{dates}</entry>"
    atom = f"<feed xmlns='{ATOM}'><title>A</title><id>urn:a</id>{entry}</feed>"
    await setup.poll(await setup.add(site.add("/atom", Response(atom.encode()))))
    written = ("Sun, 01 Nov 2026 12:00:00 +0200", "Sun, 01 Nov 2026 05:00:00 EST")
    items = [
        f"<item><guid>{n}</guid><pubDate>{date}</pubDate></item>" for n, date in enumerate(written)
    ]
    await setup.poll(await setup.add(site.add("/rss", feed(*items))))
    found = await setup.ask("select distinct pub_date from feeds.feed_item")
    assert found == [(datetime(2026, 11, 1, 10, tzinfo=UTC),)]


async def test_long_and_odd_texts_from_a_server_35_50(setup: PollingSetup, site: Website) -> None:
    guid, link = "g" * 3_000, f"https://news.example/{'x' * 3_000}"
    item = f"<item><guid isPermaLink='false'>{guid}</guid><link>{link}</link><title>{EMOJI}</title></item>"
    id_ = await setup.add(site.add(f"/{'f' * 1_000}", feed(item, about=f"<title>{EMOJI}</title>")))
    assert [len((await setup.poll(id_)).new) for _ in range(2)] == [1, 0]
    found = await setup.ask(
        "select i.guid, i.link, i.title, f.title from feeds.feed_item i, feeds.feed f"
    )
    assert found == [(guid, link, EMOJI, EMOJI)]


async def test_one_bad_item_from_a_server_43(setup: PollingSetup, site: Website) -> None:
    """What the database refuses is found and named, and the others are kept with all that a poll writes besides."""
    await setup.run("alter table feeds.feed_item add constraint good check (title <> 'bad')")
    titles = ["a", "b", "bad", "c", "d"]
    items = [
        f"<item><guid>{n}</guid><title>{title}</title></item>" for n, title in enumerate(titles)
    ]
    id_ = await setup.add(site.add("/feed", feed(*items)))
    told = await setup.poll(id_)
    assert (told.kind, len(told.new)) == ("fresh", 4)
    assert "Could not store the item 'bad'" in told.problems[0]
    found = await setup.ask("select title from feeds.feed_item order by id")
    assert found == [("a",), ("b",), ("c",), ("d",)]
    assert await setup.ask("select new_items, polls from feeds.feed_poll") == [(4, 1)]
    assert (await setup.poll(id_)).kind == "same"


async def test_what_a_poll_fills_45(setup: PollingSetup, site: Website) -> None:
    item = """<item><guid>1</guid><media:content url='https://m.example/1' type='video/mp4'/>
        <media:keywords>k</media:keywords><ev:startdate>2026-12-01T10:00:00Z</ev:startdate></item>"""
    about = "<title>N</title><image><url>https://n.example/i.png</url></image>"
    await setup.poll(await setup.add(site.add("/feed", feed(item, about=about))))
    assert await setup.ask("select etag <> '', lastmod <> '' from feeds.feed") == [(True, True)]
    for table in ("feed_image", "feed_item_event"):
        assert await setup.ask(f"select count(*) from feeds.{table}") == [(1,)]
    assert await setup.ask("select mime from feeds.enclosure") == [("video/mp4",)]
    assert await setup.ask("select type, term from feeds.category") == [("k", "k")]


async def test_items_without_any_link_47(setup: PollingSetup, site: Website) -> None:
    items = [
        "<item><guid isPermaLink='false'>1</guid></item>",
        "<item><guid>https://n.example/2</guid></item>",
        "<item><link>https://n.example/3</link></item>",
        "<item><description>only words</description></item>",
    ]
    id_ = await setup.add(site.add("/feed", feed(*items)))
    assert [len((await setup.poll(id_)).new) for _ in range(2)] == [4, 0]
    found = await setup.ask("select link from feeds.feed_item order by id")
    assert found == [("",), ("https://n.example/2",), ("https://n.example/3",), ("",)]


async def test_concurrent_polls_lose_nothing_48(setup: PollingSetup, site: Website) -> None:
    """Each poll counts, also those that are written together."""
    ids = [
        await setup.add(site.add(f"/{n}", feed(f"<item><guid>{n}</guid></item>"))) for n in range(5)
    ]
    for id_ in ids:
        await setup.poll(id_)
    shared = SharedStatements(setup.databases)
    polls = [
        poll(setup.databases, setup.fetcher, id_, shared=shared, now=setup.now) for id_ in ids * 3
    ]
    told = await asyncio.gather(*polls)
    assert {one.kind for one in told} == {"same"}
    found = await setup.ask("select polls, unmodified, errors from feeds.feed_poll")
    assert found == [(4, 3, 0)] * 5
    [(wrong,)] = await setup.ask(
        """select count(*) from feeds.feed_poll p join feeds.feed_metadata m on m.id = p.metadata_id
        join control.task t on t.id = m.task_id where t.next_run <> p.next_at"""
    )
    assert wrong == 0


def statements_run() -> float:
    return sum(
        sample.value
        for metric in DB_SECONDS.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    )


async def test_a_quiet_poll_is_cheap_49(setup: PollingSetup, site: Website) -> None:
    """Twenty polls at once that bring nothing take fewer statements than twenty one after the other."""
    ids = [
        await setup.add(site.add(f"/{n}", feed(f"<item><guid>{n}</guid></item>")))
        for n in range(20)
    ]
    for id_ in ids:
        await setup.poll(id_)
    before = statements_run()
    await poll(setup.databases, setup.fetcher, ids[0], shared=SharedStatements(setup.databases))
    alone = statements_run() - before
    assert alone <= 12, alone
    shared, before = SharedStatements(setup.databases), statements_run()
    await asyncio.gather(*(poll(setup.databases, setup.fetcher, id_, shared=shared) for id_ in ids))
    assert statements_run() - before < alone * len(ids) / 2
