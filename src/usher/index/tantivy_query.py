"""Translates a query for Tantivy: BM25F over stems, with exact forms, titles, addresses and neighbours on top.

A page should have the words of a query; only explicit syntax requires them. A good match has all words, or all but some
that hardly matter. `build` returns the query for good matches. `build_any` returns the query for pages with any of the
words: a plain disjunction of terms, for which Tantivy skips most documents.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Final

from tantivy import FieldType, Occur
from tantivy import Query as TantivyQuery

from usher.index import fields
from usher.index.clauses import (
    Clause,
    all_documents,
    all_of,
    any_of,
    exact,
    unscored,
    weighted_term,
)
from usher.index.fields import ANCHORS, BODY, HEADINGS, REST, STEMS, TITLE, TITLE_STEMS, URL
from usher.index.index_reader import IndexReader
from usher.index.query_words import (
    MAX_UNSPACED_PHRASE,
    QueryWord,
    QueryWords,
    tokens_of,
    words_of_term,
)
from usher.index.ranking import BM25_K1, LengthCorrection
from usher.index.section_query import good_names, section_clauses
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
    """Builds the Tantivy query for one reader; with the statistics of all servers, scores are comparable."""

    def __init__(self, reader: IndexReader, query: Query, stats: TermStats | None = None) -> None:
        self.words = QueryWords(reader, query, stats)
        self.query = query
        self._clauses: dict[tuple[str, float], list[Clause]] = {}

    def build(self) -> TantivyQuery:
        """The query for good matches."""
        scores = [*self._good_clauses(), *self._spare_clauses()]
        if self._good_names:
            scores += [
                clause for word in self.words.expected for clause in self._flat_clauses(word)
            ]
        return TantivyQuery.boolean_query(
            [*self._good, *((Occur.Should, clause.query) for clause in scores)]
        )

    def build_filter(self) -> TantivyQuery:
        """A query with the same matches, for counting."""
        return TantivyQuery.boolean_query(self._good)

    def build_any(self) -> TantivyQuery | None:
        """The query for pages with some of the optional words; None if all of them are good matches."""
        words = self.words.optional
        clauses = [clause.query for word in words for clause in self._flat_clauses(word)]
        if not clauses:
            return None
        if self._required_groups:
            scores = [(Occur.Should, query) for query in clauses]
            return TantivyQuery.boolean_query([*self._required, *scores])
        if len(words) == 1 and not words[0].parts:
            return None
        if not self._required:
            return any_of(clauses)
        return TantivyQuery.boolean_query([*self._required, (Occur.Must, any_of(clauses))])

    def length_correction(self) -> LengthCorrection | None:
        """The correction of scores if the average length differs from that of all servers."""
        reader, stats = self.words.reader, self.words.stats
        weight = sum(word.times * self.words.idf(word) for word in self.words.optional)
        if not (stats and stats.words and reader.words and weight):
            return None
        local, everywhere = reader.words / reader.documents, stats.words / stats.documents
        if abs(local / everywhere - 1) < MIN_LENGTH_DIFFERENCE:
            return None
        limit_score = (1 + BM25_K1) * (1 + FIELD_WEIGHTS[BODY]) * weight
        return LengthCorrection(local, everywhere, limit_score)

    def clauses(self, *, is_good: bool) -> list[Clause]:
        """All parts of the score of a match, for an explanation."""
        required = [term for group in self._required_groups for term in group]
        return [
            *(clause for term in required for clause in self._term_clauses(term)),
            *(clause for word in self.words.optional for clause in self._flat_clauses(word)),
            *(self._good_clauses() if is_good else ()),
        ]

    # -- which pages match

    @cached_property
    def _good(self) -> list[tuple[Occur, TantivyQuery]]:
        """The clauses that decide what matches well."""
        expected = [(Occur.Must, self._word_query(word)) for word in self.words.expected]
        if self._good_names:
            every = TantivyQuery.boolean_query(expected)
            expected = [(Occur.Must, unscored(any_of([every, *self._good_names])))]
        if self.query.groups and not expected and not self._required_groups:
            return [(Occur.Must, TantivyQuery.empty_query())]  # the terms have no word of the index
        scored = expected or self._required_groups
        first = [] if scored else [(Occur.Must, unscored(all_documents()))]
        return [*first, *expected, *self._required]

    @cached_property
    def _good_names(self) -> list[TantivyQuery]:
        return good_names(self.words) if len(self.words.expected) > 1 else []

    @cached_property
    def _required_groups(self) -> list[tuple[QueryTerm, ...]]:
        return [group for group in dict.fromkeys(self.query.groups) if is_required(group)]

    @cached_property
    def _required(self) -> list[tuple[Occur, TantivyQuery]]:
        """What every match must have and must not have; filters do not affect scores."""
        groups = [
            any_of([clause.query for term in group for clause in self._term_clauses(term)])
            for group in self._required_groups
        ]
        filters = [unscored(query) for query in self._filters()]
        excluded = [(Occur.MustNot, query) for query in self._excluded()]
        return [*((Occur.Must, query) for query in (*groups, *filters)), *excluded]

    def _word_query(self, word: QueryWord) -> TantivyQuery:
        """Matches pages that have a word in some form, or a compound in its parts."""
        if word.is_unspaced:
            return self._run_query(word.parts)
        clauses = [clause.query for clause in self._word_clauses(word.text, word.times)]
        if word.parts:
            weight = PART_WEIGHT * word.times
            parts = [
                (Occur.Must, any_of([clause.query for clause in self._word_clauses(part, weight)]))
                for part in dict.fromkeys(word.parts)
            ]
            clauses.append(TantivyQuery.boolean_query(parts))
        return any_of(clauses)

    def _run_query(self, parts: Sequence[str]) -> TantivyQuery:
        """Matches a run of characters: a short one as a phrase, a long one by its characters in any order."""
        if 1 < len(parts) <= MAX_UNSPACED_PHRASE:
            return any_of([clause.query for clause in self._phrase_clauses(parts, "")])
        return TantivyQuery.boolean_query(
            [
                (Occur.Must, any_of([clause.query for clause in self._word_clauses(part, 1.0)]))
                for part in dict.fromkeys(parts)
            ]
        )

    # -- what affects the score

    def _word_clauses(self, word: str, weight: float) -> list[Clause]:
        """A word by its stems, and in its exact form in some fields."""
        clauses = self._clauses.get((word, weight))
        if clauses is None:
            clauses = self._clauses[word, weight] = self._make_word_clauses(word, weight)
        return clauses

    def _make_word_clauses(self, word: str, weight: float) -> list[Clause]:
        words, stems = self.words, self.words.stems(word)
        idf = words.idf(QueryWord(word))
        clauses = []
        for field, field_weight in ((STEMS, 1.0), (TITLE_STEMS, FIELD_WEIGHTS[TITLE_STEMS])):
            for stem in stems:
                # A stem that is rare, because only a few pages have its language, weighs no more than the word.
                share = min(1.0, idf / words.idfs(STEMS, stem)[0])
                factor = weight * field_weight * share * words.correction(field, [stem])
                clauses.append(Clause(word, field, weighted_term(field, stem, factor)))
        for field in (BODY, URL, REST):
            factor = weight * FIELD_WEIGHTS[field] * words.correction(field, [word])
            clauses.append(Clause(word, field, weighted_term(field, word, factor)))
        return clauses

    def _flat_clauses(self, word: QueryWord) -> list[Clause]:
        """A word and the parts of a compound as separate terms."""
        if word.is_unspaced:
            pairs: list[tuple[str, ...]] = [*pairwise(word.parts)] or [word.parts]
            return [clause for pair in pairs for clause in self._phrase_clauses(pair, "")]
        clauses = list(self._word_clauses(word.text, word.times))
        for part in dict.fromkeys(word.parts):
            clauses += self._word_clauses(part, PART_WEIGHT * word.times)
        return clauses

    def _spare_clauses(self) -> list[Clause]:
        spare = [word for word in self.words.optional if word not in self.words.expected]
        return [clause for word in spare for clause in self._flat_clauses(word)]

    def _term_clauses(self, term: QueryTerm) -> list[Clause]:
        """A required term: a phrase in its exact form, a word in all forms."""
        tokens = tokens_of(term.text)
        if not tokens:
            return []
        words = words_of_term(term.text)
        is_exact = term.phrase or any(word.is_unspaced for word in words)
        if term.place == "url" or is_exact:
            return self._phrase_clauses(tokens, term.place)
        if term.place == "title":
            stems = [stem for word in words for stem in self.words.stems(word.text)]
            return [
                Clause(term.text, TITLE, weighted_term(TITLE_STEMS, stem, 1.0)) for stem in stems
            ]
        query = all_of([self._word_query(word) for word in words])
        return [Clause(term.text, "page", query)]

    def _phrase_clauses(self, tokens: Sequence[str], place: str) -> list[Clause]:
        return [
            self._phrase_clause(field, tokens, PHRASE_WEIGHTS[field])
            for field in PHRASE_FIELDS[place]
        ]

    def _phrase_clause(
        self, field: str, tokens: Sequence[str], weight: float, slop: int = 0
    ) -> Clause:
        factor = weight * self.words.correction(field, tokens)
        if len(tokens) == 1:
            return Clause(tokens[0], field, weighted_term(field, tokens[0], factor))
        query = TantivyQuery.phrase_query(fields.schema(), field, list(tokens), slop)
        return Clause(" ".join(tokens), field, TantivyQuery.boost_query(query, factor))

    def _good_clauses(self) -> list[Clause]:
        """What adds to the score of good matches only: it would be too slow for all pages with any of the words."""
        return [*self._proximity_clauses(), *section_clauses(self.words)]

    def _proximity_clauses(self) -> list[Clause]:
        """Raise the score if neighbours of the query stand close together in this order."""
        pairs = list(self.words.pairs())[:MAX_PROXIMITY_PAIRS]
        return [
            self._phrase_clause(field, pair, weight, slop=PROXIMITY_SLOP)
            for field, weight in PROXIMITY_WEIGHTS.items()
            for pair in pairs
        ]

    # -- filters

    def _excluded(self) -> list[TantivyQuery]:
        queries = []
        for term in self.query.unwanted:
            tokens, term_fields = tokens_of(term.text), EXCLUDED_FIELDS[term.place]
            if len(tokens) == 1:
                queries += [exact(field, tokens[0]) for field in term_fields]
            elif tokens:
                queries += [
                    TantivyQuery.phrase_query(fields.schema(), field, list(tokens))
                    for field in term_fields
                ]
        queries += [exact("site", site) for site in self.query.not_sites]
        return queries + [exact("language", name) for name in self.query.not_languages]

    def _filters(self) -> Iterable[TantivyQuery]:
        query = self.query
        sites = [exact("site", site) for site in query.sites]
        sites += [_range("domain64", FieldType.Unsigned, *limits) for limits in query.ranges]
        if sites:
            yield any_of(sites)
        if query.languages:
            yield TantivyQuery.term_set_query(fields.schema(), "language", list(query.languages))
        if query.after or query.before:
            after, before = _microseconds(query.after), _microseconds(query.before)
            yield _range("published", FieldType.Integer, after, before)


def _range(field: str, kind: FieldType, start: int | None, end: int | None) -> TantivyQuery:
    """Matches values from `start` up to but not including `end`."""
    if start is not None and end is not None and start >= end:
        return TantivyQuery.empty_query()
    last = None if end is None else end - 1
    return TantivyQuery.range_query(fields.schema(), field, kind, start, last)


def _microseconds(day: date | None) -> int | None:
    if day is None:
        return None
    return fields.microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))
