"""The best hits of a query in an order on which all servers agree: good matches, then score, ties by URL.

Tantivy orders ties by insertion, which differs between servers. A front-end that merges hits could then not tell
whether another hit belongs before the last one, and would have to ask again.

BM25 compares the length of a document with the average of its index, and averages differ between servers. So scores are
corrected to the average of all servers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

from tantivy import DocAddress, Document, SearchResult
from tantivy import Query as TantivyQuery

from usher.index.fields import StoredFields
from usher.index.index_reader import IndexReader
from usher.query.results import round_score

EXTRA_HITS: Final = 5  # fetched to see whether the last hit ties with the next one
MAX_HITS: Final = 12_000
ADJUSTED_HITS: Final = 100  # fetched in addition, because lists of links move down
BM25_K1, BM25_B = 1.2, 0.75  # Tantivy's
MAX_SATURATION: Final = 0.95
ScoredAddress = tuple[float, DocAddress]


class LengthCorrection(NamedTuple):
    """Turns scores of this index into those that hits have with the average length of all servers, about.

    BM25 multiplies the weight of a word by f / (f + K), where K depends on the length of the document. The share of the
    score in the highest possible score, that of a page that has the words without end, tells this factor, and so f.
    """

    local_average: float
    average: float
    limit_score: float

    def apply(self, scores: Sequence[float], lengths: Sequence[int]) -> list[float]:
        """The corrected scores of documents with these lengths."""
        local, average = BM25_B / self.local_average, BM25_B / self.average  # for each word
        fixed, limit_score = 1 - BM25_B, self.limit_score
        corrected = []
        for score, length in zip(scores, lengths, strict=True):
            saturation = min(MAX_SATURATION, score / limit_score)
            ratio = (fixed + average * length) / (fixed + local * length)
            corrected.append(score / (saturation + (1 - saturation) * ratio))
        return corrected


class RankedHit(NamedTuple):
    """A hit, its document or where that is, and whether it lacks words that matter."""

    score: float
    fields: StoredFields
    document: Document | DocAddress
    address: DocAddress
    weak: bool = False


class RankedHits(NamedTuple):
    """The best hits, the number of good matches if it was counted, and whether there are further hits."""

    hits: list[RankedHit]
    total: int | None
    more: bool = False


def rank(
    reader: IndexReader,
    query: TantivyQuery,
    limit: int,
    *,
    any_query: TantivyQuery | None = None,
    offset: int = 0,
    order: str | None = None,
    count: bool,
    correction: LengthCorrection | None = None,
) -> RankedHits:
    """The best `limit` hits after the first `offset`; pages that match only `any_query` follow as weak matches.

    Counting all matches takes longer.
    """
    end = offset + limit
    search = partial(_search, reader, order=order, correction=correction)
    hits, total = search(query, end, count=count)
    good = len(hits)
    if any_query is not None and good <= end:
        is_good = {(address.segment_ord, address.doc) for _, address in hits}
        every, _ = search(any_query, end + good, count=False)
        hits += [hit for hit in every if (hit[1].segment_ord, hit[1].doc) not in is_good]
    for first, last in ((0, good), (good, len(hits))):
        tier = hits[first:last]
        for position in (offset - first, end - first):
            sort_ties(tier, position, lambda address: reader.stored_fields(address)[0].url)
        hits[first:last] = tier
    ranked = [
        RankedHit(float(score), *reader.stored_fields(address), address, number >= good)
        for number, (score, address) in enumerate(hits[offset:end], offset)
    ]
    return RankedHits(ranked, total, len(hits) > end)


def _search(
    reader: IndexReader,
    query: TantivyQuery,
    end: int,
    *,
    order: str | None,
    count: bool,
    correction: LengthCorrection | None,
) -> tuple[list[ScoredAddress], int | None]:
    """The first `end` hits and all that tie with the last of them, and the number of all if it is known."""
    size = end + EXTRA_HITS + (0 if order else ADJUSTED_HITS)
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
    return hits if order else _adjusted(reader, hits, correction), total


def _adjusted(
    reader: IndexReader, hits: list[ScoredAddress], correction: LengthCorrection | None
) -> list[ScoredAddress]:
    """The hits with their priors, and with the average length of all servers."""
    addresses = [address for _, address in hits]
    scores = [
        score * prior for (score, _), prior in zip(hits, reader.priors(addresses), strict=True)
    ]
    if correction:
        scores = correction.apply(scores, reader.lengths(addresses))
    adjusted = zip(scores, addresses, strict=True)
    return sorted(adjusted, key=itemgetter(0), reverse=True)


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
