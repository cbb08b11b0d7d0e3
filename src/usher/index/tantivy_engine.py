"""The index of one server in a directory, with Tantivy.

One marker document per loaded chunk is written in the same commit as the documents of the chunk, so a kill at any
moment leaves both consistent. All methods are thread-safe, and writes do not block searches.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Final

import tantivy
from tantivy import Query as TantivyQuery

from usher.chunk_store import translate_disk_errors
from usher.component_health import disk_problem
from usher.errors import BadInput, Conflict, UsherError
from usher.index import fields, force_merge, spelling
from usher.index.analyzers import english_stem_analyzer, stemmer, word_analyzer
from usher.index.document import IndexDocument
from usher.index.engine import MAX_HITS, MAX_HOSTS, MAX_OFFSET
from usher.index.fields import STEMS, StoredFields
from usher.index.force_merge import FILLER, read_segments
from usher.index.frequent_words import frequent_words
from usher.index.index_reader import IndexReader
from usher.index.passages import PassageWords, SectionedText, make_passage
from usher.index.query_builder import QueryBuilder
from usher.index.query_words import QueryWords
from usher.index.ranking import RankedHit, match_count, rank
from usher.index.score_explanation import explain_score
from usher.index.tantivy_query import all_documents, all_of, exact, to_tantivy
from usher.private_files import make_directory, write_file
from usher.query.highlight import SNIPPET_CHARACTERS
from usher.query.language import Query
from usher.query.results import Hit, Hits, Passage, ScoreReason, Suggestion, TermStats

WRITER_HEAP_BYTES: Final = 64_000_000
MIN_FREE_BYTES: Final = 1_000_000  # with less, a failure is due to a full disk


class TantivyEngine:
    """The index of one server; `open` creates or opens it."""

    is_local: Final = True

    def __init__(self, path: Path, index: tantivy.Index, heap: int) -> None:
        self.path = path
        self.incarnation = ""
        self._index = index
        self._heap = heap
        self._lock = RLock()
        self._writer: tantivy.IndexWriter | None = None
        self._reader = self._open_reader()

    @classmethod
    def open(cls, path: Path, *, heap: int = WRITER_HEAP_BYTES) -> "TantivyEngine":
        """Open the index; Conflict if another process uses it or another version created it."""
        with _translate_errors(path):
            make_directory(path)
            index = tantivy.Index(fields.schema(), str(path))
            index.config_reader("manual")
            index.register_tokenizer("words", word_analyzer())
            index.register_tokenizer("stems", english_stem_analyzer())
            engine = cls(path, index, heap)
            with engine._writing():
                return engine

    def close(self) -> None:
        """Release the directory; uncommitted changes are lost."""
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                _release(writer)

    def problem(self) -> str:
        """Why no more should be written to the directory; empty if there is space."""
        return disk_problem(self.path)

    # -- state, in files beside the directory, so that an index that is loaded again keeps it

    def read_state(self, name: str) -> str:
        """The value stored under this name; empty if there is none."""
        with suppress(OSError):
            return self._state_file(name).read_text(encoding="ascii").strip()
        return ""

    def write_state(self, name: str, value: str) -> None:
        """Store a value; an empty one removes it."""
        file = self._state_file(name)
        with translate_disk_errors(file):
            if value:
                write_file(file, value.encode("ascii"))
            else:
                file.unlink(missing_ok=True)

    def _state_file(self, name: str) -> Path:
        return self.path.parent / name

    # -- changes; they become durable and searchable with `commit`

    def add(self, chunk: int, documents: Iterable[IndexDocument]) -> int:
        """Add a chunk, replacing its old documents; returns the number of documents."""
        lengths: Counter[str] = Counter()
        added = 0
        with self._writing() as writer:
            _delete_chunk(writer, chunk)
            try:
                for document in documents:
                    texts = fields.searchable_texts(document)
                    field_lengths = fields.field_lengths(texts)
                    lengths.update(field_lengths)
                    length = field_lengths[STEMS]
                    writer.add_document(fields.to_tantivy(document, chunk, texts, length))
                    added += 1
            except BadInput:
                _delete_chunk(writer, chunk)
                raise
            average = {name: round(length / max(added, 1)) for name, length in lengths.items()}
            writer.add_document(fields.loaded_marker(chunk, average))
        return added

    def drop(self, chunks: Iterable[int]) -> None:
        """Remove chunks."""
        with self._writing() as writer:
            for chunk in chunks:
                _delete_chunk(writer, chunk)

    def unload(self, chunks: Iterable[int]) -> None:
        """Mark chunks as not loaded; their documents stay searchable until they are added again."""
        with self._writing() as writer:
            for chunk in chunks:
                writer.delete_documents_by_term("loaded", str(chunk))

    def retire(self, versions: Iterable[tuple[str, int]]) -> None:
        """Remove versions of pages, each by key and chunk; the chunks stay loaded."""
        with self._writing() as writer:
            for key, chunk in versions:
                writer.delete_documents_by_term("copy", fields.page_version(key, chunk))

    def commit(self) -> None:
        """Make all changes durable and searchable; if this fails, all of them must be repeated."""
        with self._writing() as writer:
            writer.commit()
            self._reader = self._open_reader()

    # -- maintenance

    def force_merge(self) -> bool:
        """Trigger a merge of small segments, which takes a while; False if it is not worthwhile."""
        with self._writing() as writer:
            return force_merge.force_merge(writer, self.path)

    def merge_deleted(self) -> bool:
        """Trigger a merge that deletes the text of deleted documents from small segments; False if there is none."""
        with self._writing() as writer:
            return force_merge.merge_deleted(writer, self.path)

    def deleted_documents(self) -> int:
        """How many deleted documents the large segments hold, which no merge reaches."""
        return force_merge.deleted_documents(self.path, large=True)

    def refresh(self) -> bool:
        """Use segments that Tantivy has merged in the background; False if there are none."""
        changed = set(read_segments(self.path)) != self._reader.segments
        if changed:
            with self._lock:
                self._reader = self._open_reader()
        return changed

    # -- contents

    def chunks(self) -> set[int]:
        """The chunks that are completely loaded."""
        return {int(name) for name in self._terms("loaded")}

    def not_loaded(self) -> set[int]:
        """The chunks that have documents but are not loaded."""
        return {int(name) for name in self._terms("chunk") - {FILLER}} - self.chunks()

    def count(self, chunk: int) -> int:
        """The number of searchable documents of a chunk."""
        query = all_of([exact("chunk", str(chunk)), all_documents()])
        return match_count(self._reader.searcher.search(query, 1))

    @property
    def documents(self) -> int:
        """The number of searchable documents."""
        return match_count(self._reader.searcher.search(all_documents(), 1))

    def _terms(self, field: str) -> set[str]:
        # With a filter Tantivy skips the terms of deleted documents.
        every = TantivyQuery.all_query()
        terms = self._reader.searcher.terms_with_prefix(field, "", filter_query=every)
        return {term for term, _ in terms}

    # -- queries

    def search(
        self,
        query: Query,
        k: int = 10,
        offset: int = 0,
        *,
        stats: TermStats | None = None,
        hosts: bool = False,
        show: int = 0,
        explained: bool = False,
        seconds: float | None = None,  # noqa: ARG002 - Tantivy cannot stop a search
    ) -> Hits:
        """The best hits, the first `show` with snippets; with the same `stats`, scores of servers are comparable."""
        if not query:
            return Hits()
        reader = self._reader
        builder = QueryBuilder(reader, query, stats)
        any_clause = builder.build_any()
        ranked, total, more = rank(
            reader,
            to_tantivy(builder.build()),
            max(1, min(k, MAX_HITS)),
            any_query=None if any_clause is None else to_tantivy(any_clause),
            offset=max(0, min(offset, MAX_OFFSET)),
            order=None if query.groups else "crawled",
            count=not hosts,
            correction=builder.length_correction(),
        )
        explain = partial(explain_score, reader, builder) if explained else _no_reasons
        hits = tuple(
            hit.fields.hit(hit.score, weak=hit.weak, reasons=explain(hit)) for hit in ranked
        )
        words = builder.words.passage_words
        shown = tuple(
            _passage(reader.read(hit.document), hit.fields, words) for hit in ranked[:show]
        )
        for hit in ranked[show:]:
            reader.add_recent(hit.fields, hit.document)
        counts, total = _count_hosts(reader, builder, hits, total) if hosts else ({}, total)
        return Hits(total or 0, hits, counts, shown, more=more)

    def stats(self, query: Query, *, seconds: float | None = None) -> TermStats:  # noqa: ARG002 - as above
        """The statistics of this index for the words of a query."""
        return QueryWords(self._reader, query).local_stats()

    def frequent_words(self, limit: int, *, seconds: float | None = None) -> list[str]:  # noqa: ARG002 - as above
        """About `limit` of the most frequent words."""
        return frequent_words(self._reader, limit)

    def suggest(self, query: Query, *, seconds: float | None = None) -> list[Suggestion]:  # noqa: ARG002 - as above
        """Better spellings of the words of a query."""
        return spelling.suggest(self._reader, query.words)

    def snippets(
        self,
        query: Query,
        wanted: Sequence[tuple[str, int]],
        *,
        size: int = SNIPPET_CHARACTERS,
        seconds: float | None = None,  # noqa: ARG002 - as above
    ) -> dict[tuple[str, int], Passage]:
        """The snippets of hits by URL and chunk; documents that are gone are left out."""
        reader = self._reader
        words = QueryWords(reader, query).passage_words
        snippets = {}
        for url, chunk in wanted:
            if hit := reader.recent(url, chunk) or _find(reader, url, chunk):
                stored, document = hit
                snippets[url, chunk] = _passage(document, stored, words, size)
        return snippets

    @contextmanager
    def _writing(self) -> Iterator[tantivy.IndexWriter]:
        """The only writer; after a failure it is replaced by one that starts from the last commit."""
        with self._lock, _translate_errors(self.path):
            if self._writer is None:
                self._writer = self._index.writer(self._heap, 1)
                self._writer.garbage_collect_files()
            try:
                yield self._writer
            except BadInput:
                raise
            except BaseException:
                _release(self._writer)
                self._writer = None
                raise

    def _open_reader(self) -> IndexReader:
        segments = read_segments(self.path)
        self._index.reload()
        return IndexReader(self._index.searcher(), sum(segments.values()), frozenset(segments))


def _no_reasons(_hit: RankedHit) -> tuple[ScoreReason, ...]:
    return ()


def _count_hosts(
    reader: IndexReader, builder: QueryBuilder, hits: Sequence[Hit], total: int | None
) -> tuple[dict[str, int], int]:
    """The hosts with most good matches, and the number of all; `hits` are enough if they are all."""
    good = [hit.host for hit in hits if not hit.weak]
    if total == len(good):
        return dict(Counter(good).most_common(MAX_HOSTS)), total
    wanted = {"hosts": {"terms": {"field": "host", "size": MAX_HOSTS}}}
    result = reader.searcher.aggregate(to_tantivy(builder.build_filter()), wanted)["hosts"]
    counts = {bucket["key"]: int(bucket["doc_count"]) for bucket in result["buckets"]}
    return counts, sum(counts.values()) + int(result["sum_other_doc_count"])


def _find(
    reader: IndexReader, url: str, chunk: int
) -> tuple[StoredFields, tantivy.Document] | None:
    """The stored fields and the document of a hit that is not recent."""
    query = all_of([exact("address", url), exact("chunk", str(chunk))])
    hits = reader.searcher.search(query, 1, count=False).hits
    if not hits:
        return None
    document = reader.searcher.doc(hits[0][1])
    return fields.stored_fields(document), document


def _passage(
    document: tantivy.Document,
    stored: StoredFields,
    words: PassageWords,
    size: int = SNIPPET_CHARACTERS,
) -> Passage:
    text, sections = fields.stored_text(document), fields.stored_sections(document)
    page = SectionedText(text, stored.title, sections)
    return make_passage(page, words, size=size, stem=stemmer(stored.language))


def _release(writer: tantivy.IndexWriter) -> None:
    """Release the directory now, not when the last traceback that refers to the writer is gone."""
    with suppress(ValueError):  # a writer that failed reports its error again
        writer.wait_merging_threads()


def _delete_chunk(writer: tantivy.IndexWriter, chunk: int) -> None:
    writer.delete_documents_by_term("chunk", str(chunk))


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of Tantivy and the system as UsherErrors."""
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
    if "No space left" in text or _free_bytes(path) < MIN_FREE_BYTES:
        hint = "Free some space. Committed chunks are intact, and the rest is loaded again."
        return UsherError(f"The index in {path} cannot be written: the disk is full.", hint=hint)
    hint = "If this happens again, remove the directory; its chunks are then loaded again."
    return UsherError(f"The index in {path} cannot be used: {text}", hint=hint)


def _free_bytes(path: Path) -> int:
    """The free space; after a full disk the error of the writer does not always name it."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return MIN_FREE_BYTES
