"""Well-formed feeds of the common dialects, read fast: RSS, Atom 1.0 and RSS 1.0 with the modules that they use.

Comes from UTF-8 bytes; goes to a `Feed` that is what feedparser's would be, or to None for feedparser to read. The
tree is built in C, and each element is looked at once. A DOCTYPE, and with it every entity, is left to feedparser.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar
from xml.etree.ElementTree import Element, ParseError, XMLParser

from usher.feeds.model import Feed, Item
from usher.feeds.parse.element_reader import (
    ATOM,
    RDF,
    ElementContext,
    ElementNames,
    UnprovenElement,
    attributes,
    handled_by_feedparser,
)
from usher.feeds.parse.fast_builder import FastFeedBuilder, FastItemBuilder
from usher.feeds.parse.feed_builder import build_feed, too_many_items
from usher.feeds.parse.feed_elements import CHANNEL
from usher.feeds.parse.feed_elements import FeedHandler as FeedKind
from usher.feeds.parse.item_builder import FeedSource, build_item
from usher.feeds.parse.item_elements import ITEM, skip_element
from usher.feeds.parse.item_elements import ItemHandler as ItemKind

K = TypeVar("K")

_FIRST: Final = re.compile(rb"<[A-Za-z_]")
_BASE: Final = re.compile(rb"base\s*=")
_RSS_VERSIONS: Final = {"0.91": "rss091u", "0.92": "rss092", "0.93": "rss093", "0.94": "rss094"}
_FAMILIES: Final = {"rss": "rss", f"{{{ATOM}}}feed": "atom", f"{{{RDF}}}RDF": "rdf"}
_ITEMS: Final = frozenset({"item", "entry"})


def parse_fast(utf8: bytes, page: FeedSource, most_items: int) -> Feed | None:
    """The feed, or None if it is not certain to be read as feedparser reads it."""
    try:
        root = _tree(utf8, page)
        walk = FastParser(utf8, root, page, most_items)
        return walk.feed()
    except (UnprovenElement, ParseError, ValueError):
        return None


def _tree(utf8: bytes, page: FeedSource) -> Element:
    first = _FIRST.search(utf8)
    if first is None or b"<!D" in utf8[: first.start()]:
        raise UnprovenElement
    if not page.url and _BASE.search(utf8):
        raise UnprovenElement  # without a base of its own, feedparser keeps the first that it meets
    parser = XMLParser(encoding="utf-8")  # noqa: S314 - without a DOCTYPE there are no entities
    parser.feed(utf8)
    return parser.close()


class FastParser:
    """One way through the tree of a feed."""

    def __init__(self, utf8: bytes, root: Element, page: FeedSource, most_items: int) -> None:
        self.root = root
        self.page = page
        self.most = most_items
        self.family = _FAMILIES.get(root.tag, "")
        self.names = ElementNames(utf8, self.family)
        self.place = ElementContext(self.names, page.url, atom=self.family == "atom")
        self.whole = FastFeedBuilder()
        self.items: list[Item] = []
        self.languages: set[str] = set()  # that the feed had when its items were read
        self.full = False
        self._item_kinds: dict[str, ItemKind | None] = {}

    def feed(self) -> Feed:
        given = attributes(self.root)
        self.place.enter(given)
        if self.family != "rdf":
            self.whole.language = self.place.language
        if self.family == "atom":
            self._channel(self.root)
        else:
            self._outer()
        self.whole.complete()
        problems = [too_many_items(self.most)] if self.full else []
        dialect = _dialect(self.family, given.get("version", ""))
        if self.languages - {self.whole.language or self.page.language}:
            raise UnprovenElement  # it tells its language after its items
        items = tuple(self.items)
        return build_feed(self.whole, items, self.page, dialect=dialect, problems=problems)

    def _outer(self) -> None:
        """The channel, and in RDF the items beside it."""
        seen = 0
        for element in self.root:
            name = self.names.name(element.tag)
            if name == "channel":
                seen += 1
                self._channel(element)
            elif self.family == "rdf" and seen and name == "item":
                self._item(element)
            elif self.family == "rdf" and seen and name in {"image", "textinput"}:
                CHANNEL[name](self.place, self.whole, element)
            elif name in CHANNEL or handled_by_feedparser(name):
                raise UnprovenElement
            else:
                skip_element(self.place, element, CHANNEL)
            if self.full:
                return
        if seen != 1:
            raise UnprovenElement

    def _channel(self, channel: Element) -> None:
        given = attributes(channel)
        if "href" in given or "lastmod" in given:
            raise UnprovenElement
        before = self.place.enter(given)
        kinds: dict[str, FeedKind | None] = {}
        for element in channel:
            tag = element.tag
            if tag not in kinds:
                kinds[tag] = (
                    self._item_here if self.names.name(tag) in _ITEMS else self._kind(tag, CHANNEL)
                )
            kind = kinds[tag]
            if kind is not None:
                kind(self.place, self.whole, element)
                if self.full:
                    return
            elif len(element):
                skip_element(self.place, element, CHANNEL)
        self.place.leave(before)

    def _item_here(self, _where: ElementContext, whole: FastFeedBuilder, element: Element) -> None:
        whole.titled = -1
        self._item(element)

    def _kind(self, tag: str, table: Mapping[str, K]) -> K | None:
        name = self.names.name(tag)
        kind = table.get(name)
        if kind is None and handled_by_feedparser(name):
            raise UnprovenElement
        return kind

    def _item(self, item: Element) -> None:
        if len(self.items) == self.most:
            self.full = True
            return
        draft = FastItemBuilder()
        before = None
        if given := attributes(item):
            if "href" in given or "lastmod" in given:
                raise UnprovenElement
            draft.guid = given.get("rdf:about", "")
            before = self.place.enter(given)
        self._tell(draft, item)
        if before is not None:
            self.place.leave(before)
        draft.complete()
        language = self.whole.language or self.page.language
        self.languages.add(language)
        self.items.append(build_item(draft, self.page, language))

    def _tell(self, draft: FastItemBuilder, item: Element) -> None:
        kinds, place = self._item_kinds, self.place
        for element in item:
            try:
                kind = kinds[element.tag]
            except KeyError:
                kind = kinds[element.tag] = self._kind(element.tag, ITEM)
            if kind is not None:
                kind(place, draft, element)
            elif len(element):
                skip_element(place, element, ITEM)


def _dialect(family: str, version: str) -> str:
    if family == "rss":
        newest = "rss20" if version.startswith("2.") else "rss"
        return _RSS_VERSIONS.get(version, newest)
    return {"atom": "atom10", "rdf": "rss10"}[family]
