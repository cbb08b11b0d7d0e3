"""A content chunk as the documents of its pages: which pages count, what they say, and why others are left out.

Comes from a file of a crawler, ours or anybody's; goes to an index chunk. Runs in a process that may die of what it
reads, so it says which page it is at.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from usher.chunk_store import at_disk, make_folder
from usher.crawl.http.response import Answer
from usher.crawl.page import parse as page
from usher.crawl.warc.reader import Entry, entries
from usher.index import chunk_file
from usher.index.document import IndexDocument, SkippedPage, from_page
from usher.index.page_filter import PageFilter
from usher.messages.components import ForeignPages
from usher.urls import Refused, Scheme, Url, parse

MAX_REASONS: Final = 20
MAX_REASON_CHARACTERS: Final = 100  # characters of a reason
WEB_SCHEMES: Final = frozenset({Scheme.HTTPS, Scheme.HTTP})


class MergeSource(Struct, frozen=True):
    """The index chunk of another chunk, and the pages to take from it, by their keys."""

    chunk: int
    index: str
    keys: list[str]


class BuildJob(Struct, frozen=True):
    """A chunk to make: from this file into that one, without the pages at these places, each for a reason.

    Only pages with these keys count. One that is made of others has `parts` in place of content and keys. Errors call
    the content by its `name`.
    """

    chunk: int
    content: str
    index: str
    keys: list[str]
    textless_keys: list[str] = []
    without: dict[int, str] = {}
    parts: list[MergeSource] | None = None
    name: str = ""


class BuiltChunk(Struct, frozen=True):
    """An index chunk on the disk: how many documents it has, and how many pages were left out, by reason.

    `foreign` are pages of the content that the chunk was not given.
    """

    documents: int
    sha256: str
    size: int
    left: dict[str, int] = {}
    foreign: ForeignPages | None = None


def build_chunk(job: BuildJob, at: Callable[[int], None]) -> BuiltChunk:
    """Write the index chunk; `at` hears the place of each page before it is read."""
    documents: dict[str, list[IndexDocument]] = {}
    left: Counter[str] = Counter()
    own = PageFilter(job.chunk, job.keys, job.textless_keys)
    budget = chunk_file.SizeBudget()
    for place, entry in enumerate(entries(Path(job.content), name=job.name)):
        at(place)
        why = job.without.get(place) or skip_reason(entry)
        url = parse(entry.url)
        if why or isinstance(url, Refused) or url.scheme not in WEB_SCHEMES:
            left[why or "no address of ours"] += 1
            continue
        if not own.has(page_key(url), str(url)):
            continue
        found = list(read_page(entry, url, job.chunk))
        left.update(
            one.reason[:MAX_REASON_CHARACTERS] for one in found if isinstance(one, SkippedPage)
        )
        # Of a page that is there twice, the last visit counts.
        documents[page_key(url)] = [one for one in found if isinstance(one, IndexDocument)]
        if not budget.fits(documents[page_key(url)]):
            del documents[page_key(url)]
            left["the index chunk is full"] += 1
    left["not reported as fetched"] += own.textless
    index = write_chunk(job, [one for every in documents.values() for one in every], +left)
    return replace(index, foreign=own.report)


def page_key(url: Url) -> str:
    """What names a page in every index: as in the guestbook, http and https are the same."""
    return f"{url.host}{url.path}"


def skip_reason(entry: Entry) -> str:
    """Why a page is not for the index; empty if it is."""
    result = entry.meta.get("result", "success")
    if result != "success":
        return "unchanged" if result == "unchanged" else "not fetched"
    if entry.kind != "page":
        return "unchanged" if entry.kind == "unchanged" else "not fetched"
    if entry.status // 100 != 2:  # noqa: PLR2004 - of HTTP
        return "not fetched"
    return "noindex" if entry.meta.get("noindex") is True else ""


def read_page(entry: Entry, url: Url, chunk: int) -> Iterator[IndexDocument | SkippedPage]:
    """What a page has to find; whatever it does to us, it is only this page."""
    key = page_key(url)
    answer = Answer(url, headers=list(entry.headers))
    try:
        pages = page.read(
            entry.body,
            url,
            media_type=answer.media_type,
            charset=answer.charset,
            robots_tags=answer.headers_of("x-robots-tag"),
        )
        for one in pages:
            yield from_page(one, key=key, host=url.host, chunk=chunk, crawled=entry.at)
    except MemoryError:
        yield SkippedPage(key, "it needs too much memory")
    except Exception as error:  # noqa: BLE001 - a bug that one page brings out must not hide the others
        yield SkippedPage(key, f"it cannot be read ({type(error).__name__})")
    else:
        if not pages:
            yield SkippedPage(key, "no text")


def write_chunk(job: BuildJob, documents: list[IndexDocument], left: Counter[str]) -> BuiltChunk:
    path = Path(job.index)
    with at_disk(path):
        make_folder(path.parent)
        header = chunk_file.write(path, job.chunk, documents)
        with path.open("rb") as file:
            sum_ = hashlib.file_digest(file, "sha256").hexdigest()
    return BuiltChunk(header.documents, sum_, header.size, dict(left.most_common(MAX_REASONS)))
