"""The translation of clauses to OpenSearch's query DSL."""

from collections.abc import Iterable
from typing import Any

import pytest

from usher.index.clauses import (
    EVERY_DOCUMENT,
    AnyValue,
    Combination,
    ConstantScore,
    ExactValue,
    NoDocuments,
    NumberRange,
    QueryClause,
    ScoredPhrase,
    ScoredTerm,
    phrase,
    unscored,
)
from usher.index.opensearch.query_dsl import (
    MAX_CLAUSES,
    NO_WORD,
    count_clauses,
    limited,
    to_dsl,
    whole_query,
)
from usher.index.query_builder import QueryBuilder
from usher.query.language import parse_query

TERM = ScoredTerm("body", "log", 0.5)
TERM_DSL = {"term": {"body": {"value": "log", "boost": 0.5}}}


class FewCounts:
    """The counts of an index of a hundred English pages; every word is in two of them."""

    documents = 100
    words = 10_000

    def __init__(self) -> None:
        self.languages = {"en": 100}
        self.prefetched: list[tuple[str, str]] = []

    def count(self, field: str, word: str) -> int:
        assert field
        return 2 if word else 0

    def prefetch(self, terms: Iterable[tuple[str, str]]) -> None:
        self.prefetched = list(terms)


def good_query(text: str) -> dict[str, Any]:
    return to_dsl(QueryBuilder(FewCounts(), parse_query(text)).build())


def leaves(dsl: object) -> list[tuple[str, Any]]:
    """All term and phrase queries in a DSL with their bodies."""
    if isinstance(dsl, list):
        return [leaf for part in dsl for leaf in leaves(part)]
    if not isinstance(dsl, dict):
        return []
    own = [(name, body) for name, body in dsl.items() if name in ("term", "match_phrase")]
    return own + [leaf for body in dsl.values() for leaf in leaves(body)]


@pytest.mark.parametrize(
    ("clause", "dsl"),
    [
        (TERM, TERM_DSL),
        (ExactValue("site", "a.org"), {"term": {"site": "a.org"}}),
        (AnyValue("language", ("de", "fr")), {"terms": {"language": ["de", "fr"]}}),
        (NumberRange("published", 5, None), {"range": {"published": {"gte": 5}}}),
        (NumberRange("domain64", 0, 9), {"range": {"domain64": {"gte": 0, "lte": 9}}}),
        (EVERY_DOCUMENT, {"exists": {"field": "crawled"}}),
        (NoDocuments(), {"match_none": {}}),
        (
            ScoredPhrase("title", ("write", "ahead"), 0.3, 2),
            {"match_phrase": {"title": {"query": "write ahead", "slop": 2, "boost": 0.3}}},
        ),
        (phrase("body", ["log"], 0.5), TERM_DSL),
        (ConstantScore(TERM, 3.5), {"constant_score": {"filter": TERM_DSL, "boost": 3.5}}),
        (
            Combination((TERM, unscored(ExactValue("site", "a.org"))), (TERM,), (NoDocuments(),)),
            {
                "bool": {
                    "must": [TERM_DSL],
                    "filter": [{"term": {"site": "a.org"}}],
                    "should": [TERM_DSL],
                    "must_not": [{"match_none": {}}],
                }
            },
        ),
        (
            Combination(optional=(TERM, NoDocuments())),
            {"bool": {"should": [TERM_DSL, {"match_none": {}}], "minimum_should_match": 1}},
        ),
    ],
)
def test_each_kind_of_clause(clause: QueryClause, dsl: dict[str, Any]) -> None:
    assert to_dsl(clause) == dsl


def test_all_shards_report_the_statistics_of_fields_with_phrases() -> None:
    clause = Combination(
        (TERM,), (ScoredPhrase("title", ("a", "b")), ScoredPhrase("body", ("c", "d")))
    )
    never = [{"term": {"body": NO_WORD}}, {"term": {"title": NO_WORD}}]
    assert whole_query(clause) == {"bool": {"must": [to_dsl(clause)], "should": never}}
    assert whole_query(TERM) == TERM_DSL


def test_a_query_requires_its_words_and_filters_do_not_score() -> None:
    query = good_query('logs "ahead of" -draft site:a.org lang:en after:2024')["bool"]
    assert {"term": {"site": "a.org"}} in query["filter"]
    assert {"terms": {"language": ["en"]}} in query["filter"]
    assert {"range": {"published": {"gte": 1_704_067_200_000_000}}} in query["filter"]
    excluded = {next(iter(body)) for _, body in leaves(query["must_not"])}
    assert excluded == {"title", "headings", "body"}
    required = leaves(query["must"])
    assert ("term", {"stems": {"value": "log", "boost": 1.0}}) in required
    assert ("match_phrase", {"body": {"query": "ahead of", "slop": 0, "boost": 1.0}}) in required


def test_neighbours_of_a_query_add_to_the_score() -> None:
    should = leaves(good_query("write ahead log")["bool"]["should"])
    pairs = {
        body["body"]["query"] for name, body in should if name == "match_phrase" and "body" in body
    }
    assert pairs == {"write ahead", "ahead log"}


def test_the_counts_of_a_query_are_requested_at_once() -> None:
    counts = FewCounts()
    QueryBuilder(counts, parse_query("indexes of pages"))
    assert set(counts.prefetched) == {("stems", "index"), ("stems", "page"), ("stems", "of")}


def test_a_long_query_keeps_its_heaviest_parts() -> None:
    light = [ScoredTerm("url", str(n), 0.1) for n in range(MAX_CLAUSES)]
    heavy = [ScoredTerm("stems", str(n), 1.0) for n in range(MAX_CLAUSES // 2)]
    kept = limited(Combination((TERM,), (*light, *heavy)))
    assert count_clauses(kept) == MAX_CLAUSES
    assert isinstance(kept, Combination)
    assert set(heavy) <= set(kept.optional)
    assert kept.required == (TERM,)


def test_a_query_that_requires_too_much_matches_nothing() -> None:
    many = tuple(ScoredTerm("stems", str(n), 1.0) for n in range(MAX_CLAUSES + 1))
    assert limited(Combination(many)) == NoDocuments()
    assert limited(Combination((TERM,))) == Combination((TERM,))


def test_the_longest_query_stays_within_the_limit_of_opensearch() -> None:
    builder = QueryBuilder(FewCounts(), parse_query(" ".join(f"word{n}" for n in range(100))))
    any_clause = builder.build_any()
    assert any_clause is not None
    for clause in (builder.build(), any_clause):
        assert 0 < count_clauses(limited(clause)) <= MAX_CLAUSES
    assert limited(any_clause) != NoDocuments()
