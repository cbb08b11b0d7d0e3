"""What an index server is asked, and its answers that are not those of `search.answers`.

Comes from front-ends as JSON; goes to the engine. Everything in a question is bounded.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.errors import BadInput
from usher.query.language import MAX_TERMS, Query, parse_query
from usher.query.results import TermStats

MOST_TEXT: Final = 20_000  # characters of a query as people type it
MOST_COUNTS: Final = 20_000  # words, forms and languages of statistics
LONGEST: Final = 60.0

QueryOrText = Query | Annotated[str, Meta(max_length=MOST_TEXT)]
Deadline = Annotated[float, Meta(gt=0, le=LONGEST)]
HitAddress = tuple[
    Annotated[str, Meta(max_length=10_000)], Annotated[int, Meta(ge=0, le=2**63 - 1)]
]


class SearchRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The best `k` hits after the first `offset`, the first `show` of them with their passages, within so many seconds.

    `stats` are those of all servers together.
    """

    query: QueryOrText
    k: Annotated[int, Meta(ge=1, le=1_000)] = 10
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0
    deadline: Deadline = 5.0
    stats: TermStats | None = None
    hosts: bool = False
    show: Annotated[int, Meta(ge=0, le=100)] = 0


class QueryRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a server knows of the words of a query: how often they are where, or which are better spelt."""

    query: QueryOrText
    deadline: Deadline = 5.0


class FrequentWordsRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """So many of the words that stand in most documents, more or less."""

    most: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    deadline: Deadline = 5.0


class SnippetsRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The passages that show why these were found, each by its URL and its chunk."""

    query: QueryOrText
    wanted: Annotated[list[HitAddress], Meta(max_length=100)]
    size: Annotated[int, Meta(ge=20, le=2_000)] = 240
    deadline: Deadline = 5.0


class Snippet(Struct):
    """Text in pieces, each with whether it is to be marked."""

    url: str
    chunk: int
    pieces: list[tuple[str, bool]]


def to_query(asked: QueryOrText) -> Query:
    """The query, also of words as people type them; BadInput if it is too much."""
    query = parse_query(asked) if isinstance(asked, str) else asked
    if sum(map(len, query.groups)) + len(query.unwanted) > MAX_TERMS:
        raise BadInput(f"The query has more than {MAX_TERMS} terms.")
    return query


def checked_stats(stats: TermStats | None) -> TermStats | None:
    """Statistics that can be reckoned with; BadInput if they cannot."""
    if stats is None:
        return None
    forms = sum(map(len, stats.forms.values()))
    if len(stats.terms) + len(stats.languages) + len(stats.forms) + forms > MOST_COUNTS:
        raise BadInput(f"The statistics have more than {MOST_COUNTS:,} entries.")
    counts = (stats.documents, *stats.terms.values(), *stats.languages.values())
    if min(counts) < 0 or max(counts) >= 1 << 53:
        raise BadInput("The statistics count less than nothing, or more than there is.")
    return stats
