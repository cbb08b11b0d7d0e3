"""A stack whose rows are on different engines: Tantivy in a directory, or a cluster of OpenSearch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from support.index.stack import Stack
from support.opensearch.cluster import OpenSearchCluster
from support.processes.stack import USHER

LOADED = """
    select count(*) from work.placement p join work.component c on c.id = p.component_id
    where p.row = %s and p.state = 'loaded'
"""
BUILT = "select count(*) from work.chunk where index_state = 'built'"


@dataclass
class EngineRows:
    """Rows of one server each, by engine; `index` is the name of the indexes in the cluster."""

    stack: Stack
    cluster: OpenSearchCluster
    index: str
    program: Sequence[str] = USHER  # of the index servers with OpenSearch

    def engine_words(self) -> list[str]:
        """The options of an index server that uses the cluster."""
        return ["--engine", "opensearch", "--engine-url", ",".join(self.cluster.urls)]

    def start_tantivy(self, row: int) -> str:
        name = f"server-{row}-tantivy"
        self.stack.start(name, "index-server", "--row", str(row))
        return name

    def start_opensearch(self, row: int, *words: str) -> str:
        self.stack.processes.environment["USHER_ENGINE_INDEX"] = self.index
        name = f"server-{row}-opensearch"
        options = ("--row", str(row), *self.engine_words(), *words)
        self.stack.start(name, "index-server", *options, program=self.program)
        return name

    def is_complete(self, row: int) -> bool:
        """Whether the row has loaded every chunk that is built."""
        [(built,)] = self.stack.crawl.ask(BUILT)
        [(loaded,)] = self.stack.crawl.ask(LOADED, row)
        return bool(built == loaded)

    def urls(self, name: str, query: str, k: int = 10) -> list[str]:
        """The best hits of one server."""
        answer = self.stack.ask(name, "/search", {"query": query, "k": k})
        return [hit["url"] for hit in answer.get("hits", [])]

    def total(self, name: str, query: str) -> int:
        """The number of good matches that one server has."""
        return int(self.stack.ask(name, "/search", {"query": query, "k": 1}).get("total", 0))

    def overlap(self, names: tuple[str, str], queries: Iterable[str]) -> float:
        """The mean share of the first ten hits of one server that the other has too."""
        shares = []
        for query in queries:
            first, second = (set(self.urls(name, query)) for name in names)
            if first or second:
                shares.append(len(first & second) / max(len(first), len(second)))
        return sum(shares) / len(shares)
