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

from usher.crawl.page.document import PageDocument
from usher.crawl.page.sections import PageSection
from usher.query.tokens import language_code
from usher.urls import MAX_HOST, MAX_PATH

MAX_BODY: Final = 1_000_000
MAX_TITLE: Final = 1_000
MAX_DESCRIPTION: Final = 1_000
MAX_HEADINGS: Final = 200
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
Moment = Annotated[datetime, Meta(tz=True)]


class IndexSection(Struct, frozen=True, array_like=True):
    """A part of the body with an address of its own."""

    anchor: Annotated[str, Meta(max_length=MAX_ANCHOR)]
    title: Annotated[str, Meta(max_length=MAX_SECTION_TITLE)]
    start: Count
    end: Count


class IndexDocument(Struct, frozen=True, omit_defaults=True):
    """One searchable document; `key` is the page in the guestbook, which all pages of a PDF share."""

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
