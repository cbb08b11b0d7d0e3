"""Builds the clauses of a query: BM25F over stems, with exact forms, titles, addresses and neighbours on top.

A page should have the words of a query; only explicit syntax requires them. A good match has all words, or all but some
that hardly matter. `build` returns the query for good matches. `build_any` returns the query for pages with any of the
words: a plain disjunction of terms, for which engines skip most documents.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Final

from usher.index import fields
from usher.index.clauses import (
    EVERY_DOCUMENT,
    AnyValue,
    Combination,
    ExactValue,
    NoDocuments,
    NumberRange,
    QueryClause,
    ScoredTerm,
    ScorePart,
    all_of,
    any_of,
    phrase,
    unscored,
)
from usher.index.fields import ANCHORS, BODY, HEADINGS, REST, STEMS, TITLE, TITLE_STEMS, URL
from usher.index.query_words import (
    MAX_UNSPACED_PHRASE,
    IndexCounts,
    QueryWord,
    QueryWords,
    tokens_of,
    words_of_term,
)
from usher.index.ranking import BM25_K1, LengthCorrection
from usher.index.section_query import good_names, section_reasons
from usher.query.language import Query, QueryTerm, is_required
from usher.query.results import TermStats

# Beside the stems, which have weight 1. Measured on judged collections (docs/adr/0026).
FIELD_WEIGHTS: Final = {TITLE_STEMS: 0.2, BODY: 0.3, URL: 0.2, REST: 0.1}
PHRASE_WEIGHTS: Final = {TITLE: 1.5, HEADINGS: 0.5, ANCHORS: 0.5, BODY: 1.0, URL: 0.5, REST: 0.1}
PHRASE_FIELDS: Final = {"": tuple(PHRASE_WEIGHTS), "title": (TITLE,), "url": (URL,)}
# What others call a page, and what is beside its text, excludes nothing.
EXCLUDED_FIELDS: Final = {"": (TITLE, HEADINGS, BODY), "title": (TITLE,), "url": (URL,)}
PROXIMITY_WEIGHTS: Final = {TITLE: 0.3, BODY: 0.3}  # of words that stand close together
PROXIMITY_SLOP: Final = 2  # words that may stand between them
MAX_PROXIMITY_PAIRS: Final = 5
PART_WEIGHT: Final = 0.5  # of a part of a compound
MIN_LENGTH_DIFFERENCE: Final = 0.02  # averages that differ less do not change the order


class QueryBuilder:
    """Builds the query with the counts of one index; with the statistics of all servers, scores are comparable."""

    def __init__(self, counts: IndexCounts, query: Query, stats: TermStats | None = None) -> None:
        self.words = QueryWords(counts, query, stats)
        self.words.prefetch()
        self.query = query
        self._reasons: dict[tuple[str, float], list[ScorePart]] = {}

    def build(self) -> QueryClause:
        """The query for good matches."""
        scores = [*self._good_reasons(), *self._spare_reasons()]
        if self._good_names:
            scores += [
                reason for word in self.words.expected for reason in self._flat_reasons(word)
            ]
        return self._good._replace(optional=clauses_of(scores))

    def build_filter(self) -> QueryClause:
        """A query with the same matches, for counting."""
        return self._good

    def build_any(self) -> QueryClause | None:
        """The query for pages with some of the optional words; None if all of them are good matches."""
        words = self.words.optional
        clauses = clauses_of(reason for word in words for reason in self._flat_reasons(word))
        if not clauses:
            return None
        if self._required_groups:
            return self._required._replace(optional=clauses)
        if len(words) == 1 and not words[0].parts:
            return None
        if self._required == Combination():
            return any_of(clauses)
        required = (*self._required.required, any_of(clauses))
        return self._required._replace(required=required)

    def length_correction(self) -> LengthCorrection | None:
        """The correction of scores if the average length differs from that of all servers."""
        counts, stats = self.words.counts, self.words.stats
        weight = sum(word.times * self.words.idf(word) for word in self.words.optional)
        if not (stats and stats.words and counts.words and weight):
            return None
        local, everywhere = counts.words / counts.documents, stats.words / stats.documents
        if abs(local / everywhere - 1) < MIN_LENGTH_DIFFERENCE:
            return None
        limit_score = (1 + BM25_K1) * (1 + FIELD_WEIGHTS[BODY]) * weight
        return LengthCorrection(local, everywhere, limit_score)

    def reasons(self, *, is_good: bool) -> list[ScorePart]:
        """All parts of the score of a match, for an explanation."""
        required = [term for group in self._required_groups for term in group]
        return [
            *(reason for term in required for reason in self._term_reasons(term)),
            *(reason for word in self.words.optional for reason in self._flat_reasons(word)),
            *(self._good_reasons() if is_good else ()),
        ]

    # -- which pages match

    @cached_property
    def _good(self) -> Combination:
        """The clauses that decide what matches well."""
        expected = [self._word_clause(word) for word in self.words.expected]
        if self._good_names:
            expected = [unscored(any_of([all_of(expected), *self._good_names]))]
        if self.query.groups and not expected and not self._required_groups:
            return Combination((NoDocuments(),))  # the terms have no word of the index
        scored = expected or self._required_groups
        first = [] if scored else [unscored(EVERY_DOCUMENT)]
        required = (*first, *expected, *self._required.required)
        return Combination(required, excluded=self._required.excluded)

    @cached_property
    def _good_names(self) -> list[QueryClause]:
        return good_names(self.words) if len(self.words.expected) > 1 else []

    @cached_property
    def _required_groups(self) -> list[tuple[QueryTerm, ...]]:
        return [group for group in dict.fromkeys(self.query.groups) if is_required(group)]

    @cached_property
    def _required(self) -> Combination:
        """What every match must have and must not have; filters do not affect scores."""
        groups = [
            any_of(clauses_of(reason for term in group for reason in self._term_reasons(term)))
            for group in self._required_groups
        ]
        filters = [unscored(clause) for clause in self._filters()]
        return Combination((*groups, *filters), excluded=tuple(self._excluded()))

    def _word_clause(self, word: QueryWord) -> QueryClause:
        """Matches pages that have a word in some form, or a compound in its parts."""
        if word.is_unspaced:
            return self._run_clause(word.parts)
        clauses = clauses_of(self._word_reasons(word.text, word.times))
        if word.parts:
            clauses = (*clauses, self._parts_clause(word.parts, PART_WEIGHT * word.times))
        return any_of(clauses)

    def _parts_clause(self, parts: Sequence[str], weight: float) -> QueryClause:
        """Matches pages that have all these words."""
        return all_of(
            any_of(clauses_of(self._word_reasons(part, weight))) for part in dict.fromkeys(parts)
        )

    def _run_clause(self, parts: Sequence[str]) -> QueryClause:
        """Matches a run of characters: a short one as a phrase, a long one by its characters in any order."""
        if 1 < len(parts) <= MAX_UNSPACED_PHRASE:
            return any_of(clauses_of(self._phrase_reasons(parts, "")))
        return self._parts_clause(parts, 1.0)

    # -- what affects the score

    def _word_reasons(self, word: str, weight: float) -> list[ScorePart]:
        """A word by its stems, and in its exact form in some fields."""
        reasons = self._reasons.get((word, weight))
        if reasons is None:
            reasons = self._reasons[word, weight] = self._make_word_reasons(word, weight)
        return reasons

    def _make_word_reasons(self, word: str, weight: float) -> list[ScorePart]:
        words, stems = self.words, self.words.stems(word)
        idf = words.idf(QueryWord(word))
        reasons = []
        for field, field_weight in ((STEMS, 1.0), (TITLE_STEMS, FIELD_WEIGHTS[TITLE_STEMS])):
            for stem in stems:
                # A stem that is rare, because only a few pages have its language, weighs no more than the word.
                share = min(1.0, idf / words.idfs(STEMS, stem)[0])
                factor = weight * field_weight * share * words.correction(field, [stem])
                reasons.append(ScorePart(word, field, ScoredTerm(field, stem, factor)))
        for field in (BODY, URL, REST):
            factor = weight * FIELD_WEIGHTS[field] * words.correction(field, [word])
            reasons.append(ScorePart(word, field, ScoredTerm(field, word, factor)))
        return reasons

    def _flat_reasons(self, word: QueryWord) -> list[ScorePart]:
        """A word and the parts of a compound as separate terms."""
        if word.is_unspaced:
            pairs: list[tuple[str, ...]] = [*pairwise(word.parts)] or [word.parts]
            return [reason for pair in pairs for reason in self._phrase_reasons(pair, "")]
        reasons = list(self._word_reasons(word.text, word.times))
        for part in dict.fromkeys(word.parts):
            reasons += self._word_reasons(part, PART_WEIGHT * word.times)
        return reasons

    def _spare_reasons(self) -> list[ScorePart]:
        spare = [word for word in self.words.optional if word not in self.words.expected]
        return [reason for word in spare for reason in self._flat_reasons(word)]

    def _term_reasons(self, term: QueryTerm) -> list[ScorePart]:
        """A required term: a phrase in its exact form, a word in all forms."""
        tokens = tokens_of(term.text)
        if not tokens:
            return []
        words = words_of_term(term.text)
        is_exact = term.phrase or any(word.is_unspaced for word in words)
        if term.place == "url" or is_exact:
            return self._phrase_reasons(tokens, term.place)
        if term.place == "title":
            stems = [stem for word in words for stem in self.words.stems(word.text)]
            return [
                ScorePart(term.text, TITLE, ScoredTerm(TITLE_STEMS, stem, 1.0)) for stem in stems
            ]
        clause = all_of(self._word_clause(word) for word in words)
        return [ScorePart(term.text, "page", clause)]

    def _phrase_reasons(self, tokens: Sequence[str], place: str) -> list[ScorePart]:
        return [
            self._phrase_reason(field, tokens, PHRASE_WEIGHTS[field])
            for field in PHRASE_FIELDS[place]
        ]

    def _phrase_reason(
        self, field: str, tokens: Sequence[str], weight: float, slop: int = 0
    ) -> ScorePart:
        factor = weight * self.words.correction(field, tokens)
        return ScorePart(" ".join(tokens), field, phrase(field, tokens, factor, slop))

    def _good_reasons(self) -> list[ScorePart]:
        """What adds to the score of good matches only: it would be too slow for all pages with any of the words."""
        return [*self._proximity_reasons(), *section_reasons(self.words)]

    def _proximity_reasons(self) -> list[ScorePart]:
        """Raise the score if neighbours of the query stand close together in this order."""
        pairs = list(self.words.pairs())[:MAX_PROXIMITY_PAIRS]
        return [
            self._phrase_reason(field, pair, weight, slop=PROXIMITY_SLOP)
            for field, weight in PROXIMITY_WEIGHTS.items()
            for pair in pairs
        ]

    # -- filters

    def _excluded(self) -> Iterable[QueryClause]:
        for term in self.query.unwanted:
            if tokens := tokens_of(term.text):
                yield from (phrase(field, tokens) for field in EXCLUDED_FIELDS[term.place])
        yield from (ExactValue("site", site) for site in self.query.not_sites)
        yield from (ExactValue("language", name) for name in self.query.not_languages)

    def _filters(self) -> Iterable[QueryClause]:
        query = self.query
        sites: list[QueryClause] = [ExactValue("site", site) for site in query.sites]
        sites += [_range("domain64", *limits) for limits in query.ranges]
        if sites:
            yield any_of(sites)
        if query.languages:
            yield AnyValue("language", query.languages)
        if query.after or query.before:
            yield _range("published", _microseconds(query.after), _microseconds(query.before))


def clauses_of(reasons: Iterable[ScorePart]) -> tuple[QueryClause, ...]:
    return tuple(reason.clause for reason in reasons)


def _range(field: str, start: int | None, end: int | None) -> QueryClause:
    """Matches values from `start` up to but not including `end`."""
    if start is not None and end is not None and start >= end:
        return NoDocuments()
    return NumberRange(field, start, None if end is None else end - 1)


def _microseconds(day: date | None) -> int | None:
    if day is None:
        return None
    return fields.microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))
