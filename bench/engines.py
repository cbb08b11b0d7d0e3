"""Compares what may replace Usher's own storage: OpenSearch with Tantivy, and object storage with local files."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import chunk_store
import frame
from engines_contenders import (
    EngineContender,
    OpenSearchContender,
    PlainOpenSearch,
    TantivyContender,
    opensearch_cluster,
)
from frame import Bench, Measure
from relevance_collections import COLLECTIONS, collections, ndcg
from search_contenders import documents, queries
from usher.index.document import IndexDocument

DOCUMENTS, QUICK_DOCUMENTS = 20_000, 500
QUERIES, QUICK_QUERIES = 200, 15  # of each repeat, all different
QUICK_JUDGED_QUERIES = 60
QUICK_COLLECTION = "cranfield"
# A chunk of 50 pages has about 2 MB. `chunk_store` measures more sizes.
QUICK_FILES: Sequence[chunk_store.FileSize] = (("2 MB files", 10, 2_000_000),)
FILES: Sequence[chunk_store.FileSize] = (
    ("100 kB files", 1_000, 100_000),
    ("2 MB files", 200, 2_000_000),
)
NDCG_HITS = 10
TARGETS = """targets: overlap@10 of both engines at least .85; nDCG@10 of each collection within 5 % of each other"""
WORLD = """the engines as the loader and the handlers of an index server call them, in this process: chunks of 50
documents, a commit after each 32, queries of one to three neighbouring words of a title or heading, one after the
other, with ten hits, snippets and hosts. `usher` is the engine for OpenSearch, the peer the one for Tantivy. OpenSearch
has three nodes on this machine with 768 MB each, three shards with one replica, and without `--quick`
both compilers of the JVM. The limit is the same
cluster used directly: an index with the title, headings and body in its standard analyzer, bulk requests of 50, and
`multi_match` with ten stored titles, without snippets and totals"""


def run(bench: Bench) -> list[Measure]:
    with (
        frame.scratch() as home,
        opensearch_cluster(home / "cluster", fast=not bench.quick) as cluster,
    ):
        contenders: dict[str, EngineContender] = {
            "usher": OpenSearchContender(cluster, home / "opensearch"),
            "tantivy": TantivyContender(home / "tantivy"),
            "limit": PlainOpenSearch(cluster),
        }
        try:
            measures = [*measure_speed(bench, contenders), *measure_relevance(bench, contenders)]
        finally:
            for contender in contenders.values():
                contender.close()
    measures += measure_chunk_files(bench)
    for words in (TARGETS, WORLD):
        bench.note(" ".join(words.split()))
    return measures


def measure_speed(bench: Bench, contenders: dict[str, EngineContender]) -> list[Measure]:
    """Documents a second, query times, and the overlap of the hits."""
    pages, origin = documents(QUICK_DOCUMENTS if bench.quick else DOCUMENTS, frame.PEERS)
    bench.note(f"{len(pages)} documents of {origin}")
    rates = frame.interleaved(
        {name: partial(fill_rate, contender, pages) for name, contender in contenders.items()},
        1 if bench.quick else 3,
    )
    number = QUICK_QUERIES if bench.quick else QUERIES
    texts = iter(queries(pages, number * (bench.repeats + 1)))
    warm = [next(texts) for _ in range(number)]
    overlaps = [overlap(contenders, text) for text in warm]
    for contender in contenders.values():
        query_times(contender, warm)
    times: dict[int, dict[str, list[float]]] = {50: defaultdict(list), 99: defaultdict(list)}
    for _ in range(bench.repeats):
        asked = [next(texts) for _ in range(number)]
        for name, contender in contenders.items():
            took = sorted(query_times(contender, asked))
            for part, figures in times.items():
                figures[name].append(1000 * took[min(len(took) - 1, len(took) * part // 100)])
    return [
        frame.measured("documents into the index", "/s", rates, better="higher"),
        *(frame.measured(f"query p{part}", "ms", figures) for part, figures in times.items()),
        Measure("overlap@10 with Tantivy", "", statistics.mean(overlaps), better="higher"),
    ]


def fill_rate(contender: EngineContender, pages: Sequence[IndexDocument]) -> float:
    """The documents a second into an empty index, with the last commit."""
    contender.clear()
    began = time.perf_counter()
    contender.fill(pages)
    return len(pages) / (time.perf_counter() - began)


def query_times(contender: EngineContender, texts: Sequence[str]) -> Iterator[float]:
    for text in texts:
        began = time.perf_counter()
        contender.search(text)
        yield time.perf_counter() - began


def overlap(contenders: dict[str, EngineContender], text: str) -> float:
    """The share of Tantivy's first ten that OpenSearch has too."""
    first, second = (set(contenders[name].search(text)) for name in ("tantivy", "usher"))
    return len(first & second) / len(first) if first else float(not second)


def measure_relevance(bench: Bench, contenders: dict[str, EngineContender]) -> list[Measure]:
    """nDCG@10 of both engines on the judged collections."""
    if not COLLECTIONS.exists():
        bench.note("no judged collections: ../shared/corpora/ir is absent")
    measures = []
    for collection in collections():
        if bench.quick and collection.name != QUICK_COLLECTION:
            continue
        judged = collection.queries[: QUICK_JUDGED_QUERIES if bench.quick else None]
        means = {}
        for name in ("usher", "tantivy"):
            contenders[name].clear()
            contenders[name].fill(collection.documents)
            means[name] = statistics.mean(
                ndcg(contenders[name].search(query.text), query.grades) for query in judged
            )
        name = f"nDCG@{NDCG_HITS}, {collection.name}"
        measures.append(Measure(name, "", means.pop("usher"), means, better="higher"))
    return measures


def measure_chunk_files(bench: Bench) -> list[Measure]:
    """Uploads and downloads of chunk files with S3; nothing without a server."""
    try:
        return chunk_store.measure_transfers(bench, QUICK_FILES if bench.quick else FILES)
    except frame.PeerMissing as missing:
        bench.note(f"no object storage: {missing}")
        return []


if __name__ == "__main__":
    frame.main("engines", run)
