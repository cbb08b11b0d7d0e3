"""Translates clauses to the query DSL of OpenSearch."""

from typing import Any, Final

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

MAX_CLAUSES: Final = 1_000  # OpenSearch refuses queries with more than 1,024 by default
Dsl = dict[str, Any]
NO_WORD: Final = "-"  # words have only letters and digits
EVERY_DOCUMENT_DSL: Final[Dsl] = {"exists": {"field": "crawled"}}
NO_DOCUMENT_DSL: Final[Dsl] = {"match_none": {}}


def whole_query(clause: QueryClause) -> Dsl:
    """The DSL of a whole query, in which all shards report the statistics of each field.

    A shard without a word of a phrase reports nothing for it, so phrases would weigh as in a smaller index. A term that
    never occurs makes each shard report the statistics of its field.
    """
    if not (names := phrase_fields(clause)):
        return to_dsl(clause)
    never = [{"term": {name: NO_WORD}} for name in sorted(names)]
    return {"bool": {"must": [to_dsl(clause)], "should": never}}


def phrase_fields(clause: QueryClause) -> set[str]:
    """The fields in which phrases add to the score."""
    match clause:
        case ScoredPhrase(field):
            return {field}
        case Combination(required, optional):
            return set[str]().union(*map(phrase_fields, (*required, *optional)))
        case _:
            return set()


def to_dsl(clause: QueryClause) -> Dsl:  # noqa: PLR0911 - one for each kind
    """The query of OpenSearch that matches and scores as the clause."""
    match clause:
        case ScoredTerm(field, word, weight):
            return {"term": {field: {"value": word, "boost": weight}}}
        case ExactValue(field, value):
            return {"term": {field: value}}
        case ConstantScore(inner, score):
            return {"constant_score": {"filter": to_dsl(inner), "boost": score}}
        case Combination():
            return _bool(clause)
        case ScoredPhrase(field, words, weight, slop):
            text = " ".join(words)
            return {"match_phrase": {field: {"query": text, "slop": slop, "boost": weight}}}
        case AnyValue(field, values):
            return {"terms": {field: list(values)}}
        case NumberRange(field, start, end):
            limits = {"gte": start, "lte": end}
            return {"range": {field: {name: n for name, n in limits.items() if n is not None}}}
        case AllDocuments():
            return EVERY_DOCUMENT_DSL
        case NoDocuments():
            return NO_DOCUMENT_DSL


def _bool(clause: Combination) -> Dsl:
    """Required clauses that add nothing to the score are filters, which OpenSearch can cache."""
    scored, filters = list[QueryClause](), list[QueryClause]()
    for inner in clause.required:
        if isinstance(inner, ConstantScore) and inner.score == 0:
            filters.append(inner.clause)
        else:
            scored.append(inner)
    parts = {
        "must": scored,
        "filter": filters,
        "should": clause.optional,
        "must_not": clause.excluded,
    }
    result: Dsl = {name: [to_dsl(inner) for inner in part] for name, part in parts.items() if part}
    if clause.optional and not clause.required:
        result["minimum_should_match"] = 1
    return {"bool": result}


def count_clauses(clause: QueryClause) -> int:
    """How many clauses count for the limit of OpenSearch."""
    match clause:
        case ConstantScore(inner, _):
            return count_clauses(inner)
        case Combination(required, optional, excluded):
            return sum(map(count_clauses, (*required, *optional, *excluded)))
        case ScoredPhrase(_, words):
            return len(words)
        case _:
            return 1


def limited(clause: QueryClause, limit: int = MAX_CLAUSES) -> QueryClause:
    """The clause without the optional parts that are too many; NoDocuments if it requires too many."""
    excess = count_clauses(clause) - limit
    if excess <= 0:
        return clause
    if not isinstance(clause, Combination):
        return NoDocuments()
    if not clause.optional and len(clause.required) == 1:
        return Combination((limited(clause.required[0], limit),))
    kept = sorted(clause.optional, key=_weight, reverse=True)
    while kept and excess > 0:
        excess -= count_clauses(kept.pop())
    if excess > 0 or (clause.optional and not kept and not clause.required):
        return NoDocuments()
    return clause._replace(optional=tuple(kept))


def _weight(clause: QueryClause) -> float:
    match clause:
        case ScoredTerm(_, _, weight) | ScoredPhrase(_, _, weight):
            return weight
        case ConstantScore(_, score):
            return score
        case _:
            return 0.0
