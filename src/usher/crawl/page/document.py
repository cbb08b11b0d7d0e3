"""Turns a parsed page, plain text or a PDF into the documents that the index stores.

`text` is the main text (`main_text.py`); `rest` is other text that may be content, so that its rare words are
searchable. Menus and footers are in neither.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from usher.crawl.page.blocks import CODE, split_blocks
from usher.crawl.page.fingerprint import join_problems, language, shorten, simhash, text64
from usher.crawl.page.head import PageHead
from usher.crawl.page.main_text import join_blocks, select_text
from usher.crawl.page.markup import Markup
from usher.crawl.page.metadata import MAX_HEADINGS, MAX_TITLE_LENGTH, parse_metadata, plausible_date
from usher.crawl.page.pdf import PdfText
from usher.crawl.page.sections import PageSection, join_with_sections
from usher.urls import Url

MAX_TEXT_CHARACTERS: Final = 1_000_000
MAX_REST_CHARACTERS: Final = 50_000

_TITLE_SEARCH_CHARACTERS: Final = 10_000
_MARKDOWN: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PageDocument:
    """A page, or one page of a PDF, for the index; `problem` says what was cut or is unreadable."""

    url: str
    title: str = ""
    headings: list[str] = field(default_factory=list)
    text: str = ""
    rest: str = ""
    sections: list[PageSection] = field(default_factory=list)
    code: list[str] = field(default_factory=list)  # the parts of the text that are code
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
    metadata = parse_metadata(markup.trees)
    head.remove_hidden()
    visible = markup.text()
    title = metadata.title(title_from_url(url))
    selected = select_text(split_blocks(markup.bodies()), title)
    positioned = join_with_sections(selected.main)
    text, problem = _cut(positioned.text)
    headings, heading_problem = metadata.headings()
    declared = [*metadata.languages, metadata.fields.get("content-language", "")]
    return PageDocument(
        str(url),
        title=title,
        headings=headings,
        text=text,
        rest=join_blocks(selected.rest)[:MAX_REST_CHARACTERS],
        description=metadata.description(),
        language=language(declared, text),
        published=metadata.published(),
        modified=metadata.modified(),
        canonical=head.canonical(head.resolver(url)),
        noindex=noindex,
        simhash=simhash(text),
        text64=text64(visible),
        sections=[section for section in positioned.sections if section.end <= len(text)],
        code=[block.text for block in selected.main if block.element.tag in CODE],
        problem=join_problems(markup.problem, problem, heading_problem, positioned.problem),
    )


def from_text(text: str, url: Url, *, noindex: bool, is_markdown: bool = False) -> PageDocument:
    """Return the document of plain text or Markdown; its first line is the title."""
    lines = text[:_TITLE_SEARCH_CHARACTERS].splitlines()
    first = next((line for line in lines if line.strip()), "")
    title = shorten(first.strip().strip("#"), MAX_TITLE_LENGTH) or title_from_url(url)
    headings = _MARKDOWN.findall(text[:MAX_TEXT_CHARACTERS])[:MAX_HEADINGS] if is_markdown else []
    headings = [shorten(heading, MAX_TITLE_LENGTH).rstrip("# ") for heading in headings]
    document = PageDocument(str(url), title, headings, noindex=noindex)
    return _with_text(document, text)


def from_pdf(pdf: PdfText, url: Url, *, noindex: bool) -> list[PageDocument]:
    """Return a document for each page with text; if none has text, one document that says so."""
    title = pdf.title or title_from_url(url)
    document = PageDocument(
        str(url),
        title,
        published=plausible_date(pdf.published),
        modified=plausible_date(pdf.modified),
        noindex=noindex,
        problem=pdf.problem,
    )
    documents = [
        replace(
            _with_text(document, text), url=f"{url}#page={number}", title=f"{title}, page {number}"
        )
        for number, text in enumerate(pdf.pages, 1)
        if text
    ]
    return documents or [replace(document, problem=pdf.problem or "it has no text")]


def _with_text(document: PageDocument, text: str) -> PageDocument:
    main, problem = _cut(text.replace("\0", " ").strip())
    return replace(
        document,
        text=main,
        language=language([], main),
        simhash=simhash(main),
        text64=text64(text),
        problem=join_problems(document.problem, problem),
    )


def title_from_url(url: Url) -> str:
    """Return a title for a page without one: the last part of the path, or the host."""
    part = url.path.partition("?")[0].rstrip("/").rpartition("/")[2]
    return shorten(unquote(part), MAX_TITLE_LENGTH) or url.host


def _cut(text: str) -> tuple[str, str]:
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text, ""
    problem = f"only the first {MAX_TEXT_CHARACTERS:,} characters of its text were kept"
    return text[:MAX_TEXT_CHARACTERS], problem
