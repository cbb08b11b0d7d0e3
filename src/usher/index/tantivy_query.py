"""A query as Tantivy runs it: every word in all its forms and places, weighed so that servers agree.

Comes from `search.query` and the engine's view of its index; goes to Tantivy's searcher. Forms of a word are looked up
in the list of words when a question comes, not stored with every document: that costs a question well under a
millisecond, and saves the index 40 % of its time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

from tantivy import FieldType, Occur
from tantivy import Query as Tantivy

from usher.index import fields
from usher.index.fields import BODY, HEADINGS, STEMMERS, TITLE, URL
from usher.index.index_reader import MAX_FORMS, IndexReader
from usher.query.language import Query, QueryTerm
from usher.query.results import TermStats
from usher.query.tokens import UNSPACED_SCRIPTS, space_words

WEIGHTS: Final = {TITLE: 3.0, HEADINGS: 1.2, BODY: 1.0, URL: 0.5}
FORMED: Final = (
    TITLE,
    HEADINGS,
    BODY,
)  # where other forms of a word count: an address is spelt as it is
PLACES: Final = {"": tuple(WEIGHTS), "title": (TITLE,), "url": (URL,)}
OTHER_FORM: Final = 0.5  # what another form of a word is worth, at most
NEAR_BY: Final = {TITLE: 1.5, BODY: 1.0}  # what it is worth that the words stand together
NEAR_WORDS: Final = 2  # that may stand between them
MAX_NEAR: Final = 5
MAX_TOKENS: Final = 64

_LEAST_SHARE: Final = 0.02  # of documents in a language that queries are stemmed for unasked
_MOST_LANGUAGES: Final = 5
_MOST_COUNTED: Final = 6  # languages: what is rare here may be common elsewhere
_LEAST_COUNTED: Final = 0.002  # of documents, for the same reason
_MOST_KEPT: Final = 10_000
_MOST_RUN: Final = 4  # characters without spaces that surely are one expression
# Questions are asked in these words, pages answer without them.
_ASKING: Final = frozenset(
    {"can", "do", "does", "how", "i", "what", "when", "where", "which", "who", "why"}
)


class QueryBuilder:
    """A query for one view; with the statistics of all servers, its scores mean the same on each."""

    def __init__(self, view: IndexReader, query: Query, stats: TermStats | None = None) -> None:
        self.view = view
        self.query = query
        self.stats = stats
        self.seen: dict[str, int] = {}

    def build(self) -> Tantivy:
        """The whole of it, for Tantivy."""
        return Tantivy.boolean_query([*self.needed, *((Occur.Should, one) for one in self.near())])

    def matching(self) -> Tantivy:
        """What finds the same, in no order."""
        return Tantivy.boolean_query(self.needed)

    @cached_property
    def needed(self) -> list[tuple[Occur, Tantivy]]:
        """Without what only adds to scores; filters only narrow and never weigh."""
        needed = [made for group in self.telling if (made := self.group(group)) is not None]
        if self.query.groups and not needed:
            return [(Occur.Must, Tantivy.empty_query())]  # none of its characters is part of a word
        needed += map(_unweighed, self.filters() if needed else [all_documents(), *self.filters()])
        unwanted = [(Occur.MustNot, one) for one in self.unwanted()]
        return [*((Occur.Must, one) for one in needed), *unwanted]

    @property
    def ranked(self) -> bool:
        return bool(self.query.groups)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Those that words are stemmed for: those asked for, or else the commonest of all servers."""
        counts = self.stats.languages if self.stats else self.view.languages
        least = _LEAST_SHARE * sum(counts.values())
        known = (
            self.query.languages
            or [name for name in _commonest(counts) if counts[name] >= least][:_MOST_LANGUAGES]
        )
        return tuple(name for name in known if name in STEMMERS)

    @cached_property
    def telling(self) -> tuple[tuple[QueryTerm, ...], ...]:
        """The groups without words like "the" and "how", unless there are no others."""
        groups = tuple(dict.fromkeys(self.query.groups))
        return tuple(group for group in groups if not self.is_filler(group)) or groups

    def is_filler(self, group: Sequence[QueryTerm]) -> bool:
        [term, *others] = group
        if others or term.phrase or term.place or len(tokens := _tokens(term.text)) != 1:
            return False
        [word] = tokens
        stopped = (not fields.stop_word_analyzer(name).analyze(word) for name in self.languages)
        return word in _ASKING or any(stopped)

    def group(self, terms: Sequence[QueryTerm]) -> Tantivy | None:
        """Any of these terms."""
        made = [one for term in terms if (one := self.term(term)) is not None]
        return _any(made) if made else None

    def term(self, term: QueryTerm) -> Tantivy | None:
        tokens = _tokens(term.text)
        places = PLACES[term.place]
        if not tokens:
            return None
        if len(tokens) == 1:
            return self.word(tokens[0], places, forms=not term.phrase)
        if (
            not term.phrase
            and len(tokens) > _MOST_RUN
            and all(map(UNSPACED_SCRIPTS.fullmatch, tokens))
        ):
            every = [
                (Occur.Must, self.word(token, places, forms=False))
                for token in dict.fromkeys(tokens)
            ]
            return Tantivy.boolean_query(every)
        return _any(self.phrase(place, tokens, WEIGHTS[place]) for place in places)

    def word(self, word: str, places: Iterable[str], *, forms: bool) -> Tantivy:
        """A word wherever it may stand; its other forms count less, and only the best of all of them."""
        others = self.other_forms(word) if forms else ()
        made = []
        for place in places:
            _, asked, right = self.weigh(place, word)
            every = [_term(place, word, WEIGHTS[place] * right)]
            for form in others if place in FORMED else ():
                here, idf, right = self.weigh(place, form)
                if here:
                    weight = OTHER_FORM * min(1.0, asked / idf)
                    every.append(_term(place, form, weight * WEIGHTS[place] * right))
            made.append(every[0] if len(every) == 1 else Tantivy.disjunction_max_query(every, 0.1))
        return _any(made)

    def other_forms(self, word: str) -> list[str]:
        found = {form for language in self.languages for form in self.forms_in(language, word)}
        return sorted(found, key=lambda form: (-self.count(BODY, form), form))[:MAX_FORMS]

    def forms_in(self, language: str, word: str) -> tuple[str, ...]:
        if self.stats is not None:
            return self.stats.forms.get(f"{language}:{word}", ())
        return self.view.forms(word, language)

    def phrase(self, field: str, tokens: list[str], weight: float, slop: int = 0) -> Tantivy:
        for token in tokens:
            self.count(field, token)
        words: list[str | tuple[int, str]] = list(tokens)
        query = Tantivy.phrase_query(fields.schema(), field, words, slop)
        return Tantivy.boost_query(query, weight * self.correction(field, tokens))

    def near(self) -> list[Tantivy]:
        """What adds to the score when words stand close together and in this order, two by two."""
        firsts = [group[0] for group in self.telling if not group[0].phrase and not group[0].place]
        tokens = dict.fromkeys(token for term in firsts for token in _tokens(term.text))
        pairs = list(pairwise(tokens))[:MAX_NEAR]
        return [
            self.phrase(field, list(pair), weight, slop=NEAR_WORDS)
            for field, weight in NEAR_BY.items()
            for pair in pairs
        ]

    def unwanted(self) -> list[Tantivy]:
        schema, found = fields.schema(), []
        for term in self.query.unwanted:
            tokens = _tokens(term.text)
            places = PLACES[term.place] if term.place else (TITLE, HEADINGS, BODY)
            if len(tokens) == 1:
                found += [Tantivy.term_query(schema, place, tokens[0], "basic") for place in places]
            elif tokens:
                found += [Tantivy.phrase_query(schema, place, list(tokens)) for place in places]
        found += [
            Tantivy.term_query(schema, "site", site, "basic") for site in self.query.not_sites
        ]
        return found + [
            Tantivy.term_query(schema, "language", name, "basic")
            for name in self.query.not_languages
        ]

    def filters(self) -> Iterable[Tantivy]:
        query = self.query
        sites = [Tantivy.term_query(fields.schema(), "site", site, "basic") for site in query.sites]
        sites += [
            _between("domain64", FieldType.Unsigned, start, end) for start, end in query.ranges
        ]
        if sites:
            yield _any(sites)
        if query.languages:
            yield Tantivy.term_set_query(fields.schema(), "language", list(query.languages))
        if query.after or query.before:
            yield _between(
                "published", FieldType.Integer, _start(query.after), _start(query.before)
            )

    @property
    def documents(self) -> int:
        return self.stats.documents if self.stats else self.view.documents

    def count(self, field: str, word: str) -> int:
        """In how many documents a word is: of this server for `counted`, of all to weigh it."""
        name = f"{field}:{word}"
        here = self.seen.get(name)
        if here is None:
            here = self.seen[name] = self.view.count(field, word)
        return self.stats.terms.get(name, here) if self.stats else here

    def counted(self) -> TermStats:
        """What this server knows of the words of the query; which of it matters only all together know."""
        forms: dict[str, tuple[str, ...]] = {}
        counts = self.view.languages
        least = _LEAST_COUNTED * sum(counts.values())
        common = [name for name in _commonest(counts)[:_MOST_COUNTED] if counts[name] >= least]
        known = self.query.languages or common
        for term in (term for group in self.query.groups for term in group):
            for token in _tokens(term.text):
                for language in (name for name in known if name in STEMMERS and not term.phrase):
                    forms[f"{language}:{token}"] = self.view.forms(token, language)
                for place in PLACES[term.place]:
                    self.count(place, token)
        for form in {form for found in forms.values() for form in found}:
            for place in FORMED:
                self.count(place, form)
        return TermStats(self.view.documents, self.view.languages, self.seen, forms)

    def weigh(self, field: str, word: str) -> tuple[int, float, float]:
        """In how many documents of this server it is, its weight, and what turns Tantivy's weight for it into that."""
        count = self.count(field, word)
        here = self.seen[f"{field}:{word}"]
        idf = _idf(self.documents, count)
        return here, idf, 1.0 if self.stats is None else idf / _idf(self.view.documents, here)

    def correction(self, field: str, words: Iterable[str]) -> float:
        """What turns the weight that Tantivy gives a phrase in this index into its weight in all of them."""
        if self.stats is None:
            return 1.0
        here = all_ = 0.0
        for word in words:
            all_ += _idf(self.documents, self.count(field, word))
            here += _idf(self.view.documents, self.seen[f"{field}:{word}"])
        return all_ / here


def _term(field: str, word: str, weight: float) -> Tantivy:
    query = Tantivy.term_query(fields.schema(), field, word, index_option="freq")
    return Tantivy.boost_query(query, weight)


@lru_cache(_MOST_KEPT)
def _idf(documents: int, count: int) -> float:
    """The weight of a word in BM25, as Tantivy computes it."""
    count = min(count, documents)
    return math.log(1 + (documents - count + 0.5) / (count + 0.5))


def _commonest(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda name: (-counts[name], name))


def _tokens(text: str) -> list[str]:
    return fields.word_analyzer().analyze(space_words(text))[:MAX_TOKENS]


def _any(queries: Iterable[Tantivy]) -> Tantivy:
    made = list(queries)
    return (
        made[0] if len(made) == 1 else Tantivy.boolean_query([(Occur.Should, one) for one in made])
    )


def _unweighed(query: Tantivy) -> Tantivy:
    return Tantivy.const_score_query(query, 0.0)


def all_documents() -> Tantivy:
    """Every document, but not what says which chunks are loaded."""
    return Tantivy.exists_query("crawled")


def _between(field: str, kind: FieldType, start: int | None, end: int | None) -> Tantivy:
    if start is not None and end is not None and start >= end:
        return Tantivy.empty_query()
    last = None if end is None else end - 1
    return Tantivy.range_query(fields.schema(), field, kind, start, last)


def _start(day: date | None) -> int | None:
    if day is None:
        return None
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
