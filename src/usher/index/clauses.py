"""Small Tantivy queries of which larger ones consist."""

from collections.abc import Iterable
from typing import NamedTuple

from tantivy import Occur
from tantivy import Query as TantivyQuery

from usher.index import fields


class Clause(NamedTuple):
    """A part of a query: which words match in which field, and the query for it."""

    words: str
    field: str
    query: TantivyQuery


def exact(field: str, value: str) -> TantivyQuery:
    return TantivyQuery.term_query(fields.schema(), field, value, "basic")


def weighted_term(field: str, word: str, weight: float) -> TantivyQuery:
    """A word with its BM25 score times the weight."""
    query = TantivyQuery.term_query(fields.schema(), field, word, index_option="freq")
    return TantivyQuery.boost_query(query, weight)


def constant(query: TantivyQuery, score: float) -> TantivyQuery:
    """The query with the same score for every match."""
    return TantivyQuery.const_score_query(query, score)


def any_of(queries: Iterable[TantivyQuery]) -> TantivyQuery:
    alternatives = list(queries)
    if len(alternatives) == 1:
        return alternatives[0]
    return TantivyQuery.boolean_query([(Occur.Should, query) for query in alternatives])


def all_of(queries: Iterable[TantivyQuery]) -> TantivyQuery:
    return TantivyQuery.boolean_query([(Occur.Must, query) for query in queries])


def unscored(query: TantivyQuery) -> TantivyQuery:
    return constant(query, 0.0)


def all_documents() -> TantivyQuery:
    """Matches every document, but no marker or filler documents."""
    return TantivyQuery.exists_query("crawled")
