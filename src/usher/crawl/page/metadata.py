"""What a page tells about itself: title, headings, description, languages, dates.

Comes from the trees of a page; goes into its document. Every fact has several places where authors put it, and the
first that is any good counts.
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
_FACTS: Final = "meta[content],time[datetime],title,html[lang],script[type*=json],h1,h2,h3,h4,h5,h6"
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_TITLED: Final = frozenset({"head", "body", "html", "noscript"})
_ANCHORS: Final = "¶#§🔗 \N{NO-BREAK SPACE}"  # what documentation hangs on its headings
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
    """As written, the first of each name; words are asked for once what is not seen is gone."""

    titles: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    nodes: list[LexborNode] = field(default_factory=list)

    def title(self, otherwise: str) -> str:
        told = chain(self.titles, [self.told.get("og:title")], self._h1(), [otherwise])
        return next(filter(None, (shorten(title, MAX_TITLE_LENGTH) for title in told)), "")

    def description(self) -> str:
        told = self.told.get("description") or self.told.get("og:description")
        return shorten(told, MAX_DESCRIPTION_LENGTH)

    def published(self) -> datetime | None:
        return self._date([*_PUBLISHED, "time"])

    def modified(self) -> datetime | None:
        return self._date(_MODIFIED)

    def headings(self) -> tuple[list[str], str]:
        """The first ones with words, and whether there were more: in headings within headings not all are looked at."""
        nodes = self.nodes[: MAX_HEADINGS * 2]
        found = [shorten(node.text(), MAX_TITLE_LENGTH).rstrip(_ANCHORS) for node in nodes]
        found = [heading for heading in found if heading]
        if len(found) <= MAX_HEADINGS and len(nodes) == len(self.nodes):
            return found, ""
        return found[:MAX_HEADINGS], f"only its first {MAX_HEADINGS} headings were kept"

    def _h1(self) -> Iterable[str]:
        return (node.text() for node in self.nodes[:MAX_HEADINGS] if node.tag == "h1")

    def _date(self, names: Iterable[str]) -> datetime | None:
        found = (plausible(parse_date(self.told[name][:64])) for name in names if name in self.told)
        return next(filter(None, found), None)


def parse_metadata(trees: Iterable[LexborHTMLParser]) -> PageMetadata:
    found = PageMetadata()
    for tree in trees:
        for node in tree.css(_FACTS):
            _note(found, node)
    return found


def plausible(time: datetime | None) -> datetime | None:
    """A time at which a page can have been written."""
    return time if time and time.year in _YEARS else None


def _note(found: PageMetadata, node: LexborNode) -> None:
    tag = node.tag or ""
    if tag in _HEADINGS:
        found.nodes.append(node)
    elif tag == "title":
        if node.parent and node.parent.tag in _TITLED:  # a drawing may have a title too
            found.titles.append(node.text())
    elif tag == "html":
        found.languages.append(node.attributes.get("lang") or "")
    elif tag == "time":
        found.told.setdefault("time", node.attributes.get("datetime") or "")
    elif tag == "script":
        for name, value in _JSON_DATE.findall(node.text()):
            found.told.setdefault(name.lower(), value)
    else:
        _note_meta(found, node.attributes)


def _note_meta(found: PageMetadata, attributes: dict[str, str | None]) -> None:
    for key in ("property", "name", "itemprop", "http-equiv"):
        if name := attributes.get(key):
            found.told.setdefault(name.strip().lower(), attributes.get("content") or "")
