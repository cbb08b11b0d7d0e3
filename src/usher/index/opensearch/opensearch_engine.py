"""The index of a row in an OpenSearch cluster; chunks and state are there, so another machine can take over."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from usher.errors import LateAnswer, NotFound
from usher.index.document import IndexDocument
from usher.index.engine import MAX_HITS, MAX_OFFSET
from usher.index.fields import SECTIONS, STORED_FIELDS, TEXT, decode_fields
from usher.index.opensearch.chunk_writer import ChunkWriter
from usher.index.opensearch.client import (
    REQUEST_SECONDS,
    OpenSearchClient,
)
from usher.index.opensearch.connections import ClusterConnections
from usher.index.opensearch.contents import ClusterContents
from usher.index.opensearch.counts import ClusterCounts, QueryCounts, seconds_left
from usher.index.opensearch.documents import (
    document_id,
)
from usher.index.opensearch.index_setup import (
    IndexShape,
    prepare_indexes,
    read_version,
)
from usher.index.opensearch.options import OpenSearchOptions
from usher.index.opensearch.ownership import Ownership, owner_name
from usher.index.opensearch.query_dsl import EVERY_DOCUMENT_DSL
from usher.index.opensearch.searcher import ClusterHit, ClusterSearch, passage_of, stored_bytes
from usher.index.opensearch.word_lists import frequent_words, suggest
from usher.index.query_builder import QueryBuilder
from usher.index.query_words import QueryWords
from usher.index.score_explanation import sum_reasons
from usher.query.highlight import SNIPPET_CHARACTERS
from usher.query.language import Query
from usher.query.results import Hits, Passage, ScoreReason, Suggestion, TermStats
from usher.telemetry import Log

log = Log("index")
MERGE_SECONDS: Final = 5.0  # a longer merge continues without us


class OpenSearchEngine:
    """The index of one row; `open` creates or opens it and makes this process its only writer."""

    is_local: Final = False

    def __init__(self, client: OpenSearchClient, index: IndexShape, ownership: Ownership) -> None:
        self.incarnation = ""
        self._client, self._ownership = client, ownership
        self._index, self._state = index.name, index.state_name
        self._contents = ClusterContents(client, self._index)
        self._writer = ChunkWriter(client, self._index, ownership)
        self._counts = ClusterCounts(client, self._index)

    @classmethod
    def open(cls, options: OpenSearchOptions, *, directory: Path, host: str) -> "OpenSearchEngine":
        """Open the index; Conflict if another server uses it, or another version or program made it."""
        client = OpenSearchClient(
            ClusterConnections(options.url, credential=options.credential, ca_file=options.ca_file)
        )
        try:
            index = options.shape
            prepare_indexes(client, index, read_version(client))
            ownership = Ownership(client, index.state_name, owner=owner_name(directory), host=host)
            ownership.acquire()
        except BaseException:
            client.close()
            raise
        engine = cls(client, index, ownership)
        try:
            engine._contents.refresh()
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        """Let another index server open the index; uncommitted changes are lost."""
        self._writer.close()
        self._ownership.release()
        self._client.close()

    def problem(self) -> str:
        """Why no more should be written; empty if the index can be written."""
        return self._writer.problem()

    # -- state

    def read_state(self, name: str) -> str:
        """The value stored under this name; empty if there is none."""
        try:
            answer = self._client.request("GET", f"/{self._state}/_doc/value-{name}")
        except NotFound:
            return ""
        return str(answer["_source"].get("value", ""))

    def write_state(self, name: str, value: str) -> None:
        """Store a value; an empty one removes it."""
        self._writer.write_document(f"/{self._state}/_doc/value-{name}", {"value": value})

    # -- changes

    def add(self, chunk: int, documents: Iterable[IndexDocument]) -> int:
        """Add a chunk, replacing its old documents; returns the number of documents."""
        return self._writer.add(chunk, documents)

    def drop(self, chunks: Iterable[int]) -> None:
        """Remove chunks."""
        self._writer.drop(chunks)

    def unload(self, chunks: Iterable[int]) -> None:
        """Mark chunks as not loaded; their documents stay searchable until they are added again."""
        self._writer.unload(chunks)

    def retire(self, versions: Iterable[tuple[str, int]]) -> None:
        """Remove versions of pages, each by key and chunk; the chunks stay loaded."""
        self._writer.retire(versions)

    def commit(self) -> None:
        """Make all changes durable and searchable."""
        self._writer.commit()
        self._counts = self._counts.renewed()

    # -- maintenance

    def force_merge(self) -> bool:
        """False: the cluster merges segments itself."""
        return False

    def merge_deleted(self) -> bool:
        """Let the cluster delete the text of deleted documents; False if it has none."""
        self._contents.refresh()
        if not self._contents.deleted_documents():
            return False
        with suppress(LateAnswer):
            self._client.request(
                "POST",
                f"/{self._index}/_forcemerge",
                seconds=MERGE_SECONDS,
                only_expunge_deletes=True,
            )
        return True

    def deleted_documents(self) -> int:
        """None: a merge reaches every segment."""
        return 0

    def refresh(self) -> bool:
        """False: the cluster uses its merged segments itself."""
        return False

    # -- contents

    def chunks(self) -> set[int]:
        """The chunks that are completely loaded."""
        return self._contents.chunks()

    def not_loaded(self) -> set[int]:
        """The chunks that have documents but are not loaded."""
        return self._contents.chunks_of_documents() - self._contents.chunks()

    def count(self, chunk: int) -> int:
        """The number of searchable documents of a chunk."""
        return self._contents.count({"term": {"chunk": chunk}})

    @property
    def documents(self) -> int:
        """The number of searchable documents."""
        return self._contents.count(EVERY_DOCUMENT_DSL)

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
        seconds: float | None = None,
    ) -> Hits:
        """The best hits, the first `show` with snippets; `missing` says which share of documents was not searched."""
        if not query:
            return Hits()
        until = _deadline(seconds)
        builder = QueryBuilder(self._query_counts(until), query, stats)
        search = ClusterSearch(self._client, self._index, builder, until)
        ranked = search.rank(
            max(1, min(k, MAX_HITS)), max(0, min(offset, MAX_OFFSET)), hosts=hosts, texts=show
        )
        reasons = _reasons(search, builder, ranked.hits) if explained else {}
        hits = tuple(
            hit.stored.hit(hit.score, weak=hit.weak, reasons=reasons.get(hit.id, ()))
            for hit in ranked.hits
        )
        shown = self._passages(ranked.hits[:show], builder.words, until)
        return Hits(
            ranked.total, hits, ranked.hosts, shown, more=ranked.more, missing=ranked.missing
        )

    def stats(self, query: Query, *, seconds: float | None = None) -> TermStats:
        """The statistics of this index for the words of a query."""
        return QueryWords(self._query_counts(_deadline(seconds)), query).local_stats()

    def frequent_words(self, limit: int, *, seconds: float | None = None) -> list[str]:
        """About `limit` of the most frequent words."""
        return frequent_words(self._client, self._index, limit, seconds_left(_deadline(seconds)))

    def suggest(self, query: Query, *, seconds: float | None = None) -> list[Suggestion]:
        """Better spellings of the words of a query."""
        until = _deadline(seconds)
        counts = self._query_counts(until)
        return suggest(self._client, self._index, counts, query.words, seconds_left(until))

    def snippets(
        self,
        query: Query,
        wanted: Sequence[tuple[str, int]],
        *,
        size: int = SNIPPET_CHARACTERS,
        seconds: float | None = None,
    ) -> dict[tuple[str, int], Passage]:
        """The snippets of hits by URL and chunk; documents that are gone are left out."""
        until = _deadline(seconds)
        words = QueryWords(self._query_counts(until), query).passage_words
        ids = {document_id(url, chunk): (url, chunk) for url, chunk in wanted}
        snippets = {}
        for id_, values in self._stored_values(list(ids), until).items():
            stored = decode_fields(stored_bytes(values[STORED_FIELDS]))
            snippets[ids[id_]] = passage_of(values, stored, words, size)
        return snippets

    def _passages(
        self, hits: Sequence[ClusterHit], words: QueryWords, until: float
    ) -> tuple[Passage, ...]:
        """The snippets of the first hits, up to the first whose text did not come."""
        missing = [hit.id for hit in hits if TEXT not in hit.values]
        values = self._stored_values(missing, until) if missing else {}
        passages = []
        for hit in hits:
            stored = hit.values if TEXT in hit.values else values.get(hit.id)
            if stored is None:
                break
            passages.append(passage_of(stored, hit.stored, words.passage_words))
        return tuple(passages)

    def _stored_values(self, ids: Sequence[str], until: float) -> dict[str, dict[str, list[Any]]]:
        """The stored values of documents by id; those that are gone or not available are left out."""
        if not ids:
            return {}
        answer = self._client.read(
            f"/{self._index}/_mget",
            {"ids": list(ids)},
            seconds=seconds_left(until),
            stored_fields=f"{STORED_FIELDS},{TEXT},{SECTIONS}",
            realtime=False,
        )
        return {entry["_id"]: entry["fields"] for entry in answer["docs"] if entry.get("found")}

    def _query_counts(self, until: float) -> QueryCounts:
        if not self._counts.is_valid:
            self._counts = ClusterCounts(self._client, self._index)
        return QueryCounts(self._counts, until)


def _reasons(
    search: ClusterSearch, builder: QueryBuilder, hits: Sequence[ClusterHit]
) -> dict[str, tuple[ScoreReason, ...]]:
    """The parts of the score of each hit, by id."""
    if not hits:
        return {}
    every = builder.reasons(is_good=True)
    weak = set(builder.reasons(is_good=False))
    scores = search.scores_of(hits, [reason.clause for reason in every])
    priors = search.priors_of(hits)
    reasons = {}
    for hit in hits:
        parts = [
            (reason, values[hit.id])
            for reason, values in zip(every, scores, strict=True)
            if hit.id in values and (not hit.weak or reason in weak)
        ]
        reasons[hit.id] = sum_reasons(parts, hit.score, priors.get(hit.id, 1.0))
    return reasons


def _deadline(seconds: float | None) -> float:
    return time.monotonic() + (REQUEST_SECONDS if seconds is None else seconds)
