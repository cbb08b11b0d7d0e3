"""Splits a parsed page into blocks of text, each inside a chain of elements, in time proportional to its length.

The parser writes its tree as regular HTML: end tags are complete, and `<` and `>` occur only in tags. So one regular
expression splits it, whatever the depth. A block is a paragraph, a heading, an item of a list, a cell, code, or other
text without a block element inside.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Final

from usher.crawl.page.element_hints import Hint

MAX_UNCLOSED: Final = 20  # elements that an end tag may leave

_BREAK: Final = "\0"  # a line break of the page, in texts whose other breaks are only spaces
_TAG: Final = re.compile(r"<([^ >]*)([^>]*)>")  # name and attributes
_ID: Final = re.compile(r' (?:id|name)="([^"\s]{1,200})"')
_CLASS: Final = re.compile(r'(?<![^ ])class="([^"]*)"')
_LINK_SIGNS: Final = " ¶§🔗\N{NO-BREAK SPACE}"  # documentation appends links with these to headings
_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_PARAGRAPHS: Final = (
    *_HEADINGS,
    "p",
    "dt",
    "pre",
    "caption",
    "figcaption",
    "legend",
    "button",
    "xmp",
)
_CELLS: Final = ("td", "th")
_BLOCKS: Final = """
    address article aside blockquote body center dd details dialog div dl fieldset figure footer form header hgroup
    html li main menu nav ol section summary table tbody tfoot thead tr ul"""
_CONTAINERS: Final = _BLOCKS.split()
_WITHOUT_TEXT: Final = (
    "annotation audio canvas datalist noembed noframes select svg template textarea title video"
)
_HIDDEN: Final = _WITHOUT_TEXT.split()
CODE: Final = frozenset({"pre", "xmp"})
HEADINGS: Final = frozenset(_HEADINGS)
PARAGRAPHS: Final = frozenset(_PARAGRAPHS)
_TITLES: Final = HEADINGS | {"dt"}

# What a tag means for blocks; other tags are inside a line of text.
_CLOSE, _OPEN, _CELL, _LINK, _LINK_END, _TARGET, _LINE_BREAK, _HIDE = range(1, 9)
_ROLES: Final = {
    **dict.fromkeys((*_CONTAINERS, *_PARAGRAPHS), _OPEN),
    **dict.fromkeys((f"/{name}" for name in (*_CONTAINERS, *_PARAGRAPHS, *_CELLS)), _CLOSE),
    **dict.fromkeys(_CELLS, _CELL),
    **dict.fromkeys(_HIDDEN, _HIDE),
    "a": _LINK,
    "/a": _LINK_END,
    "span": _TARGET,
    "br": _LINE_BREAK,
    "hr": _LINE_BREAK,
}


class Element:
    """An element around blocks; the numbers are those of all its text. The caller sets hint and points."""

    __slots__ = ("attributes", "chars", "hint", "link_chars", "number", "parent", "points", "tag")

    def __init__(self, tag: str, parent: "Element | None", number: int, attributes: str) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.hint = Hint.NONE
        self.number = number
        self.chars = 0
        self.link_chars = 0
        self.points = 0.0

    @property
    def classes(self) -> str:
        """The class attribute."""
        return match[1] if (match := _CLASS.search(self.attributes)) else ""

    @property
    def prose(self) -> int:
        """Characters that are not in links."""
        return self.chars - self.link_chars

    @property
    def link_share(self) -> float:
        return self.link_chars / self.chars if self.chars else 0.0

    def ancestors(self) -> "Iterator[Element]":
        """Yield the element, its parent, and so on."""
        element: Element | None = self
        while element is not None:
            yield element
            element = element.parent


@dataclass(slots=True, eq=False)
class Block:
    """A text without block elements inside; `separator` is between it and the block before it.

    `anchor` is the id of a heading or a definition, or of an element that begins with it.
    """

    element: Element
    text: str
    link_chars: int
    separator: str
    anchor: str = ""


@dataclass(slots=True)
class PageBlocks:
    """All blocks and elements of a page, in order."""

    blocks: list[Block] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    in_pieces: bool = False


def split_blocks(bodies: Sequence[str]) -> PageBlocks:
    """Return the blocks of the bodies that the parser wrote; a page has several bodies if it was parsed in pieces."""
    splitter = _BlockSplitter()
    for html in bodies:
        splitter.split(html)
    page = splitter.result
    page.in_pieces = len(bodies) > 1
    for element in reversed(page.elements):  # parents come first
        if element.parent is not None:
            element.parent.chars += element.chars
            element.parent.link_chars += element.link_chars
    return page


class _BlockSplitter:
    """The state between two tags."""

    def __init__(self) -> None:
        self.result = PageBlocks()
        self._element = self._add_element("html", None, "")
        self._texts: list[str] = []
        self._link_chars = 0
        self._in_link = False
        self._separator = "\n"
        self._is_new_row = False
        self._anchor = ""

    def split(self, html: str) -> None:
        parts = _TAG.split(_without_comments(html.replace(_BREAK, " ")))
        texts, roles = self._texts, _ROLES
        hidden_until = ""
        for text, name, attributes in zip(
            parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True
        ):
            if hidden_until:
                hidden_until = hidden_until if name != hidden_until else ""
                continue
            # Whitespace before the first word of a block is not needed.
            if text and (texts or not text.isspace()):
                texts.append(text)
                if self._in_link:
                    self._link_chars += len(text)
            role = roles.get(name)
            if role is None:
                continue
            if role <= _CELL:
                self._change_element(role, name, attributes)
            elif role == _HIDE:
                hidden_until = "/" + name
            else:
                self._read_inline(role, attributes)
        if texts:
            self._end_block()
        self._element = self.result.elements[0]

    def _change_element(self, role: int, name: str, attributes: str) -> None:
        if self._texts:
            self._end_block()
        if role == _CLOSE:
            self._close(name[1:])
        else:
            self._open(role, name, attributes)

    def _read_inline(self, role: int, attributes: str) -> None:
        if role == _LINK_END:
            self._in_link = False
        elif role == _LINE_BREAK:
            self._texts.append(_BREAK)
        elif attributes:
            if role == _LINK and " href=" in attributes:
                self._in_link = True
            if not self._anchor and ("id=" in attributes or "name=" in attributes):
                self._set_anchor(attributes)

    def _open(self, role: int, name: str, attributes: str) -> None:
        if role == _CELL:
            self._separator = "\n" if self._is_new_row else " "
        self._is_new_row = name == "tr"
        self._element = self._add_element(name, self._element, attributes)
        if attributes and 'id="' in attributes:
            self._set_anchor(attributes)

    def _set_anchor(self, attributes: str) -> None:
        if match := _ID.search(attributes):
            self._anchor = match[1]

    def _add_element(self, tag: str, parent: Element | None, attributes: str) -> Element:
        elements = self.result.elements
        element = Element(tag, parent, len(elements), attributes)
        elements.append(element)
        return element

    def _close(self, name: str) -> None:
        """Leave the element of this name; only raw text, such as `xmp`, has end tags that belong to no element."""
        self._anchor = ""  # of an element without text
        element: Element | None = self._element
        for _ in range(MAX_UNCLOSED):
            if element is None or element.parent is None:
                return
            if element.tag == name:
                self._element = element.parent
                return
            element = element.parent

    def _end_block(self) -> None:
        """End the text since the last block; text that is only whitespace is no block."""
        element = self._element
        text = _clean("".join(self._texts), is_code=element.tag in CODE)
        self._texts.clear()
        link_chars, self._link_chars = self._link_chars, 0
        if not text:
            return
        anchor = ""
        if element.tag in _TITLES:
            text = text.rstrip(_LINK_SIGNS) or text
            anchor = unescape(self._anchor)
        block = Block(element, text, min(link_chars, len(text)), self._separator, anchor)
        self._anchor, self._separator = "", "\n"
        element.chars += len(text)
        element.link_chars += block.link_chars
        self.result.blocks.append(block)


def _clean(text: str, *, is_code: bool) -> str:
    """Return the text without superfluous whitespace, but with its line breaks."""
    if "&" in text:
        text = unescape(text)
    if is_code:
        lines = text.replace(_BREAK, "\n").strip("\n").splitlines()
        return "\n".join(line.rstrip() for line in lines)
    if _BREAK not in text:
        return " ".join(text.split())
    lines = [" ".join(line.split()) for line in text.split(_BREAK)]
    return "\n".join(filter(None, lines))


def _without_comments(html: str) -> str:
    first, *rest = html.split("<!--")
    return "".join([first, *(part.partition("-->")[2] for part in rest)]) if rest else html
