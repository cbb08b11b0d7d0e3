"""The parts of a query, for any engine: which words match in which field, and how much they add to the score.

Each engine translates them to its own queries.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias


class ScoredTerm(NamedTuple):
    """A word in a field, with its BM25 score times the weight."""

    field: str
    word: str
    weight: float


class ScoredPhrase(NamedTuple):
    """Words in this order in a field, with up to `slop` others between them; its BM25 score times the weight."""

    field: str
    words: tuple[str, ...]
    weight: float = 1.0
    slop: int = 0


class ExactValue(NamedTuple):
    """Documents that have a value in a field; the score has no meaning."""

    field: str
    value: str


class AnyValue(NamedTuple):
    """Documents that have one of the values in a field."""

    field: str
    values: tuple[str, ...]


class NumberRange(NamedTuple):
    """Documents with a number from `start` to `end`, both inclusive."""

    field: str
    start: int | None
    end: int | None


class AllDocuments(NamedTuple):
    """Every document, but no marker or filler documents."""


class NoDocuments(NamedTuple):
    """Matches nothing."""


class ConstantScore(NamedTuple):
    """The clause with the same score for every match."""

    clause: "QueryClause"
    score: float


class Combination(NamedTuple):
    """Documents that match all of `required`, none of `excluded`, and one of `optional` if nothing is required.

    The score is the sum of the scores of `required` and `optional`.
    """

    required: "tuple[QueryClause, ...]" = ()
    optional: "tuple[QueryClause, ...]" = ()
    excluded: "tuple[QueryClause, ...]" = ()


QueryClause: TypeAlias = (
    ScoredTerm
    | ScoredPhrase
    | ExactValue
    | AnyValue
    | NumberRange
    | AllDocuments
    | NoDocuments
    | ConstantScore
    | Combination
)
EVERY_DOCUMENT: Final = AllDocuments()


class ScorePart(NamedTuple):
    """A part of a score: which words match in which field, and the clause for it."""

    words: str
    field: str
    clause: QueryClause


def unscored(clause: QueryClause) -> QueryClause:
    return ConstantScore(clause, 0.0)


def any_of(clauses: Iterable[QueryClause]) -> QueryClause:
    alternatives = tuple(clauses)
    return alternatives[0] if len(alternatives) == 1 else Combination(optional=alternatives)


def all_of(clauses: Iterable[QueryClause]) -> QueryClause:
    return Combination(required=tuple(clauses))


def phrase(
    field: str, words: Sequence[str], weight: float = 1.0, slop: int = 0
) -> ScoredTerm | ScoredPhrase:
    """The words in this order; a single word is a term."""
    if len(words) == 1:
        return ScoredTerm(field, words[0], weight)
    return ScoredPhrase(field, tuple(words), weight, slop)
