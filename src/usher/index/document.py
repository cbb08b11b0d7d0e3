"""What the index keeps of a page: its words, where it is, when it was, and what tells copies apart.

Comes from a page that was taken apart (`crawl.page`) and what its fetch says; goes into an index chunk, one document
per page, or per page of a PDF. A page with nothing to find is `Left`, with the reason.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Final, Protocol

from msgspec import Meta, Struct

from usher.query.tokens import language_code
from usher.urls import MAX_HOST, MAX_PATH

MAX_BODY: Final = 1_000_000
MAX_TITLE: Final = 1_000
MAX_DESCRIPTION: Final = 1_000
MAX_HEADINGS: Final = 200
MAX_LANGUAGE: Final = 35  # characters of a language tag
MAX_ADDRESS: Final = len("https://") + MAX_HOST + MAX_PATH + len("#page=500")


class ParsedPage(Protocol):
    """What `crawl.page.read` gives for a page."""

    @property
    def url(self) -> object: ...
    @property
    def title(self) -> str: ...
    @property
    def headings(self) -> Sequence[str]: ...
    @property
    def text(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def language(self) -> str: ...
    @property
    def published(self) -> datetime | None: ...
    @property
    def modified(self) -> datetime | None: ...
    @property
    def canonical(self) -> object: ...
    @property
    def noindex(self) -> bool: ...
    @property
    def simhash(self) -> int: ...
    @property
    def text64(self) -> int: ...
    @property
    def problem(self) -> str: ...


# A builder is not trusted: a document that is read from a file keeps the limits of `from_page`.
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Host = Annotated[str, Meta(max_length=MAX_HOST)]
Address = Annotated[str, Meta(max_length=MAX_ADDRESS)]
Title = Annotated[str, Meta(max_length=MAX_TITLE)]
Headings = Annotated[tuple[Title, ...], Meta(max_length=MAX_HEADINGS)]
Moment = Annotated[datetime, Meta(tz=True)]


class IndexDocument(Struct, frozen=True, omit_defaults=True):
    """One thing to find; `key` is the page in the guestbook, shared by all pages of a PDF."""

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
    shortened: int = 0  # how many characters of the text were left out


class SkippedPage(Struct, frozen=True):
    """A page that is not indexed, and why."""

    key: str
    reason: str


def from_page(
    page: ParsedPage, *, key: str, host: str, chunk: int, crawled: datetime, domain64: int = 0
) -> IndexDocument | SkippedPage:
    """The document of a page, or why there is none."""
    body, title = _clean(page.text), _clean(page.title).strip()
    if page.noindex:
        return SkippedPage(key, "noindex")
    if not body.strip() and not title:
        return SkippedPage(key, page.problem or "no text")
    return IndexDocument(
        key=key,
        url=str(page.url),
        host=host,
        chunk=chunk,
        crawled=_moment(crawled),
        domain64=domain64,
        title=title[:MAX_TITLE],
        headings=tuple(_clean(heading)[:MAX_TITLE] for heading in page.headings[:MAX_HEADINGS]),
        body=body[:MAX_BODY],
        description=_clean(page.description)[:MAX_DESCRIPTION],
        language=language_code(page.language),
        published=_dated(page, crawled),
        canonical=str(page.canonical or ""),
        simhash=page.simhash,
        text64=page.text64,
        shortened=max(0, len(body) - MAX_BODY),
    )


@lru_cache(10_000)
def site_names(host: str) -> tuple[str, ...]:
    """Every name that `site:` finds this host by: itself, without its port, and all that it is part of."""
    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    labels = bare.split(".")
    parts = [] if bare.startswith("[") or labels[-1].isdigit() else range(1, len(labels))
    return tuple(dict.fromkeys([host, bare, *(".".join(labels[part:]) for part in parts)]))


def _dated(page: ParsedPage, crawled: datetime) -> datetime | None:
    """When the page says it was published, or else changed; a date in the future is a mistake."""
    dates = [_moment(day) for day in (page.published, page.modified) if day is not None]
    return next((day for day in dates if day <= _moment(crawled)), None)


def _moment(day: datetime) -> datetime:
    return day.replace(tzinfo=UTC) if day.tzinfo is None else day.astimezone(UTC)


def _clean(text: str) -> str:
    """Without half characters, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
