"""Turns HTML into plain text and into safe HTML. Pure.

From a page it takes the main part: the page without its template, else the main content by heuristics, else everything.
The content of a feed is the main part already. The time is proportional to the length, even of hostile input.
"""

from dataclasses import dataclass
from html import escape
from typing import Final, Literal, cast

from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser

from usher.crawl.page.document import MAX_TEXT_CHARACTERS
from usher.crawl.page.fingerprint import join_problems
from usher.crawl.page.markup import Markup, parse_markup
from usher.feeds.items.page_template import PageTemplate, prune
from usher.feeds.items.sanitize import MAX_HTML_CHARS, sanitize

CleanMethod = Literal["whole", "main", "model"]
PLAIN_TYPES: Final = frozenset({"text", "text/plain"})
MAX_SIMPLE_TAGS: Final = 2_000  # any parser reads these quickly, however they are nested
MAX_SIMPLE_CHARS: Final = 65_536
MAX_TAGS_FOR_MAIN: Final = 6_000  # the extraction's time grows with the square of their depth
MIN_MAIN_CHARACTERS: Final = 250
MIN_MAIN_SHARE: Final = 0.3  # of all visible text
MIN_KEPT_SHARE: Final = 0.02  # of a page; a template that leaves less belongs to another page


@dataclass(frozen=True, slots=True)
class CleanText:
    """A text, the same as HTML, how it was found, and what was cut or could not be read."""

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
    """Clean the content of an item or its page; relative links are resolved against `base`."""
    if type_.lower() in PLAIN_TYPES and not page:
        return _clean_plain(content)
    markup = parse_markup(content)
    if not page:
        return _clean_markup(markup, base)
    length = sum(len(_text(_body(tree))) for tree in markup.trees)
    cleaned = None
    if model is not None:
        cleaned = _without_template(content, length, base, model, threshold)
    return cleaned or _main_part(markup, length, base) or _clean_markup(markup, base)


def plain_text(content: str, type_: str = "") -> str:
    """All of the content as plain text."""
    if type_.lower() in PLAIN_TYPES or ("<" not in content and "&" not in content):
        return content.replace("\0", " ").strip()[:MAX_TEXT_CHARACTERS]
    if len(content) <= MAX_SIMPLE_CHARS and content.count("<") <= MAX_SIMPLE_TAGS:
        return _text(content)
    return _texts([sanitize(tree).html for tree in parse_markup(content).trees])


def _clean_plain(content: str) -> CleanText:
    text = content.replace("\0", " ").strip()
    blocks = [escape(block.strip(), quote=False) for block in text[:MAX_HTML_CHARS].split("\n\n")]
    html = "\n".join(f"<p>{block}</p>" for block in blocks if block)
    is_cut = len(text) > MAX_TEXT_CHARACTERS
    problem = f"only its first {MAX_TEXT_CHARACTERS:,} characters were kept" if is_cut else ""
    return CleanText(text[:MAX_TEXT_CHARACTERS], html, problem=problem)


def _without_template(
    content: str, length: int, base: str, model: PageTemplate, threshold: float
) -> CleanText | None:
    """The page without its template; None if the template matches nothing or everything."""
    markup = parse_markup(content)
    if not sum(prune(tree, model, threshold) for tree in markup.trees):
        return None
    cleaned = _clean_markup(markup, base, "model")
    return cleaned if len(cleaned.text) > MIN_KEPT_SHARE * length else None


def _main_part(markup: Markup, length: int, base: str) -> CleanText | None:
    """The main part of a page; None if it is too short, or the page too large to search."""
    html = _body(markup.trees[0]) if len(markup.trees) == 1 else ""
    if not html or html.count("<") > MAX_TAGS_FOR_MAIN:
        return None
    main = cast("str", extract_plain_text(html, "minimal_html", main_content=True, links=True))
    cleaned = _clean_markup(parse_markup(main), base, "main")
    return (
        cleaned if len(cleaned.text) >= max(MIN_MAIN_CHARACTERS, MIN_MAIN_SHARE * length) else None
    )


def _body(tree: LexborHTMLParser) -> str:
    return (tree.body.html if tree.body is not None else "") or ""


def _clean_markup(markup: Markup, base: str, how: CleanMethod = "whole") -> CleanText:
    parts, left, cut = list[str](), MAX_HTML_CHARS, False
    for tree in markup.trees:
        if left <= 0:
            cut = True
            break
        part = sanitize(tree, base, max_chars=left)
        cut = cut or part.cut
        if part.html:
            parts.append(part.html)
            left -= len(part.html)
    problem = f"only its first {MAX_HTML_CHARS:,} characters were kept" if cut else ""
    return CleanText(_texts(parts), "\n".join(parts), how, join_problems(markup.problem, problem))


def _texts(parts: list[str]) -> str:
    return "\n".join(filter(None, map(_text, parts)))[:MAX_TEXT_CHARACTERS]


def _text(html: str) -> str:
    """The text of HTML whose depth is bounded, with spaces between table cells."""
    spaced = html.replace("<td", " <td").replace("<th", " <th")
    text = cast("str", extract_plain_text(spaced, links=False, list_bullets=False, alt_texts=False))
    return text.replace("\0", " ").strip()
