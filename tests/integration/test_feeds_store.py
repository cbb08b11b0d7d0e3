"""Saving feeds: no item is lost, duplicated or re-dated; numbers in names are the ancestor's defects."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from support.feeds.samples import JSON, XML
from usher.db.pool import Connection
from usher.feeds.model import (
    Author,
    Caption,
    Category,
    Credit,
    Enclosure,
    Feed,
    FeedLink,
    GeoPoint,
    Image,
    Item,
    Rating,
    Restriction,
    Thumbnail,
)
from usher.feeds.parse.parser import parse
from usher.feeds.poll.interval import publishing_interval
from usher.feeds.store.save_feed import CacheValidators, SaveResult, item_times, save_feed
from usher.telemetry import DB_SECONDS

URL = "https://news.example/rss"
ID = 41
NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
TABLES = "select tablename from pg_tables where schemaname = 'feeds' and tablename <> 'schema_migrations'"


def feed_of(*items: Item, **more: object) -> Feed:
    return replace(
        Feed("rss20", "utf-8", title="News", link="https://news.example/"), items=items, **more
    )


async def saved(conn: Connection, *items: Item, now: datetime = NOW) -> SaveResult:
    return await save_feed(conn, URL, feed_of(*items), CacheValidators(), id_=ID, now=now)


async def rows(conn: Connection, query: str) -> list[tuple[object, ...]]:
    return await (await conn.execute(query.encode())).fetchall()


async def census(conn: Connection) -> dict[str, int]:
    """How many rows each table has."""
    found = {}
    for (name,) in await rows(conn, TABLES):
        [(number,)] = await rows(conn, f"select count(*) from feeds.{name}")
        assert isinstance(number, int)
        found[str(name)] = number
    return found


async def titles(conn: Connection) -> list[object]:
    return [title for (title,) in await rows(conn, "select title from feeds.feed_item order by id")]


@pytest.mark.parametrize("body", [*XML.values(), JSON])
async def test_saving_a_feed_three_times_changes_nothing(conn: Connection, body: bytes) -> None:
    """Defects 34, 37, 38, 39: the second poll of the same feed doubled rows or failed."""
    feed = parse(body, url=URL, now=NOW)
    assert isinstance(feed, Feed)
    first = await save_feed(conn, URL, feed, CacheValidators(), id_=ID, now=NOW)
    assert len(first.new) == len(feed.items)
    before = await census(conn)
    dates = await rows(conn, "select id, pub_date, mod_date from feeds.feed_item order by id")
    for _ in range(2):
        again = await save_feed(conn, URL, feed, CacheValidators(), id_=ID, now=LATER)
        assert (again.new, again.changed, again.unchanged) == ([], [], len(feed.items))
    assert await census(conn) == before
    assert (
        await rows(conn, "select id, pub_date, mod_date from feeds.feed_item order by id") == dates
    )


@pytest.mark.seed("002.45")
async def test_content_is_kept_and_the_clean_text_survives_32(conn: Connection) -> None:
    await saved(conn, Item(guid="1", title="a", summary="short", content="<p>long</p>"))
    await conn.execute(
        "update feeds.feed_item set content_clean = 'long', content_clean_html = 'x'"
    )
    await saved(conn, Item(guid="1", title="b", summary="short", content="<p>long</p>"), now=LATER)
    found = await rows(
        conn, "select title, content, content_clean, content_clean_html from feeds.feed_item"
    )
    assert found == [("b", "<p>long</p>", "long", "x")]


@pytest.mark.seed("002.48", "002.49")
async def test_dates_do_not_drift_33(conn: Connection) -> None:
    await saved(conn, Item(guid="1", title="a"), Item(guid="2", pub_date=NOW - timedelta(days=9)))
    await saved(conn, Item(guid="1", title="b"), Item(guid="2"), now=LATER)
    found = await rows(
        conn, "select pub_date, mod_date, fetch_date from feeds.feed_item order by id"
    )
    assert found == [(NOW, LATER, NOW), (NOW - timedelta(days=9), LATER, NOW)]


async def test_dates_in_the_future_count_as_of_when_the_item_was_first_seen(
    conn: Connection,
) -> None:
    """A feed that dates its items in the future must not keep them on top of every list."""
    future = NOW + timedelta(days=4000)
    await saved(conn, Item(guid="1", title="a", pub_date=future), Item(guid="2", pub_date=NOW))
    query = "select pub_date from feeds.feed_item order by id"
    assert await rows(conn, query) == [(NOW,), (NOW,)]
    await saved(conn, Item(guid="1", title="b", pub_date=future), now=LATER)
    assert await rows(conn, query) == [(NOW,), (NOW,)], (
        "a change must not bring it to the top again"
    )
    await saved(conn, Item(guid="1", title="c", pub_date=LATER), now=LATER)
    assert await rows(conn, query) == [(LATER,), (NOW,)], "a date that has come counts"


async def test_item_times_use_the_time_of_the_first_poll(conn: Connection) -> None:
    """A feed that dates its news wrongly is polled by what arrives, not by what the dates say."""
    old = NOW - timedelta(days=3650)
    hour = timedelta(hours=1)
    await saved(conn, *(Item(guid=f"first-{n}", pub_date=old - n * hour) for n in range(60)))
    first = (await item_times(conn, [ID]))[ID]
    assert first == [old - n * hour for n in range(50)], "of the first document the dates count"
    for n in range(1, 11):
        await saved(conn, Item(guid=f"late-{n}", pub_date=old - n * hour), now=NOW + n * hour)
    late = (await item_times(conn, [ID]))[ID]
    assert late[:10] == [NOW + n * hour for n in range(10, 0, -1)]
    assert set(late[10:]) == {NOW}, "and then those of the first document count no longer"
    assert publishing_interval(late, NOW + 10 * hour) == hour
    minute = timedelta(minutes=1)
    now = NOW + 11 * hour
    await saved(
        conn, Item(guid="x", pub_date=now - minute), Item(guid="y", title="no date"), now=now
    )
    assert (await item_times(conn, [ID]))[ID][:2] == [now, now - minute], "a credible date counts"
    assert await item_times(conn, [ID + 1]) == {ID + 1: []}


@pytest.mark.seed("002.42")
@pytest.mark.parametrize(
    "item",
    [
        Item(title="neither guid nor link", summary="x"),
        Item(link="https://news.example/1", title="no guid"),
        Item(guid="g", link="https://news.example/1"),
        Item(),
    ],
)
async def test_an_item_without_guid_is_one_34(conn: Connection, item: Item) -> None:
    for hour in range(3):
        await saved(conn, item, now=NOW + timedelta(hours=hour))
    assert await rows(conn, "select pub_date, mod_date from feeds.feed_item") == [(NOW, NOW)]


async def test_a_changed_item_without_guid_is_known_by_its_link_34(conn: Connection) -> None:
    await saved(conn, Item(link="https://news.example/1", title="a"))
    again = await saved(conn, Item(link="https://news.example/1", title="b"), now=LATER)
    assert len(again.changed) == 1
    assert await titles(conn) == ["b"]


async def test_an_item_that_gains_or_loses_its_guid_stays_the_same(conn: Connection) -> None:
    link = "https://news.example/1"
    first = await saved(conn, Item(link=link, title="a"))
    gained = await saved(conn, Item(guid="g", link=link, title="a"))
    lost = await saved(conn, Item(link=link, title="b"))
    assert first.new == gained.changed == lost.changed


async def test_items_of_one_link_and_different_guids_are_different(conn: Connection) -> None:
    link = "https://news.example/log"
    await saved(conn, Item(guid="1", link=link, title="a"), Item(guid="2", link=link, title="b"))
    await saved(conn, Item(guid="3", link=link, title="c"), Item(guid="1", link=link, title="a"))
    assert await titles(conn) == ["a", "b", "c"]


async def test_a_link_that_all_items_share_identifies_none(conn: Connection) -> None:
    home = "https://news.example/"
    for shared in (home, "https://news.example/all"):
        await saved(conn, *(Item(link=shared, title=f"{shared}{number}") for number in range(3)))
        again = await saved(conn, Item(link=shared, title=f"{shared}0"))
        assert again.unchanged == 1 or shared != home
    assert len(await titles(conn)) == 6


async def test_a_guid_that_all_items_share_identifies_none(conn: Connection) -> None:
    items = [Item(guid="same", link=f"https://news.example/{n}", title=str(n)) for n in range(3)]
    await saved(conn, *items)
    again = await saved(conn, *items)
    assert again.unchanged == 3
    alone = await saved(conn, items[1])
    assert alone.unchanged == 1


async def test_the_same_item_twice_in_a_document_is_reported(conn: Connection) -> None:
    one = Item(guid="1", link="https://news.example/1", title="a")
    stored = await saved(conn, one, one)
    assert len(stored.new) == 1
    assert stored.problems == ["It has 'a' more than once; the first was kept."]


async def test_long_and_odd_texts_35_50(conn: Connection) -> None:
    long = "https://news.example/" + "x" * 5_000
    item = Item(
        guid="g" * 300_000,
        link=long,
        title="\N{GRINNING FACE}\0" + "t" * 100_000,
        links=(FeedLink(long),),
        authors=(Author("n" * 10_000, "e" * 10_000),),
        categories=(Category("c" * 10_000),),
        enclosures=(Enclosure(long, length=10**30, width=10**12),),
    )
    for _ in range(2):
        await saved(conn, item)
    [(title, size)] = await rows(
        conn,
        "select i.title, filesize from feeds.feed_item i join feeds.enclosure e on e.feed_item_id = i.id",
    )
    assert str(title).startswith("\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}t")
    assert size == 2**63 - 1


async def test_missing_numbers_stay_null(conn: Connection) -> None:
    medium = Enclosure("https://news.example/a.mp3", thumbnails=(Thumbnail("https://a.example/"),))
    thumbnail = Thumbnail("https://b.example/", height=7)
    await saved(conn, Item(guid="1", enclosures=(medium,), thumbnails=(thumbnail,)))
    assert await rows(conn, "select comments_count from feeds.feed_item") == [(None,)]
    media = "select filesize, duration, width, height from feeds.enclosure"
    assert await rows(conn, media) == [(None,) * 4]
    small = await rows(conn, "select width, height from feeds.thumbnail order by url")
    assert small == [(None, None), (None, 7)]


async def test_places_stay_where_they_are_36(conn: Connection) -> None:
    await saved(
        conn, Item(guid="1", places=(GeoPoint(60, 20),)), Item(guid="2", places=(GeoPoint(10, 10),))
    )
    await saved(conn, Item(guid="3", places=(GeoPoint(60, 20, "Åland"),)))
    found = await rows(conn, "select latitude, longitude, name from feeds.geo order by 1, 3")
    assert found == [(10.0, 10.0, ""), (60.0, 20.0, ""), (60.0, 20.0, "Åland")]


async def test_authors_and_ratings_are_shared_37(conn: Connection) -> None:
    ann, rating = Author("Ann", "a@example"), Rating("urn:simple", "adult")
    await saved(conn, Item(guid="1", authors=(ann,), ratings=(rating,)))
    moved = replace(ann, href="https://ann.example/")
    await saved(
        conn, Item(guid="1", authors=(moved,), ratings=(rating,)), Item(guid="2", ratings=(rating,))
    )
    found = await rows(
        conn,
        "select a.link from feeds.feed_item2author x join feeds.author a on a.id = x.author_id",
    )
    assert found == [("https://ann.example/",)]
    assert await rows(conn, "select count(*) from feeds.feed_item2rating") == [(2,)]


def film(**more: object) -> Enclosure:
    film = Enclosure(
        "https://news.example/1.mp4",
        frame_rate=29.97,
        thumbnails=(Thumbnail("https://news.example/1.png"),),
        credits=(Credit("Ann", "director"),),
        captions=(Caption("Hello", start=1.5),),
        restrictions=(Restriction("nl de", "allow", "country"),),
        ratings=(Rating("urn:simple", "adult"),),
        categories=(Category("k", keyword=True), Category("c")),
    )
    return replace(film, **more)


@pytest.mark.seed("002.38")
async def test_media_are_kept_once_and_keep_their_numbers_38_39(conn: Connection) -> None:
    await saved(conn, Item(guid="1", enclosures=(film(), film())))
    before = await census(conn)
    assert before["enclosure"] == before["enclosure_caption"] == before["thumbnail"] == 1
    [number] = await rows(conn, "select id from feeds.enclosure")
    await saved(conn, Item(guid="1", title="other", enclosures=(film(title="Film"),)), now=LATER)
    assert await census(conn) == before
    found = await rows(
        conn, "select id, title, frame_rate, pub_date, mod_date from feeds.enclosure"
    )
    assert found == [(*number, "Film", 29.97, NOW, LATER)]
    kinds = await rows(conn, "select type, term from feeds.category order by 1")
    assert kinds == [("c", "c"), ("k", "k")]


async def test_details_that_an_item_lost_are_deleted_40(conn: Connection) -> None:
    full = Item(
        guid="1",
        links=(FeedLink("https://a.example/"), FeedLink("https://b.example/", "via")),
        authors=(Author("Ann"), Author("Ben", role="contributor")),
        categories=(Category("x"), Category("y")),
        enclosures=(film(), Enclosure("https://news.example/2.mp3")),
        places=(GeoPoint(1, 2),),
        thumbnails=(Thumbnail("https://news.example/t.png"),),
    )
    await saved(conn, full)
    less = replace(full, links=full.links[1:], authors=(), categories=full.categories[:1])
    await saved(conn, replace(less, enclosures=full.enclosures[1:], thumbnails=()))
    found = await census(conn)
    assert found["feed_item_link"] == found["feed_item2category"] == found["enclosure"] == 1
    assert found["feed_item2author"] == found["thumbnail"] == found["enclosure_credit"] == 0
    assert found["enclosure2category"] == found["enclosure2rating"] == 0


async def test_a_bad_item_is_reported_and_the_others_stored_43(conn: Connection) -> None:
    bad = Item(guid="bad", title="a \ud800 half")
    items = [Item(guid=str(number), title=str(number)) for number in range(9)]
    stored = await saved(conn, *items[:4], bad, *items[4:])
    assert len(stored.new) == 9
    assert "Could not store the item" in stored.problems[0]
    assert await rows(conn, "select problems[1] from feeds.feed") == [(stored.problems[0],)]


async def test_what_the_ancestor_never_filled_45(conn: Connection) -> None:
    feed = feed_of(
        Item(guid="1"),
        images=(Image("https://news.example/i.png"), Image("https://news.example/f.ico", "icon")),
        authors=(Author("Ann"), Author("Ben", role="contributor")),
    )
    stamp = CacheValidators('"e"', "Mon, 06 Sep 2021 10:00:00 GMT")
    await save_feed(conn, URL, feed, stamp, id_=ID, now=NOW)
    found = await rows(conn, "select favicon, etag, lastmod from feeds.feed")
    assert found == [("https://news.example/f.ico", '"e"', "Mon, 06 Sep 2021 10:00:00 GMT")]
    assert await rows(conn, "select type from feeds.feed2author order by 1") == [("a",), ("c",)]
    assert (await census(conn))["feed_image"] == 2


async def test_changed_fields_of_the_feed_are_stored_44(conn: Connection) -> None:
    linked = feed_of(links=(FeedLink("https://x.example/"),))
    await save_feed(conn, URL, linked, CacheValidators(), id_=ID, now=NOW)
    await save_feed(conn, URL, feed_of(title="Old News"), CacheValidators(), id_=ID, now=LATER)
    found = await rows(conn, "select title, first_date, mod_date from feeds.feed")
    assert found == [("Old News", NOW, LATER)]
    assert (await census(conn))["feed_link"] == 0


async def test_a_count_of_comments_is_no_change_44(conn: Connection) -> None:
    await saved(conn, Item(guid="1", comments_count=1))
    again = await saved(conn, Item(guid="1", comments_count=2), now=LATER)
    assert again.unchanged == 1


def statements_run() -> float:
    return sum(
        sample.value
        for metric in DB_SECONDS.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    )


async def test_a_thousand_items_take_a_handful_of_statements_49(conn: Connection) -> None:
    before = statements_run()
    items = [Item(guid=str(n), categories=(Category(str(n % 7)),)) for n in range(1_000)]
    await saved(conn, *items)
    assert 5 < statements_run() - before < 12
    assert (await census(conn))["feed_item2category"] == 1_000
    assert (await census(conn))["category"] == 7


@pytest.mark.seed("002.52")
async def test_urns_are_given_once(conn: Connection) -> None:
    await saved(conn, Item(guid="1", enclosures=(film(),)), Item(guid="2"))
    assert await rows(conn, "select * from multimatch.name_all()") == [(1, 2, 1)]
    assert await rows(conn, "select * from multimatch.name_all()") == [(0, 0, 0)]
    found = await rows(conn, "select feed_item_urn, wrapper_urn from multimatch.enclosure")
    assert all(str(urn).startswith("urn:multimatch:cached:text_xml:") for urn in found[0])
    assert len(await rows(conn, "select from multimatch.feed_item where feed_urn is not null")) == 2
    assert await rows(conn, "select title from multimatch.feed") == [("News",)]
