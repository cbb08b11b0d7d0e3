"""Writes safe HTML: only harmless elements, attributes and URLs. Pure.

Nothing is copied from the input. Each tag is written from a list of allowed names, and each text and value is escaped.
"""

import re
from html import escape
from typing import Final, NamedTuple

from ada_url import join_url
from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_HTML_CHARS: Final = 1_000_000
MAX_DEPTH: Final = 64  # deeper elements are left out, but not their text
MAX_URL_CHARS: Final = 4_000
MAX_MAILTO_CHARS: Final = 1_000

_ALLOWED: Final = """
    a abbr b blockquote br caption cite code dd del dfn div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins
    kbd li mark ol p pre q s samp small span strong sub sup table tbody td tfoot th thead time tr u ul var"""
# Dropped with their content, which is no text or follows other rules than HTML.
_DROPPED: Final = """
    applet area audio base basefont bgsound button canvas datalist dialog embed fencedframe frame frameset head iframe
    input keygen link map math meta meter noembed noframes noscript object optgroup option output param plaintext
    portal progress script select source style svg template textarea title track video xmp"""
_ALLOWED_TAGS: Final = frozenset(_ALLOWED.split())
_DROPPED_TAGS: Final = frozenset(_DROPPED.split())
_VOID_TAGS: Final = frozenset({"br", "hr", "img"})
_VISIBLE_TAGS: Final = frozenset({"br", "hr", "img", "td", "th"})  # even without content
_TEXT_ATTRIBUTES: Final = {
    "a": ("title",),
    "abbr": ("title",),
    "img": ("alt", "title"),
    "time": ("datetime",),
}
_NUMBER_ATTRIBUTES: Final = {
    "img": ("width", "height"),
    "ol": ("start",),
    "td": ("colspan", "rowspan"),
    "th": ("colspan", "rowspan"),
}
_URL_ATTRIBUTES: Final = {"a": "href", "img": "src", "blockquote": "cite", "q": "cite"}
_NUMBER: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8}){0,4}", re.ASCII)
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)


class SanitizedHtml(NamedTuple):
    """Safe HTML, and whether the end was cut."""

    html: str
    cut: bool


def sanitize(
    tree: LexborHTMLParser, base: str = "", *, max_chars: int = MAX_HTML_CHARS
) -> SanitizedHtml:
    """The safe HTML of a tree; relative links are resolved against `base`."""
    writer = _Writer(base, max_chars)
    if tree.body is not None:
        writer.walk(tree.body)
    return SanitizedHtml(writer.text(), writer.cut)


class _Writer:
    """Writes a tree iteratively, because a tree may be deeper than Python's stack."""

    def __init__(self, base: str, max_chars: int) -> None:
        self._base, self._left = base, max_chars
        self.cut = False
        self._parts: list[str] = []
        # Of each open element: the tag, its index in the parts, and the number of visible things before it.
        self._open: list[tuple[str, int, int]] = []
        self._visible = 0

    def text(self) -> str:
        return "".join(self._parts).strip()

    def walk(self, root: LexborNode) -> None:
        waiting: list[LexborNode | None] = _children(root)  # None ends the open element
        while waiting:
            node = waiting.pop()
            if node is None:
                self._end()
            elif self._left > 0:
                waiting += self._begin(node)
            else:
                self.cut = True

    def _begin(self, node: LexborNode) -> list[LexborNode | None]:
        """Write a text or a start tag; returns what to write next, the last first."""
        tag = node.tag or ""
        if node.is_text_node:
            self._write_text(node.text_content or "")
            return []
        if not node.is_element_node or tag in _DROPPED_TAGS or ":" in tag:
            return []
        if tag not in _ALLOWED_TAGS or len(self._open) >= MAX_DEPTH:
            return _children(node)
        visible_before = self._visible
        self._visible += tag in _VISIBLE_TAGS
        start = f"<{tag}{self._attributes(tag, node)}>"
        if tag in _VOID_TAGS:
            self._put(start)
            return []
        self._open.append((tag, len(self._parts), visible_before))
        self._put(start)
        return [None, *_children(node)]

    def _end(self) -> None:
        """Close the open element, or remove it if it shows nothing."""
        tag, index, visible_before = self._open.pop()
        if self._visible > visible_before:
            self._parts.append(f"</{tag}>")
        else:
            del self._parts[index:]
            self._parts.append(" ")

    def _write_text(self, text: str) -> None:
        text = _INVISIBLE.sub("", text)
        written = escape(text, quote=False)
        if len(written) > self._left:
            self.cut = True
            written = escape(text[: self._left], quote=False)
        if len(written) > self._left:
            # An escape has at most five characters.
            written = escape(text[: self._left // 5], quote=False)
        if written:
            self._visible += not text.isspace()
            self._put(written)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._left -= max(len(text), 1)

    def _attributes(self, tag: str, node: LexborNode) -> str:
        source = node.attributes
        safe = {name: source[name] for name in _TEXT_ATTRIBUTES.get(tag, ()) if source.get(name)}
        for name in _NUMBER_ATTRIBUTES.get(tag, ()):
            if _NUMBER.fullmatch(source.get(name) or ""):
                safe[name] = source[name]
        if _LANGUAGE.fullmatch(source.get("lang") or ""):
            safe["lang"] = source["lang"]
        if (source.get("dir") or "").lower() in ("ltr", "rtl", "auto"):
            safe["dir"] = source["dir"]
        url_name = _URL_ATTRIBUTES.get(tag, "")
        if url := safe_url(source.get(url_name) or "", self._base, mail=tag == "a"):
            safe[url_name] = url
            if tag == "a":
                safe["rel"] = "nofollow noopener noreferrer"
        return "".join(f' {name}="{_value(value or "")}"' for name, value in safe.items())


def safe_url(text: str, base: str, *, mail: bool = False) -> str:
    """The absolute web URL of a link, with `mail` also a `mailto:` URL; empty for every other link."""
    if not text or len(text) > MAX_URL_CHARS:
        return ""
    try:
        url = str(join_url(base or "about:blank", text))
    except (ValueError, UnicodeError):
        return ""
    if len(url) <= MAX_URL_CHARS and url.startswith(("https://", "http://")):
        return url
    return url if mail and url.startswith("mailto:") and len(url) <= MAX_MAILTO_CHARS else ""


def _value(text: str) -> str:
    return escape(_INVISIBLE.sub("", text)[:MAX_URL_CHARS], quote=True)


def _children(node: LexborNode) -> list[LexborNode | None]:
    """The children of a node, the last first."""
    children: list[LexborNode | None] = []
    child = node.last_child
    while child is not None:
        children.append(child)
        child = child.prev
    return children
