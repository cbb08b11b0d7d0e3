"""The contenders of bench/engines.py: both engines of an index server, and OpenSearch used directly."""

import http.client
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import frame
from search_contenders import CHUNK_DOCUMENTS
from usher.index.document import IndexDocument
from usher.index.engine import Engine
from usher.index.loader import CHUNKS_PER_COMMIT
from usher.index.opensearch.opensearch_engine import OpenSearchEngine
from usher.index.opensearch.options import OpenSearchOptions
from usher.index.tantivy_engine import TantivyEngine
from usher.query.language import parse_query
from usher.search.merge import merge

sys.path.append(str(frame.ROOT / "tests"))  # the cluster of the tests
from support.opensearch.cluster import OpenSearchCluster
from support.opensearch.fixtures import own_cluster
from support.opensearch.installation import find_installation

HITS = 10
HEAP_MB = 768
SHARDS, REPLICAS = 3, 1


class EngineContender(Protocol):
    """An index that can be filled, searched and emptied."""

    def clear(self) -> None:
        """Begin with an empty index."""

    def fill(self, documents: Sequence[IndexDocument]) -> None:
        """Index documents and make them searchable."""

    def search(self, text: str) -> list[str]:
        """The URLs of the best ten."""

    def close(self) -> None:
        """Stop what runs in this process."""


@contextmanager
def opensearch_cluster(directory: Path, *, fast: bool) -> Iterator[OpenSearchCluster]:
    """Run three nodes; PeerMissing without Maven and a JDK."""
    installation = find_installation()
    if installation is None:
        raise frame.PeerMissing(
            "OpenSearch is not available: scripts/opensearch needs Maven and a JDK"
        )
    with own_cluster(installation, directory, heap_mb=HEAP_MB, fast=fast) as cluster:
        yield cluster


class EngineOfIndexServer:
    """An engine, used as the loader and the handlers of queries do."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self._numbers = count(1)

    def new_engine(self, number: int) -> Engine:
        """Open an empty engine."""
        raise NotImplementedError

    def clear(self) -> None:
        self.close()
        self.engine = self.new_engine(next(self._numbers))

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()

    def fill(self, documents: Sequence[IndexDocument]) -> None:
        assert self.engine is not None  # noqa: S101 - it was cleared
        chunks = chunked(documents)
        for number, chunk in enumerate(chunks, 1):
            self.engine.add(number, chunk)
            if number % CHUNKS_PER_COMMIT == 0 or number == len(chunks):
                self.engine.commit()

    def search(self, text: str) -> list[str]:
        assert self.engine is not None  # noqa: S101 - it was cleared
        hits = self.engine.search(parse_query(text), HITS, hosts=True, show=HITS)
        return [merged.hit.url for merged in merge({"server": hits}, k=HITS).hits]


class TantivyContender(EngineOfIndexServer):
    """The engine in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def new_engine(self, number: int) -> Engine:
        shutil.rmtree(self.directory, ignore_errors=True)
        return TantivyEngine.open(self.directory / str(number))


class OpenSearchContender(EngineOfIndexServer):
    """The engine in a cluster."""

    def __init__(self, cluster: OpenSearchCluster, directory: Path) -> None:
        super().__init__()
        self.cluster, self.directory = cluster, directory
        directory.mkdir()

    def new_engine(self, number: int) -> Engine:
        self.cluster.ask("/usher-*", method="DELETE")
        urls = ",".join(self.cluster.urls)
        options = OpenSearchOptions(
            url=urls, index=f"usher-{number}", shards=SHARDS, replicas=REPLICAS
        )
        return OpenSearchEngine.open(options, directory=self.directory, host="127.0.0.1:1")


class PlainOpenSearch:
    """OpenSearch with an index as most applications create it, without Usher."""

    def __init__(self, cluster: OpenSearchCluster) -> None:
        self.cluster = cluster
        self.connection = http.client.HTTPConnection("127.0.0.1", cluster.nodes[0].port)

    def clear(self) -> None:
        self.cluster.ask("/plain?ignore_unavailable=true", method="DELETE")
        text, keyword = {"type": "text"}, {"type": "keyword"}
        fields = {"title": text, "headings": text, "body": text, "url": keyword}
        settings = {"number_of_shards": SHARDS, "number_of_replicas": REPLICAS}
        body = {"settings": settings, "mappings": {"properties": fields}}
        self.cluster.ask("/plain", body, method="PUT")
        self.cluster.ask("/_cluster/health/plain?wait_for_status=green")

    def fill(self, documents: Sequence[IndexDocument]) -> None:
        for chunk in chunked(documents):
            lines = []
            for page in chunk:
                lines.append('{"index": {}}')
                names = ("title", "headings", "body", "url")
                lines.append(json.dumps({name: getattr(page, name) for name in names}))
            self._ask("/plain/_bulk", "\n".join(lines) + "\n")
        self.cluster.ask("/plain/_refresh", {})

    def close(self) -> None:
        self.connection.close()

    def search(self, text: str) -> list[str]:
        query = {"multi_match": {"query": text, "fields": ["title^2", "headings", "body"]}}
        body = {"query": query, "size": HITS, "_source": ["url", "title"]}
        answer = self._ask("/plain/_search", json.dumps(body))
        return [hit["_source"]["url"] for hit in answer["hits"]["hits"]]

    def _ask(self, path: str, body: str) -> Any:  # noqa: ANN401 - JSON
        """Send a request on the one connection."""
        self.connection.request("POST", path, body.encode(), {"Content-Type": "application/json"})
        return json.loads(self.connection.getresponse().read())


def chunked(documents: Sequence[IndexDocument]) -> list[Sequence[IndexDocument]]:
    return [
        documents[start : start + CHUNK_DOCUMENTS]
        for start in range(0, len(documents), CHUNK_DOCUMENTS)
    ]
