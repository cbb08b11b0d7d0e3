"""Requests of a front-end to an index server, all bounded, and the responses that are not in `results`.

Unknown fields are ignored, because the front-end may have a newer version than the server.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.errors import BadInput
from usher.query.highlight import SNIPPET_CHARACTERS
from usher.query.language import MAX_TERMS, Query, parse_query
from usher.query.results import Passage, TermStats

MAX_TEXT_CHARACTERS: Final = 20_000  # of a query that is sent as text
MAX_STATS_ENTRIES: Final = 20_000
MAX_DEADLINE_SECONDS: Final = 60.0

QueryOrText = Query | Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)]
Deadline = Annotated[float, Meta(gt=0, le=MAX_DEADLINE_SECONDS)]  # seconds
HitAddress = tuple[  # URL and chunk
    Annotated[str, Meta(max_length=10_000)], Annotated[int, Meta(ge=0, le=2**63 - 1)]
]


class SearchRequest(Struct, kw_only=True, omit_defaults=True):
    """`POST /search`: the best `k` hits after the first `offset`, the first `show` of them with snippets.

    `stats` are those of all servers of the row. `explain` adds the reasons of each score; a server of an older version
    does not know it.
    """

    query: QueryOrText
    k: Annotated[int, Meta(ge=1, le=1_000)] = 10
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0
    deadline: Deadline = 5.0
    stats: TermStats | None = None
    hosts: bool = False
    show: Annotated[int, Meta(ge=0, le=100)] = 0
    explain: bool = False


class QueryRequest(Struct, kw_only=True):
    """`POST /stats` and `POST /suggest`: statistics or better spellings of the words of a query."""

    query: QueryOrText
    deadline: Deadline = 5.0


class FrequentWordsRequest(Struct, kw_only=True):
    """`POST /common`: about `most` of the words that most documents have."""

    most: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    deadline: Deadline = 5.0


class SnippetsRequest(Struct, kw_only=True):
    """`POST /snippets`: the snippets of these hits."""

    query: QueryOrText
    wanted: Annotated[list[HitAddress], Meta(max_length=100)]
    size: Annotated[int, Meta(ge=20, le=2_000)] = SNIPPET_CHARACTERS
    deadline: Deadline = 5.0


class Snippet(Passage, frozen=True, kw_only=True):
    """The passage of one hit."""

    url: str
    chunk: int


def to_query(query: QueryOrText) -> Query:
    """The query, parsed if it is text; BadInput if it has too many terms."""
    query = parse_query(query) if isinstance(query, str) else query
    if sum(map(len, query.groups)) + len(query.unwanted) > MAX_TERMS:
        raise BadInput(f"The query has more than {MAX_TERMS} terms.", hint="Send fewer terms.")
    return query


def checked_stats(stats: TermStats | None) -> TermStats | None:
    """The same statistics; BadInput if they are too large or their counts are impossible."""
    if stats is None:
        return None
    forms = sum(map(len, stats.forms.values()))
    if len(stats.terms) + len(stats.languages) + len(stats.forms) + forms > MAX_STATS_ENTRIES:
        raise BadInput(f"The statistics have more than {MAX_STATS_ENTRIES:,} entries.")
    counts = (stats.documents, *stats.terms.values(), *stats.languages.values())
    if min(counts) < 0 or max(counts) >= 1 << 53:
        raise BadInput("The statistics have a negative or impossible count.")
    return stats
