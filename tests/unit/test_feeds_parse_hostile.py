"""Any bytes give a feed or a reason, in bounded time."""

import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.feeds.samples import ATOM, JSON, RSS, XML
from usher.feeds.model import Feed, NotAFeed
from usher.feeds.parse import feedparser_input
from usher.feeds.parse.charset import decode
from usher.feeds.parse.parser import MAX_BYTES, MAX_ITEMS, parse

NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)
URL: Final = "https://f.example/feed"
TITLE: Final = "Grüße, привет, 日本語"
LIMIT: Final = 20.0  # seconds of this process, on a machine that is busy


def read(body: bytes, content_type: str = "") -> Feed | NotAFeed:
    return parse(body, url=URL, content_type=content_type, now=NOW)


def good(body: bytes, content_type: str = "") -> Feed:
    feed = read(body, content_type)
    assert isinstance(feed, Feed), feed
    return feed


def rss(inside: str, declared: str = "") -> str:
    head = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    return f'{head}<rss version="2.0"><channel>{inside}</channel></rss>'


NOT_FEEDS: Final = {
    b"": "It is empty.",
    b" \r\n\t": "It is empty.",
    b"\xef\xbb\xbf": "It is empty.",
    b"hello": "It is neither XML nor JSON.",
    b"\x89PNG\r\n\x1a\n\x00\x00": "It is neither XML nor JSON.",
    b"<!DOCTYPE html><html><head><title>Parked</title></head><body>Buy me": "It is an HTML page, not a feed.",
    b"\n<!-- hi --><HTML><body><item><title>x</title></item></body></HTML>": "It is an HTML page, not a feed.",
    b'<html xmlns="http://www.w3.org/1999/xhtml"><body/></html>': "It is an HTML page, not a feed.",
    b"<note><to>you</to></note>": "It is XML, but no kind of feed.",
    b'<svg xmlns="http://www.w3.org/2000/svg"/>': "It is XML, but no kind of feed.",
    b'<opml version="2.0"><body/></opml>': "It is XML, but no kind of feed.",
    b"{}": "It is JSON, but no JSON Feed.",
    b'{"items": 3}': "It is JSON, but no JSON Feed.",
    b"[1]": "It is JSON, but no JSON Feed.",
}


@pytest.mark.parametrize("body", NOT_FEEDS)
def test_documents_that_are_no_feed_are_refused_with_a_reason(body: bytes) -> None:
    assert read(body) == NotAFeed(NOT_FEEDS[body])


def test_broken_json_is_reported() -> None:
    for body in (b'{"items": [', b"[" * 100_000, b'{"a":' * 100_000):
        answer = read(body)
        assert isinstance(answer, NotAFeed)
        assert answer.reason.startswith("It is not valid JSON")


def test_an_empty_feed_is_a_feed() -> None:
    feed = good(b'<rss version="2.0"><channel><title>t</title></channel></rss>')
    assert (feed.items, feed.problems) == ((), ())


BROKEN: Final = {
    "a bare ampersand": b"<title>a & b</title><item><title>x</title></item><item><title>y</title></item>",
    "an entity of HTML": b"<title>a&nbsp;b</title><item><title>x</title></item><item><title>y</title></item>",
    "a control character": b"<title>a\x08b</title><item><title>x</title></item><item><title>y</title></item>",
    "tags that cross": b"<title>a<b></title></b><item><title>x</title></item><item><title>y</title></item>",
    "no namespace": b"<foo:x>1</foo:x><item><title>x</title></item><item><title>y</title></item>",
    "an attribute twice": b"<a b='1' b='2'/><item><title>x</title></item><item><title>y</title></item>",
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_xml_is_read_and_reported(what: str) -> None:
    feed = good(
        b'<?xml version="1.0"?><rss version="2.0"><channel>' + BROKEN[what] + b"</channel></rss>"
    )
    assert [one.title for one in feed.items] == ["x", "y"]
    assert feed.problems[0].startswith("It is not well-formed XML: ")
    assert "in line 1" in feed.problems[0]


def test_a_feed_that_is_cut_off_gives_what_is_there() -> None:
    feed = good(RSS[: RSS.index(b"only a text")])
    assert len(feed.items) == 2
    assert feed.items[0].title == "First"


def test_space_before_the_declaration_is_forgiven() -> None:
    assert good(b"\r\n  " + RSS).problems == ()
    assert good(b"\r\n  " + ATOM) == good(ATOM)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"]
)
def test_encodings_are_known_by_their_marks_or_openings(encoding: str) -> None:
    body = rss(f"<title>{TITLE}</title>", "utf-16").encode(encoding)
    assert good(body).title == TITLE


@pytest.mark.parametrize(
    ("encoding", "declared", "served", "title", "told"),
    [
        ("iso-8859-1", "iso-8859-1", "", "Grüße", False),
        ("iso-8859-1", "", "text/xml; charset=ISO-8859-1", "Grüße", False),
        ("utf-8", "iso-8859-1", "", TITLE, True),  # the declaration lies
        ("utf-8", "utf-8", 'text/xml; charset="us-ascii"', TITLE, True),  # the server lies
        ("utf-8", "utf-8", "text/xml", TITLE, False),
        (
            "utf-8-sig",
            "windows-1252",
            "text/xml; charset=koi8-r",
            TITLE,
            True,
        ),  # both lie, the mark does not
        ("koi8-r", "koi8-r", "application/rss+xml; charset=koi8-r", "привет", False),
        ("cp1252", "utf-8", "", "Grüße “x”", True),
        ("gb18030", "gb2312", "", "中文㐀", True),  # the wider set of the same name
        ("utf-8", "no-such-thing", "", TITLE, True),
        ("utf-8", "utf-16", "", TITLE, True),
        ("shift_jis", "shift_jis", "", "日本語", True),
        ("euc-kr", "euc-kr", "text/xml; charset=", "한국어", True),
    ],
)
def test_wrongly_declared_encodings(
    encoding: str,
    declared: str,
    served: str,
    title: str,
    told: bool,  # noqa: FBT001
) -> None:
    feed = good(rss(f"<title>{title}</title>", declared).encode(encoding), served)
    assert feed.title == title
    if not told:
        assert feed.problems == ()


def test_bytes_of_no_encoding_are_replaced() -> None:
    assert good(rss("<title>a%b</title>").encode().replace(b"%", b"\xff\xfe\x81")).title


def test_text_that_was_encoded_twice_is_repaired() -> None:
    twice = "Grüße".encode().decode("latin-1")
    assert good(rss(f"<title>{twice}</title>").encode()).title == "Grüße"
    assert good(rss("<title>&#147;x&#148;</title>").encode()).title == "“x”"


def bomb(lines: str) -> bytes:
    names = ["lol", *(f"lol{n}" for n in range(1, 10))]
    told = [f'<!ENTITY {one} "{f"&{before};" * 10}">' for before, one in pairwise(names)]
    entities = lines.join(['<!ENTITY lol "lol">', *told])
    item = "<item><title>x</title></item>"
    return (
        f"<!DOCTYPE lolz [{lines}{entities}{lines}]>{rss(f'<title>&lol9;</title>{item}')}".encode()
    )


@pytest.mark.parametrize("lines", ["\n", " "])
def test_billion_laughs_are_not_expanded(lines: str) -> None:
    feed = good(bomb(lines))
    assert len(feed.title) < 100
    assert [one.title for one in feed.items] == ["x"]


def test_long_entities_are_not_expanded() -> None:
    entity = f'<!DOCTYPE r [\n<!ENTITY x "{"A" * 1_000}">\n]>'
    feed = good((entity + rss(f"<title>{'&x;' * 10_000}</title>")).encode())
    assert len(feed.title) < 100_000


def test_entities_from_outside_are_not_fetched() -> None:
    for kind in ("SYSTEM", "PUBLIC 'x'"):
        entity = f'<!DOCTYPE r [\n<!ENTITY x {kind} "file:///etc/passwd">\n]>'
        feed = good((entity + rss("<title>a&x;b</title>")).encode())
        assert "root:" not in feed.title
    feed = good(
        b'<!DOCTYPE r SYSTEM "http://127.0.0.1:1/x.dtd">' + rss("<title>t</title>").encode()
    )
    assert feed.title == "t"


def test_entities_of_the_feed_itself_are_known() -> None:
    entity = '<!DOCTYPE r [\n<!ENTITY co "ACME">\n]>'
    assert good((entity + rss("<title>&co;</title>")).encode()).title == "ACME"


def test_a_feed_that_is_too_large_is_refused_with_its_size() -> None:
    assert read(b"<rss>" + b" " * 50_000_000) == NotAFeed("It has 50.0 MB; the limit is 20 MB.")
    assert MAX_BYTES == 20_000_000


def bounded(body: bytes) -> Feed | NotAFeed:
    begun = time.process_time()
    answer = read(body)
    assert time.process_time() - begun < LIMIT
    return answer


def test_of_many_items_the_first_are_read() -> None:
    feed = bounded(rss("<item><title>x</title></item>" * 100_000).encode())
    assert isinstance(feed, Feed)
    assert len(feed.items) == MAX_ITEMS
    assert feed.problems == (f"It has more than {MAX_ITEMS} items; the others were not read.",)
    many = (
        b'{"version": "https://jsonfeed.org/version/1", "items": ['
        + b'{"id": "1"},' * 50_000
        + b"{}]}"
    )
    assert len(good(many).items) == MAX_ITEMS


SLOW: Final = (
    *(
        "<!--",
        "<![CDATA[",
        "<",
        "&",
        "<a ",
        '<a b="',
        "</",
        "<!a",
        "<?",
        "<item>",
        "<a>",
        "&#",
        "<title>",
        "< ",
    ),
    *(
        "<a:",
        "<content>",
        "<media:content>",
        "<category>x",
        "<summary>x<description>y",
        "<link>",
        "<a/",
    ),
)


@pytest.mark.parametrize("piece", SLOW)
def test_hostile_documents_are_parsed_in_bounded_time(piece: str) -> None:
    count = 20_000 // len(piece)
    bounded(rss(f"<item><title>{piece * count}").encode())
    bounded((piece * count + rss("<title>t</title>")).encode())


def test_large_documents_are_parsed_in_bounded_time() -> None:
    bounded(rss(f"<item><description>{'&lt;a href=x&gt;' * 20_000}</description></item>").encode())
    bounded(rss(f"<item><author>{'a' * 1_000_000}@</author>&x;</item>").encode())
    bounded(rss(f"<item>{'<category>x</category>' * 5_000}&x;</item>").encode())
    bounded(rss(f"<item>{'<a>' * 100_000}{'</a>' * 100_000}</item>").encode())
    bounded(b"<?" + b'encoding="' * 100_000 + rss("").encode())
    bounded(b"\n" * 1_000_000 + b"&" + rss("<title>&</title>").encode())


def test_a_large_broken_document_is_read_partly() -> None:
    body = rss("<title>&</title>" + "<item><title>x</title></item>" * 100).encode()
    assert feedparser_input.bounded(body) == (body, "")
    part, told = feedparser_input.bounded(body, 100)
    assert body.startswith(part)
    assert part.count(b"<item>") in range(20, 30)
    assert feedparser_input.bounded(rss(f"<![CDATA[{'<p>' * 200}]]>").encode(), 100)[1] == ""
    assert told == "It is too large for the slow parser; only the beginning was read."
    assert feedparser_input.bounded(b"<" * 1_000 + b" " * 10_000, 100)[0] == b""


def test_documents_on_which_feedparser_raises_are_parsed() -> None:
    spaces = 'xmlns:gml="http://www.opengis.net/gml" xmlns:psc="http://podlove.org/simple-chapters"'
    for inside in (
        '<gml:Point srsName="EPSG:x"><gml:pos>1 2</gml:pos></gml:Point>',
        "<gml:pos>1 2</gml:pos>",
        "<psc:chapters><psc:chapter/></psc:chapters>",
        "<textInput><name>x</name></textInput>",
        "<links>x</links><link>http://e.org/</link><authors>y</authors><author>z</author>&",
        "<title>&#xFFFFFFFFF; &#xD800; &#0;</title>",
    ):
        feed = good(
            f'<rss version="2.0" {spaces}><channel><item>{inside}</item></channel></rss>'.encode()
        )
        assert len(feed.items) == 1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.text(max_size=30))
def test_arbitrary_bytes_never_raise(body: bytes, content_type: str) -> None:
    assert isinstance(read(body, content_type), Feed | NotAFeed)
    assert isinstance(decode(body, content_type).utf8.decode(), str)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_feeds_never_raise(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from([*XML.values(), JSON])))
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(body)))
        body[start : start + data.draw(st.integers(0, 60))] = data.draw(st.binary(max_size=8))
    assert isinstance(read(bytes(body)), Feed | NotAFeed)
