"""What the index of a cluster holds, by answers of all shards: a missing shard must not look like missing chunks."""

from collections.abc import Mapping
from typing import Any, Final

from usher.index.opensearch.client import REQUEST_SECONDS, WRITE_SECONDS, OpenSearchClient
from usher.index.opensearch.index_setup import LOADED
from usher.index.opensearch.query_dsl import EVERY_DOCUMENT_DSL, Dsl

PAGE_SIZE: Final = 10_000  # chunks of one answer


class ClusterContents:
    """The chunks and documents of one index."""

    def __init__(self, client: OpenSearchClient, index: str) -> None:
        self._client, self._index = client, index

    def refresh(self) -> None:
        """Make all changes searchable."""
        self._client.request("POST", f"/{self._index}/_refresh", seconds=WRITE_SECONDS)

    def chunks(self) -> set[int]:
        """The chunks that have a marker."""
        chunks: set[int] = set()
        body: dict[str, Any] = {
            "query": {"exists": {"field": LOADED}},
            "sort": [{LOADED: "asc"}],
            "size": PAGE_SIZE,
            "stored_fields": "_none_",
        }
        while True:
            hits = self._search(body)["hits"]["hits"]
            chunks.update(int(hit["sort"][0]) for hit in hits)
            if len(hits) < PAGE_SIZE:
                return chunks
            body["search_after"] = hits[-1]["sort"]

    def chunks_of_documents(self) -> set[int]:
        """The chunks that have documents."""
        chunks: set[int] = set()
        sources = [{"chunk": {"terms": {"field": "chunk"}}}]
        composite: dict[str, Any] = {"size": PAGE_SIZE, "sources": sources}
        body = {
            "query": EVERY_DOCUMENT_DSL,
            "size": 0,
            "aggs": {"chunks": {"composite": composite}},
        }
        while True:
            answer = self._search(body)["aggregations"]["chunks"]
            chunks.update(int(bucket["key"]["chunk"]) for bucket in answer["buckets"])
            if "after_key" not in answer:
                return chunks
            composite["after"] = answer["after_key"]

    def count(self, query: Dsl) -> int:
        """The number of searchable documents that match."""
        body = {"query": query, "size": 0, "track_total_hits": True}
        return int(self._search(body)["hits"]["total"]["value"])

    def deleted_documents(self) -> int:
        """How many deleted documents all copies of the index still hold."""
        answer = self._client.request("GET", f"/{self._index}/_stats/docs")
        return int(answer["_all"]["total"]["docs"]["deleted"])

    def _search(self, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """The answer of all shards; EngineBusy if one is not available."""
        return self._client.read(
            f"/{self._index}/_search",
            body,
            seconds=REQUEST_SECONDS,
            allow_partial_search_results=False,
            request_cache=False,
        )
