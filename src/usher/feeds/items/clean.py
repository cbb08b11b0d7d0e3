"""HTML to a clean text and to HTML that can be shown.

Comes from the content of items, as the feed had it or as their pages were; goes to `content_clean` and
`content_clean_html`. Of a page it is the main part: without what a model knows to be on every page, else as it is found
in any page; where that is too little, the whole. What a feed says is the main part already. However hostile, the time
it takes stays in proportion to its length. Pure.
"""

from dataclasses import dataclass
from html import escape
from typing import Final, Literal, cast

from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser

from usher.crawl.page.document import LEAST_MAIN, LEAST_SHARE, MOST_FOR_MAIN, MOST_TEXT
from usher.crawl.page.fingerprint import sentence
from usher.crawl.page.markup import Markup, open_markup
from usher.feeds.items.page_template import PageTemplate, prune
from usher.feeds.items.sanitize import MAX_HTML_CHARS, sanitize

CleanMethod = Literal["whole", "main", "model"]
PLAIN_TYPES: Final = frozenset({"text", "text/plain"})
MAX_SIMPLE_TAGS: Final = 2_000  # that any parser reads in no time, however they stand
MAX_SIMPLE_CHARS: Final = 65_536
MIN_KEPT_SHARE: Final = 0.02  # of a page that a model may leave; with less it knows another page


@dataclass(frozen=True, slots=True)
class CleanText:
    """A clean text, the same as HTML, how it was found, and what was cut or could not be read."""

    text: str
    html: str
    how: CleanMethod = "whole"
    problem: str = ""


def clean(
    content: str,
    *,
    type_: str = "",
    base: str = "",
    page: bool = False,
    model: PageTemplate | None = None,
    threshold: float = 0.1,
) -> CleanText:
    """Clean what an item says, or its whole page; links begin at `base`."""
    if type_.lower() in PLAIN_TYPES and not page:
        return _of_text(content)
    markup = open_markup(content)
    found = None
    if page:
        seen = sum(len(_text(_html(tree))) for tree in markup.trees)
        found = _by_model(content, seen, base, model, threshold) if model is not None else None
        found = found or _main(markup, seen, base)
    return found or _cleaned(markup, base)


def plain_text(content: str, type_: str = "") -> str:
    """All that content says, as text."""
    if type_.lower() in PLAIN_TYPES or ("<" not in content and "&" not in content):
        return content.replace("\0", " ").strip()[:MOST_TEXT]
    if len(content) <= MAX_SIMPLE_CHARS and content.count("<") <= MAX_SIMPLE_TAGS:
        return _text(content)
    return _lines([sanitize(tree).html for tree in open_markup(content).trees])


def _of_text(content: str) -> CleanText:
    text = content.replace("\0", " ").strip()
    blocks = [escape(one.strip(), quote=False) for one in text[:MAX_HTML_CHARS].split("\n\n")]
    html = "\n".join(f"<p>{one}</p>" for one in blocks if one)
    cut = f"only its first {MOST_TEXT:,} characters were kept" if len(text) > MOST_TEXT else ""
    return CleanText(text[:MOST_TEXT], html, problem=cut)


def _by_model(
    content: str, seen: int, base: str, model: PageTemplate, threshold: float
) -> CleanText | None:
    """Without what the model knows; nothing if it knows of nothing here, or of all."""
    markup = open_markup(content)
    if not sum(prune(tree, model, threshold) for tree in markup.trees):
        return None
    found = _cleaned(markup, base, "model")
    return found if len(found.text) > MIN_KEPT_SHARE * seen else None


def _main(markup: Markup, seen: int, base: str) -> CleanText | None:
    """The main part of a page; nothing if that is too little, or the page too large to look for it."""
    html = _html(markup.trees[0]) if len(markup.trees) == 1 else ""
    if not html or html.count("<") > MOST_FOR_MAIN:
        return None
    main = cast("str", extract_plain_text(html, "minimal_html", main_content=True, links=True))
    found = _cleaned(open_markup(main), base, "main")
    return found if len(found.text) >= max(LEAST_MAIN, LEAST_SHARE * seen) else None


def _html(tree: LexborHTMLParser) -> str:
    return (tree.body.html if tree.body is not None else "") or ""


def _cleaned(markup: Markup, base: str, how: CleanMethod = "whole") -> CleanText:
    kept, left, cut = list[str](), MAX_HTML_CHARS, False
    for tree in markup.trees:
        if left <= 0:
            cut = True
            break
        part = sanitize(tree, base, most=left)
        cut = cut or part.cut
        if part.html:
            kept.append(part.html)
            left -= len(part.html)
    said = f"only its first {MAX_HTML_CHARS:,} characters were kept" if cut else ""
    return CleanText(_lines(kept), "\n".join(kept), how, sentence(markup.problem, said))


def _lines(parts: list[str]) -> str:
    return "\n".join(filter(None, map(_text, parts)))[:MOST_TEXT]


def _text(html: str) -> str:
    """The text of HTML that no longer can be deep, with blanks between the cells of tables."""
    spaced = html.replace("<td", " <td").replace("<th", " <th")
    text = cast("str", extract_plain_text(spaced, links=False, list_bullets=False, alt_texts=False))
    return text.replace("\0", " ").strip()
