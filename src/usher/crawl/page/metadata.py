"""Extracts the metadata of a page: title, headings, description, languages, dates.

Authors write each of them in several places; the first usable one counts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from usher.crawl.page.fingerprint import shorten
from usher.crawl.sitemap import parse_date

MAX_HEADINGS: Final = 200
MAX_TITLE_LENGTH: Final = 300
MAX_DESCRIPTION_LENGTH: Final = 1_000

_YEARS: Final = range(1990, 2101)
_QUERY: Final = "meta[content],time[datetime],title,html[lang],script[type*=json],h1,h2,h3,h4,h5,h6"
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_TITLE_PARENTS: Final = frozenset({"head", "body", "html", "noscript"})
_ANCHORS: Final = "¶#§🔗 \N{NO-BREAK SPACE}"  # documentation appends these to its headings
_DATES: Final = """
    article:published_time datepublished dc.date.issued dcterms.issued dcterms.created dc.date.created
    pubdate publishdate publish-date dc.date dcterms.date date"""
_PUBLISHED: Final = _DATES.split()
_CHANGES: Final = """
    article:modified_time og:updated_time datemodified dcterms.modified dc.date.modified
    last-modified lastmod revised"""
_MODIFIED: Final = _CHANGES.split()
_JSON_DATE: Final = re.compile(r"\"(date(?:Published|Modified))\"\s*:\s*\"([^\"]{4,40})\"")


@dataclass(slots=True)
class PageMetadata:
    """The metadata as written, the first of each name; its texts are valid after hidden elements are removed."""

    titles: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    nodes: list[LexborNode] = field(default_factory=list)

    def title(self, default: str) -> str:
        titles = chain(self.titles, [self.fields.get("og:title")], self._h1(), [default])
        return next(filter(None, (shorten(title, MAX_TITLE_LENGTH) for title in titles)), "")

    def description(self) -> str:
        text = self.fields.get("description") or self.fields.get("og:description")
        return shorten(text, MAX_DESCRIPTION_LENGTH)

    def published(self) -> datetime | None:
        return self._date([*_PUBLISHED, "time"])

    def modified(self) -> datetime | None:
        return self._date(_MODIFIED)

    def headings(self) -> tuple[list[str], str]:
        """Return the first headings with text, and a problem if there are more; nested headings limit the search."""
        nodes = self.nodes[: MAX_HEADINGS * 2]
        texts = [shorten(node.text(), MAX_TITLE_LENGTH).rstrip(_ANCHORS) for node in nodes]
        headings = [text for text in texts if text]
        if len(headings) <= MAX_HEADINGS and len(nodes) == len(self.nodes):
            return headings, ""
        return headings[:MAX_HEADINGS], f"only its first {MAX_HEADINGS} headings were kept"

    def _h1(self) -> Iterable[str]:
        return (node.text() for node in self.nodes[:MAX_HEADINGS] if node.tag == "h1")

    def _date(self, names: Iterable[str]) -> datetime | None:
        texts = (self.fields[name][:64] for name in names if name in self.fields)
        return next(filter(None, (plausible_date(parse_date(text)) for text in texts)), None)


def parse_metadata(trees: Iterable[LexborHTMLParser]) -> PageMetadata:
    metadata = PageMetadata()
    for tree in trees:
        for node in tree.css(_QUERY):
            _add(metadata, node)
    return metadata


def plausible_date(time: datetime | None) -> datetime | None:
    """Return the date if a page can have been written then."""
    return time if time and time.year in _YEARS else None


def _add(metadata: PageMetadata, node: LexborNode) -> None:
    tag = node.tag or ""
    if tag in _HEADINGS:
        metadata.nodes.append(node)
    elif tag == "title":
        if node.parent and node.parent.tag in _TITLE_PARENTS:  # an SVG may have a title too
            metadata.titles.append(node.text())
    elif tag == "html":
        metadata.languages.append(node.attributes.get("lang") or "")
    elif tag == "time":
        metadata.fields.setdefault("time", node.attributes.get("datetime") or "")
    elif tag == "script":
        for name, value in _JSON_DATE.findall(node.text()):
            metadata.fields.setdefault(name.lower(), value)
    else:
        _add_meta(metadata, node.attributes)


def _add_meta(metadata: PageMetadata, attributes: dict[str, str | None]) -> None:
    for key in ("property", "name", "itemprop", "http-equiv"):
        if name := attributes.get(key):
            metadata.fields.setdefault(name.strip().lower(), attributes.get("content") or "")
