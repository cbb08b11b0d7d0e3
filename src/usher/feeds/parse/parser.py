"""Parses a feed of any dialect: RSS, Atom, RDF and JSON Feed.

The fast parser reads the feeds for which it gives the same result as feedparser; feedparser reads the others.
"""

import re
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from usher.feeds.model import Feed, NotAFeed
from usher.feeds.parse import charset, fast_parser, feedparser_reader, jsonfeed
from usher.feeds.parse.item_builder import FeedSource

MAX_BYTES: Final = 20_000_000
MAX_ITEMS: Final = 10_000

_HTML: Final = re.compile(rb"<(?:!doctype\s+)?html\b", re.IGNORECASE)
_FIRST: Final = re.compile(rb"<[A-Za-z_][^\s<>/]{0,60}")
_HEAD: Final = 20_000  # bytes that must contain the first element
_BLANK: Final = b" \t\r\n\x00"


def parse(
    body: bytes, *, url: str, content_type: str = "", language: str = "", now: datetime
) -> Feed | NotAFeed:
    """The feed in the bytes, or why they are no feed; `language` is the server's Content-Language."""
    if len(body) > MAX_BYTES:
        size, limit = len(body) / 1_000_000, MAX_BYTES // 1_000_000
        return NotAFeed(f"It has {size:.1f} MB; the limit is {limit} MB.")
    text = charset.decode(body, content_type)
    feed = _read(text.utf8.strip(_BLANK), FeedSource(url, now, language))
    if isinstance(feed, NotAFeed):
        return feed
    problems = (text.problem, *feed.problems) if text.problem else feed.problems
    return replace(feed, encoding=text.encoding, problems=problems)


def _read(utf8: bytes, source: FeedSource) -> Feed | NotAFeed:
    if not utf8:
        return NotAFeed("It is empty.")
    if utf8[:1] in {b"{", b"["}:
        return jsonfeed.parse_json_feed(utf8, source, MAX_ITEMS)
    if reason := _not_xml(utf8[:_HEAD]):
        return NotAFeed(reason)
    return fast_parser.parse_fast(
        utf8, source, MAX_ITEMS
    ) or feedparser_reader.parse_with_feedparser(utf8, source, MAX_ITEMS)


def _not_xml(head: bytes) -> str:
    """Why the bytes cannot be a feed in XML, judged by their beginning."""
    first = _FIRST.search(head)
    if first is None:
        return "It is neither XML nor JSON."
    if _HTML.match(first[0]) or _HTML.search(head, 0, first.end()):
        return "It is an HTML page, not a feed."
    return ""
