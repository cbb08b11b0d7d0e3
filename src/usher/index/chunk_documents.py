"""Builds the index chunk of a content chunk: selects and parses its pages and writes their documents.

A page may crash the process, so the worker reports the position of each page before it reads it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from usher.crawl.http.response import FetchResponse
from usher.crawl.page import parse as page_parser
from usher.crawl.warc.reader import WarcEntry, read_entries
from usher.index import chunk_file
from usher.index.document import IndexDocument, SkippedPage, from_page, with_links
from usher.index.page_filter import PageFilter
from usher.index.site_template import page_sample, without_template
from usher.messages.builder import PageLinks, PageSample, SiteTemplate
from usher.messages.components import ForeignPages
from usher.urls import Scheme, Url, UrlRefusal, parse

MAX_REASONS: Final = 20
MAX_REASON_CHARACTERS: Final = 100
WEB_SCHEMES: Final = frozenset({Scheme.HTTPS, Scheme.HTTP})


class MergeSource(Struct, frozen=True):
    """The index chunk of another chunk, and the keys of the pages to take from it."""

    chunk: int
    index: str
    keys: list[str]


class BuildJob(Struct, frozen=True):
    """An index chunk to build: from the content file, or from `sources` if it is merged from other chunks.

    Only pages with these keys are indexed. `skip` has the reasons by page position. Errors call the content by `name`.
    `links` are the anchors of the pages, `templates` those of their hosts. `samples` has the pages whose lines are
    reported.
    """

    chunk: int
    content: str
    index: str
    keys: list[str]
    textless_keys: list[str] = []
    skip: dict[int, str] = {}
    sources: list[MergeSource] | None = None
    name: str = ""
    links: list[PageLinks] = []
    templates: list[SiteTemplate] = []
    samples: dict[str, int] = {}


class BuiltChunk(Struct, frozen=True):
    """An index chunk on disk; `skipped` counts the pages without a document by reason.

    `foreign` are pages of the content that do not belong to the chunk.
    """

    documents: int
    sha256: str
    size: int
    skipped: dict[str, int] = {}
    foreign: ForeignPages | None = None
    samples: list[PageSample] = []


def build_chunk(job: BuildJob, report_position: Callable[[int], None]) -> BuiltChunk:
    """Write the index chunk of a content chunk."""
    documents: dict[str, list[IndexDocument]] = {}
    skipped: Counter[str] = Counter()
    page_filter = PageFilter(job.chunk, job.keys, job.textless_keys)
    budget = chunk_file.SizeBudget()
    completion, samples = PageCompletion(job), dict[str, PageSample]()
    for position, entry in enumerate(read_entries(Path(job.content), name=job.name)):
        report_position(position)
        reason = job.skip.get(position) or skip_reason(entry)
        url = parse(entry.url)
        if reason or isinstance(url, UrlRefusal) or url.scheme not in WEB_SCHEMES:
            skipped[reason or "not a web address"] += 1
            continue
        key = page_key(url)
        if not page_filter.has(key, str(url)):
            continue
        # If the content has a page twice, the last visit counts.
        documents[key] = []
        for outcome in read_page(entry, url, job.chunk, job.samples.get(key)):
            if isinstance(outcome, SkippedPage):
                skipped[outcome.reason[:MAX_REASON_CHARACTERS]] += 1
            elif isinstance(outcome, PageSample):
                samples[key] = outcome
            else:
                is_first = not documents[key]
                documents[key].append(completion.complete(outcome, is_first=is_first))
        if not budget.fits(documents[key]):
            del documents[key]
            skipped["the index chunk is full"] += 1
    skipped["not reported as fetched"] += page_filter.textless
    built = write_chunk(job, list(chain.from_iterable(documents.values())), +skipped)
    return replace(built, foreign=page_filter.report, samples=list(samples.values()))


class PageCompletion:
    """Adds to documents what MGMT knows about their pages and hosts."""

    def __init__(self, job: BuildJob) -> None:
        self._links = {page.key: page for page in job.links}
        self._templates = {template.host: frozenset(template.lines) for template in job.templates}

    def complete(self, document: IndexDocument, *, is_first: bool) -> IndexDocument:
        """Return the document with its anchors and without the template of its host."""
        linked = with_links(document, self._links.get(document.key), is_first=is_first)
        return without_template(linked, self._templates.get(document.host, frozenset()))


def page_key(url: Url) -> str:
    """The key of a page in the index; like the guestbook it does not distinguish http and https."""
    return f"{url.host}{url.path}"


def skip_reason(entry: WarcEntry) -> str:
    """Why an entry of the content is not indexed; empty if it is."""
    result = entry.meta.get("result", "success")
    if result != "success":
        return "unchanged" if result == "unchanged" else "not fetched"
    if entry.kind != "page":
        return "unchanged" if entry.kind == "unchanged" else "not fetched"
    if entry.status // 100 != 2:  # noqa: PLR2004 - of HTTP
        return "not fetched"
    return "noindex" if entry.meta.get("noindex") is True else ""


def read_page(
    entry: WarcEntry, url: Url, chunk: int, sampled_id: int | None = None
) -> Iterator[IndexDocument | SkippedPage | PageSample]:
    """Parse one page; a failure skips only this page. If it has a `sampled_id`, yield its lines too."""
    key = page_key(url)
    answer = FetchResponse(url, headers=list(entry.headers))
    try:
        pages = page_parser.extract_documents(
            entry.body,
            url,
            media_type=answer.media_type,
            charset=answer.charset,
            robots_tags=answer.headers_of("x-robots-tag"),
        )
        for page in pages:
            yield from_page(page, key=key, host=url.host, chunk=chunk, crawled=entry.at)
        if sampled_id is not None and len(pages) == 1 and not pages[0].noindex:
            yield page_sample(pages[0], sampled_id)
    except MemoryError:
        yield SkippedPage(key, "it needs too much memory")
    except Exception as error:  # noqa: BLE001 - a parser bug must not cost the other pages
        yield SkippedPage(key, f"it cannot be read ({type(error).__name__})")
    else:
        if not pages:
            yield SkippedPage(key, "no text")


def write_chunk(job: BuildJob, documents: list[IndexDocument], skipped: Counter[str]) -> BuiltChunk:
    """Write the file of an index chunk."""
    file = chunk_file.write(Path(job.index), job.chunk, documents)
    reasons = dict(skipped.most_common(MAX_REASONS))
    return BuiltChunk(file.documents, file.sha256, file.size, reasons)
