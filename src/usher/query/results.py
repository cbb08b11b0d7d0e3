"""What an index server answers: hits, how many there are, and the statistics that rank them.

Comes from the engine of each server as JSON; goes to `merge`, and statistics go back to every server.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from usher.query.highlight import Segment

MIN_TIMESTAMP_SCORE: Final = (
    1e9  # above it a score is the moment that orders hits of a query without words, and exact
)


class Hit(Struct, frozen=True, omit_defaults=True):
    """One document that matches; `key` is the page in the guestbook, `url` where the reader goes."""

    score: float
    key: str
    url: str
    title: str
    host: str
    chunk: int
    crawled: datetime
    published: datetime | None = None
    language: str = ""
    description: str = ""
    canonical: str = ""
    simhash: int = 0
    text64: int = 0


class Hits(Struct, frozen=True, omit_defaults=True):
    """The best hits of one server, how many match at all, on which hosts most are, and passages of the first ones.

    `incarnation` is the one of the database that the server compared its chunks with; empty if the server has none.
    """

    total: int = 0
    hits: tuple[Hit, ...] = ()
    hosts: dict[str, int] = field(default_factory=dict)
    passages: tuple[list[Segment], ...] = ()
    incarnation: str = ""


class TermStats(Struct, frozen=True, omit_defaults=True):
    """How often the words of a query are where; scores made with the same statistics can be compared."""

    documents: int = 0
    languages: dict[str, int] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)  # "body:word" and in how many documents
    forms: dict[str, tuple[str, ...]] = field(default_factory=dict)  # "en:word" and its other forms


def rank_key(hit: Hit) -> tuple[float, str]:
    """What puts hits in order, the same on every server: the best first, equal ones by their URL."""
    return -round_score(hit.score), hit.url


def round_score(score: float) -> float:
    """Four digits: what servers differ by in the fifth is chance, and equal hits are put in order by URL."""
    return score if score > MIN_TIMESTAMP_SCORE else float(f"{score:.4g}")


class Suggestion(Struct, frozen=True):
    """A word that stands in `documents` many documents and was perhaps meant."""

    word: str
    better: str
    documents: int


def sum_stats(stats: Iterable[TermStats]) -> TermStats:
    """The statistics of one index that holds what these hold."""
    documents = 0
    languages: dict[str, int] = {}
    terms: dict[str, int] = {}
    forms: dict[str, dict[str, None]] = {}
    for one in stats:
        documents += one.documents
        for name, number in one.languages.items():
            languages[name] = languages.get(name, 0) + number
        for term, number in one.terms.items():
            terms[term] = terms.get(term, 0) + number
        for word, found in one.forms.items():
            forms.setdefault(word, {}).update(dict.fromkeys(found))
    united = {word: tuple(sorted(found)) for word, found in forms.items()}
    return TermStats(documents, languages, terms, united)
