"""Any feed in one shape: RSS, Atom, RDF and the rest of the family, and JSON Feed.

Comes from the bytes of an answer, where they came from and what the server called them; goes to a `Feed`, or to
`NotAFeed` with the reason. The fast parser reads what it is proven to read as feedparser does, feedparser the rest.
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
_HEAD: Final = 20_000  # bytes in which the first element is looked for


def parse(
    body: bytes, *, url: str, content_type: str = "", language: str = "", now: datetime
) -> Feed | NotAFeed:
    """Read a feed; whatever the bytes are, this returns. `language` is what the server said of it."""
    if len(body) > MAX_BYTES:
        size, most = len(body) / 1_000_000, MAX_BYTES // 1_000_000
        return NotAFeed(f"It has {size:.1f} MB; at most {most} MB are read.")
    text = charset.decode(body, content_type)
    feed = _read(text.utf8.strip(_BLANK), FeedSource(url, now, language))
    if isinstance(feed, NotAFeed):
        return feed
    problems = (text.problem, *feed.problems) if text.problem else feed.problems
    return replace(feed, encoding=text.encoding, problems=problems)


def _read(utf8: bytes, page: FeedSource) -> Feed | NotAFeed:
    if not utf8:
        return NotAFeed("It is empty.")
    if utf8[:1] in {b"{", b"["}:
        return jsonfeed.parse_json_feed(utf8, page, MAX_ITEMS)
    if reason := _no_markup(utf8[:_HEAD]):
        return NotAFeed(reason)
    return fast_parser.parse_fast(utf8, page, MAX_ITEMS) or feedparser_reader.parse_with_feedparser(
        utf8, page, MAX_ITEMS
    )


def _no_markup(head: bytes) -> str:
    """Why this cannot be XML of a feed, as far as its beginning tells."""
    first = _FIRST.search(head)
    if first is None:
        return "It is neither XML nor JSON."
    if _HTML.match(first[0]) or _HTML.search(head, 0, first.end()):
        return "It is an HTML page, not a feed."
    return ""


_BLANK: Final = b" \t\r\n\x00"
