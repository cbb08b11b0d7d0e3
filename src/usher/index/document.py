"""The document that the index stores for a page, or for one page of a PDF.

`body` is the main text. `rest` is other text of the page that may be content; it is searched with a low weight and
never shown. `sections` are parts of the body with an address of their own: `(anchor, title, start, end)`, in order and
without overlaps, where the URL is that of the document with `#anchor`, the title is the path of headings, and the text
is `body[start:end]`.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from usher.anchor_text import (
    MAX_ANCHOR_CHARACTERS,
    MAX_ANCHORS_PER_PAGE,
    MAX_INLINKS,
    MAX_PAGES_PER_ANCHOR,
)
from usher.crawl.page.document import PageDocument
from usher.crawl.page.sections import PageSection
from usher.messages.builder import PageLinks
from usher.query.tokens import language_code
from usher.urls import MAX_HOST, MAX_PATH

MAX_BODY: Final = 1_000_000
MAX_TITLE: Final = 1_000
MAX_DESCRIPTION: Final = 1_000
MAX_HEADINGS: Final = 200
MAX_DEPTH: Final = 32_767
MAX_REST: Final = 50_000
MAX_SECTIONS: Final = 500
MAX_ANCHOR: Final = 200
MAX_SECTION_TITLE: Final = 300
MAX_LANGUAGE: Final = 35  # characters of a language tag
MAX_ADDRESS: Final = len("https://") + MAX_HOST + MAX_PATH + len("#page=500")

# Index servers do not trust builders: a document that is read from a file must keep the limits of `from_page`.
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Host = Annotated[str, Meta(max_length=MAX_HOST)]
Address = Annotated[str, Meta(max_length=MAX_ADDRESS)]
Title = Annotated[str, Meta(max_length=MAX_TITLE)]
Headings = Annotated[tuple[Title, ...], Meta(max_length=MAX_HEADINGS)]
AnchorText = Annotated[str, Meta(max_length=MAX_ANCHOR_CHARACTERS)]
AnchorPages = Annotated[int, Meta(ge=1, le=2 * MAX_PAGES_PER_ANCHOR)]
Anchors = Annotated[
    tuple[tuple[AnchorText, AnchorPages], ...], Meta(max_length=MAX_ANCHORS_PER_PAGE)
]
Moment = Annotated[datetime, Meta(tz=True)]


class IndexSection(Struct, frozen=True, array_like=True):
    """A part of the body with an address of its own."""

    anchor: Annotated[str, Meta(max_length=MAX_ANCHOR)]
    title: Annotated[str, Meta(max_length=MAX_SECTION_TITLE)]
    start: Count
    end: Count


class IndexDocument(Struct, frozen=True, omit_defaults=True):
    """One searchable document; `key` is the page in the guestbook, which all pages of a PDF share.

    `anchors` are the texts of links to the page, each with the number of linking pages. `inlinks` counts all linking
    pages, `depth` the clicks from the start of a crawl.
    """

    key: Address
    url: Address
    host: Host
    chunk: Count
    crawled: Moment
    domain64: Count = 0
    title: Title = ""
    headings: Headings = ()
    body: Annotated[str, Meta(max_length=MAX_BODY)] = ""
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] = ""
    language: Annotated[str, Meta(max_length=MAX_LANGUAGE)] = ""
    published: Moment | None = None
    canonical: Address = ""
    simhash: int = 0
    text64: int = 0
    rest: Annotated[str, Meta(max_length=MAX_REST)] = ""
    sections: Annotated[tuple[IndexSection, ...], Meta(max_length=MAX_SECTIONS)] = ()
    shortened: int = 0  # characters of the text that were cut off
    anchors: Anchors = ()
    inlinks: Annotated[int, Meta(ge=0, le=MAX_INLINKS)] = 0
    depth: Annotated[int, Meta(ge=0, le=MAX_DEPTH)] = 0


class SkippedPage(Struct, frozen=True):
    """A page that is not indexed, and why."""

    key: str
    reason: str


def from_page(
    page: PageDocument, *, key: str, host: str, chunk: int, crawled: datetime, domain64: int = 0
) -> IndexDocument | SkippedPage:
    """The document of a page, or why there is none."""
    body, title = _clean(page.text), _clean(page.title).strip()
    if page.noindex:
        return SkippedPage(key, "noindex")
    if not body.strip() and not title:
        return SkippedPage(key, page.problem or "no text")
    return IndexDocument(
        key=key,
        url=page.url,
        host=host,
        chunk=chunk,
        crawled=_utc(crawled),
        domain64=domain64,
        title=title[:MAX_TITLE],
        headings=tuple(_clean(heading)[:MAX_TITLE] for heading in page.headings[:MAX_HEADINGS]),
        body=body[:MAX_BODY],
        description=_clean(page.description)[:MAX_DESCRIPTION],
        language=language_code(page.language),
        published=_publication_date(page, crawled),
        canonical=page.canonical or "",
        simhash=page.simhash,
        text64=page.text64,
        rest=_clean(page.rest)[:MAX_REST],
        sections=tuple(_section(section) for section in page.sections[:MAX_SECTIONS]),
        shortened=max(0, len(body) - MAX_BODY),
    )


def with_links(
    document: IndexDocument, links: PageLinks | None, *, is_first: bool
) -> IndexDocument:
    """The document with what links say about its page; unchanged if MGMT sent nothing about it.

    Links lead to the beginning of a page, so only the first document of a page gets their texts.
    """
    if links is None:
        return document
    anchors = links.anchors[:MAX_ANCHORS_PER_PAGE] if is_first else []
    return replace(
        document,
        anchors=tuple(
            (_clean(text)[:MAX_ANCHOR_CHARACTERS], max(1, min(count, 2 * MAX_PAGES_PER_ANCHOR)))
            for text, count in anchors
        ),
        inlinks=min(links.inlinks, MAX_INLINKS),
        depth=min(links.depth, MAX_DEPTH),
    )


@lru_cache(10_000)
def site_names(host: str) -> tuple[str, ...]:
    """The names for which `site:` matches this host: itself, itself without the port, and all parent domains."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    labels = name.split(".")
    starts = [] if name.startswith("[") or labels[-1].isdigit() else range(1, len(labels))
    return tuple(dict.fromkeys([host, name, *(".".join(labels[start:]) for start in starts)]))


def _section(section: PageSection) -> IndexSection:
    anchor, title, start, end = section
    return IndexSection(
        _clean(anchor)[:MAX_ANCHOR], _clean(title)[:MAX_SECTION_TITLE], start, min(end, MAX_BODY)
    )


def _publication_date(page: PageDocument, crawled: datetime) -> datetime | None:
    """When the page says it was published, or else changed; dates in the future are ignored."""
    dates = [_utc(moment) for moment in (page.published, page.modified) if moment is not None]
    return next((moment for moment in dates if moment <= _utc(crawled)), None)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _clean(text: str) -> str:
    """The text without lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
