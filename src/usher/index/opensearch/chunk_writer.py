"""Loads and removes chunks in the index of a cluster.

A change is durable when OpenSearch has acknowledged it, and searchable after the refresh of a commit. A chunk is loaded
when its marker document says so. The marker is written after the documents, and deleted before they change, so a kill
of this process or of a node at any moment shows no half chunk as loaded.
"""

import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final, NamedTuple

from usher.errors import EngineBusy, IndexBlocked, UsherError
from usher.index.document import IndexDocument
from usher.index.opensearch.bulk import BulkAction, BulkWriter
from usher.index.opensearch.client import WRITE_SECONDS, OpenSearchClient
from usher.index.opensearch.contents import ClusterContents
from usher.index.opensearch.documents import (
    copy_name,
    document_id,
    encode_document,
    encode_marker,
    marker_id,
)
from usher.index.opensearch.index_setup import COPY, LOAD, check_index
from usher.index.opensearch.ownership import Ownership
from usher.index.opensearch.query_dsl import Dsl

MAX_DELETED: Final = 10_000  # documents by one request
MAX_TERMS: Final = 10_000  # in one query; OpenSearch allows 65,536
BLOCKED_SECONDS: Final = 10.0  # until writing is tried again


class AddedChunk(NamedTuple):
    """A chunk that was added since the last commit: the name of this attempt to load it, and its documents."""

    load: str
    documents: int


class ChunkWriter:
    """The changes of the only writer of an index."""

    def __init__(self, client: OpenSearchClient, index: str, ownership: Ownership) -> None:
        self._client, self._index = client, index
        self._ownership = ownership
        self._contents = ClusterContents(client, index)
        self._lock = RLock()
        self._bulk = BulkWriter(client, index)
        self._loaded: set[int] | None = None  # as the markers say; None if they must be read
        self._added: dict[int, AddedChunk] = {}
        self._dropped: set[int] = set()
        self._unloaded: set[int] = set()
        self._retired: set[str] = set()
        self._blocked = (0.0, "")  # until when, and why

    def close(self) -> None:
        """Wait for the request that is under way; uncommitted changes are lost."""
        self._bulk.close()

    def problem(self) -> str:
        """Why no more should be written; empty if the index can be written."""
        until, reason = self._blocked
        if time.monotonic() < until:
            return reason
        try:
            self._ownership.check()
        except UsherError as error:
            return f"{error.message} {error.hint}"
        return ""

    def write_document(self, path: str, body: Dsl) -> None:
        """Write one document of the state durably."""
        with self._lock:
            self._ownership.check()
            self._client.request("PUT", path, body, seconds=WRITE_SECONDS)

    def add(self, chunk: int, documents: Iterable[IndexDocument]) -> int:
        """Add a chunk, replacing its old documents; returns the number of documents."""
        with self._writing():
            if self._loaded is None:
                self._contents.refresh()  # a commit may have failed after it wrote markers
                self._loaded = self._contents.chunks()
            if chunk in self._loaded:
                self._delete_markers([chunk])
            if not self._has_changes():
                check_index(self._client, self._index)
            # Until all documents have come, a commit removes the chunk.
            self._dropped.add(chunk)
            self._added.pop(chunk, None)
        load = secrets.token_hex(8)
        added, ids = 0, set[str]()
        for document in documents:
            action = BulkAction(
                document_id(document.url, chunk),
                encode_document(document, chunk, load),
                document.url,
            )
            with self._writing():
                self._bulk.add(action)
            ids.add(action.id)
            added += 1
        with self._lock:
            self._dropped.discard(chunk)
            self._added[chunk] = AddedChunk(load, len(ids))
        return added

    def drop(self, chunks: Iterable[int]) -> None:
        """Remove chunks."""
        with self._lock:
            self._dropped.update(chunks)
            for chunk in self._dropped:
                self._added.pop(chunk, None)

    def unload(self, chunks: Iterable[int]) -> None:
        """Mark chunks as not loaded; their documents stay searchable until they are added again."""
        with self._lock:
            self._unloaded.update(chunks)

    def retire(self, versions: Iterable[tuple[str, int]]) -> None:
        """Remove versions of pages, each by key and chunk; the chunks stay loaded."""
        with self._lock:
            self._retired.update(copy_name(key, chunk) for key, chunk in versions)

    def commit(self) -> None:
        """Make all changes durable and searchable."""
        with self._writing():
            self._bulk.flush()
            self._delete_markers(self._dropped | self._unloaded)
            self._contents.refresh()
            self._check_documents()
            self._delete_old()
            for chunk in self._added:
                self._bulk.add(BulkAction(marker_id(chunk), encode_marker(chunk)))
            self._bulk.flush()
            self._contents.refresh()
            if self._loaded is not None:
                self._loaded |= self._added.keys()
            self._forget_changes()

    def _check_documents(self) -> None:
        """EngineBusy if not all new documents are searchable, because a node died before it refreshed a shard."""
        for chunks in _parts(sorted(self._added)):
            wanted = sum(self._added[chunk].documents for chunk in chunks)
            searchable = self._contents.count({"terms": {LOAD: self._loads(chunks)}})
            if searchable != wanted:
                text = f"Only {searchable} of {wanted} new documents are searchable in OpenSearch."
                raise EngineBusy(text, hint="Usher loads their chunks again.")

    def _loads(self, chunks: Iterable[int]) -> list[str]:
        return [self._added[chunk].load for chunk in chunks]

    def _delete_old(self) -> None:
        """Delete what the changes replace: all documents of dropped chunks, and older ones of added chunks."""
        for chunks in _parts(sorted(self._dropped)):
            self._delete({"terms": {"chunk": chunks}})
        for chunks in _parts(sorted(self._added)):
            is_new = {"terms": {LOAD: self._loads(chunks)}}
            self._delete({"bool": {"filter": [{"terms": {"chunk": chunks}}], "must_not": [is_new]}})
        for copies in _parts(sorted(self._retired)):
            self._delete({"terms": {COPY: copies}})

    def _delete(self, query: Dsl) -> None:
        """Delete all matching documents; repeats until none is left, whatever changes meanwhile."""
        while self._contents.count(query):
            self._ownership.check()
            answer = self._client.request(
                "POST",
                f"/{self._index}/_delete_by_query",
                {"query": query},
                seconds=WRITE_SECONDS,
                conflicts="proceed",
                refresh=True,
                max_docs=MAX_DELETED,
            )
            if answer.get("failures"):
                raise EngineBusy(f"OpenSearch could not delete documents: {answer['failures'][0]}")

    def _delete_markers(self, chunks: Collection[int]) -> None:
        """Delete markers durably."""
        for chunk in chunks:
            self._bulk.add(BulkAction(marker_id(chunk)))
        self._bulk.flush()
        if self._loaded is not None:
            self._loaded.difference_update(chunks)

    def _has_changes(self) -> bool:
        return bool(self._added or self._dropped or self._unloaded or self._retired)

    def _forget_changes(self) -> None:
        self._added.clear()
        self._dropped.clear()
        self._unloaded.clear()
        self._retired.clear()
        self._bulk.forget()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Only the owner writes; after a failure all changes must be repeated."""
        with self._lock:
            try:
                self._ownership.check()
                yield
            except BaseException as error:
                self._forget_changes()
                self._loaded = None
                if isinstance(error, IndexBlocked):
                    reason = f"{error.message} {error.hint}"
                    self._blocked = time.monotonic() + BLOCKED_SECONDS, reason
                raise


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), MAX_TERMS):
        yield items[start : start + MAX_TERMS]
