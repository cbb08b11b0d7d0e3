"""Feeds of every dialect give the same model, with the rules of the seed for their fields."""

from datetime import UTC, datetime, timedelta

import pytest

from support.feeds.samples import ATOM, JSON, PODCAST, RDF, RSS, RSS_WITH_EVENT, VIDEO
from usher.feeds.model import (
    Author,
    Caption,
    Category,
    Cloud,
    Credit,
    Feed,
    FeedLink,
    GeoPoint,
    Image,
    ItemEvent,
    Rating,
    Restriction,
    Thumbnail,
)
from usher.feeds.parse.parser import parse

URL = "https://f.example/dir/feed"
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def read(body: bytes, url: str = URL, content_type: str = "", language: str = "") -> Feed:
    feed = parse(body, url=url, content_type=content_type, language=language, now=NOW)
    assert isinstance(feed, Feed), feed
    return feed


def rss(inside: str, more: str = "") -> Feed:
    """A feed with one item."""
    return read(f'<rss version="2.0"{more}><channel><item>{inside}</item></channel></rss>'.encode())


def at(day: int, hour: int = 10, month: int = 9) -> datetime:
    return datetime(2021, month, day, hour, tzinfo=UTC)


def test_fields_of_an_rss_feed() -> None:
    feed = read(RSS)
    assert (feed.dialect, feed.encoding, feed.problems) == ("rss20", "utf-8", ())
    assert (feed.title, feed.subtitle, feed.link) == (
        "All & Sundry",
        "What happens",
        "https://news.example/",
    )
    assert (feed.language, feed.generator) == ("en-gb", "Pen 2")
    assert feed.copyright == "The News - https://cc.example/by"
    assert (feed.pub_date, feed.updated) == (at(6, 10), at(6, 11))
    assert feed.authors == (Author("Edith", "ed@news.example"),)
    assert feed.categories == (Category("World", "https://c.example/"),)
    assert feed.images == (
        Image(
            "https://f.example/logo.png",
            title="Logo",
            link="https://news.example/",
            width=88,
            height=31,
        ),
    )
    assert (feed.self_link, feed.hubs) == ("https://news.example/rss", ("https://hub.example/",))
    assert feed.cloud == Cloud("cloud.example", 80, "/RPC2", "notify", "xml-rpc")


def test_poll_hints_of_rss() -> None:
    hints = read(RSS).hints
    assert (hints.ttl, hints.period) == (timedelta(minutes=90), timedelta(hours=6))
    assert (sorted(hints.skip_hours), sorted(hints.skip_days)) == ([0, 5], [6])


@pytest.mark.seed("002.47")
def test_an_item_of_rss() -> None:
    item = read(RSS_WITH_EVENT).items[0]
    assert (item.guid, item.permalink, item.link) == ("n-1", False, "https://news.example/1")
    assert (item.title, item.language, item.pub_date) == ("First", "en-gb", at(6, 10))
    assert item.authors == (Author("Joe", "joe@news.example"), Author("Ann"))
    assert item.categories == (Category("A"), Category("B", "d"))
    assert (item.comments_url, item.comments_count) == ("https://news.example/1#c", 7)
    assert item.links == (
        FeedLink("https://news.example/1", "alternate", "text/html"),
        FeedLink("https://other.example/rss", "source", title="Other"),
        FeedLink("https://news.example/1/rss", "replies", "application/rss+xml"),
    )
    assert item.places == (GeoPoint(52.5, 13.4, "Berlin"),)
    assert item.events == (ItemEvent(at(1, 10, 10), at(1, 12, 10), "First", "Hall"),)
    (sound,) = item.enclosures
    assert (sound.url, sound.type, sound.length) == ("https://f.example/1.mp3", "audio/mpeg", 1234)


def test_links_in_html_are_seen_from_the_item() -> None:
    item = read(RSS).items[0]
    assert item.summary == 'Short <a href="https://news.example/rel">x</a>'
    assert item.content == (
        """<p>Long <img src="https://news.example/i.png"> <a href='https://x.example/'>x</a></p>"""
    )
    assert (item.summary_type, item.content_type) == ("text/html", "text/html")


def test_links_in_html_are_seen_from_xml_base_if_there_is_one() -> None:
    item = read(ATOM).items[0]
    assert item.content == (
        '<p class="x">Hi <br /><a href="https://blog.example/base/2">two</a> &amp; more</p>'
    )


@pytest.mark.parametrize(
    ("html", "seen"),
    [
        ('<a href="#n">', '<a href="https://e.org/d/p#n">'),
        ("<img src=x.png>", "<img src=https://e.org/d/x.png>"),
        ('<IMG SRC = "../x.png">', '<IMG SRC = "https://e.org/x.png">'),
        ("<a href='//h.org/x'>", "<a href='https://h.org/x'>"),
        ('<img srcset="a.png 1x, /b.png 2x">', '<img srcset="https://e.org/d/a.png 1x, https://e.org/b.png 2x">'),
        ('<a href="mailto:x@y">', '<a href="mailto:x@y">'),
        ('<a href="javascript:x()">', '<a href="javascript:x()">'),
        ('<a href="">', '<a href="">'),
        ('href="x"', 'href="x"'),
        ('<video poster="p.jpg"><source src="v.mp4">', '<video poster="https://e.org/d/p.jpg"><source src="https://e.org/d/v.mp4">'),
    ],
)  # fmt: skip
def test_each_kind_of_address_in_html(html: str, seen: str) -> None:
    text = html.replace("<", "&lt;").replace(">", "&gt;")
    feed = rss(f"<link>https://e.org/d/p</link><description>{text}</description>")
    assert feed.items[0].summary == seen


def test_items_without_guid_link_or_date_are_items() -> None:
    item = read(RSS).items[1]
    assert (item.guid, item.link, item.pub_date, item.summary) == ("", "", None, "only a text")


def test_a_guid_that_is_an_address_is_the_link_and_other_guids_are_not() -> None:
    item = read(RSS).items[2]
    assert (item.guid, item.permalink, item.link) == ("https://news.example/2", True, item.guid)
    assert (item.language, item.title) == ("de", "Second")
    assert rss("<guid>ep1</guid>").items[0].link == ""


def test_a_guid_stays_the_same_when_the_feed_moves() -> None:
    body = b"<rss version='2.0'><channel><item><guid>/x</guid></item></channel></rss>"
    here, there = (read(body, url=url).items[0] for url in (URL, "https://new.example/feed"))
    assert here.guid == there.guid == "/x"
    assert there.link == "https://new.example/x"


@pytest.mark.seed("002.44")
def test_the_summary_is_the_summary_or_the_content_whichever_comes_first() -> None:
    more = ' xmlns:content="http://purl.org/rss/1.0/modules/content/"'
    both = rss("<description>S</description><content:encoded>C</content:encoded>", more).items[0]
    assert (both.summary, both.content) == ("S", "C")
    turned = rss("<content:encoded>C</content:encoded><description>S</description>", more).items[0]
    assert (turned.summary, turned.content) == ("S", "C")
    only = rss("<content:encoded>C</content:encoded>", more).items[0]
    assert (only.summary, only.content) == ("C", "C")


def test_of_several_contents_the_longest_is_the_content() -> None:
    item = read(PODCAST).items[0]
    assert (item.summary, item.content) == ("About", "About it all at length")


def test_fields_of_an_atom_feed() -> None:
    feed = read(ATOM)
    assert (feed.dialect, feed.title, feed.subtitle) == ("atom10", "A &lt;b&gt; blog", "Words")
    assert (feed.link, feed.id) == ("https://blog.example/", "tag:blog.example,2021:/")
    assert (feed.language, feed.copyright) == ("en-US", "Mine - https://cc.example/")
    assert feed.images == (
        Image("https://blog.example/logo.svg", "logo"),
        Image("https://blog.example/favicon.ico", "icon"),
    )
    assert feed.authors == (
        Author("Ann", href="https://blog.example/ann"),
        Author("Bob", role="contributor"),
    )
    assert feed.categories == (Category("tech", "https://s.example/", "Technology"),)


@pytest.mark.seed("002.51")
def test_entries_of_atom() -> None:
    first, second = read(ATOM).items
    assert (first.pub_date, first.link) == (at(5, 8), "https://blog.example/base/1")
    assert first.updated == at(6).replace(microsecond=500_000)
    assert (first.title, first.title_type) == ("Plain &amp; simple", "text/plain")
    assert (first.comments_count, first.language) == (3, "en-US")
    assert first.authors == (Author("Cid", "cid@blog.example"),)
    assert [(one.url, one.length, one.title) for one in first.enclosures] == [
        ("https://blog.example/base/1.pdf", 99, "Paper")
    ]
    assert (second.language, second.summary, second.content) == ("fr", "bref", "<p>Salut</p>")
    assert (second.pub_date, second.link) == (at(6), "")  # its id is no address


@pytest.mark.seed("002.50")
def test_rdf() -> None:
    feed = read(RDF)
    (item,) = feed.items
    assert (feed.dialect, feed.title, feed.language) == ("rss10", "S", "nl")
    assert feed.images == (Image("https://s.example/i.png", title="S", link="https://s.example/"),)
    assert (item.guid, item.link, item.pub_date) == (
        "https://s.example/1",
        "https://s.example/1",
        at(6),
    )
    assert (item.copyright, item.language) == ("https://cc.example/", "nl")


def test_a_podcast() -> None:
    feed = read(PODCAST)
    (item,) = feed.items
    assert feed.subtitle == "Desc"  # though a summary comes before
    assert feed.authors == (Author("Ann"),)  # and not the owner
    assert feed.images == (Image("https://p.example/i.jpg"),)
    assert feed.moved_to == "https://new.example/rss"
    assert [one.term for one in feed.categories if one.keyword] == ["k1", "k2"]
    assert (feed.ratings, item.ratings) == (
        (Rating("urn:itunes", "false"),),
        (Rating("urn:itunes", "yes"),),
    )
    (sound,) = item.enclosures
    assert (sound.duration, sound.length) == (3723, 12_345_678_901)  # more than 4 GiB
    assert item.image == "https://f.example/ep1.jpg"
    assert item.categories == (Category("a", keyword=True), Category("b", keyword=True))


def test_media_inherit_elements_of_their_group_and_item() -> None:
    (item,) = read(VIDEO).items
    whole, part = item.enclosures
    assert (whole.url, whole.medium, whole.duration) == ("https://v.example/v/1", "video", 61)
    assert (whole.bit_rate, whole.frame_rate, whole.channels) == (128.5, 29.97, 2)
    assert (whole.title, whole.copyright, whole.copyright_url) == (
        "Film",
        "2021",
        "https://v.example/c",
    )
    assert whole.thumbnails == (Thumbnail("https://v.example/t.jpg", 480, 360, 43501.123),)
    assert whole.captions == (Caption("Hello", "plain", "en", 10.0, 20.0),)
    assert whole.restrictions == (Restriction("au us", "deny", "country"),)
    assert whole.credits == (Credit("All", "owner", "urn:ebu"),)
    assert whole.ratings == (Rating("urn:simple", "nonadult"),)
    assert part.credits == (Credit("Sue", "actor", "urn:ebu"),)
    assert part.thumbnails == (Thumbnail("https://f.example/t2.jpg"),)
    assert (item.title, item.summary) == ("Film", "What it shows")


def test_a_medium_that_is_an_enclosure_too_is_one() -> None:
    (item,) = rss(
        '<enclosure url="https://e.org/1.mp3" length="5" type="audio/mpeg"/>'
        '<media:content url="https://e.org/1.mp3" duration="7"/><media:thumbnail url="t.png"/>',
        ' xmlns:media="http://search.yahoo.com/mrss/"',
    ).items
    (sound,) = item.enclosures
    assert (sound.length, sound.type, sound.duration) == (5, "audio/mpeg", 7)
    assert item.thumbnails == (Thumbnail("https://f.example/dir/t.png"),)


def test_invalid_numbers_are_none() -> None:
    (item,) = rss(
        '<media:content url="x" width="wide" height="-3" duration="inf" fileSize="29.97" framerate="nan"/>',
        ' xmlns:media="http://search.yahoo.com/mrss/"',
    ).items
    (one,) = item.enclosures
    assert (one.width, one.height, one.duration, one.length, one.frame_rate) == (
        None,
        None,
        None,
        29,
        None,
    )


def test_json_feed() -> None:
    feed = read(JSON, url="https://j.example/feed.json")
    first, second = feed.items
    assert (feed.dialect, feed.title, feed.link, feed.language) == (
        "json11",
        "J",
        "https://j.example/",
        "sv",
    )
    assert (feed.hubs, feed.self_link) == (("https://hub.example/",), "https://j.example/feed.json")
    assert feed.problems == ("Item 3 is not an object and was skipped.",)
    assert (first.guid, first.link, first.pub_date) == ("7", "https://j.example/7", at(6, 8))
    assert (first.summary, first.content) == ("s", '<a href="https://j.example/y">y</a>')
    assert first.categories == (Category("a"), Category("b"))
    (sound,) = first.enclosures
    assert (sound.url, sound.length, sound.duration) == ("https://j.example/7.m4a", 9, 66)
    assert (second.content, second.content_type, second.authors) == (
        "plain",
        "text/plain",
        (Author("Old"),),
    )


def test_old_and_rare_dialects() -> None:
    cdf = b"""<channel href="https://c.example/"><title>C</title>
        <item href="https://c.example/1"><title>I</title></item></channel>"""
    assert read(cdf).items[0].link == "https://c.example/1"
    atom = read(
        b"""<feed version="0.3" xmlns="http://purl.org/atom/ns#"><tagline>t</tagline><entry>
        <title mode="escaped">x</title><modified>2021-09-06T10:00:00Z</modified></entry></feed>"""
    )
    assert (atom.dialect, atom.subtitle, atom.items[0].updated) == ("atom03", "t", at(6))
    netscape = read(
        b"""<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "rss-0.91.dtd">
        <rss version="0.91"><channel><title>n</title></channel></rss>"""
    )
    assert (netscape.dialect, netscape.title) == ("rss091n", "n")
    older = b'<rss version="0.92"><channel><title>n</title></channel></rss>'
    assert read(older).dialect == "rss092"


def test_feedburner_keeps_the_link_that_it_replaced() -> None:
    (item,) = rss(
        "<link>https://feeds.example/~r/1</link><feedburner:origLink>https://e.org/1</feedburner:origLink>",
        ' xmlns:feedburner="http://rssnamespace.org/feedburner/ext/1.0"',
    ).items
    assert item.link == "https://e.org/1"
    assert item.links[0].href == "https://feeds.example/~r/1"


def test_dates_in_the_future_are_reported() -> None:
    feed = rss("<pubDate>Fri, 01 Jan 2100 00:00:00 GMT</pubDate>")
    assert feed.items[0].pub_date == datetime(2100, 1, 1, tzinfo=UTC)
    problem = "1 items have a date in the future; the time of the first poll replaces it."
    assert feed.problems == (problem,)


def test_an_unreadable_date_falls_back_to_another() -> None:
    dc = ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
    assert rss("<pubDate>yesterday</pubDate>").items[0].pub_date is None
    (item,) = rss("<pubDate>soon</pubDate><dc:date>2021-09-06T10:00:00Z</dc:date>", dc).items
    assert item.pub_date == at(6)


def test_the_language_of_the_server_counts_if_the_feed_says_none() -> None:
    body = b"<rss version='2.0'><channel><item><title>x</title></item></channel></rss>"
    assert read(body, language="da").items[0].language == "da"
    assert read(RSS, language="da").language == "en-gb"


@pytest.mark.parametrize(
    ("text", "name", "email"),
    [
        ("jane@e.org (Jane Doe)", "Jane Doe", "jane@e.org"),
        ("Jane Doe &lt;jane@e.photography&gt;", "Jane Doe", "jane@e.photography"),
        ("Jane Doe", "Jane Doe", ""),
        ("jane@e.org", "", "jane@e.org"),
        ("a" * 501, None, None),
    ],
)
def test_authors_in_one_text(text: str, name: str | None, email: str | None) -> None:
    wanted = () if name is None else (Author(name, email or ""),)
    assert rss(f"<author>{text}</author>").items[0].authors == wanted
