"""The best hits of a query in an order on which all servers agree: by their scores, and equal ones by their URL.

Comes from the engine's view and a query as Tantivy runs it; goes to hits. Tantivy puts equal ones in the order in which
they were added, which differs from server to server: whoever puts the hits of several together could not know whether
another one belongs before the last, and had to ask again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, cast

from tantivy import DocAddress, Document
from tantivy import Query as Tantivy

from usher.index.fields import StoredFields
from usher.index.index_reader import IndexReader
from usher.query.results import round_score

SPARE: Final = 5  # more than are wanted: whether the next one is as good as the last shows who belongs before whom
MOST: Final = 12_000
Scored = tuple[float, DocAddress]


class RankedHit(NamedTuple):
    """A hit, and its document or where it is."""

    score: float
    kept: StoredFields
    where: Document | DocAddress


class RankedHits(NamedTuple):
    """The best hits, and how many there are, if that is known by now."""

    hits: list[RankedHit]
    total: int | None


def rank(
    view: IndexReader,
    query: Tantivy,
    limit: int,
    *,
    offset: int = 0,
    order: str | None = None,
    count: bool,
) -> RankedHits:
    """So many hits after the first `offset`; counted only if wanted, for that takes longer."""
    end = offset + limit
    asked = end + SPARE
    while True:
        result = view.searcher.search(query, asked, count=count, order_by_field=order)
        hits: list[Scored] = list(result.hits)
        whole = len(hits) < asked
        if whole or asked >= MOST or round_score(hits[-1][0]) < round_score(hits[end - 1][0]):
            break
        # The last that are wanted are as good as all others: any may belong here.
        asked = min(4 * asked, MOST)
    total = match_count(result) if count else len(hits) if whole else None
    for at in (offset, end):
        sort_ties(hits, at, lambda where: view.kept(where)[0].url)
    found = [RankedHit(float(score), *view.kept(where)) for score, where in hits[offset:end]]
    return RankedHits(found, total)


def sort_ties(hits: list[Scored], at: int, url: Callable[[DocAddress], str]) -> None:
    """Put hits that are as good as the one at this place in the order of their URLs, if some come before it."""
    if not 0 < at < len(hits) or round_score(hits[at - 1][0]) != (same := round_score(hits[at][0])):
        return
    first = last = at
    while first > 0 and round_score(hits[first - 1][0]) == same:
        first -= 1
    while last < len(hits) and round_score(hits[last][0]) == same:
        last += 1
    hits[first:last] = sorted(hits[first:last], key=lambda hit: url(hit[1]))


def match_count(result: object) -> int:
    """What Tantivy's own types forgot to mention."""
    return cast("_Counted", result).count


class _Counted(Protocol):
    count: int
