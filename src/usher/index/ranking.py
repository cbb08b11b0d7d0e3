"""The best hits of a query in an order on which all servers agree: by score, ties by URL.

Tantivy orders ties by insertion, which differs between servers. A front-end that merges hits could then not tell
whether another hit belongs before the last one, and would have to ask again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tantivy import DocAddress, Document, SearchResult
from tantivy import Query as TantivyQuery

from usher.index.fields import StoredFields
from usher.index.index_reader import IndexReader
from usher.query.results import round_score

EXTRA_HITS: Final = 5  # fetched to see whether the last hit ties with the next one
MAX_HITS: Final = 12_000
ScoredAddress = tuple[float, DocAddress]


class RankedHit(NamedTuple):
    """A hit, and its document or where that is."""

    score: float
    fields: StoredFields
    document: Document | DocAddress


class RankedHits(NamedTuple):
    """The best hits, and the number of matches if it was counted."""

    hits: list[RankedHit]
    total: int | None


def rank(
    reader: IndexReader,
    query: TantivyQuery,
    limit: int,
    *,
    offset: int = 0,
    order: str | None = None,
    count: bool,
) -> RankedHits:
    """The best `limit` hits after the first `offset`; counting all matches takes longer."""
    end = offset + limit
    size = end + EXTRA_HITS
    while True:
        result = reader.searcher.search(query, size, count=count, order_by_field=order)
        hits: list[ScoredAddress] = list(result.hits)
        is_complete = len(hits) < size
        if is_complete or size >= MAX_HITS:
            break
        if round_score(hits[-1][0]) < round_score(hits[end - 1][0]):
            break
        # The last wanted hit ties with all that follow, so any of them may belong before it.
        size = min(4 * size, MAX_HITS)
    total = match_count(result) if count else len(hits) if is_complete else None
    for position in (offset, end):
        sort_ties(hits, position, lambda address: reader.stored_fields(address)[0].url)
    ranked = [
        RankedHit(float(score), *reader.stored_fields(address))
        for score, address in hits[offset:end]
    ]
    return RankedHits(ranked, total)


def sort_ties(hits: list[ScoredAddress], position: int, url: Callable[[DocAddress], str]) -> None:
    """Sort the hits that tie with the one at this position by URL, if some of them come before it."""
    if not 0 < position < len(hits):
        return
    score = round_score(hits[position][0])
    if round_score(hits[position - 1][0]) != score:
        return
    first = last = position
    while first > 0 and round_score(hits[first - 1][0]) == score:
        first -= 1
    while last < len(hits) and round_score(hits[last][0]) == score:
        last += 1
    hits[first:last] = sorted(hits[first:last], key=lambda hit: url(hit[1]))


def match_count(result: SearchResult) -> int:
    return result.count  # type: ignore[attr-defined, no-any-return] # missing in Tantivy's stubs
