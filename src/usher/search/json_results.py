"""An answer as data: `/search.json` for our own programs, `/api/search` for those that know Search.gov's results API.

Comes from the broker; goes out as JSON.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from usher.query.highlight import Segment, highlight
from usher.query.results import Hit
from usher.search import result_view
from usher.search.search_result import MAX_HITS, SearchResult

BEGIN, END = "\ue000", "\ue001"  # how Search.gov marks words: no page has these
MOST_OFFSET: Final = MAX_HITS - 1


class TextPiece(Struct):
    text: str
    marked: bool = False


class SearchListingItem(Struct):
    url: str
    title: str
    host: str
    snippet: str
    published: datetime | None
    crawled: datetime
    language: str
    copies: int
    title_pieces: list[TextPiece]
    snippet_pieces: list[TextPiece]


class HostCount(Struct):
    host: str
    results: int


class SearchListing(Struct):
    """One page of results; `missing` is how much of the index did not answer, from 0 to 1."""

    query: str
    page: int
    pages: int
    total: int
    at_least: bool
    near_copies: int
    partial: bool
    missing: float
    seconds: float
    suggestion: str | None
    ignored: list[str]
    hosts: list[HostCount]
    results: list[SearchListingItem]


def listing(answer: SearchResult, page: int) -> SearchListing:
    found, words = answer.results, answer.query.words
    return SearchListing(
        query=answer.query.text,
        page=page,
        pages=result_view.paginate(found.total, page).last if found.total else 0,
        total=found.total,
        at_least=answer.at_least,
        near_copies=found.hidden,
        partial=answer.partial,
        missing=round(answer.missing, 4),
        seconds=round(answer.seconds, 4),
        suggestion=answer.suggestion or None,
        ignored=list(answer.query.ignored),
        hosts=[HostCount(host, number) for host, number in found.hosts.items()],
        results=[_result(one.hit, one.copies, words, answer.snippet(one)) for one in found.found],
    )


def _result(
    hit: Hit, copies: int, words: Sequence[str], snippet: Sequence[Segment]
) -> SearchListingItem:
    title = result_view.title(hit, words)
    return SearchListingItem(
        url=result_view.readable(hit.url),
        title=text_of(title),
        host=result_view.readable(hit.host),
        snippet=text_of(snippet),
        published=hit.published,
        crawled=hit.crawled,
        language=hit.language,
        copies=copies,
        title_pieces=[TextPiece(*piece) for piece in title],
        snippet_pieces=[TextPiece(*piece) for piece in snippet],
    )


def text_of(pieces: Sequence[Segment]) -> str:
    return "".join([text for text, _ in pieces])


class WebResult(Struct):
    title: str
    url: str
    snippet: str
    publication_date: str | None
    thumbnail_url: None = None


class Web(Struct):
    total: int
    next_offset: int | None
    spelling_correction: str | None
    results: list[WebResult]


class GovResults(Struct):
    """As Search.gov has it; what we have nothing of is empty. `partial` is ours."""

    query: str
    web: Web
    partial: bool
    text_best_bets: tuple[()] = ()
    graphic_best_bets: tuple[()] = ()
    health_topics: tuple[()] = ()
    job_openings: tuple[()] = ()
    federal_register_documents: tuple[()] = ()
    related_search_terms: tuple[()] = ()


def gov_results(answer: SearchResult, offset: int, *, marked: bool) -> GovResults:
    found = answer.results
    after = offset + len(found.found)
    words = answer.query.words
    results = [
        WebResult(
            title=_marked(highlight(one.hit.title, words), marked=marked),
            url=one.hit.url,
            snippet=_marked(answer.snippet(one), marked=marked),
            publication_date=_day(one.hit.published),
        )
        for one in found.found
    ]
    next_offset = after if found.more and after <= MOST_OFFSET else None
    web = Web(found.total, next_offset, answer.suggestion or None, results)
    return GovResults(answer.query.text, web, answer.partial)


def _marked(pieces: Sequence[Segment], *, marked: bool) -> str:
    if not marked:
        return text_of(pieces)
    return "".join(f"{BEGIN}{text}{END}" if hit else text for text, hit in pieces)


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).date().isoformat()
