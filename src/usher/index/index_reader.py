"""One state of the index: what the engine looks up in it before it asks.

Comes from the engine after each commit; goes to questions and spelling, which share what was looked up.
"""

from collections.abc import Collection
from functools import cached_property
from typing import Final

from tantivy import DocAddress, Document, Searcher

from usher.index import fields
from usher.index.fields import BODY, StoredFields
from usher.query.tokens import UNSPACED_SCRIPTS

MAX_FORMS: Final = 12
MAX_LOOKED_AT: Final = 2_000
MAX_KEPT: Final = 10_000
MAX_STARTS: Final = 32
MAX_COUNTS: Final = 50_000
MAX_FOUND: Final = 200
MAX_HITS: Final = 10_000  # about 10 MB
_LEAST: Final = 3  # letters of a word that has forms


class IndexReader:
    """A searcher and what was found with it; `documents` counts as Tantivy does, also what is deleted."""

    def __init__(
        self, searcher: Searcher, documents: int, segments: Collection[str] = frozenset()
    ) -> None:
        self.searcher = searcher
        self.documents = documents
        self.segments = segments
        self._forms: dict[tuple[str, str], tuple[str, ...]] = {}
        self._words: dict[str, list[tuple[str, int]]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._hits: dict[tuple[int, int], StoredFields] = {}
        self._found: dict[tuple[str, int], tuple[str, Document | DocAddress]] = {}

    @cached_property
    def languages(self) -> dict[str, int]:
        """How many documents there are in each language."""
        return dict(self.searcher.terms_with_prefix("language", ""))

    def count(self, field: str, word: str) -> int:
        """In how many documents a word is; whoever asks how rare it is soon searches for it."""
        found = self._counts.get((field, word))
        if found is None:
            if len(self._counts) >= MAX_COUNTS:
                self._counts.clear()
            found = self._counts[field, word] = self.searcher.doc_freq(field, word)
        return found

    def kept(self, where: DocAddress) -> tuple[StoredFields, Document | DocAddress]:
        """What a hit shows, and the document, if it had to be read: what is found often is not read again."""
        key = where.segment_ord, where.doc
        if found := self._hits.get(key):
            return found, where
        document = self.searcher.doc(where)
        if len(self._hits) >= MAX_HITS:
            self._hits.clear()
        found = self._hits[key] = fields.stored_fields(document)
        return found, document

    def read(self, where: Document | DocAddress) -> Document:
        return self.searcher.doc(where) if isinstance(where, DocAddress) else where

    def remember(self, kept: StoredFields, where: Document | DocAddress) -> None:
        """A hit: whoever is told of it may soon ask for its passage."""
        if len(self._found) >= MAX_FOUND:
            self._found.clear()
        self._found[kept.url, kept.chunk] = kept.language, where

    def remembered(self, url: str, chunk: int) -> tuple[str, Document] | None:
        """Its language, and itself."""
        if (found := self._found.get((url, chunk))) is None:
            return None
        language, where = found
        return language, self.read(where)

    def forms(self, word: str, language: str) -> tuple[str, ...]:
        """The commonest words of the index with the same stem, without the word itself."""
        found = self._forms.get((word, language))
        if found is None:
            if len(self._forms) >= MAX_KEPT:
                self._forms.clear()
            found = self._forms[word, language] = self._look_up(word, language)
        return found

    def _beginning(self, start: str) -> list[tuple[str, int]]:
        """The commonest words that begin so, kept for the other languages of the same question."""
        found = self._words.get(start)
        if found is None:
            if len(self._words) >= MAX_STARTS:
                self._words.clear()
            found = self.searcher.terms_with_prefix(BODY, start, limit=MAX_LOOKED_AT)
            self._words[start] = found
        return found

    def _look_up(self, word: str, language: str) -> tuple[str, ...]:
        analyser = fields.stem_analyzer(language)
        stem = "".join(analyser.analyze(word))
        if len(word) < _LEAST or len(stem) < _LEAST - 1 or UNSPACED_SCRIPTS.search(word):
            return ()
        # The end of a stem may differ from all its words: happi of happy and happiness.
        size = max(_LEAST, len(stem) - 1)
        found: dict[str, int] = {}
        for start in {stem[:size], word[:size]}:
            found.update(self._beginning(start))
        stems = analyser.analyze(" ".join(found))
        same = [one for one, its in zip(found, stems, strict=True) if its == stem and one != word]
        return tuple(sorted(same, key=lambda one: (-found[one], one))[:MAX_FORMS])
