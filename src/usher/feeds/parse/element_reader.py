"""Reads names, attributes and texts of elements exactly as feedparser does.

Anything for which the result could differ raises `UnprovenElement`, and feedparser reads the whole feed.
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
_USERLAND: Final = "backend.userland.com/rss"  # part of several namespaces of RSS

_RSS_09: Final = "http://my.netscape.com/rdf/simple/0.9/"
# A feed that declares two dialects is left to feedparser, which takes the first that it meets.
_OTHER_DIALECTS: Final = {
    "atom": frozenset({RSS_1, _RSS_09}),
    "rss": frozenset({RSS_1, _RSS_09}),
    "rdf": frozenset({ATOM.lower(), _RSS_09}),
}
_NO_ATTRIBUTES: Final[Attributes] = {}
_ATTRIBUTE_NAMES: Final = {
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
# These names are keys of feedparser's lists and dictionaries, which such an element overwrites.
_RESERVED: Final = frozenset(
    {"links", "authors", "contributors", "tags", "image", "where", "href", "hour", "day"}
)
# Real feeds hardly have these elements, so a fast handler gains nothing.
_RARE: Final = frozenset({"rating", "ev_startdate", "ev_enddate", "ev_location"}) | {
    f"xcal_{name}" for name in ("dtstart", "dtend", "location")
}
_LEFT_TO_FEEDPARSER: Final = HANDLED | _RESERVED | _RARE
_DECLARED: Final = re.compile(rb"""\sxmlns(?::([^\s=]+))?\s*=\s*["']([^"']*)["']""")
_FIRST: Final = re.compile(rb"<[A-Za-z_]")
_KNOWN_PREFIXES: Final = frozenset(name.partition("_")[0] for name in HANDLED if "_" in name) | {
    prefix.lower() for prefix in PREFIXES.values() if prefix
}
_QUOTES: Final = {'"': "&quot;"}
_CONTROLS: Final = re.compile("[\x80-\x9f]")
_CP1252: Final = {
    code: bytes([code]).decode("cp1252")
    for code in range(0x80, 0xA0)
    if code not in {0x81, 0x8D, 0x8F, 0x90, 0x9D}
}


class UnprovenElement(Exception):
    """An element that feedparser might read differently."""


class ElementNames:
    """The names that feedparser gives to elements, by the namespaces that a feed declares."""

    def __init__(self, utf8: bytes, family: str) -> None:
        self.uris: set[str] = set()
        self._prefixes: dict[str, str] = {}
        for prefix, uri in _declarations(utf8):
            self._declare(prefix.decode(), uri.decode())
        others = _OTHER_DIALECTS.get(family)
        if others is None or not others.isdisjoint(self.uris):
            raise UnprovenElement
        if family == "rdf" and RSS_1 not in self.uris:
            raise UnprovenElement

    def _declare(self, prefix: str, uri: str) -> None:
        if "&" in uri:
            raise UnprovenElement
        self.uris.add(uri.lower())
        usual = _usual_prefix(uri)
        low = prefix.lower()
        if usual is None:
            if low in _KNOWN_PREFIXES or low == UNDECLARED_ATOM:
                raise UnprovenElement
            self._prefixes.setdefault(uri, prefix)
        elif low in _KNOWN_PREFIXES and low != usual.lower():
            raise UnprovenElement

    def name(self, tag: str) -> str:
        """A name such as `title` or `dc_creator`; empty for an element of an unknown namespace."""
        uri, _, local = tag[1:].rpartition("}") if tag[0] == "{" else ("", "", tag)
        prefix = _usual_prefix(uri)
        if prefix is None:
            if not self._prefixes.get(uri):
                raise UnprovenElement
            return ""
        return f"{prefix.lower()}_{local.lower()}" if prefix else local.lower()


def _declarations(utf8: bytes) -> list[tuple[bytes, bytes]]:
    """The prefixes and namespaces of all declarations; usually the first element has them all."""
    start = _FIRST.search(utf8)
    end = utf8.find(b">", start.start() if start else 0)
    pairs: list[tuple[bytes, bytes]] = _DECLARED.findall(utf8, 0, end)
    if utf8.count(b"xmlns") > len(pairs):
        pairs = _DECLARED.findall(utf8)
    return pairs


def _usual_prefix(uri: str) -> str | None:
    """The prefix that feedparser uses for a namespace; None if it does not know it."""
    low = uri.lower()
    return "" if _USERLAND in low else PREFIXES.get(low)


def handled_by_feedparser(name: str) -> bool:
    """Whether an element of this name changes what feedparser returns."""
    return name in _LEFT_TO_FEEDPARSER or name.endswith("_detail")


def attributes(element: Element) -> Attributes:
    """The attributes by the names that feedparser gives them."""
    items = element.items()
    if not items:
        return _NO_ATTRIBUTES
    attrs: dict[str, str] = {}
    for name, value in items:
        low = _ATTRIBUTE_NAMES.get(name)
        if low is None:
            if name[0] == "{":
                raise UnprovenElement
            low = name.lower()
        attrs[low] = value.lower() if low == "type" or low == "rel" else value  # noqa: PLR1714 - hot
    return attrs


def repair_encoding(text: str) -> str:
    """The text without mojibake: UTF-8 read as Latin-1, or control characters that are Windows-1252."""
    with suppress(UnicodeError):
        text = text.encode("latin-1").decode()
    return text.translate(_CP1252) if _CONTROLS.search(text) else text


def plain_text(element: Element) -> str:
    """The text of an element without children."""
    if len(element):
        raise UnprovenElement
    text = (element.text or "").strip()
    return text if text.isascii() else repair_encoding(text)


class ElementContext:
    """The base URL and the language at the current element."""

    __slots__ = ("atom", "base", "language", "names")

    def __init__(self, names: ElementNames, base: str, *, atom: bool) -> None:
        self.names = names
        self.base = base
        self.language = ""
        self.atom = atom

    def enter(self, attrs: Attributes) -> tuple[str, str]:
        """Enter an element with its own base or language; returns the previous ones for `leave`."""
        before = self.base, self.language
        self.base, self.language = self.base_in(attrs), self.language_in(attrs)
        return before

    def leave(self, before: tuple[str, str]) -> None:
        self.base, self.language = before

    def base_in(self, attrs: Attributes) -> str:
        base = attrs.get("xml:base", attrs.get("base")) if attrs else None
        if not base:
            return self.base
        return safe_base(self.base, base) or self.base

    def language_in(self, attrs: Attributes) -> str:
        own = attrs.get("xml:lang", attrs.get("lang")) if attrs else None
        return self.language if own is None else own.replace("_", "-")

    def address(self, element: Element, attrs: Attributes = _NO_ATTRIBUTES) -> str:
        """The absolute URL in the text of an element."""
        if len(element):
            raise UnprovenElement
        text = (element.text or "").strip()
        if not text:
            return ""
        text = join(self.base_in(attrs) if attrs else self.base, text)
        return text if text.isascii() else repair_encoding(text)

    def content(self, element: Element, attrs: Attributes, default: str) -> Content:
        """The text of an element that may be HTML."""
        kind, base = default, self.base
        if attrs:
            kind, base = _type(attrs, default), self.base_in(attrs)
        if len(element):
            text = self._inline(element, kind)
        else:
            text = (element.text or "").strip()
            if kind == XHTML:
                text = escape(text)
        if kind == "text/plain" and ("</" in text or "&" in text) and not self.atom:
            kind = _guess_type(text)
        return Content(text if text.isascii() else repair_encoding(text), kind, base)

    def _inline(self, element: Element, kind: str) -> str:
        """XHTML that is not escaped, without the single `div` around it."""
        if kind != XHTML or not self.atom:
            raise UnprovenElement
        only = element[0]
        around = (element.text or "") + (only.tail or "")
        if len(element) == 1 and only.tag == f"{_XHTML}div" and not around.strip():
            _start_tag(only)
            element = only
        return _inner_xml(element, 0).strip()


def _type(attrs: Attributes, default: str) -> str:
    if "mode" in attrs or "src" in attrs:
        raise UnprovenElement
    try:
        return _TYPES[attrs.get("type", default)]
    except KeyError:
        raise UnprovenElement from None


def _guess_type(text: str) -> str:
    """The type of a text without a declared type: HTML needs an end tag or an entity."""
    may_be = "</" in text or ";" in text
    return "text/html" if may_be and looks_like_html(text) else "text/plain"


def _inner_xml(element: Element, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise UnprovenElement
    pieces = [escape(element.text or "")]
    for child in element:
        name, start = _start_tag(child)
        pieces += (start, _inner_xml(child, depth + 1), f"</{name}>", escape(child.tail or ""))
    return "".join(pieces)


def _start_tag(element: Element) -> tuple[str, str]:
    """The name of an element and its start tag."""
    name = element.tag.removeprefix(_XHTML).lower()
    attrs = attributes(element)
    if name[0] == "{" or element.tag[0] != "{" or name in _NOT_INLINE or "base" in attrs:
        raise UnprovenElement
    if any(":" in key for key in attrs):
        raise UnprovenElement
    quoted = (f' {key}="{escape(value, _QUOTES)}"' for key, value in attrs.items())
    return name, f"<{name}{''.join(quoted)}>"
