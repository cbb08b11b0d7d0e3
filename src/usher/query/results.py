"""Responses of an index server: hits and the term statistics that make scores comparable."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from usher.query.highlight import Segment

MIN_TIMESTAMP_SCORE: Final = 1e9  # a query without words has timestamps as scores, which are exact


class Hit(Struct, frozen=True, omit_defaults=True):
    """One matching document; `key` is the page in the guestbook, `url` the target of the link.

    A `weak` match lacks words that matter; it comes after all others. `reasons` explain the score, on request.
    """

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
    weak: bool = False
    reasons: tuple["ScoreReason", ...] = ()


class ScoreReason(Struct, frozen=True):
    """A part of a score: what of the query matched, and where."""

    words: str
    field: str
    score: float


class SectionLink(Struct, frozen=True):
    """A section of a page: the path of its headings, and its anchor."""

    title: str
    anchor: str


class Passage(Struct, frozen=True, omit_defaults=True):
    """The snippet of a hit and up to three matching sections.

    The snippet may be from the first of them, or from a part of the page that is in none. `forms` are other forms
    of the words of the query that the title and the headings have.
    """

    pieces: list[Segment]
    sections: tuple[SectionLink, ...] = ()
    is_from_first: bool = False
    forms: tuple[str, ...] = ()


class Hits(Struct, frozen=True, omit_defaults=True):
    """The best hits of one server, the number of good matches, the hosts with most of them, and snippets.

    `more` says whether there are further hits, good or weak.
    `incarnation` names the database that the server compared its chunks with; empty if there is none.
    `missing` is the share of its documents that the server could not search, 1 if it does not know the share.
    """

    total: int = 0
    hits: tuple[Hit, ...] = ()
    hosts: dict[str, int] = field(default_factory=dict)
    shown: tuple[Passage, ...] = ()  # of the first hits
    incarnation: str = ""
    more: bool = False
    missing: float = 0.0

    @property
    def good(self) -> int:
        """The number of good matches among the hits."""
        return sum(not hit.weak for hit in self.hits)


class TermStats(Struct, frozen=True, omit_defaults=True):
    """Document counts of the words of a query; scores that use the same statistics can be compared."""

    documents: int = 0
    languages: dict[str, int] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)  # "body:word" to number of documents
    forms: dict[str, tuple[str, ...]] = field(default_factory=dict)  # "en:word" to its stem
    words: int = 0  # of all documents


def rank_key(hit: Hit) -> tuple[bool, float, str]:
    """The sort key of hits, the same on every server: good matches, then best score, ties by URL."""
    return hit.weak, -round_score(hit.score), hit.url


def round_score(score: float) -> float:
    """Round to four digits: the fifth differs between servers by chance."""
    return score if score > MIN_TIMESTAMP_SCORE else float(f"{score:.4g}")


class Suggestion(Struct, frozen=True):
    """A better spelling of a word, and the number of documents that have it, and that have the word as `typed`."""

    word: str
    better: str
    documents: int
    typed: int = 0


def sum_stats(parts: Iterable[TermStats]) -> TermStats:
    """The statistics of one index with the documents of all these."""
    documents = words = 0
    languages: dict[str, int] = {}
    terms: dict[str, int] = {}
    forms: dict[str, set[str]] = {}
    for stats in parts:
        documents += stats.documents
        words += stats.words
        for language, count in stats.languages.items():
            languages[language] = languages.get(language, 0) + count
        for term, count in stats.terms.items():
            terms[term] = terms.get(term, 0) + count
        for word, others in stats.forms.items():
            forms.setdefault(word, set()).update(others)
    united = {word: tuple(sorted(others)) for word, others in forms.items()}
    return TermStats(documents, languages, terms, united, words)
