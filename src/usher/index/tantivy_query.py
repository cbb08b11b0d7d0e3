"""Translates a query for Tantivy: every word in all its forms and fields, with weights on which servers agree.

The other forms of a word are looked up in the dictionary of the index when a query arrives, not stored with every
document. That costs a query well under a millisecond and saves 40 % of the indexing time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

from tantivy import FieldType, Occur
from tantivy import Query as TantivyQuery

from usher.index import fields
from usher.index.fields import ANCHORS, BODY, HEADINGS, REST, STEMMERS, TITLE, URL
from usher.index.index_reader import MAX_FORMS, IndexReader
from usher.query.language import Query, QueryTerm
from usher.query.results import TermStats
from usher.query.tokens import UNSPACED_SCRIPTS, space_words

FIELD_WEIGHTS: Final = {TITLE: 3.0, HEADINGS: 1.2, ANCHORS: 1.2, BODY: 1.0, URL: 0.5, REST: 0.1}
FIELDS_WITH_FORMS: Final = (TITLE, HEADINGS, ANCHORS, BODY)  # other forms do not count in a URL
EXCLUDING_FIELDS: Final = (TITLE, HEADINGS, BODY)  # what others call a page excludes nothing
FIELDS_BY_PLACE: Final = {"": tuple(FIELD_WEIGHTS), "title": (TITLE,), "url": (URL,)}
OTHER_FORM_WEIGHT: Final = 0.5  # at most
PROXIMITY_WEIGHTS: Final = {TITLE: 1.5, BODY: 1.0}  # of words that stand close together
PROXIMITY_SLOP: Final = 2  # words that may stand between them
MAX_PROXIMITY_PAIRS: Final = 5
MAX_TOKENS: Final = 64  # of a term

# A query without `lang:` is stemmed for the most frequent languages.
_MIN_LANGUAGE_SHARE: Final = 0.02
_MAX_LANGUAGES: Final = 5
# A server reports more languages than that, because a language that is rare here may be frequent elsewhere.
_MIN_REPORTED_SHARE: Final = 0.002
_MAX_REPORTED_LANGUAGES: Final = 6
_IDF_CACHE_SIZE: Final = 10_000
_MAX_UNSPACED_PHRASE: Final = 4  # characters without spaces that surely are one expression
# Words of questions that the answering pages do not have.
_QUESTION_WORDS: Final = frozenset(
    {"can", "do", "does", "how", "i", "what", "when", "where", "which", "who", "why"}
)


class QueryBuilder:
    """Builds the Tantivy query for one reader; with the statistics of all servers, scores are comparable."""

    def __init__(self, reader: IndexReader, query: Query, stats: TermStats | None = None) -> None:
        self.reader = reader
        self.query = query
        self.stats = stats
        self.local_counts: dict[str, int] = {}  # by "field:word"

    def build(self) -> TantivyQuery:
        """The complete query."""
        proximity = ((Occur.Should, query) for query in self._proximity_queries())
        return TantivyQuery.boolean_query([*self._clauses, *proximity])

    def build_filter(self) -> TantivyQuery:
        """A query with the same matches, for counting."""
        return TantivyQuery.boolean_query(self._clauses)

    @cached_property
    def _clauses(self) -> list[tuple[Occur, TantivyQuery]]:
        """The clauses that decide what matches; filters do not affect scores."""
        groups = map(self._group_query, self.significant_groups)
        required = [query for query in groups if query is not None]
        if self.query.groups and not required:
            return [(Occur.Must, TantivyQuery.empty_query())]  # the terms have no word of the index
        filters = self._filters() if required else [all_documents(), *self._filters()]
        required += (TantivyQuery.const_score_query(query, 0.0) for query in filters)
        excluded = [(Occur.MustNot, query) for query in self._excluded()]
        return [*((Occur.Must, query) for query in required), *excluded]

    @cached_property
    def _languages(self) -> tuple[str, ...]:
        """The languages whose stemmers apply: those of the query, else the most frequent of all servers."""
        counts = self.stats.languages if self.stats else self.reader.languages
        names = self.query.languages or _frequent(counts, _MIN_LANGUAGE_SHARE, _MAX_LANGUAGES)
        return tuple(name for name in names if name in STEMMERS)

    @cached_property
    def significant_groups(self) -> tuple[tuple[QueryTerm, ...], ...]:
        """The groups without words such as "the" and "how", unless there are no others."""
        groups = tuple(dict.fromkeys(self.query.groups))
        return tuple(group for group in groups if not self._is_filler(group)) or groups

    def _is_filler(self, group: Sequence[QueryTerm]) -> bool:
        [term, *others] = group
        if others or term.phrase or term.place or len(tokens := _tokens(term.text)) != 1:
            return False
        [word] = tokens
        stopped = (not fields.stop_word_analyzer(name).analyze(word) for name in self._languages)
        return word in _QUESTION_WORDS or any(stopped)

    def _group_query(self, terms: Sequence[QueryTerm]) -> TantivyQuery | None:
        queries = [query for term in terms if (query := self._term_query(term)) is not None]
        return _any_of(queries) if queries else None

    def _term_query(self, term: QueryTerm) -> TantivyQuery | None:
        tokens = _tokens(term.text)
        term_fields = FIELDS_BY_PLACE[term.place]
        if not tokens:
            return None
        if len(tokens) == 1:
            return self._word_query(tokens[0], term_fields, with_forms=not term.phrase)
        is_unspaced = all(map(UNSPACED_SCRIPTS.fullmatch, tokens))
        if not term.phrase and len(tokens) > _MAX_UNSPACED_PHRASE and is_unspaced:
            every = [
                (Occur.Must, self._word_query(token, term_fields, with_forms=False))
                for token in dict.fromkeys(tokens)
            ]
            return TantivyQuery.boolean_query(every)
        return _any_of(
            self._phrase_query(field, tokens, FIELD_WEIGHTS[field]) for field in term_fields
        )

    def _word_query(
        self, word: str, word_fields: Iterable[str], *, with_forms: bool
    ) -> TantivyQuery:
        """A word in any of the fields; of the word and its other forms only the best match counts."""
        forms = self._other_forms(word) if with_forms else ()
        queries = []
        for field in word_fields:
            _, word_idf, correction = self._weigh(field, word)
            variants = [_word(field, word, FIELD_WEIGHTS[field] * correction)]
            for form in forms if field in FIELDS_WITH_FORMS else ():
                local_count, idf, correction = self._weigh(field, form)
                if local_count:
                    weight = OTHER_FORM_WEIGHT * min(1.0, word_idf / idf)
                    variants.append(_word(field, form, weight * FIELD_WEIGHTS[field] * correction))
            queries.append(
                variants[0]
                if len(variants) == 1
                else TantivyQuery.disjunction_max_query(variants, 0.1)
            )
        return _any_of(queries)

    def _other_forms(self, word: str) -> list[str]:
        forms = {form for language in self._languages for form in self._forms(language, word)}
        return sorted(forms, key=lambda form: (-self._count(BODY, form), form))[:MAX_FORMS]

    def _forms(self, language: str, word: str) -> tuple[str, ...]:
        if self.stats is not None:
            return self.stats.forms.get(f"{language}:{word}", ())
        return self.reader.forms(word, language)

    def _phrase_query(
        self, field: str, tokens: Sequence[str], weight: float, slop: int = 0
    ) -> TantivyQuery:
        query = TantivyQuery.phrase_query(fields.schema(), field, list(tokens), slop)
        return TantivyQuery.boost_query(query, weight * self._phrase_correction(field, tokens))

    def _proximity_queries(self) -> list[TantivyQuery]:
        """Queries that raise the score if consecutive words stand close together in this order."""
        firsts = [group[0] for group in self.significant_groups]
        words = [term.text for term in firsts if not term.phrase and not term.place]
        tokens = dict.fromkeys(token for word in words for token in _tokens(word))
        pairs = list(pairwise(tokens))[:MAX_PROXIMITY_PAIRS]
        return [
            self._phrase_query(field, pair, weight, slop=PROXIMITY_SLOP)
            for field, weight in PROXIMITY_WEIGHTS.items()
            for pair in pairs
        ]

    def _excluded(self) -> list[TantivyQuery]:
        queries = []
        for term in self.query.unwanted:
            tokens = _tokens(term.text)
            term_fields = FIELDS_BY_PLACE[term.place] if term.place else EXCLUDING_FIELDS
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
            yield _any_of(sites)
        if query.languages:
            yield TantivyQuery.term_set_query(fields.schema(), "language", list(query.languages))
        if query.after or query.before:
            after, before = _microseconds(query.after), _microseconds(query.before)
            yield _range("published", FieldType.Integer, after, before)

    # -- statistics

    def _count(self, field: str, word: str) -> int:
        """The number of documents of all servers that have a word in a field."""
        name = f"{field}:{word}"
        local = self.local_counts.get(name)
        if local is None:
            local = self.local_counts[name] = self.reader.count(field, word)
        return self.stats.terms.get(name, local) if self.stats else local

    def local_stats(self) -> TermStats:
        """The statistics of this index for the query, including those that may matter only on other servers."""
        forms: dict[str, tuple[str, ...]] = {}
        languages = self.query.languages or _frequent(
            self.reader.languages, _MIN_REPORTED_SHARE, _MAX_REPORTED_LANGUAGES
        )
        for term in (term for group in self.query.groups for term in group):
            for token in _tokens(term.text):
                for name in (name for name in languages if name in STEMMERS and not term.phrase):
                    forms[f"{name}:{token}"] = self.reader.forms(token, name)
                for field in FIELDS_BY_PLACE[term.place]:
                    self._count(field, token)
        for form in {form for others in forms.values() for form in others}:
            for field in FIELDS_WITH_FORMS:
                self._count(field, form)
        return TermStats(self.reader.documents, self.reader.languages, self.local_counts, forms)

    def _idfs(self, field: str, word: str) -> tuple[float, float]:
        """The weight of a word in all servers, and in this index."""
        count = self._count(field, word)
        local = _idf(self.reader.documents, self.local_counts[f"{field}:{word}"])
        return (_idf(self.stats.documents, count) if self.stats else local), local

    def _weigh(self, field: str, word: str) -> tuple[int, float, float]:
        """The local count of a word, its weight, and the factor that corrects the weight that Tantivy computes."""
        idf, local_idf = self._idfs(field, word)
        correction = 1.0 if self.stats is None else idf / local_idf
        return self.local_counts[f"{field}:{word}"], idf, correction

    def _phrase_correction(self, field: str, words: Iterable[str]) -> float:
        """The factor that corrects the weight that Tantivy computes for a phrase."""
        if self.stats is None:
            return 1.0
        idfs = [self._idfs(field, word) for word in words]
        return sum(idf for idf, _ in idfs) / sum(local for _, local in idfs)


def exact(field: str, value: str) -> TantivyQuery:
    return TantivyQuery.term_query(fields.schema(), field, value, "basic")


def _word(field: str, word: str, weight: float) -> TantivyQuery:
    query = TantivyQuery.term_query(fields.schema(), field, word, index_option="freq")
    return TantivyQuery.boost_query(query, weight)


@lru_cache(_IDF_CACHE_SIZE)
def _idf(documents: int, count: int) -> float:
    """The weight of a word in BM25, as Tantivy computes it."""
    count = min(count, documents)
    return math.log(1 + (documents - count + 0.5) / (count + 0.5))


def _frequent(counts: Mapping[str, int], min_share: float, limit: int) -> list[str]:
    """The most frequent languages."""
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    least = min_share * sum(counts.values())
    return [name for name in ordered[:limit] if counts[name] >= least]


def _tokens(text: str) -> list[str]:
    return fields.word_analyzer().analyze(space_words(text))[:MAX_TOKENS]


def _any_of(queries: Iterable[TantivyQuery]) -> TantivyQuery:
    alternatives = list(queries)
    if len(alternatives) == 1:
        return alternatives[0]
    return TantivyQuery.boolean_query([(Occur.Should, query) for query in alternatives])


def all_documents() -> TantivyQuery:
    """Matches every document, but no marker or padding documents."""
    return TantivyQuery.exists_query("crawled")


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
