"""Finds the URLs where a page's feed may be, the most likely first.

First come the feeds that the page declares, then links that look like feeds, then common paths.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from usher.feeds.parse.relative_urls import is_web_url, join

CandidateOrigin = Literal["declared", "linked", "guessed"]

MAX_PAGE_BYTES: Final = 5_000_000
MAX_CANDIDATES: Final = 30

_TYPES: Final = {
    "application/rss+xml": "rss",
    "application/atom+xml": "atom",
    "application/feed+json": "json",
    "application/rdf+xml": "rss",
    "application/x.atom+xml": "atom",
    "text/xml": "",
    "application/xml": "",
    "application/json": "json",
}
_LIKELY: Final = re.compile(
    r"\.(?:rss|atom|rdf)$|/(?:feed|rss|atom)/?$|(?:feed|rss|atom|index)\.(?:xml|json|php)$|[?&](?:feed|format)=(?:rss|atom)",
    re.IGNORECASE,
)
_WORDS: Final = re.compile(r"\b(?:rss|atom|web ?feed|news ?feed|feed)\b", re.IGNORECASE)
_COMMENTS: Final = re.compile(r"\bcomments?\b|\breplies\b", re.IGNORECASE)
_COMMON_PATHS: Final = (
    "/feed",
    "/rss",
    "/feed.xml",
    "/rss.xml",
    "/atom.xml",
    "/index.xml",
    "/feed.json",
    "/feed/",
    "/blog/feed",
    "/feeds/posts/default",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A URL to try, with the kind of feed and the title that the page gives it."""

    url: str
    kind: str = ""
    title: str = ""
    why: CandidateOrigin = "declared"


def candidates(body: bytes, url: str) -> list[Candidate]:
    """The URLs to try, each once."""
    tree = LexborHTMLParser(body[:MAX_PAGE_BYTES])
    base = _base(tree, url)
    declared = sorted(_declared(tree, base), key=_of_comments)
    linked = sorted(_linked(tree, base), key=_of_comments)
    by_url: dict[str, Candidate] = {}
    for candidate in (*declared, *linked, *_guessed(url)):
        if is_web_url(candidate.url) and candidate.url != url:
            by_url.setdefault(candidate.url, candidate)
    return list(by_url.values())[:MAX_CANDIDATES]


def _base(tree: LexborHTMLParser, url: str) -> str:
    node = tree.css_first("base[href]")
    href = (node.attributes.get("href") or "").strip() if node else ""
    base = join(url, href) if href else ""
    return base if is_web_url(base) else url


def _declared(tree: LexborHTMLParser, base: str) -> Iterator[Candidate]:
    for node in tree.css("link[href][rel]"):
        rel = (node.attributes.get("rel") or "").lower().split()
        kind = (node.attributes.get("type") or "").partition(";")[0].strip().lower()
        href = _href(node, base)
        if "alternate" in rel and kind in _TYPES:
            # WordPress declares the JSON API of each page, which is no feed.
            if kind == "application/json" and "feed" not in href.lower():
                continue
            yield Candidate(href, _TYPES[kind], _title(node), "declared")
        elif "feed" in rel:
            yield Candidate(href, _TYPES.get(kind, ""), _title(node), "declared")


def _linked(tree: LexborHTMLParser, base: str) -> Iterator[Candidate]:
    for node in tree.css("a[href]"):
        href = _href(node, base)
        text = node.text(strip=True)[:100]
        named = _WORDS.search(text) and "xml" in href.lower()
        if named or _LIKELY.search(href.partition("#")[0]):
            yield Candidate(href, "", text, "linked")


def _guessed(url: str) -> Iterator[Candidate]:
    parts = urlsplit(url)
    if parts.path not in {"", "/"}:
        below = f"{parts.path.rstrip('/')}/feed"
        yield Candidate(join(url, below), why="guessed")
    for path in _COMMON_PATHS:
        yield Candidate(join(url, path), why="guessed")


def _href(node: LexborNode, base: str) -> str:
    return join(base, (node.attributes.get("href") or "").strip())


def _title(node: LexborNode) -> str:
    return " ".join((node.attributes.get("title") or "").split())[:200]


def _of_comments(candidate: Candidate) -> bool:
    """A sort key that puts comment feeds last."""
    return bool(_COMMENTS.search(candidate.title) or _COMMENTS.search(candidate.url))
