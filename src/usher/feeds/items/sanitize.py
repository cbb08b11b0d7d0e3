"""HTML that can be shown: only elements, attributes and addresses that can do no harm, written anew.

Comes from the trees of a page or an item; goes to `content_clean_html`. Nothing is copied from what came: each tag is
written by us from a short list of names, and each text and value is escaped, so that whatever a parser makes of it is
what stands here. Pure.
"""

import re
from html import escape
from typing import Final, NamedTuple

from ada_url import join_url
from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_HTML_CHARS: Final = 1_000_000  # characters
MAX_DEPTH: Final = 64  # elements in each other; deeper ones are left out, their text is not
MAX_URL_CHARS: Final = 4_000
MAX_MAILTO_CHARS: Final = 1_000

_KEPT: Final = """
    a abbr b blockquote br caption cite code dd del dfn div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins
    kbd li mark ol p pre q s samp small span strong sub sup table tbody td tfoot th thead time tr u ul var"""
# With all they hold: it is no text, or it is read by other rules than those of HTML.
_DROPS: Final = """
    applet area audio base basefont bgsound button canvas datalist dialog embed fencedframe frame frameset head iframe
    input keygen link map math meta meter noembed noframes noscript object optgroup option output param plaintext
    portal progress script select source style svg template textarea title track video xmp"""
_TAGS: Final = frozenset(_KEPT.split())
_DROPPED: Final = frozenset(_DROPS.split())
_VOID: Final = frozenset({"br", "hr", "img"})
_SHOWS: Final = frozenset({"br", "hr", "img", "td", "th"})  # also with nothing in it
_WORDS: Final = {
    "a": ("title",),
    "abbr": ("title",),
    "img": ("alt", "title"),
    "time": ("datetime",),
}
_NUMBERS: Final = {
    "img": ("width", "height"),
    "ol": ("start",),
    "td": ("colspan", "rowspan"),
    "th": ("colspan", "rowspan"),
}
_URLS: Final = {"a": "href", "img": "src", "blockquote": "cite", "q": "cite"}
_NUMBER: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8}){0,4}", re.ASCII)
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)


class SanitizedHtml(NamedTuple):
    """HTML that can be shown, and whether there was more of it."""

    html: str
    cut: bool


def sanitize(
    tree: LexborHTMLParser, base: str = "", *, most: int = MAX_HTML_CHARS
) -> SanitizedHtml:
    """What of a tree can be shown, and no more of it than this; `base` is where its links begin."""
    writer = _Writer(base, most)
    if tree.body is not None:
        writer.walk(tree.body)
    return SanitizedHtml(writer.text(), writer.cut)


class _Writer:
    """Goes through a tree without calling itself, for a tree may be deeper than Python's stack."""

    def __init__(self, base: str, most: int) -> None:
        self._base, self._left = base, most
        self.cut = False
        self._parts: list[str] = []
        self._open: list[
            tuple[str, int, int]
        ] = []  # tag, where it stands, what had been shown by then
        self._shown = 0

    def text(self) -> str:
        return "".join(self._parts).strip()

    def walk(self, root: LexborNode) -> None:
        # None is the end of an element that was written.
        waiting: list[LexborNode | None] = _children(root)
        while waiting:
            node = waiting.pop()
            if node is None:
                self._end()
            elif self._left > 0:
                waiting += self._begin(node)
            else:
                self.cut = True

    def _begin(self, node: LexborNode) -> list[LexborNode | None]:
        """Write a node; returns what is to be written after it, the last first."""
        tag = node.tag or ""
        if node.is_text_node:
            self._say(node.text_content or "")
            return []
        if not node.is_element_node or tag in _DROPPED or ":" in tag:
            return []
        if tag not in _TAGS or len(self._open) >= MAX_DEPTH:
            return _children(node)
        self._shown += tag in _SHOWS
        if tag in _VOID:
            self._put(f"<{tag}{self._attributes(tag, node)}>")
            return []
        # Before what it holds is shown, not after: one that holds nothing is taken back.
        self._open.append((tag, len(self._parts), self._shown - (tag in _SHOWS)))
        self._put(f"<{tag}{self._attributes(tag, node)}>")
        return [None, *_children(node)]

    def _end(self) -> None:
        tag, place, shown = self._open.pop()
        if self._shown > shown:
            self._parts.append(f"</{tag}>")
        else:
            del self._parts[place:]
            self._parts.append(" ")

    def _say(self, text: str) -> None:
        text = _UNSEEN.sub("", text)
        written = escape(text, quote=False)
        if len(written) > self._left:
            self.cut = True
            written = escape(text[: self._left], quote=False)
        if len(written) > self._left:
            written = escape(text[: self._left // 5], quote=False)  # each may become five
        if written:
            self._shown += not text.isspace()
            self._put(written)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._left -= max(len(text), 1)

    def _attributes(self, tag: str, node: LexborNode) -> str:
        given = node.attributes
        kept = {name: given[name] for name in _WORDS.get(tag, ()) if given.get(name)}
        for name in _NUMBERS.get(tag, ()):
            if _NUMBER.fullmatch(given.get(name) or ""):
                kept[name] = given[name]
        if _LANGUAGE.fullmatch(given.get("lang") or ""):
            kept["lang"] = given["lang"]
        if (given.get("dir") or "").lower() in ("ltr", "rtl", "auto"):
            kept["dir"] = given["dir"]
        address = _URLS.get(tag, "")
        if url := safe_url(given.get(address) or "", self._base, mail=tag == "a"):
            kept[address] = url
            if tag == "a":
                kept["rel"] = "nofollow noopener noreferrer"
        return "".join(f' {name}="{_value(value or "")}"' for name, value in kept.items())


def safe_url(text: str, base: str, *, mail: bool = False) -> str:
    """The address as a browser would read it, if it leads to the web; else nothing."""
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
    return escape(_UNSEEN.sub("", text)[:MAX_URL_CHARS], quote=True)


def _children(node: LexborNode) -> list[LexborNode | None]:
    """The children of a node, the last first."""
    found: list[LexborNode | None] = []
    child = node.last_child
    while child is not None:
        found.append(child)
        child = child.prev
    return found
