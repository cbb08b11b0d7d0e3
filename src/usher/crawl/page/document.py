"""What a page says, with what it tells about itself, as the index takes it.

Comes from the trees of a page or from plain text; goes to the index. The main text is what is left without menus and
footers; where little is left, as on pages that are lists or tables, it is all that can be seen.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast
from urllib.parse import unquote

from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser

from usher.crawl.page.fingerprint import join_problems, language, shorten, simhash, text64
from usher.crawl.page.head import PageHead
from usher.crawl.page.markup import Markup
from usher.crawl.page.metadata import MAX_HEADINGS, MAX_TITLE_LENGTH, parse_metadata, plausible
from usher.crawl.page.pdf import Pdf
from usher.urls import Url

MAX_TEXT_CHARACTERS: Final = 1_000_000
MAX_TAGS_FOR_MAIN: Final = 6_000  # tags; the time to find it grows with the square of their depth
MIN_MAIN_CHARACTERS: Final = 250  # characters
MIN_MAIN_SHARE: Final = 0.3  # of all that can be seen

_BEGINNING: Final = 10_000
_MARKDOWN: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PageDocument:
    """What the index needs of a page, or of one page of a PDF; `problem` says what was cut or is unreadable."""

    url: str
    title: str = ""
    headings: list[str] = field(default_factory=list)
    text: str = ""
    description: str = ""
    language: str = ""
    published: datetime | None = None
    modified: datetime | None = None
    canonical: str | None = None
    noindex: bool = False
    simhash: int = 0
    text64: int = 0
    problem: str = ""


def from_markup(markup: Markup, head: PageHead, url: Url, *, noindex: bool) -> PageDocument:
    told = parse_metadata(markup.trees)
    head.remove_unseen()
    seen = markup.text()
    text, problem = _cut(_visible(markup, seen))
    headings, many = told.headings()
    return PageDocument(
        str(url),
        title=told.title(last_part(url)),
        headings=headings,
        text=text,
        description=told.description(),
        language=language([*told.languages, told.told.get("content-language", "")], text),
        published=told.published(),
        modified=told.modified(),
        canonical=head.canonical(head.resolver(url)),
        noindex=noindex,
        simhash=simhash(text),
        text64=text64(seen),
        problem=join_problems(markup.problem, problem, many),
    )


def from_text(text: str, url: Url, *, noindex: bool, is_markdown: bool = False) -> PageDocument:
    """A page of plain text or Markdown: its first line is its title."""
    first = next((one for one in text[:_BEGINNING].splitlines() if one.strip()), "")
    title = shorten(first.strip().strip("#"), MAX_TITLE_LENGTH) or last_part(url)
    headings = _MARKDOWN.findall(text[:MAX_TEXT_CHARACTERS])[:MAX_HEADINGS] if is_markdown else []
    found = PageDocument(
        str(url), title, [shorten(one, MAX_TITLE_LENGTH).rstrip("# ") for one in headings]
    )
    return replace(_with_text(found, text), noindex=noindex)


def from_pdf(found: Pdf, url: Url, *, noindex: bool) -> list[PageDocument]:
    """One for each page that has text; if none has, one that says so."""
    title = found.title or last_part(url)
    like = PageDocument(
        str(url),
        title,
        published=plausible(found.published),
        modified=plausible(found.modified),
        noindex=noindex,
        problem=found.problem,
    )
    made = [
        replace(_with_text(like, text), url=f"{url}#page={number}", title=f"{title}, page {number}")
        for number, text in enumerate(found.pages, 1)
        if text
    ]
    return made or [replace(like, problem=found.problem or "it has no text")]


def _with_text(page: PageDocument, text: str) -> PageDocument:
    kept, problem = _cut(text.replace("\0", " "))
    return replace(
        page,
        text=kept,
        language=language([], kept),
        simhash=simhash(kept),
        text64=text64(text),
        problem=join_problems(page.problem, problem),
    )


def last_part(url: Url) -> str:
    """A title for what has none: the last part of the path, or the host."""
    part = url.path.partition("?")[0].rstrip("/").rpartition("/")[2]
    return shorten(unquote(part), MAX_TITLE_LENGTH) or url.host


def _cut(text: str) -> tuple[str, str]:
    text = text.strip()
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text, ""
    return text[
        :MAX_TEXT_CHARACTERS
    ], f"only the first {MAX_TEXT_CHARACTERS:,} characters of its text were kept"


def _visible(markup: Markup, seen: str) -> str:
    """The main text if there is one to speak of, else all that can be seen."""
    pages = [_spaced(tree) for tree in markup.trees]
    if len(pages) == 1 and pages[0].count("<") <= MAX_TAGS_FOR_MAIN:
        main = _plain(pages[0], main=True).strip()
        if len(main) >= max(MIN_MAIN_CHARACTERS, MIN_MAIN_SHARE * len(" ".join(seen.split()))):
            return main
    return "\n".join(_plain(page) for page in pages)


def _spaced(tree: LexborHTMLParser) -> str:
    """The page without what is not seen, with blanks between the cells of tables."""
    html = tree.body.html if tree.body else ""
    return (html or "").replace("<td", " <td").replace("<th", " <th")


def _plain(html: str, *, main: bool = False) -> str:
    text = extract_plain_text(html, main_content=main, links=False, list_bullets=False)
    return cast("str", text).replace("\0", " ")
