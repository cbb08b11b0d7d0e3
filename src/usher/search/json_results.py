"""Search results as JSON: `/search.json`, and `/api/search` in the format of Search.gov's results API."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from usher.query.highlight import Segment, highlight
from usher.query.results import ScoreReason, round_score
from usher.search import result_view
from usher.search.merge import MergedHit
from usher.search.search_result import MAX_HITS, SearchResult

BEGIN, END = "\ue000", "\ue001"  # Search.gov's markers around highlighted words
MAX_OFFSET: Final = MAX_HITS - 1


class TextPiece(Struct):
    text: str
    marked: bool = False


class SectionItem(Struct):
    """A section of a page that matches."""

    url: str
    title: str


class SearchListingItem(Struct):
    """One result; `section` is the title of the section that the snippet is from, if it is from one."""

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
    weak: bool = False
    score: float | None = None
    reasons: list[ScoreReason] | None = None
    section: str | None = None
    sections: list[SectionItem] = []


class HostCount(Struct):
    host: str
    results: int


class SearchListing(Struct):
    """One page of results; `missing` is the share of the index that did not answer, from 0 to 1.

    `typed` is what was typed if `query` is a corrected spelling of it.
    """

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
    typed: str | None = None


def listing(result: SearchResult, page: int, *, explain: bool = False) -> SearchListing:
    """The response of `/search.json`."""
    merged = result.results
    pages = result_view.paginate(merged.total, page, more=merged.more)
    return SearchListing(
        query=result.query.text,
        page=page,
        pages=pages.last if merged.total or merged.hits else 0,
        total=merged.total,
        at_least=result.at_least,
        near_copies=merged.hidden,
        partial=result.partial,
        missing=round(result.missing, 4),
        seconds=round(result.seconds, 4),
        suggestion=result.suggestion or None,
        ignored=list(result.query.ignored),
        hosts=[HostCount(host, number) for host, number in merged.hosts.items()],
        results=[_item(result, hit, explain=explain) for hit in merged.hits],
        typed=result.typed or None,
    )


def _item(result: SearchResult, merged: MergedHit, *, explain: bool) -> SearchListingItem:
    view = result_view.result_view(result, merged)
    return SearchListingItem(
        url=view.url,
        title=text_of(view.title),
        host=view.host,
        snippet=text_of(view.snippet),
        published=view.published,
        crawled=view.crawled,
        language=view.language,
        copies=view.copies,
        title_pieces=[TextPiece(*segment) for segment in view.title],
        snippet_pieces=[TextPiece(*segment) for segment in view.snippet],
        weak=view.weak,
        score=round_score(merged.hit.score) if explain else None,
        reasons=list(merged.hit.reasons) if explain else None,
        section=view.section or None,
        sections=[SectionItem(section.url, text_of(section.title)) for section in view.sections],
    )


def text_of(segments: Sequence[Segment]) -> str:
    return "".join([text for text, _ in segments])


class WebResult(Struct):
    title: str
    url: str
    snippet: str
    publication_date: str | None
    thumbnail_url: None = None
    sections: list[SectionItem] = []


class Web(Struct):
    total: int
    next_offset: int | None
    spelling_correction: str | None
    results: list[WebResult]


class GovResults(Struct):
    """The response of Search.gov's API; fields without an equivalent are empty.

    `partial`, and `sections` of a result, are additions.
    """

    query: str
    web: Web
    partial: bool
    text_best_bets: tuple[()] = ()
    graphic_best_bets: tuple[()] = ()
    health_topics: tuple[()] = ()
    job_openings: tuple[()] = ()
    federal_register_documents: tuple[()] = ()
    related_search_terms: tuple[()] = ()


def gov_results(result: SearchResult, offset: int, *, marked: bool) -> GovResults:
    """The response of `/api/search`."""
    hits = result.results.hits
    text = _marked_text if marked else text_of
    results = [
        WebResult(
            title=text(highlight(merged.hit.title, result.title_words(merged))),
            url=merged.hit.url,
            snippet=text(result.snippet(merged)).replace("\n", " "),
            publication_date=_iso_day(merged.hit.published),
            sections=[
                SectionItem(section.url, text(section.title))
                for section in result_view.section_views(result, merged)
            ],
        )
        for merged in hits
    ]
    after = offset + len(hits)
    next_offset = after if result.results.more and after <= MAX_OFFSET else None
    corrected = result.query.text if result.typed else result.suggestion
    web = Web(result.results.total, next_offset, corrected or None, results)
    return GovResults(result.typed or result.query.text, web, result.partial)


def _marked_text(segments: Sequence[Segment]) -> str:
    return "".join(f"{BEGIN}{text}{END}" if is_marked else text for text, is_marked in segments)


def _iso_day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).date().isoformat()
