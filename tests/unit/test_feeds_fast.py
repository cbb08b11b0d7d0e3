"""The fast parser agrees with feedparser or leaves the feed to it, and is much faster."""

import io
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final
from urllib.parse import urljoin
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.feeds.samples import ATOM, RSS, XML
from usher.feeds.model import Feed
from usher.feeds.parse import fast_parser, feedparser_reader
from usher.feeds.parse.item_builder import FeedSource
from usher.feeds.parse.parser import parse
from usher.feeds.parse.relative_urls import join

NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)
PAGE: Final = FeedSource("https://f.example/dir/feed", NOW)
FEEDPARSER: Final[Any] = import_module("feedparser")
SPACES: Final = {
    "atom": "http://www.w3.org/2005/Atom",
    "cc": "http://web.resource.org/cc/",
    "content": "http://purl.org/rss/1.0/modules/content/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "ev": "http://purl.org/rss/1.0/modules/event/",
    "feedburner": "http://rssnamespace.org/feedburner/ext/1.0",
    "foo": "http://foo.example/",
    "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
    "georss": "http://www.georss.org/georss",
    "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd",
    "media": "http://search.yahoo.com/mrss/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "slash": "http://purl.org/rss/1.0/modules/slash/",
    "sy": "http://purl.org/rss/1.0/modules/syndication/",
    "thr": "http://purl.org/syndication/thread/1.0",
    "wfw": "http://wellformedweb.org/CommentAPI/",
}
_NAMES: Final = """title title link link description description guid pubDate category category author comments
    enclosure content summary id updated published rights source subtitle generator language copyright ttl logo rating
    unknown lastBuildDate managingEditor dc:title dc:creator dc:date dc:subject dc:description dc:language dc:rights
    dc:contributor content:encoded content:encoded media:title media:description media:thumbnail media:credit
    media:rating media:restriction media:text media:category media:keywords media:copyright itunes:author
    itunes:summary itunes:subtitle itunes:image itunes:category itunes:keywords itunes:explicit itunes:duration
    itunes:new-feed-url slash:comments wfw:commentRss georss:point georss:featurename geo:lat geo:long sy:updatePeriod
    sy:updateFrequency thr:total cc:license feedburner:origLink dcterms:issued dcterms:modified ev:startdate ev:enddate
    foo:bar foo:title atom:link atom:updated hour links"""
NAMES: Final = tuple(_NAMES.split())
NESTING: Final = {
    "author": ("name", "email", "uri", "foo:bar"),
    "contributor": ("name", "email", "uri"),
    "image": ("url", "title", "link", "description", "width"),
    "textInput": ("title", "link", "name"),
    "skipHours": ("hour",),
    "itunes:owner": ("itunes:name", "itunes:email"),
    "media:content": (
        "media:title",
        "media:description",
        "media:credit",
        "media:thumbnail",
        "foo:bar",
    ),
    "media:group": (
        "media:content",
        "media:title",
        "media:description",
        "media:rating",
        "media:keywords",
    ),
    "geo:Point": ("geo:lat", "geo:long"),
    "foo:box": ("foo:bar", "title"),
}
TEXTS: Final = (
    *(
        "",
        "x",
        " spaced ",
        "https://e.org/a",
        "/rel?x=1&y=2",
        "A & B",
        "&amp; <b>b</b>",
        "5",
        "1:02:03",
    ),
    *(
        "<p>x</p><a href='/q'>y</a>",
        "Jane (j@e.org)",
        "Mon, 06 Sep 2021 10:00:00 GMT",
        "12.5 -7.25",
    ),
    *(
        "2021-09-06T10:00:00Z",
        "a, b,,c",
        "é — ü",
        "\u00c3\u00a9",
        "\u0093q\u0094",
        "tag:e.org,2021:1",
        "en_US",
    ),
    *("#frag", "http:////x", "AT&T;", "http://e.org/?", "daily", "http://[bad/", "yes"),
)
ATTRIBUTES: Final = {
    "href": ("https://e.org/h", "/h", ""),
    "url": ("https://e.org/u.mp3", "u.jpg"),
    "rel": ("self", "enclosure", "HUB"),
    "type": ("html", "xhtml", "audio/mpeg", "plain"),
    "isPermaLink": ("false", "True"),
    "domain": ("d",),
    "term": ("t",),
    "label": ("l",),
    "text": ("Tech",),
    "length": ("5", "x"),
    "role": ("r",),
    "relationship": ("allow",),
    "xml:lang": ("de", "fr_FR", ""),
    "xml:base": ("http://b.org/", "sub/"),
    "rdf:resource": ("http://r/",),
    "foo:x": ("1",),
    "start": ("0:05",),
}


@st.composite
def elements(draw: st.DrawFn, names: tuple[str, ...] = (), deep: int = 0) -> str:
    name = draw(st.sampled_from(names or (*NAMES, *NESTING)))
    keys = (
        draw(st.lists(st.sampled_from([*ATTRIBUTES]), max_size=2, unique=True))
        if draw(st.integers(0, 3)) == 0
        else []
    )
    told = "".join(f" {key}={quoteattr(draw(st.sampled_from(ATTRIBUTES[key])))}" for key in keys)
    inside = escape(draw(st.sampled_from(TEXTS)))
    if name in NESTING and deep < 2:
        inside = "".join(draw(st.lists(elements(NESTING[name], deep + 1), max_size=3)))
    return f"<{name}{told}>{inside}</{name}>"


@st.composite
def feeds(draw: st.DrawFn) -> bytes:
    spaces = "".join(f' xmlns:{name}="{uri}"' for name, uri in SPACES.items())
    head = "".join(draw(st.lists(elements(), max_size=5)))
    items = [
        f"{''.join(one)}" for one in draw(st.lists(st.lists(elements(), max_size=7), max_size=3))
    ]
    family = draw(st.sampled_from(["rss", "atom", "rdf"]))
    if family == "rss":
        inside = "".join(f"<item>{one}</item>" for one in items)
        return f'<rss version="2.0"{spaces}><channel>{head}{inside}</channel></rss>'.encode()
    if family == "atom":
        inside = "".join(f"<entry>{one}</entry>" for one in items)
        return (
            f'<feed xmlns="{SPACES["atom"]}"{spaces} xml:lang="en">{head}{inside}</feed>'.encode()
        )
    spaces = spaces.replace(f' xmlns:atom="{SPACES["atom"]}"', ' xmlns:atom="http://a.example/"')
    inside = "".join(
        f'<item rdf:about="https://e.org/{n}">{one}</item>' for n, one in enumerate(items)
    )
    return f'<rdf:RDF xmlns="http://purl.org/rss/1.0/"{spaces}><channel>{head}</channel>{inside}</rdf:RDF>'.encode()


@settings(max_examples=300, deadline=None)
@given(feeds())
def test_the_fast_parser_agrees_with_feedparser(body: bytes) -> None:
    quick = fast_parser.parse_fast(body, PAGE, 100)
    slow = feedparser_reader.parse_with_feedparser(body, PAGE, 100)
    assert quick is None or quick == slow


@pytest.mark.parametrize("name", XML)
def test_common_feeds_are_read_fast_and_alike(name: str) -> None:
    quick = fast_parser.parse_fast(XML[name], PAGE, 100)
    assert quick is not None
    assert quick == feedparser_reader.parse_with_feedparser(XML[name], PAGE, 100)


def test_both_parsers_limit_the_items() -> None:
    quick = fast_parser.parse_fast(RSS, PAGE, 2)
    slow = feedparser_reader.parse_with_feedparser(RSS, PAGE, 2)
    assert quick == slow
    assert quick is not None
    assert len(quick.items) == 2
    assert quick.problems == ("It has more than 2 items; the others were not read.",)
    assert (
        fast_parser.parse_fast(RSS, PAGE, 3)
        == feedparser_reader.parse_with_feedparser(RSS, PAGE, 3)
        == fast_parser.parse_fast(RSS, PAGE, 4)
    )


DECLINED: Final = {
    "a doctype": (b"<rss", b"<!DOCTYPE rss><rss"),
    "two dialects": (b"<rss ", b'<rss xmlns:r="http://purl.org/rss/1.0/" '),
    "a prefix of another's": (b"<rss ", b'<rss xmlns:media="urn:other" '),
    "a nameless namespace": (b"<item>", b'<item><x xmlns="urn:x">1</x>'),
    "markup that is not escaped": (b"<title>First", b"<title><b>F</b>irst"),
    "a title inside something unknown": (b"<item>", b"<item><box><title>t</title></box>"),
    "not well formed": (b"&amp;", b"&"),
    "what CDF has": (b"<channel>", b'<channel href="x">'),
    "base64": (b"<description>", b'<description type="application/octet-stream">'),
    "a language told too late": (b"</channel>", b"<language>fr</language></channel>"),
    "an event": (b"<item>", b"<item><ev:startdate>2021-10-01</ev:startdate>"),
    "a rating": (b"<item>", b"<rating>x</rating><item>"),
    "an image in an item": (b"<item>", b"<item><image><url>x</url></image>"),
}


@pytest.mark.parametrize("what", DECLINED)
def test_unproven_feeds_are_left_to_feedparser(what: str) -> None:
    old, new = DECLINED[what]
    assert old in RSS
    body = RSS.replace(old, new)
    assert fast_parser.parse_fast(body, PAGE, 100) is None
    assert isinstance(feedparser_reader.parse_with_feedparser(body, PAGE, 100), Feed)


@given(
    st.sampled_from(
        ["https://e.org/d/p", "http://e.org", "https://e.org:81/a?b", "ftp://e.org/x", ""]
    ),
    st.text("htps:/.?#&;=%[] aZ0@-é", max_size=12)
    | st.sampled_from(["/a/../b", "//h/x", "tag:x", "?q", "a;b"]),
)
def test_addresses_join_as_the_standard_library_joins_them(base: str, address: str) -> None:
    for one in (address, f"http://h.org{address}", f"/{address}", f"tag:{address}"):
        if "///" in one:
            continue  # more slashes than two are a slip, and forgiven
        try:
            wanted = urljoin(base, one)
        except ValueError:
            wanted = ""
        assert join(base, one) == wanted


@pytest.mark.soak
@pytest.mark.parametrize("sample", [RSS, ATOM], ids=["rss", "atom"])
def test_it_is_many_times_faster_than_feedparser(
    sample: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    tag = b"item" if b"<item>" in sample else b"entry"
    start, end = sample.index(b"<" + tag), sample.rindex(b"</" + tag + b">") + len(tag) + 3
    body = sample[:start] + sample[start:end] * 200 + sample[end:]

    def seconds(what: Callable[[], object]) -> float:
        begun = time.process_time()
        what()
        return time.process_time() - begun

    ours = min(seconds(lambda: parse(body, url=PAGE.url, now=NOW)) for _ in range(5))
    theirs = min(
        seconds(lambda: FEEDPARSER.parse(io.BytesIO(body), sanitize_html=False)) for _ in range(2)
    )
    with capsys.disabled():
        print(f"\n{len(body) / ours / 1e6:.1f} MB/s, {theirs / ours:.0f} times feedparser")  # noqa: T201
    assert theirs / ours > 3  # by far more on a machine of its own
