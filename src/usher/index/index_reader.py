"""A snapshot of the index after a commit, with caches that all requests share until the next commit."""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Final, TypeVar

from tantivy import DocAddress, Document, Searcher

from usher.index import fields
from usher.index.fields import BODY, StoredFields
from usher.query.tokens import UNSPACED_SCRIPTS

K = TypeVar("K")
V = TypeVar("V")
MAX_FORMS: Final = 12  # of one word
MAX_CANDIDATES: Final = 2_000  # words that are compared to find the forms of one
FORMS_CACHE_SIZE: Final = 10_000
PREFIX_CACHE_SIZE: Final = 32
COUNT_CACHE_SIZE: Final = 50_000
RECENT_HITS: Final = 200
FIELDS_CACHE_SIZE: Final = 10_000  # about 10 MB
_MIN_LETTERS: Final = 3  # shorter words have no other forms


class IndexReader:
    """A searcher and its caches; `documents` includes deleted ones, as in Tantivy's statistics."""

    def __init__(
        self, searcher: Searcher, documents: int, segments: Collection[str] = frozenset()
    ) -> None:
        self.searcher = searcher
        self.documents = documents
        self.segments = segments
        self._forms: dict[tuple[str, str], tuple[str, ...]] = {}
        self._prefixes: dict[str, list[tuple[str, int]]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._fields: dict[tuple[int, int], StoredFields] = {}
        self._recent: dict[tuple[str, int], tuple[str, Document | DocAddress]] = {}

    @cached_property
    def languages(self) -> dict[str, int]:
        """The number of documents in each language."""
        return dict(self.searcher.terms_with_prefix("language", ""))

    def count(self, field: str, word: str) -> int:
        """The number of documents that have a word in a field."""
        return _cached(
            self._counts,
            (field, word),
            COUNT_CACHE_SIZE,
            lambda: self.searcher.doc_freq(field, word),
        )

    def stored_fields(self, address: DocAddress) -> tuple[StoredFields, Document | DocAddress]:
        """The stored fields of a hit, and the document if it had to be read."""
        key = address.segment_ord, address.doc
        if cached := self._fields.get(key):
            return cached, address
        document = self.searcher.doc(address)
        stored = _cached(
            self._fields, key, FIELDS_CACHE_SIZE, lambda: fields.stored_fields(document)
        )
        return stored, document

    def read(self, document: Document | DocAddress) -> Document:
        return self.searcher.doc(document) if isinstance(document, DocAddress) else document

    def add_recent(self, stored: StoredFields, document: Document | DocAddress) -> None:
        """Remember a hit, because the front-end may soon request its snippet."""
        if len(self._recent) >= RECENT_HITS:
            self._recent.clear()
        self._recent[stored.url, stored.chunk] = stored.language, document

    def recent(self, url: str, chunk: int) -> tuple[str, Document] | None:
        """The language and the document of a recent hit."""
        if (hit := self._recent.get((url, chunk))) is None:
            return None
        language, document = hit
        return language, self.read(document)

    def forms(self, word: str, language: str) -> tuple[str, ...]:
        """The most frequent words of the index with the same stem, without the word itself."""
        return _cached(
            self._forms,
            (word, language),
            FORMS_CACHE_SIZE,
            lambda: self._find_forms(word, language),
        )

    def _find_forms(self, word: str, language: str) -> tuple[str, ...]:
        analyzer = fields.stem_analyzer(language)
        stem = "".join(analyzer.analyze(word))
        is_short = len(word) < _MIN_LETTERS or len(stem) < _MIN_LETTERS - 1
        if is_short or UNSPACED_SCRIPTS.search(word):
            return ()
        # The end of a stem may differ from all its words: happi from happy and happiness.
        size = max(_MIN_LETTERS, len(stem) - 1)
        counts: dict[str, int] = {}
        for prefix in {stem[:size], word[:size]}:
            counts.update(self._words_with_prefix(prefix))
        stems = zip(counts, analyzer.analyze(" ".join(counts)), strict=True)
        forms = [other for other, its_stem in stems if its_stem == stem and other != word]
        return tuple(sorted(forms, key=lambda form: (-counts[form], form))[:MAX_FORMS])

    def _words_with_prefix(self, prefix: str) -> list[tuple[str, int]]:
        """The most frequent words with this prefix; cached for the other languages of the same query."""
        return _cached(
            self._prefixes,
            prefix,
            PREFIX_CACHE_SIZE,
            lambda: self.searcher.terms_with_prefix(BODY, prefix, limit=MAX_CANDIDATES),
        )


def _cached(cache: dict[K, V], key: K, limit: int, compute: Callable[[], V]) -> V:
    """The cached value, else the computed one; a full cache is emptied."""
    value = cache.get(key)
    if value is None:
        if len(cache) >= limit:
            cache.clear()
        value = cache[key] = compute()
    return value
