"""Compares the relevance of results with FTS5, Tantivy and bm25s on judged collections and on manuals with an index."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import frame
from frame import Bench, Measure
from relevance_collections import (
    COLLECTIONS,
    MRR_HITS,
    RECALL_HITS,
    Collection,
    Judgements,
    Manual,
    collections,
    is_index,
    manuals,
    ndcg,
    recall,
    reciprocal_rank,
)
from relevance_contenders import (
    Bm25sSearcher,
    Fts5Searcher,
    Searcher,
    TantivySearcher,
    UsherSearcher,
    usher_searcher,
)

TERMS, QUICK_TERMS = 1_000, 250  # of the index of a manual
LATENCY_HITS = 10
TARGETS = """targets: nDCG@10 of each collection at least that of the best peer and 1.03 times on average; no empty
answers; MRR@10 at least .93 (Python manual) and .85 (PostgreSQL manual)"""
WORLD = """ours: the engine of an index server and the merge of a front-end in this process; one server. Queries are
sent as they are. FTS5, Tantivy and bm25s search for any of the words with their default BM25: FTS5 in the columns
title, headings and body, Tantivy and bm25s in one text. A term is an entry of the manual's own index whose links all
lead to one page. For FTS5 the manuals have all of their visible text and no index pages; for Usher they are as a
crawl reads them: main text, sections, anchor texts, and index pages too"""

Score = Callable[[Sequence[str], Judgements], float]
Rankings = dict[str, list[list[str]]]  # one ranking per query, by contender


def run(bench: Bench) -> list[Measure]:
    measures: list[Measure] = []
    with frame.scratch() as home:
        if not COLLECTIONS.exists():
            bench.note(
                f"no judged collections: {COLLECTIONS.relative_to(frame.ROOT.parent)} is absent"
            )
        for collection in collections():
            measures += measure_collection(bench, collection, home / collection.name)
        for manual in manuals(QUICK_TERMS if bench.quick else TERMS, frame.PEERS):
            measures += measure_manual(bench, manual, home / manual.name)
    if ratios := [m.ratio_to_best_peer for m in measures if m.name.startswith("nDCG")]:
        mean = statistics.mean(ratio or 0.0 for ratio in ratios)
        bench.note(f"nDCG@10 on average {mean:.3f} times the best peer of each collection")
    for words in (TARGETS, WORLD):
        bench.note(" ".join(words.split()))
    return measures


def measure_collection(bench: Bench, collection: Collection, home: Path) -> list[Measure]:
    """Relevance on a judged collection, and the time of a query."""
    home.mkdir()
    pages, name = collection.documents, collection.name
    texts = [query.text for query in collection.queries]
    with usher_searcher(home / "usher", pages) as usher:
        peers: dict[str, Searcher] = {
            "fts5": Fts5Searcher(pages, "unicode61"),
            "fts5 porter": Fts5Searcher(pages, "porter unicode61"),
            "tantivy": TantivySearcher(home / "plain", pages, "default"),
            "tantivy en_stem": TantivySearcher(home / "stemmed", pages, "en_stem"),
        }
        try:
            peers["bm25s"] = Bm25sSearcher(pages, texts, RECALL_HITS)
        except frame.PeerMissing as error:
            bench.note(str(error))
        rankings = rank_all({"usher": usher, **peers}, texts, RECALL_HITS)
        times = frame.interleaved(
            {
                "usher": lambda: median_ms(usher, texts),
                "limit": lambda: median_ms(peers["tantivy en_stem"], texts),
            },
            bench.repeats,
        )
    bench.say(f"{name}: {len(pages)} documents, {len(texts)} queries")
    empty = {who: float(sum(not hits for hits in ranked)) for who, ranked in rankings.items()}
    return [
        scored(f"nDCG@10, {name}", collection, rankings, ndcg),
        scored(f"recall@{RECALL_HITS}, {name}", collection, rankings, recall),
        Measure(f"empty answers, {name}", "queries", empty.pop("usher"), empty),
        frame.measured(f"engine query p50, {name}", "ms", times),
    ]


def measure_manual(bench: Bench, manual: Manual, home: Path) -> list[Measure]:
    """How high the pages rank that the index of a manual names for its terms, and what single queries find."""
    home.mkdir()
    name = manual.name
    texts = [query.text for query in manual.queries]
    with usher_searcher(home / "usher", manual.documents) as usher:
        searchers: dict[str, Searcher] = {
            "usher": usher,
            "fts5": Fts5Searcher(manual.peer_pages, "unicode61"),
            "fts5 porter": Fts5Searcher(manual.peer_pages, "porter unicode61"),
        }
        rankings = rank_all(searchers, texts, MRR_HITS)
        answered = [
            say_first(bench, usher, text, wanted) for text, wanted in manual.single_queries.items()
        ]
    bench.say(f"{name}: {len(manual.documents)} pages, {len(texts)} entries")
    return [
        scored(f"MRR@{MRR_HITS}, {name}", manual, rankings, reciprocal_rank),
        Measure(f"single queries with a wrong answer, {name}", "queries", answered.count(False)),
    ]


def say_first(bench: Bench, usher: UsherSearcher, text: str, wanted: str) -> bool:
    """Print the first result of a query; whether its page or its first section is the wanted one."""
    first = usher.first(text)
    is_right = bool(re.search(wanted, first)) and not is_index(first)
    bench.say(f"{'right' if is_right else 'WRONG'}: {text} -> {first}")
    return is_right


def rank_all(searchers: dict[str, Searcher], texts: Sequence[str], limit: int) -> Rankings:
    return {
        who: [searcher.search(text, limit) for text in texts] for who, searcher in searchers.items()
    }


def scored(name: str, collection: Collection, rankings: Rankings, score: Score) -> Measure:
    """The mean score of each contender."""
    grades = [query.grades for query in collection.queries]
    means = {who: statistics.mean(map(score, ranked, grades)) for who, ranked in rankings.items()}
    return Measure(name, "", means.pop("usher"), means, better="higher")


def median_ms(searcher: Searcher, texts: Sequence[str]) -> float:
    times = []
    for text in texts:
        began = time.perf_counter()
        searcher.search(text, LATENCY_HITS)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


if __name__ == "__main__":
    frame.main("relevance", run)
