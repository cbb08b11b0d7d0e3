"""A snapshot of the index after a commit, with caches that all requests share until the next commit."""

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Final, TypeVar

from tantivy import DocAddress, Document, Query, Searcher

from usher.index import fields
from usher.index.fields import LENGTH, PRIOR, StoredFields

K = TypeVar("K")
V = TypeVar("V")
COUNT_CACHE_SIZE: Final = 50_000
RECENT_HITS: Final = 200
FIELDS_CACHE_SIZE: Final = 10_000  # about 10 MB


class IndexReader:
    """A searcher and its caches; `documents` includes deleted ones, as in Tantivy's statistics."""

    def __init__(
        self, searcher: Searcher, documents: int, segments: Collection[str] = frozenset()
    ) -> None:
        self.searcher = searcher
        self.documents = documents
        self.segments = segments
        self._counts: dict[tuple[str, str], int] = {}
        self._fields: dict[tuple[int, int], StoredFields] = {}
        self._recent: dict[tuple[str, int], tuple[StoredFields, Document | DocAddress]] = {}

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

    def prefetch(self, terms: Iterable[tuple[str, str]]) -> None:
        """Nothing: a count takes a microsecond."""

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
        self._recent[stored.url, stored.chunk] = stored, document

    def recent(self, url: str, chunk: int) -> tuple[StoredFields, Document] | None:
        """The stored fields and the document of a recent hit."""
        if (hit := self._recent.get((url, chunk))) is None:
            return None
        stored, document = hit
        return stored, self.read(document)

    @cached_property
    def words(self) -> int:
        """The words of all documents."""
        return self._sum(LENGTH)

    def _sum(self, field: str) -> int:
        result = self.searcher.aggregate(Query.all_query(), {"sum": {"sum": {"field": field}}})
        return int(result["sum"]["value"] or 0)

    def lengths(self, addresses: list[DocAddress]) -> list[int]:
        """The number of words of each document."""
        values = self.searcher.fast_field_values(LENGTH, addresses)
        return [int(value or 0) for value in values]

    def priors(self, addresses: list[DocAddress]) -> list[float]:
        """The factor for the scores of each document."""
        values = self.searcher.fast_field_values(PRIOR, addresses)
        return [1.0 if value is None else float(value) for value in values]


def _cached(cache: dict[K, V], key: K, limit: int, compute: Callable[[], V]) -> V:
    """The cached value, else the computed one; a full cache is emptied."""
    value = cache.get(key)
    if value is None:
        if len(cache) >= limit:
            cache.clear()
        value = cache[key] = compute()
    return value
