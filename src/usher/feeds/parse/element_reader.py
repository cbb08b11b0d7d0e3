"""Elements of well-formed feeds, read as feedparser reads them, or declined.

Comes from the tree of a feed; goes to the kinds of elements that fill the drafts. Whoever meets something that is not
proven to be read alike raises `Decline`, and the whole feed goes to feedparser.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from usher.feeds.parse.feedparser_patches import (
    HANDLED,
    PREFIXES,
    UNDECLARED_ATOM,
    looks_like_html,
    safe_base,
)
from usher.feeds.parse.item_builder import XHTML, Content
from usher.feeds.parse.relative_urls import join

Attributes = Mapping[str, str]

ATOM: Final = "http://www.w3.org/2005/Atom"
RSS_1: Final = "http://purl.org/rss/1.0/"
RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_XML: Final = "http://www.w3.org/XML/1998/namespace"
_XHTML: Final = "{http://www.w3.org/1999/xhtml}"
_USERLAND: Final = "backend.userland.com/rss"  # under which RSS had many names

_RSS_09: Final = "http://my.netscape.com/rdf/simple/0.9/"
# Of several dialects declared in one feed, feedparser takes the one that it sees first.
_OTHERS: Final = {
    "atom": frozenset({RSS_1, _RSS_09}),
    "rss": frozenset({RSS_1, _RSS_09}),
    "rdf": frozenset({ATOM.lower(), _RSS_09}),
}
_NONE: Final[Attributes] = {}
_NAMED: Final = {
    f"{{{_XML}}}lang": "xml:lang",
    f"{{{_XML}}}base": "xml:base",
    f"{{{_XML}}}space": "xml:space",
    f"{{{RDF}}}about": "rdf:about",
    f"{{{RDF}}}resource": "rdf:resource",
    f"{{{RDF}}}parseType": "rdf:parsetype",
    **{name: name for name in ("href", "url", "rel", "type", "term", "domain", "length")},
    "isPermaLink": "ispermalink",
}
_TYPES: Final = {
    "text": "text/plain",
    "plain": "text/plain",
    "text/plain": "text/plain",
    "html": "text/html",
    "text/html": "text/html",
    "xhtml": XHTML,
    XHTML: XHTML,
}
_MAX_DEPTH: Final = 100
_NOT_INLINE: Final = frozenset({"body", "svg", "math"})
# Keys that feedparser keeps lists and dictionaries under: an element of that name would overwrite them.
_TAKEN: Final = frozenset(
    {"links", "authors", "contributors", "tags", "image", "where", "href", "hour", "day"}
)
_DECLARED: Final = re.compile(rb"""\sxmlns(?::([^\s=]+))?\s*=\s*["']([^"']*)["']""")
_FIRST: Final = re.compile(rb"<[A-Za-z_]")
_MEANINGFUL: Final = frozenset(name.partition("_")[0] for name in HANDLED if "_" in name) | {
    prefix.lower() for prefix in PREFIXES.values() if prefix
}
_CONTROLS: Final = re.compile("[\x80-\x9f]")
_CP1252: Final = {
    code: bytes([code]).decode("cp1252")
    for code in range(0x80, 0xA0)
    if code not in {0x81, 0x8D, 0x8F, 0x90, 0x9D}
}


class UnprovenElement(Exception):
    """Something here is not proven to be read as feedparser reads it."""


class ElementNames:
    """The names of elements as feedparser calls them, by the namespaces that a feed declares."""

    def __init__(self, utf8: bytes, family: str) -> None:
        self.uris: set[str] = set()
        self._prefixes: dict[str, str] = {}
        for prefix, uri in _declarations(utf8):
            self._declare(prefix.decode(), uri.decode())
        if family not in _OTHERS or not _OTHERS[family].isdisjoint(self.uris):
            raise UnprovenElement
        if family == "rdf" and RSS_1 not in self.uris:
            raise UnprovenElement

    def _declare(self, prefix: str, uri: str) -> None:
        if "&" in uri:
            raise UnprovenElement
        self.uris.add(uri.lower())
        known = _known(uri)
        low = prefix.lower()
        if known is None:
            if low in _MEANINGFUL or low == UNDECLARED_ATOM:
                raise UnprovenElement
            self._prefixes.setdefault(uri, prefix)
        elif low in _MEANINGFUL and low != known.lower():
            raise UnprovenElement

    def name(self, tag: str) -> str:
        """`title`, `dc_creator`; nothing for what feedparser gives no meaning."""
        uri, _, local = tag[1:].rpartition("}") if tag[0] == "{" else ("", "", tag)
        prefix = _known(uri)
        if prefix is None:
            if not self._prefixes.get(uri):
                raise UnprovenElement
            return ""
        return f"{prefix.lower()}_{local.lower()}" if prefix else local.lower()


def _declarations(utf8: bytes) -> list[tuple[bytes, bytes]]:
    """All that is declared, which is mostly in the first element."""
    start = _FIRST.search(utf8)
    end = utf8.find(b">", start.start() if start else 0)
    found: list[tuple[bytes, bytes]] = _DECLARED.findall(utf8, 0, end)
    if utf8.count(b"xmlns") > len(found):
        found = _DECLARED.findall(utf8)
    return found


def _known(uri: str) -> str | None:
    low = uri.lower()
    return "" if _USERLAND in low else PREFIXES.get(low)


def handled_by_feedparser(name: str) -> bool:
    """Whether feedparser does something with an element of this name."""
    return name in HANDLED or name in _TAKEN or name.endswith("_detail")


def attributes(element: Element) -> Attributes:
    """The attributes under the names that feedparser gives them."""
    items = element.items()
    if not items:
        return _NONE
    made: dict[str, str] = {}
    for name, value in items:
        low = _NAMED.get(name)
        if low is None:
            if name[0] == "{":
                raise UnprovenElement
            low = name.lower()
        made[low] = value.lower() if low == "type" or low == "rel" else value  # noqa: PLR1714 - hot
    return made


def repair_encoding(text: str) -> str:
    """A text whose UTF-8 was once taken for Latin-1, or whose controls are really letters of Windows."""
    with suppress(UnicodeError):
        text = text.encode("latin-1").decode()
    return text.translate(_CP1252) if _CONTROLS.search(text) else text


def plain_text(element: Element) -> str:
    """The text of an element that has nothing inside but text."""
    if len(element):
        raise UnprovenElement
    text = (element.text or "").strip()
    return text if text.isascii() else repair_encoding(text)


class ElementContext:
    """Where in the feed we are: what addresses are seen from, and in which language."""

    __slots__ = ("atom", "base", "language", "names")

    def __init__(self, names: ElementNames, base: str, *, atom: bool) -> None:
        self.names = names
        self.base = base
        self.language = ""
        self.atom = atom

    def enter(self, given: Attributes) -> tuple[str, str]:
        """Go into an element that has a base or a language of its own; what was before is given back."""
        before = self.base, self.language
        self.base, self.language = self.base_in(given), self.language_in(given)
        return before

    def leave(self, before: tuple[str, str]) -> None:
        self.base, self.language = before

    def base_in(self, given: Attributes) -> str:
        base = given.get("xml:base", given.get("base")) if given else None
        if not base:
            return self.base
        return safe_base(self.base, base) or self.base

    def language_in(self, given: Attributes) -> str:
        own = given.get("xml:lang", given.get("lang")) if given else None
        return self.language if own is None else own.replace("_", "-")

    def address(self, element: Element, given: Attributes = _NONE) -> str:
        """An address as the text of an element."""
        if len(element):
            raise UnprovenElement
        text = (element.text or "").strip()
        if not text:
            return ""
        text = join(self.base_in(given) if given else self.base, text)
        return text if text.isascii() else repair_encoding(text)

    def content(self, element: Element, given: Attributes, default: str) -> Content:
        """A text that may be HTML."""
        kind, base = default, self.base
        if given:
            kind, base = _type(given, default), self.base_in(given)
        if len(element):
            text = self._inline(element, kind)
        else:
            text = (element.text or "").strip()
            if kind == XHTML:
                text = escape(text)
        if kind == "text/plain" and ("</" in text or "&" in text) and not self.atom:
            kind = _guessed(text)
        return Content(text if text.isascii() else repair_encoding(text), kind, base)

    def _inline(self, element: Element, kind: str) -> str:
        """Markup that is not escaped: without the one `div` that Atom puts around it."""
        if kind != XHTML or not self.atom:
            raise UnprovenElement
        only = element[0]
        around = (element.text or "") + (only.tail or "")
        if len(element) == 1 and only.tag == f"{_XHTML}div" and not around.strip():
            _opened(only)
            element = only
        return _inside(element, 0).strip()


def _type(given: Attributes, default: str) -> str:
    if "mode" in given or "src" in given:
        raise UnprovenElement
    try:
        return _TYPES[given.get("type", default)]
    except KeyError:
        raise UnprovenElement from None


def _guessed(text: str) -> str:
    """What a text is that nobody calls HTML: it takes an end tag or an entity to be it."""
    may_be = "</" in text or ";" in text
    return "text/html" if may_be and looks_like_html(text) else "text/plain"


def _inside(element: Element, deep: int) -> str:
    if deep > _MAX_DEPTH:
        raise UnprovenElement
    pieces = [escape(element.text or "")]
    for child in element:
        name, start = _opened(child)
        pieces += (start, _inside(child, deep + 1), f"</{name}>", escape(child.tail or ""))
    return "".join(pieces)


def _opened(element: Element) -> tuple[str, str]:
    name = element.tag.removeprefix(_XHTML).lower()
    given = attributes(element)
    if name[0] == "{" or element.tag[0] != "{" or name in _NOT_INLINE or "base" in given:
        raise UnprovenElement
    if any(":" in key for key in given):
        raise UnprovenElement
    quoted = (f' {key}="{escape(value, _QUOTES)}"' for key, value in given.items())
    return name, f"<{name}{''.join(quoted)}>"


_QUOTES: Final = {'"': "&quot;"}
