"""One Tantivy index in a directory, which itself knows what it holds.

Comes from index chunks that were checked, and from questions; goes to hits. Which chunks are loaded is written by the
same commit as their documents, as one small document for each: killed at any moment, index and knowledge agree. Every
method may be called from any thread; whoever asks is never held up by whoever adds.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Final

import tantivy
from tantivy import Occur
from tantivy import Query as Tantivy

from usher.errors import BadInput, Conflict, UsherError
from usher.index import fields, force_merge, spelling
from usher.index.document import IndexDocument
from usher.index.force_merge import FILLER, read_segments
from usher.index.frequent_words import frequent_words
from usher.index.index_reader import IndexReader
from usher.index.length_padding import LengthPadding
from usher.index.ranking import match_count, rank
from usher.index.tantivy_query import QueryBuilder, all_documents
from usher.private_files import make_directory
from usher.query.highlight import SNIPPET_CHARACTERS, Segment, make_snippet
from usher.query.language import Query, words_of
from usher.query.results import Hits, Suggestion, TermStats
from usher.query.tokens import strip_accents

HEAP: Final = 64_000_000
MAX_HITS: Final = 1_000
MAX_OFFSET: Final = 10_000
MAX_HOSTS: Final = 20
_MOST_LANGUAGES, _MOST_STEMS = 100, 2_000  # kept
LEAST_FREE: Final = 1_000_000  # bytes; with less, whatever failed failed for want of space


class Engine:
    """The index of one server; `open` makes or opens it."""

    def __init__(self, path: Path, index: tantivy.Index, heap: int) -> None:
        self.path = path
        self.incarnation = ""  # of the database that its chunks were compared with, for its answers
        self._index = index
        self._heap = heap
        self._lock = RLock()
        self._writer: tantivy.IndexWriter | None = None
        self._view = self._look()

    @classmethod
    def open(cls, path: Path, *, heap: int = HEAP) -> "Engine":
        """Conflict if another process has it or another version made it."""
        with _told(path):
            make_directory(path)
            index = tantivy.Index(fields.schema(), str(path))
            index.config_reader("manual")
            index.register_tokenizer("words", fields.word_analyzer())
            engine = cls(path, index, heap)
            with engine._writing():
                return engine

    def close(self) -> None:
        """Let go of the directory; what was not committed is forgotten."""
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                _end(writer)

    def add(self, chunk: int, documents: Iterable[IndexDocument]) -> int:
        """Put a chunk in, in place of what was there of it; counts as loaded after `commit`."""
        ballast = LengthPadding()
        with self._writing() as writer:
            _forget(writer, chunk)
            try:
                for document in documents:
                    texts = fields.searchable_texts(document)
                    ballast.weigh(texts)
                    writer.add_document(fields.to_tantivy(document, chunk, texts))
            except BadInput:
                _forget(writer, chunk)
                raise
            for extra in ballast.fill(fields.loaded_marker(chunk), chunk):
                writer.add_document(extra)
        return ballast.documents

    def drop(self, chunks: Iterable[int]) -> None:
        """Take whole chunks out, after `commit`."""
        with self._writing() as writer:
            for chunk in chunks:
                _forget(writer, chunk)

    def unload(self, chunks: Iterable[int]) -> None:
        """Forget that chunks are loaded, after `commit`; what is there of them is found until they are added again."""
        with self._writing() as writer:
            for chunk in chunks:
                writer.delete_documents_by_term("loaded", str(chunk))

    def retire(self, versions: Iterable[tuple[str, int]]) -> None:
        """Take out what these chunks hold of these pages, after `commit`; the chunks stay loaded."""
        with self._writing() as writer:
            for key, chunk in versions:
                writer.delete_documents_by_term("copy", fields.page_version(key, chunk))

    def commit(self) -> None:
        """Make all since the last commit durable and findable; if that fails, all of it is to be done again."""
        with self._writing() as writer:
            writer.commit()
            self._view = self._look()

    def settle(self) -> bool:
        """Have Tantivy merge small segments, which takes a while; whether it will. Nothing else changes by it."""
        with self._writing() as writer:
            return force_merge.force_merge(writer, self.path)

    def refresh(self) -> bool:
        """See what Tantivy has merged since; whether it has."""
        changed = set(read_segments(self.path)) != self._view.segments
        if changed:
            with self._lock:
                self._view = self._look()
        return changed

    def chunks(self) -> set[int]:
        """The chunks that are loaded, wholly and for good."""
        return {int(name) for name, _ in self._terms("loaded", "")}

    def not_loaded(self) -> set[int]:
        """The chunks that have documents and are not loaded."""
        names = {name for name, _ in self._terms("chunk", "")} - {FILLER}
        return {int(name) for name in names} - self.chunks()

    def count(self, chunk: int) -> int:
        """How many documents of a chunk there are to find."""
        both = [
            (Occur.Must, Tantivy.term_query(fields.schema(), "chunk", str(chunk), "basic")),
            (Occur.Must, all_documents()),
        ]
        return match_count(self._view.searcher.search(Tantivy.boolean_query(both), 1))

    def versions(self, key: str) -> set[int]:
        """The chunks that have something of a page to find."""
        return {
            int(name.rpartition("\n")[2])
            for name, _ in self._terms("copy", fields.page_version(key, 0)[:-1])
        }

    @property
    def documents(self) -> int:
        """How many documents there are to find."""
        return match_count(self._view.searcher.search(all_documents(), 1))

    def search(
        self,
        query: Query,
        k: int = 10,
        offset: int = 0,
        *,
        stats: TermStats | None = None,
        hosts: bool = False,
        show: int = 0,
    ) -> Hits:
        """The best hits, the first `show` with passages; with the `stats` of all servers `together`, scores compare."""
        view = self._view
        question = QueryBuilder(view, query, stats)
        if not query:
            return Hits()
        offset = max(0, min(offset, MAX_OFFSET))
        found, total = rank(
            view,
            question.build(),
            max(1, min(k, MAX_HITS)),
            offset=offset,
            order=None if question.ranked else "crawled",
            count=not hosts,
        )
        hits = tuple(kept.hit(score) for score, kept, _ in found)
        words = words_of(question.telling)
        passages = tuple(
            _passage(view.read(where), kept.language, words) for _, kept, where in found[:show]
        )
        for _, kept, where in found[show:]:
            view.remember(kept, where)
        if not hosts:
            counts = {}
        elif total == len(hits):
            counts = dict(Counter(hit.host for hit in hits).most_common(MAX_HOSTS))
        else:
            counts, total = _hosts(view, question.matching())
        return Hits(total or 0, hits, counts, passages)

    def stats(self, query: Query) -> TermStats:
        """What this index knows of the words of a query."""
        return QueryBuilder(self._view, query).counted()

    def common(self, most: int) -> list[str]:
        """So many of the commonest words, more or less."""
        return frequent_words(self._view, most)

    def suggest(self, query: Query) -> list[Suggestion]:
        """Better spellings of its words; worth asking for when little was found."""
        return spelling.suggest(self._view, query.words)

    def snippets(
        self, query: Query, wanted: Sequence[tuple[str, int]], *, size: int = SNIPPET_CHARACTERS
    ) -> dict[tuple[str, int], list[Segment]]:
        """For each (url, chunk) the passage that shows why it was found; those that are gone are left out."""
        view = self._view
        words = words_of(QueryBuilder(view, query).telling)
        found = {}
        for url, chunk in wanted:
            if (one := view.remembered(url, chunk) or _one(view, url, chunk)) is not None:
                language, document = one
                found[url, chunk] = _passage(document, language, words, size)
        return found

    def _terms(self, field: str, start: str) -> list[tuple[str, int]]:
        """The filter leaves out what is deleted but not yet swept out."""
        return self._view.searcher.terms_with_prefix(field, start, filter_query=Tantivy.all_query())

    @contextmanager
    def _writing(self) -> Iterator[tantivy.IndexWriter]:
        """The one writer; after a failure it is of no use, and the next one starts from the last commit."""
        with self._lock, _told(self.path):
            if self._writer is None:
                self._writer = self._index.writer(self._heap, 1)
                self._writer.garbage_collect_files()
            try:
                yield self._writer
            except BadInput:
                raise
            except BaseException:
                _end(self._writer)
                self._writer = None
                raise

    def _look(self) -> IndexReader:
        found = read_segments(self.path)
        self._index.reload()
        return IndexReader(self._index.searcher(), sum(found.values()), frozenset(found))


def _hosts(view: IndexReader, matching: Tantivy) -> tuple[dict[str, int], int]:
    """The hosts that most are on, and how many there are in all."""
    wanted = {"hosts": {"terms": {"field": "host", "size": MAX_HOSTS}}}
    found = view.searcher.aggregate(matching, wanted)["hosts"]
    counts = {bucket["key"]: int(bucket["doc_count"]) for bucket in found["buckets"]}
    return counts, sum(counts.values()) + int(found["sum_other_doc_count"])


def _one(view: IndexReader, url: str, chunk: int) -> tuple[str, tantivy.Document] | None:
    """The language of a document that was not found lately, and itself."""
    schema = fields.schema()
    both = [
        (Occur.Must, Tantivy.term_query(schema, "address", url, "basic")),
        (Occur.Must, Tantivy.term_query(schema, "chunk", str(chunk), "basic")),
    ]
    hits = view.searcher.search(Tantivy.boolean_query(both), 1, count=False).hits
    if not hits:
        return None
    document = view.searcher.doc(hits[0][1])
    return fields.stored_fields(document).language, document


def _passage(
    document: tantivy.Document, language: str, words: Sequence[str], size: int = SNIPPET_CHARACTERS
) -> list[Segment]:
    return make_snippet(fields.stored_text(document), words, size=size, stem=_stem(language))


@lru_cache(_MOST_LANGUAGES)
def _stem(language: str) -> Callable[[str], str]:
    """Stems as the index of this language would; words of an unknown one are all different."""
    if language not in fields.STEMMERS:
        return strip_accents
    analyser = fields.stem_analyzer(language)
    return lru_cache(_MOST_STEMS)(lambda word: "".join(analyser.analyze(word)))


def _end(writer: tantivy.IndexWriter) -> None:
    """Let go of the directory now, not when the last traceback that knows the writer is gone."""
    with suppress(ValueError):  # a writer that failed says so once more
        writer.wait_merging_threads()


def _forget(writer: tantivy.IndexWriter, chunk: int) -> None:
    writer.delete_documents_by_term("chunk", str(chunk))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say in our words what Tantivy and the system say in theirs."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise _error(path, str(error)) from error


def _error(path: Path, text: str) -> UsherError:
    if "LockBusy" in text:
        hint = "Stop the other index server, or give this one a directory of its own."
        return Conflict(f"The index in {path} is in use by another process.", hint=hint)
    if "schema does not match" in text:
        hint = "Remove the directory; its chunks are then loaded again."
        return Conflict(f"The index in {path} was made by another version.", hint=hint)
    if "No space left" in text or _free(path) < LEAST_FREE:
        hint = "Make room. What was committed is still there, and the rest is loaded again."
        return UsherError(
            f"The index in {path} cannot be written: no space is left on the disk.", hint=hint
        )
    hint = "If this happens again, remove the directory; its chunks are then loaded again."
    return UsherError(f"The index in {path} cannot be used: {text}", hint=hint)


def _free(path: Path) -> int:
    """Bytes of free space; a writer that died of a full disk does not always say so."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return LEAST_FREE
