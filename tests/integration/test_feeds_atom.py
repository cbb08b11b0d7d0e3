"""Searches as Atom feeds, which our parser and feedparser read back unchanged."""

import string
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import feedparser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.db.fixtures import Server, clone
from support.feeds.stored_feeds import HOSTILE, fill
from support.index.rows import Rows, library, running_front_end
from support.mgmt.mgmt_process import Mgmt, Reply, mgmt
from usher.feeds.model import Feed
from usher.feeds.pages import atom
from usher.feeds.pages.messages import ItemList, ItemRow, ItemsQuery
from usher.feeds.parse.parser import parse
from usher.http.atom import ATOM_MEDIA_TYPE, AtomEntry, AtomFeed, AtomLink, stable_urn, to_xml
from usher.http.client.pool import HttpPool

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
SPACE = "{http://www.w3.org/2005/Atom}"
ANY = st.text(alphabet=st.characters(), max_size=60)


def read(body: bytes) -> Feed:
    """As each of three parsers reads it, without a complaint from any; as ours has it."""
    ET.fromstring(body)  # noqa: S314 - our own
    theirs = feedparser.parse(body)
    assert not theirs.bozo, theirs.get("bozo_exception")
    assert theirs.version == "atom10"
    ours = parse(
        body, url="http://a.example/", content_type=ATOM_MEDIA_TYPE, now=max(NOW, datetime.now(UTC))
    )
    assert isinstance(ours, Feed), ours
    assert ours.problems == ()
    assert len(ours.items) == len(theirs.entries)
    return ours


def check(body: bytes) -> None:
    """What RFC 4287 asks of a feed, and of each of its entries."""
    root = ET.fromstring(body)  # noqa: S314 - our own
    assert root.tag == f"{SPACE}feed"
    for element in (root, *root.findall(f"{SPACE}entry")):
        for child in ("id", "title", "updated"):
            assert len(element.findall(f"{SPACE}{child}")) == 1
        assert element.findtext(f"{SPACE}id", "").startswith("urn:uuid:")
        stamp = element.findtext(f"{SPACE}updated", "")
        assert stamp.endswith("Z")
        assert datetime.fromisoformat(stamp).tzinfo is not None
        alternates = [
            one for one in element.findall(f"{SPACE}link") if one.get("rel") == "alternate"
        ]
        keys = [(one.get("type"), one.get("hreflang")) for one in alternates]
        assert len(keys) == len(set(keys))
        assert alternates or element.find(f"{SPACE}content") is not None
    assert root.find(f"{SPACE}author/{SPACE}name") is not None
    ids = [one.text for one in root.iter(f"{SPACE}id")]
    assert len(ids) == len(set(ids))


def row(id_: int = 1, **changed: object) -> ItemRow:
    usual: dict[str, object] = {
        "id": id_,
        "feed": 3,
        "feed_title": "News",
        "title": f"Title {id_}",
        "link": f"https://a.example/{id_}",
        "text": "Words.",
        "published": NOW,
        "changed": NOW + timedelta(hours=1),
        "seen": NOW,
        "language": "en",
        "tags": ["a"],
        "same_as": None,
    }
    return ItemRow(**{**usual, **changed})  # type: ignore[arg-type]


def made(*rows: ItemRow, query: ItemsQuery | None = None, after: str | None = None) -> bytes:
    found = ItemList(list(rows), after)
    return to_xml(atom.feed_of(found, query or ItemsQuery(), origin="http://a.example"))


def test_an_item_becomes_an_entry() -> None:
    body = made(row(1), row(2, link="javascript:x"), query=ItemsQuery(words="a b"), after="1~2")
    check(body)
    feed = read(body)
    assert feed.title == "a b"
    first, second = feed.items
    assert (first.title, first.link, first.summary or first.content) == (
        "Title 1",
        "https://a.example/1",
        "Words.",
    )
    assert (first.pub_date, first.updated) == (NOW, NOW + timedelta(hours=1))
    assert [one.term for one in first.categories] == ["a"]
    assert second.link == "http://a.example/items/2"
    links = {one.rel: one.href for one in feed.links}
    assert links["self"] == "http://a.example/items.atom?words=a+b"
    assert (
        links["next"] == "http://a.example/items.atom?words=a+b&after=1~2" or "%7E" in links["next"]
    )
    assert links["alternate"] == "http://a.example/items?words=a+b"


def test_ids_stay_the_same_when_texts_change() -> None:
    before, after = read(made(row(1))), read(made(row(1, title="Other", link="https://b.example/")))
    assert before.id == after.id
    assert before.items[0].guid == after.items[0].guid
    other = read(made(row(1, seen=NOW - timedelta(days=1))))
    assert other.items[0].guid != before.items[0].guid
    assert read(made(query=ItemsQuery(tag="x"))).id != before.id
    assert read(made(row(1), query=ItemsQuery(after="1~1"))).id == before.id


@given(title=ANY, text=ANY, tag=ANY, link=ANY, feed=ANY, language=ANY)
@settings(max_examples=150)
def test_any_text_survives_a_round_trip(
    title: str, text: str, tag: str, link: str, feed: str, language: str
) -> None:
    body = made(
        row(
            title=title,
            text=text,
            tags=[tag, tag, ""],
            link=link,
            feed_title=feed,
            language=language,
        )
    )
    check(body)
    [item] = read(body).items
    whole = all(char in string.printable and char not in "\r\x0b\x0c" for char in title)
    if whole and title.strip() and "<" not in title and "&" not in title:
        assert item.title.split() == title.split()


@given(title=ANY, href=ANY, author=ANY)
@settings(max_examples=100)
def test_any_document_is_well_formed(title: str, href: str, author: str) -> None:
    one = AtomEntry(id=stable_urn(title), title=title, updated=NOW, authors=[author], text=href)
    document = AtomFeed(
        id=stable_urn("x"), title=title, links=[AtomLink(href, "self", href)], entries=[one]
    )
    ET.fromstring(to_xml(document))  # noqa: S314 - our own


def test_a_feed_without_entries_is_valid() -> None:
    body = made()
    check(body)
    assert read(body).items == ()


# As it is served.


@pytest.fixture(scope="module")
async def mgmt_and_feeds(
    migrated: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Mgmt, dict[str, int]]]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        feeds = await fill(dsn)
        with mgmt(dsn, tmp_path_factory.mktemp("mgmt") / "log") as running:
            yield running, feeds


def asked(server: Mgmt, path: str, **headers: str) -> Reply:
    return server.ask("GET", path, headers={key.replace("_", "-"): v for key, v in headers.items()})


def test_any_search_of_items_is_a_feed(mgmt_and_feeds: tuple[Mgmt, dict[str, int]]) -> None:
    server, feeds = mgmt_and_feeds
    for query, number in {
        "": 30,
        "?words=harbour": 7,
        f"?feed={feeds['quiet']}": 1,
        "?tag=sound": 1,
        f"?feed={feeds['hostile']}": len(HOSTILE) + 1,
        f"?tag={quote(HOSTILE[0])}": len(HOSTILE) + 1,
        "?words=zebra": 0,
    }.items():
        told = asked(server, f"/items.atom{query}")
        assert told.status == 200
        assert told.headers["content-type"].startswith(ATOM_MEDIA_TYPE)
        check(told.body)
        assert len(read(told.body).items) == number, query


def test_paging_through_a_feed_reaches_its_end(mgmt_and_feeds: tuple[Mgmt, dict[str, int]]) -> None:
    server, _ = mgmt_and_feeds
    path, guids, pages = "/items.atom?limit=15", list[str](), 0
    while path and pages < 10:
        feed = read(asked(server, path).body)
        guids += [one.guid for one in feed.items]
        pages += 1
        following = [one.href for one in feed.links if one.rel == "next"]
        path = following[0].removeprefix(server.address) if following else ""
    assert (len(guids), len(set(guids)), pages) == (39, 39, 3)


def test_an_unchanged_feed_returns_304(mgmt_and_feeds: tuple[Mgmt, dict[str, int]]) -> None:
    server, _ = mgmt_and_feeds
    first = asked(server, "/items.atom?words=harbour")
    tag, date = first.headers["etag"], first.headers["last-modified"]
    assert asked(server, "/items.atom?words=harbour", If_None_Match=tag).status == 304
    assert asked(server, "/items.atom?words=harbour", If_Modified_Since=date).status == 304
    old = "Mon, 01 Jan 2001 00:00:00 GMT"
    assert asked(server, "/items.atom?words=harbour", If_Modified_Since=old).status == 200
    both = asked(server, "/items.atom?words=harbour", If_None_Match='"x"', If_Modified_Since=date)
    assert both.status == 200
    for odd in ("soon", "Mon, 99 Jan 2001 00:00:00 GMT", '"'):
        assert asked(server, "/items.atom", If_Modified_Since=odd).status == 200


def test_links_start_with_the_host_of_the_request(
    mgmt_and_feeds: tuple[Mgmt, dict[str, int]],
) -> None:
    server, _ = mgmt_and_feeds
    told = asked(server, "/items.atom?limit=1", Host="localhost:1", X_Forwarded_Proto="https")
    links = {one.rel: one.href for one in read(told.body).links}
    assert links["self"] == "https://localhost:1/items.atom?limit=1"


# Searches of pages.


async def test_any_search_of_pages_is_a_feed(tmp_path: Path) -> None:
    async with Rows(tmp_path) as rows:
        await rows.rows(1, 2, library())
        async with running_front_end(rows, tmp_path) as address:
            lines = HttpPool("127.0.0.1", int(address.rpartition(":")[2]), timeout=20)
            host = {"Host": "127.0.0.1"}
            told = await lines.ask("GET", "/search.atom?q=velvet+theatre", b"", host)
            assert told.status == 200
            assert told.headers["content-type"].startswith(ATOM_MEDIA_TYPE)
            check(told.body)
            feed = read(told.body)
            assert (feed.title, len(feed.items)) == ("velvet theatre", 10)
            links = {one.rel: one.href for one in feed.links}
            assert links["next"] == "http://127.0.0.1/search.atom?q=velvet+theatre&page=2"
            again = await lines.ask("GET", "/search.atom?q=velvet+theatre&page=24", b"", host)
            assert "next" not in {one.rel for one in read(again.body).links}
            tag = {"If-None-Match": told.headers["etag"], **host}
            same = await lines.ask("GET", "/search.atom?q=velvet+theatre", b"", tag)
            assert same.status == 304
            for query in ("hostile", quote('"><script>'), "", "%00", "x" * 3000):
                odd = await lines.ask("GET", f"/search.atom?q={query}", b"", host)
                assert odd.status == 200
                check(odd.body)
                read(odd.body)
            page = await lines.ask("GET", "/search?q=velvet", b"", host)
            link = b'<link rel="alternate" type="application/atom+xml" title="velvet" href="/search.atom?q=velvet">'
            assert link in page.body
            lines.close()
