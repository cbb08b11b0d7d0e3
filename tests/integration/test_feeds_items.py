"""Finds items by words, feed, tag and date, and one item with all its details."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from usher.db.pool import Connection
from usher.db.statements import Statement
from usher.errors import BadInput, NotFound
from usher.feeds.items import full_pages, search
from usher.feeds.items.search import (
    ItemSummary,
    find_item,
    find_items,
    parse_position,
)
from usher.feeds.model import Author, Category, Enclosure, Feed, Item
from usher.feeds.opml import Subscription
from usher.feeds.store import item_texts, subscriptions
from usher.feeds.store.save_feed import CacheValidators, SaveResult, save_feed

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
LONG = " ".join(f"word{number}" for number in range(60))


async def subscribed(conn: Connection, url: str, *given: Item, tags: tuple[str, ...] = ()) -> int:
    """A subscription with these items, all of whose words are known."""
    made = await subscriptions.add(conn, [Subscription(url, tags=tags)], now=NOW)
    stored = await stored_in(conn, url, *given)
    [id_] = made.values()
    await subscriptions.link_feed(conn, id_, stored.feed_id)
    return id_


async def stored_in(conn: Connection, url: str, *given: Item) -> SaveResult:
    feed = replace(Feed("rss20", "utf-8", title=f"Feed {url}", link=f"{url}/"), items=given)
    [(id_,)] = await (
        await conn.execute("select id from feeds.feed_metadata where url = %s", [url])
    ).fetchall()
    stored = await save_feed(conn, url, feed, CacheValidators(), id_=id_, now=NOW)
    await item_texts.digest_items(conn, await item_texts.undigested(conn, stored.feed_id))
    return stored


def item(name: str, hours: int = 0, **more: Any) -> Item:  # noqa: ANN401 - of an item
    fields = {"guid": name, "title": name, "link": f"https://e.org/{name}", **more}
    return Item(pub_date=NOW - hours * HOUR, **fields)


def titles(found: list[ItemSummary]) -> list[str]:
    return [one.title for one in found]


async def test_the_newest_first_a_page_at_a_time(conn: Connection) -> None:
    same = [item(f"same{number}", 5) for number in range(3)]
    await subscribed(conn, "https://a.org", item("old", 9), *same, item("new", 1))
    everything = titles(await find_items(conn))
    assert everything == ["new", "same2", "same1", "same0", "old"]
    seen: list[ItemSummary] = []
    while page := await find_items(
        conn, after=parse_position(seen[-1].place) if seen else None, limit=2
    ):
        seen += page
    assert titles(seen) == everything


async def test_by_date(conn: Connection) -> None:
    await subscribed(conn, "https://a.org", *(item(str(hours), hours) for hours in range(5)))
    found = await find_items(conn, since=NOW - 3 * HOUR, until=NOW - HOUR)
    assert titles(found) == ["3", "2"][::-1]
    last = await find_items(conn, until=NOW - HOUR, after=(NOW - 2 * HOUR, 0))
    assert titles(last) == ["3", "4"]
    assert await find_items(conn, until=NOW - 9 * HOUR) == []


async def test_by_feed_and_tag(conn: Connection) -> None:
    cats = (Category("Cats"), Category("cats", scheme="https://c.org"))
    first = await subscribed(
        conn, "https://a.org", item("a1", 1, categories=cats), item("a2", 2), tags=("news",)
    )
    second = await subscribed(conn, "https://b.org", item("b1", 0, categories=cats), item("b2", 3))
    assert titles(await find_items(conn, feed=first)) == ["a1", "a2"]
    assert titles(await find_items(conn, tag="news")) == ["a1", "a2"]
    assert titles(await find_items(conn, tag="CATS")) == ["b1", "a1"]
    assert titles(await find_items(conn, tag="cats", feed=second)) == ["b1"]
    assert titles(await find_items(conn, tag="news", feed=first)) == ["a1", "a2"]
    assert titles(await find_items(conn, tag="news", feed=second)) == []
    assert titles(await find_items(conn, tag="cats", limit=1)) == ["b1"]
    assert await find_items(conn, tag="dogs") == []
    assert await find_items(conn, feed=999_999) == []
    [shown, _] = await find_items(conn, tag="news")
    assert shown.tags == ["news", "Cats", "cats"]
    assert (shown.feed, shown.feed_title) == (first, "Feed https://a.org")


async def test_by_words(conn: Connection) -> None:
    first = await subscribed(
        conn,
        "https://a.org",
        item("Velvet seats", 3, content="<p>The <b>row</b> of chairs</p><script>evil()</script>"),
        item("Two", 2, summary="A row of velvet", categories=(Category("Row"),)),
        item("Grüße &amp; Küsse", 1, title_type="text/html", content="plain & simple"),
    )
    assert titles(await find_items(conn, words="velvet")) == ["Two", "Velvet seats"]
    assert titles(await find_items(conn, words="ROW velvet")) == ["Two", "Velvet seats"]
    assert titles(await find_items(conn, words='"row of chairs"')) == ["Velvet seats"]
    assert titles(await find_items(conn, words="velvet -chairs")) == ["Two"]
    assert titles(await find_items(conn, words="chairs or küsse")) == [
        "Grüße &amp; Küsse",
        "Velvet seats",
    ]
    assert titles(await find_items(conn, words="velvet", tag="row", feed=first)) == ["Two"]
    assert titles(await find_items(conn, words="velvet", until=NOW - 2 * HOUR)) == ["Velvet seats"]
    for nothing in ("evil", "amp", "zebra", "&|!", "'; drop table", "\0"):
        assert nothing == "\0" or await find_items(conn, words=nothing) == []


async def test_what_changed_is_found_by_its_new_words(conn: Connection) -> None:
    await subscribed(conn, "https://a.org", item("x", content="before"))
    await stored_in(conn, "https://a.org", item("x", content="behind"))
    assert await find_items(conn, words="before") == []
    assert titles(await find_items(conn, words="behind")) == ["x"]


async def test_texts_that_are_too_much_for_an_index_are_found_by_their_beginning(
    conn: Connection,
) -> None:
    many = " ".join(chr(0x4E00 + number % 20_000) + str(number) for number in range(400_000))
    huge = "x" * 3_000_000
    await subscribed(conn, "https://a.org", item("many", content=many), item("huge", content=huge))
    assert titles(await find_items(conn, words="huge")) == ["huge"]
    assert titles(await find_items(conn, words="many 丐16")) == ["many"] or await find_items(
        conn, words="many"
    )


async def test_one_item_with_all_its_details(conn: Connection) -> None:
    given = item(
        "whole",
        content="<p>x</p>",
        authors=(Author("Ann", "a@e.org", ""),),
        categories=(Category("Cats"),),
        enclosures=(Enclosure("https://e.org/1.mp3", type="audio/mpeg"),),
    )
    await subscribed(conn, "https://a.org", given)
    [found] = await find_items(conn)
    await full_pages.want_pages(conn, [found.id], now=NOW)
    whole = await find_item(conn, found.id)
    assert whole.item == found
    rest = whole.details
    assert (rest.content, rest.page, rest.cleaned, rest.copies) == ("<p>x</p>", False, False, [])
    assert [one["name"] for one in rest.authors] == ["Ann"]
    assert [one["term"] for one in rest.categories] == ["Cats"]
    assert [one["mime"] for one in rest.media] == ["audio/mpeg"]
    assert rest.fetched
    assert rest.fetched["state"] == "wanted"
    with pytest.raises(NotFound):
        await find_item(conn, found.id + 1)


@pytest.mark.parametrize("text", ["", "x", "1~", "9" * 18 + "~1", "1~" + "9" * 19, "1~1\n", "٣~1"])
def test_invalid_positions_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_position(text)


FILL = """
    insert into feeds.feed (url, first_date, mod_date) select 'u' || n, now(), now() from generate_series(1, 200) n;
    insert into feeds.feed_item (
        feed_id, key, link_key, hash, permalink, link, title, title_type, summary, summary_type, content, content_type,
        pub_date, mod_date, fetch_date, copyright, language, image, knocked, digested, cleaned
    )
    select f.id, md5(f.id || ' ' || n)::uuid, md5('l' || n)::uuid, md5('')::uuid, false, 'l', 't', '', '', '', '', '',
        now() - random() * interval '1 year', now(), now(), '', '', '', true, md5('')::uuid, md5('')::uuid
    from feeds.feed f, generate_series(1, 100) n;
    insert into feeds.feed_metadata (url, feed_id, added_at, tags)
    select url, id, now(), case when id % 50 = 0 then array['news'] else '{}' end from feeds.feed;
    insert into feeds.category (term, scheme, label, type)
    select 'term' || n, '', '', 'c' from generate_series(1, 1000) n;
    insert into feeds.feed_item2category
    select i.id, c.id from feeds.feed_item i join feeds.category c on c.id % 1000 = i.id % 1000;
    insert into feeds.feed_item_text (item_id, words, simhash)
    select id, to_tsvector('simple', 'all w' || id % 1000), hashint8extended(id, 0) from feeds.feed_item;
    insert into feeds.feed_item_page (item_id, feed_id, state, next_at)
    select id, feed_id, case when id % 100 = 0 then 'wanted' else 'fetched' end, now() from feeds.feed_item;
    select gin_clean_pending_list('feeds.feed_item_text_words');
    analyze feeds.feed, feeds.feed_item, feeds.feed_metadata, feeds.category, feeds.feed_item2category,
        feeds.feed_item_text, feeds.feed_item_page;
"""
PAGE = {"before": "infinity", "before_id": 1, "since": "-infinity", "copies": True, "n": 50}
NONE = {"feed": None, "tag": ""}
HOT: dict[str, tuple[Statement, dict[str, Any]]] = {
    "latest": (search.store.latest, PAGE),
    "of_feed": (search.store.of_feed, {**PAGE, "feed": 7, "tag": ""}),
    "tagged": (search.store.tagged, {**PAGE, "tag": "news"}),
    "in a category": (search.store.tagged, {**PAGE, "tag": "term7"}),
    "matching": (search.store.matching, {**PAGE, **NONE, "words": "w7"}),
    "matching of a feed": (
        search.store.matching,
        {**PAGE, "feed": 7, "tag": "news", "words": "w7"},
    ),
    "shown": (search.store.item_summaries, {"ids": [1, 2, 3], "excerpt": 100}),
    "one": (search.store.item_details, {"id": 7}),
    "undigested": (item_texts.store.undigested, {"feed": 7, "n": 100, "most": 1000}),
    "digest": (
        item_texts.store.digest_items,
        {
            "ids": [1],
            "hashes": "{}",
            "versions": ["1"],
            "titles": ["x"],
            "bodies": ["x"],
            "simhashes": [1],
        },
    ),
    "mark_copies": (item_texts.store.mark_copies, {"ids": [1, 2], "near": 3, "most": 1000}),
    "wanted": (full_pages.store.wanted_pages, {"feed": 7, "n": 10}),
    "tally": (full_pages.store.page_counts, {"feed": 7}),
    "want": (full_pages.store.want_pages, {"ids": [1], "now": NOW}),
    "put_error": (
        full_pages.store.save_page_error,
        {"id": 1, "state": "wanted", "status": 1, "error": "", "next_at": NOW, "now": NOW},
    ),
}


@pytest.mark.soak
async def test_statements_use_indexes_with_many_rows(conn: Connection) -> None:
    for statement in FILL.split(";\n"):
        if statement.strip():
            await conn.execute(statement.encode())
    [(first,)] = await (await conn.execute("select min(id) from feeds.feed")).fetchall()
    for name, (hot, given) in HOT.items():
        real = {**given, "feed": first + 6} if given.get("feed") else given
        plan = await conn.execute(b"explain " + hot.query, real)
        lines = "\n".join(line for (line,) in await plan.fetchall())
        assert "Index" in lines, name
        scans = re.findall(r"Seq Scan on (?!feed_metadata|feed\b|author|geo|rating)\w+", lines)
        assert not scans, f"{name}\n{lines}"
