"""Parses HTML, also hostile HTML, in time proportional to its length.

A standard parser needs time in the square of the depth of a page and of the attributes of a tag, and memory in the
square of unclosed `<i x=1><i x=2>`: a page of 100 kB can block a crawler for minutes. So very large pages are parsed
in pieces, very long tags lose their attributes, and too many formatting elements become spans. Ordinary pages are one
unchanged tree.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from itertools import islice
from typing import Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from usher.crawl.page.fingerprint import join_problems

MAX_CHARACTERS: Final = 10_000_000
MAX_TAGS: Final = 300_000
MAX_TAGS_PER_TREE: Final = 10_000  # parsed in 0.15 s if all are nested
MAX_CHARACTERS_PER_TREE: Final = 65_536  # parsed in 0.4 s as one tag with 16,000 attributes
TAGS_PER_PIECE: Final = 1_000
MAX_TAG_CHARACTERS: Final = 8_000  # of a tag, a script or a comment
MAX_HIDDEN_ENDS: Final = 5_000  # `>` in quotes; each may take 20 us
MAX_SAFE_TAGS: Final = 2_000  # with any formatting elements
MAX_FORMATTING_WORK: Final = 200_000  # distinct formatting elements times tags

_WITHOUT_EVENTS: Final = 1
_FORMAT: Final = r"(?=[bcefinstuBCEFINSTU])(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)"
# With attributes, up to its end if that is unambiguous: equal elements are harmless.
_FORMATTING_WITH_ATTRIBUTES: Final = re.compile(
    rf"<{_FORMAT}[\s/](?:[^<>\"']*+(?:\"[^<>\"]*\"[^<>\"']*+|'[^<>']*'[^<>\"']*+)*+>)?",
    re.IGNORECASE,
)
_FORMATTING: Final = re.compile(rf"<(/?){_FORMAT}(?=[\s/>])", re.IGNORECASE)
_ENDLESS: Final = re.compile(rf"(<[a-zA-Z][^\s/>]{{0,20}}+)[^>]{{{MAX_TAG_CHARACTERS},}}+>?")
_HIDDEN_END: Final = re.compile(r"=(?=[\t\n\f\r ]*+(?:\"[^\">]*+>|'[^'>]*+>))")
_TAG_START: Final = re.compile(r"<[a-zA-Z]")
# The rest of a tag from the `=` of an attribute, as the HTML standard tokenizes it.
_VALUE: Final = (
    r"=[\t\n\f\r ]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\t\n\f\r >\"'][^\t\n\f\r >]*+|(?=>))"
)
_TAG_REST: Final = re.compile(
    rf"{_VALUE}(?:[\t\n\f\r /]++|(?:=|[^\t\n\f\r />=])[^\t\n\f\r />=]*+(?:[\t\n\f\r ]*+{_VALUE})?+)*+>"
)
_ENCLOSED: Final = (
    *(("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>")),
    *(("<SCRIPT", "</SCRIPT>"), ("<STYLE", "</STYLE>")),
)
_SELF_CLOSED: Final = re.compile(r"<([a-zA-Z][\w:-]*+)([^<>]*+)(?<=/)>")
_VOIDS: Final = "area base br col embed frame hr img input link meta param source track wbr"
_VOID: Final = frozenset(_VOIDS.split())
_SPAN: Final = re.compile(rf"(?:[^<]*+<){{{TAGS_PER_PIECE}}}")


class Markup(NamedTuple):
    """The trees of a page, usually one; `problem` says what was left out."""

    trees: list[LexborHTMLParser]
    problem: str

    def text(self) -> str:
        """Return the text of the body, without separators between elements; the caller removes hidden elements."""
        return "".join(tree.body.text() for tree in self.trees if tree.body)

    def bodies(self) -> list[str]:
        """Return the bodies as regular HTML."""
        return [tree.body.html or "" for tree in self.trees if tree.body]


def parse_markup(text: str, *, is_xml: bool = False) -> Markup:
    """Parse a page; one that cannot be parsed has no tree and a problem."""
    text, problem = _cut(text)
    if is_xml:
        text = _as_html(text)
    tags = text.count("<")
    if tags > MAX_SAFE_TAGS and tags * _distinct_formatting(text) > MAX_FORMATTING_WORK:
        text = _FORMATTING.sub(r"<\1span", text)
    endless = 0
    if len(text) > MAX_CHARACTERS_PER_TREE:
        text, endless = _ENDLESS.subn(r"\1>", text)
    try:
        trees = [LexborHTMLParser(piece, options=_WITHOUT_EVENTS) for piece in _texts(text, tags)]
    except (SelectolaxError, ValueError, MemoryError) as error:
        return Markup([], f"it could not be parsed ({type(error).__name__})")
    return Markup(trees, join_problems(problem, "a tag was too long" if endless else ""))


def _texts(text: str, tags: int) -> Iterable[str]:
    """Return what is parsed as one tree each: the page if that is safe, or without its long scripts, or its pieces."""
    if _is_safe(text, tags):
        return [text]
    for opens, closes in _ENCLOSED:
        text = _emptied(text, opens, closes)
    return [text] if _is_safe(text, text.count("<")) else _pieces(text)


def _is_safe(text: str, tags: int) -> bool:
    """Return whether the tree of a page is not too deep, and no tag continues for long after a `>` in quotes."""
    if tags > MAX_TAGS_PER_TREE:
        return False
    if len(text) <= MAX_CHARACTERS_PER_TREE:
        return True
    budget = MAX_HIDDEN_ENDS
    for hidden in _HIDDEN_END.finditer(text):
        start = hidden.start()
        # Before the first hidden `>` of a tag there is no other. A longer tag is already cut.
        before = text[max(0, start - 2 * MAX_TAG_CHARACTERS) : start].rpartition(">")[2]
        budget -= 1
        if budget < 0 or (
            _TAG_START.search(before)
            and not _TAG_REST.match(text, start, start + MAX_TAG_CHARACTERS)
        ):
            return False
    return True


def _cut(text: str) -> tuple[str, str]:
    problem = ""
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS]
        problem = f"only its first {MAX_CHARACTERS:,} characters were read"
    if len(text) > MAX_TAGS and text.count("<") > MAX_TAGS:
        spans = list(islice(_spans(text), MAX_TAGS // TAGS_PER_PIECE))
        text = text[: spans[-1]]
        problem = f"only its first {MAX_TAGS:,} tags were read"
    return text, problem


def _spans(text: str) -> Iterator[int]:
    """Yield the position of every `TAGS_PER_PIECE`th tag."""
    start = 0
    while match := _SPAN.match(text, start):
        start = match.end() - 1
        yield start


def _distinct_formatting(text: str) -> int:
    """Return how many formatting elements a parser may have to reopen in every paragraph."""
    counts = Counter(_FORMATTING_WITH_ATTRIBUTES.findall(text))
    return sum(1 if tag.endswith(">") else count for tag, count in counts.items())


def _pieces(text: str) -> Iterator[str]:
    """Split before a tag, but not inside a script or a comment; long ones are already empty."""
    last = 0
    for start in [*_spans(text), len(text)]:
        while last < start:
            near = start - last <= MAX_CHARACTERS_PER_TREE
            cut = start if near else text.rfind("<", last + 1, last + MAX_CHARACTERS_PER_TREE)
            cut = _after_enclosed(text, last, cut if cut > 0 else last + MAX_CHARACTERS_PER_TREE)
            yield text[last:cut]
            last = cut


def _emptied(text: str, opens: str, closes: str) -> str:
    """Empty long scripts and comments, which a piece must contain completely."""
    first, *rest = text.split(opens)
    parts = [first]
    empty = opens if opens == "<!--" else f"{opens}>"
    for part in rest:
        end = part.find(closes)
        parts.append(f"{empty}{part[end:]}" if end > MAX_TAG_CHARACTERS else f"{opens}{part}")
    return "".join(parts)


def _after_enclosed(text: str, last: int, start: int) -> int:
    for opens, closes in _ENCLOSED:
        began = text.rfind(opens, last, start)
        if began >= 0 and text.find(closes, began, start) < 0:
            ends = text.find(closes, start, start + 2 * MAX_TAG_CHARACTERS)
            return ends + len(closes) if ends >= 0 else start
    return start


def _as_html(text: str) -> str:
    """Replace the XML syntax that HTML does not have: `<script/>` and CDATA."""
    text = _SELF_CLOSED.sub(_with_end_tag, text)
    first, *rest = text.split("<![CDATA[")
    parts = [first]
    for part in rest:
        inside, end, after = part.partition("]]>")
        parts.append(f"{escape(inside)}{after}" if end else part)
    return "".join(parts)


def _with_end_tag(match: re.Match[str]) -> str:
    name = match[1]
    return match[0] if name.lower() in _VOID else f"<{name}{match[2][:-1]}></{name}>"
