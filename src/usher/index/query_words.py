"""The words of a query that pages should have: without fillers, with their stems and how much each matters."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from usher.index.analyzers import STEMMERS, stem_of, stop_word_analyzer, word_analyzer
from usher.index.fields import BODY, REST, STEMS, TITLE, TITLE_STEMS, URL
from usher.index.passages import PassageWords
from usher.query.compounds import joined_spelling
from usher.query.language import Query, QueryTerm, is_required, words_of
from usher.query.results import TermStats
from usher.query.tokens import UNSPACED_SCRIPTS, space_words

MAX_TOKENS: Final = 64  # of a term
MAX_UNSPACED_PHRASE: Final = 4  # characters without spaces that surely are one expression
MIN_GOOD_SHARE: Final = 0.9  # of the weight of the words that a good match has
COUNTED_FIELDS: Final = {"": (BODY, TITLE, URL, REST), "title": (TITLE,), "url": (URL,)}

# A query without `lang:` is stemmed for the most frequent languages.
_MIN_LANGUAGE_SHARE: Final = 0.02
_MAX_LANGUAGES: Final = 5
# A server reports more languages than that, because a language that is rare here may be frequent elsewhere.
_MIN_REPORTED_SHARE: Final = 0.002
_MAX_REPORTED_LANGUAGES: Final = 6
_MIN_STOP_WORDS: Final = 2  # of a rare language in a query, which is then in that language
MAX_SHORT_WORDS: Final = 3  # of a query in which every word matters, also "for" in "for loop"
_CACHE_SIZE: Final = 10_000


class QueryWord(NamedTuple):
    """A word that pages should have, how often the query has it, and its parts if it is a compound.

    A run of a script without spaces has characters as parts and no `text`.
    """

    text: str
    times: int = 1
    parts: tuple[str, ...] = ()

    @property
    def is_unspaced(self) -> bool:
        return not self.text


class IndexCounts(Protocol):
    """The counts of an index that weigh words."""

    @property
    def documents(self) -> int: ...

    @property
    def words(self) -> int:
        """The words of all documents."""
        ...

    @property
    def languages(self) -> dict[str, int]:
        """The number of documents in each language."""
        ...

    def count(self, field: str, word: str) -> int:
        """The number of documents that have a word in a field."""
        ...

    def prefetch(self, terms: Iterable[tuple[str, str]]) -> None:
        """Get the counts of these fields and words at once if each needs a request."""
        ...


class QueryWords:
    """The words of one query with the statistics of an index, or of all servers."""

    def __init__(self, counts: IndexCounts, query: Query, stats: TermStats | None = None) -> None:
        self.counts = counts
        self.query = query
        self.stats = stats
        self.local_counts: dict[str, int] = {}  # by "field:word"
        self._stems: dict[str, tuple[str, ...]] = {}

    # -- words

    @cached_property
    def significant_groups(self) -> tuple[tuple[QueryTerm, ...], ...]:
        """The groups without words such as "the" and "how", unless there are no others."""
        groups = self.query.groups
        return tuple(group for group in groups if not self.is_filler(group)) or groups

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """The fillers of a short query, which may be what a section is about: "for" in "for loop"."""
        groups = [group for group in self.query.groups if not is_required(group)]
        if not 1 < len(groups) <= MAX_SHORT_WORDS:
            return ()
        return tuple(group[0].text for group in groups if self.is_filler(group))

    @property
    def passage_words(self) -> PassageWords:
        return PassageWords(words_of(self.significant_groups), self.keywords)

    @cached_property
    def optional(self) -> tuple[QueryWord, ...]:
        """The words that are not required, in the order of the query."""
        counts: Counter[QueryWord] = Counter()
        for [term, *others] in self.significant_groups:
            if not is_required([term, *others]):
                counts.update(words_of_term(term.text))
        return tuple(word._replace(times=times) for word, times in counts.items())

    @cached_property
    def expected(self) -> tuple[QueryWord, ...]:
        """The optional words that a good match has: all of a short query, else all but some that weigh little."""
        if len(self.optional) <= MAX_SHORT_WORDS:
            return self.optional
        weights = {word: word.times * self.idf(word) for word in self.optional}
        spare = (1 - MIN_GOOD_SHARE) * sum(weights.values())
        dropped = set()
        for word in sorted(weights, key=lambda word: (weights[word], word)):
            spare -= weights[word]
            if spare < 0:
                break
            dropped.add(word)
        return tuple(word for word in self.optional if word not in dropped)

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Words that are better close together: neighbours of the query, without fillers unless it is short."""
        groups = self.query.groups
        if len(groups) > MAX_SHORT_WORDS:
            groups = self.significant_groups
        terms = [group[0] for group in groups if not is_required(group)]
        tokens = [token for term in terms for token in tokens_of(term.text)]
        return dict.fromkeys(
            (first, second) for first, second in pairwise(tokens) if first != second
        )

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages whose stemmers apply: those of the query, else the most frequent of all servers."""
        shares = self.stats.languages if self.stats else self.counts.languages
        names = self.query.languages or frequent(shares, _MIN_LANGUAGE_SHARE, _MAX_LANGUAGES)
        names = (*names, *self._rare_language(shares, names))
        return tuple(name for name in names if name in STEMMERS)

    def _rare_language(self, counts: Mapping[str, int], names: Iterable[str]) -> Iterable[str]:
        """The language of the query by its stop words, if few documents have it."""
        words = [token for group in self.query.groups for token in tokens_of(group[0].text)]
        stopped: dict[str, int] = {}
        for name in counts.keys() & STEMMERS.keys():
            stopped[name] = len(words) - len(stop_word_analyzer(name).analyze(" ".join(words)))
        best = max(stopped, key=lambda name: (stopped[name], name in names, name), default="")
        return [best] if best and best not in names and stopped[best] >= _MIN_STOP_WORDS else []

    def stems(self, word: str) -> tuple[str, ...]:
        """The stems of a word in English, which is also used for texts of unknown languages, and in the languages."""
        stems = self._stems.get(word)
        if stems is None:
            names = ("en", *self.languages)
            stems = tuple(dict.fromkeys([stem_of(word, name) for name in names]))
            self._stems[word] = stems
        return stems

    def is_filler(self, group: Sequence[QueryTerm]) -> bool:
        """Whether a group is a word such as "the" in one of the languages."""
        if is_required(group) or len(tokens := tokens_of(group[0].text)) != 1:
            return False
        names = self.languages or ("en",)
        return any(not stop_word_analyzer(name).analyze(tokens[0]) for name in names)

    # -- statistics

    def count(self, field: str, word: str) -> int:
        """The number of documents of all servers that have a word in a field."""
        name = f"{field}:{word}"
        local = self.local_counts.get(name)
        if local is None:
            local = self.local_counts[name] = self.counts.count(field, word)
        return self.stats.terms.get(name, local) if self.stats else local

    def prefetch(self) -> None:
        """Get the counts that the weights of the words need, with one request if the index needs requests."""
        words = {
            form
            for group in self.query.groups
            for term in group
            for form in forms_of_term(term.text)
        }
        fields = (BODY, URL, REST) if self.stats else (BODY,)
        stem_fields = (STEMS, TITLE_STEMS) if self.stats else (STEMS,)
        counted = [(field, stem) for w in words for stem in self.stems(w) for field in stem_fields]
        counted += [
            (field, word)
            for word in words
            if self.stats or UNSPACED_SCRIPTS.search(word)
            for field in fields
        ]
        self.counts.prefetch(counted)

    def local_stats(self) -> TermStats:
        """The statistics of this index for the query, including those that may matter only on other servers."""
        languages = self.query.languages or frequent(
            self.counts.languages, _MIN_REPORTED_SHARE, _MAX_REPORTED_LANGUAGES
        )
        names = ("en", *(name for name in (*languages, *self.languages) if name in STEMMERS))
        forms: dict[str, tuple[str, ...]] = {}
        counted: list[tuple[str, str]] = []
        for term in (term for group in self.query.groups for term in group):
            for token in forms_of_term(term.text):
                for name in names:
                    forms[f"{name}:{token}"] = (stem_of(token, name),)
                counted += [(field, token) for field in COUNTED_FIELDS[term.place]]
        stems = {stem for stems in forms.values() for stem in stems}
        counted += [(field, stem) for stem in stems for field in (STEMS, TITLE_STEMS)]
        self.counts.prefetch(counted)
        for field, word in counted:
            self.count(field, word)
        counts = self.counts
        return TermStats(
            counts.documents, counts.languages, self.local_counts, forms, words=counts.words
        )

    def idf(self, word: QueryWord) -> float:
        """The weight of a word whose forms all count as one; of several characters the rarest counts."""
        if word.is_unspaced:
            return max(self.idfs(BODY, part)[0] for part in word.parts)
        count = sum(self.count(STEMS, stem) for stem in self.stems(word.text))
        documents = self.stats.documents if self.stats else self.counts.documents
        return idf_of(documents, count)

    def idfs(self, field: str, word: str) -> tuple[float, float]:
        """The weight of a word in all servers, and in this index."""
        count = self.count(field, word)
        local = idf_of(self.counts.documents, self.local_counts[f"{field}:{word}"])
        return (idf_of(self.stats.documents, count) if self.stats else local), local

    def correction(self, field: str, words: Iterable[str]) -> float:
        """The factor that corrects the weight that Tantivy computes for a word or a phrase."""
        if self.stats is None:
            return 1.0
        idfs = [self.idfs(field, word) for word in words]
        return sum(idf for idf, _ in idfs) / sum(local for _, local in idfs)


@lru_cache(_CACHE_SIZE)
def idf_of(documents: int, count: int) -> float:
    """The weight of a word in BM25, as Tantivy computes it."""
    count = min(count, documents)
    return math.log(1 + (documents - count + 0.5) / (count + 0.5))


def frequent(counts: Mapping[str, int], min_share: float, limit: int) -> list[str]:
    """The most frequent languages."""
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    least = min_share * sum(counts.values())
    return [name for name in ordered[:limit] if counts[name] >= least]


@lru_cache(_CACHE_SIZE)
def tokens_of(text: str) -> tuple[str, ...]:
    return tuple(word_analyzer().analyze(space_words(text))[:MAX_TOKENS])


def forms_of_term(text: str) -> set[str]:
    """The words of a term, and its joined spelling if it is a compound."""
    return {*tokens_of(text), *filter(None, [joined_spelling(text)])}


def words_of_term(text: str) -> list[QueryWord]:
    """The words of a term: one if it is a word or a compound, else those between its punctuation."""
    tokens = tokens_of(text)
    if joined := joined_spelling(text):
        return [QueryWord(joined, parts=tokens if len(tokens) > 1 else ())]
    words: list[QueryWord] = []
    run: list[str] = []
    for token in [*tokens, ""]:
        if token and UNSPACED_SCRIPTS.fullmatch(token):
            run.append(token)
            continue
        if run:
            words.append(QueryWord("", parts=tuple(run)))
            run = []
        if token:
            words.append(QueryWord(token))
    return words
