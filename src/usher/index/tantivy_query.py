"""Translates clauses for Tantivy."""

from collections.abc import Iterable, Iterator
from typing import Final

from tantivy import FieldType, Occur
from tantivy import Query as TantivyQuery

from usher.index import fields
from usher.index.clauses import (
    AllDocuments,
    AnyValue,
    Combination,
    ConstantScore,
    ExactValue,
    NoDocuments,
    NumberRange,
    QueryClause,
    ScoredPhrase,
    ScoredTerm,
)

_SIGNED_FIELDS: Final = frozenset({"published", "crawled"})


def to_tantivy(clause: QueryClause) -> TantivyQuery:  # noqa: PLR0911 - one for each kind
    """The query of Tantivy that matches and scores as the clause."""
    schema = fields.schema()
    match clause:
        case ScoredTerm(field, word, weight):
            query = TantivyQuery.term_query(schema, field, word, index_option="freq")
            return TantivyQuery.boost_query(query, weight)
        case ExactValue(field, value):
            return exact(field, value)
        case ConstantScore(inner, score):
            return TantivyQuery.const_score_query(to_tantivy(inner), score)
        case Combination():
            return TantivyQuery.boolean_query(list(_subqueries(clause)))
        case ScoredPhrase(field, words, weight, slop):
            query = TantivyQuery.phrase_query(schema, field, list(words), slop)
            return TantivyQuery.boost_query(query, weight)
        case AnyValue(field, values):
            return TantivyQuery.term_set_query(schema, field, list(values))
        case NumberRange(field, start, end):
            kind = FieldType.Integer if field in _SIGNED_FIELDS else FieldType.Unsigned
            return TantivyQuery.range_query(schema, field, kind, start, end)
        case AllDocuments():
            return all_documents()
        case NoDocuments():
            return TantivyQuery.empty_query()


def _subqueries(clause: Combination) -> Iterator[tuple[Occur, TantivyQuery]]:
    for inner in clause.required:
        yield Occur.Must, to_tantivy(inner)
    for inner in clause.optional:
        yield Occur.Should, to_tantivy(inner)
    for inner in clause.excluded:
        yield Occur.MustNot, to_tantivy(inner)


def exact(field: str, value: str) -> TantivyQuery:
    return TantivyQuery.term_query(fields.schema(), field, value, "basic")


def all_of(queries: Iterable[TantivyQuery]) -> TantivyQuery:
    return TantivyQuery.boolean_query([(Occur.Must, query) for query in queries])


def all_documents() -> TantivyQuery:
    """Matches every document, but no marker or filler documents."""
    return TantivyQuery.exists_query("crawled")
