"""Compares index and search with Tantivy used directly: documents and queries a second, and query times."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import uvloop

import frame
from frame import Bench, Measure
from search_contenders import (
    CHUNK_DOCUMENTS,
    Crawl,
    SearchClient,
    SearchCluster,
    documents,
    queries,
)
from search_limit import TantivyDirect
from usher.chunk_store import INDEX_SUFFIX, ChunkStore
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import read_bind

DOCUMENTS, QUICK_DOCUMENTS = 20_000, 3_000
QUERIES, QUICK_QUERIES = 400, 80  # of each repeat, all different
CLIENTS = 8
SERVERS = (1, 3)
MOST_ATTEMPTS = 100
SETTLE_SECONDS = 10  # in which a new front-end loads the statistics of common words
TARGETS = """targets: at least 0.5 times the documents a second of Tantivy used directly; query p50 at most 5 ms more
than its; a whole stack that crawled 20,000 documents under 1 GB"""
WORLD = """ours: `usher mgmt`, `usher watchdog`, `usher index-server`s and `usher front` as processes around the
embedded PostgreSQL, all on this machine; index chunks of 50 documents are on the chunk_store of a builder that the
bench plays. Documents a second are those that a server pulls over HTTP, checks, adds, commits and reports, from its
first commit to its last, with all its fields and stored texts. Queries go to /search.json, one to three neighbouring
words of a title or heading: ten results with passages, the hosts they are on, and totals; every repeat asks new ones.
Before that, a front-end of several servers is given 10 seconds to learn the statistics of common words, in which they
also merge their segments. The limit is Tantivy in the bench's own process: four text fields, the default tokenizer,
title, body and URL stored, one writer thread with the same heap that commits as often; its queries fetch ten
documents and make a passage of each. With the same fields, it gets up to 3,000 prepared documents of an index server:
exact words, stems, stored texts"""
Figures = dict[str, dict[str, list[float]]]


def run(bench: Bench) -> list[Measure]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, frame.scratch() as home:
        measures = runner.run(measured(bench, home))
        if not bench.quick:
            measures += whole_stack(bench, home)
    for words in (TARGETS, WORLD):
        bench.note(" ".join(words.split()))
    return measures


async def measured(bench: Bench, home: Path) -> list[Measure]:
    number = QUICK_DOCUMENTS if bench.quick else DOCUMENTS
    found, origin = documents(number, frame.PEERS)
    length = statistics.mean(len(one.body) for one in found)
    bench.note(f"{len(found)} documents of {length:,.0f} characters: {origin}")
    asked = iter(queries(found, 2 * len(SERVERS) * bench.repeats * of_each(bench)))
    chunk_store, direct = ChunkStore(home / "built", INDEX_SUFFIX), TantivyDirect(home / "direct")
    figures: Figures = defaultdict(lambda: defaultdict(list))
    async with serve_component(
        chunk_endpoints(chunk_store, "/index_chunk"), read_bind("127.0.0.1:0")
    ) as address:
        with SearchCluster(home / "cluster").open() as cluster:
            await cluster.fill(found, chunk_store, address.removeprefix("http://"))
            for repeat in range(bench.repeats):
                if repeat:
                    await asyncio.to_thread(cluster.leave, cluster.rows)
                figures["same"]["limit"].append(await asyncio.to_thread(direct.fill_same, found))
                figures["index"]["limit"].append(await asyncio.to_thread(direct.fill, found))
                figures["index"]["usher"].append(
                    CHUNK_DOCUMENTS * await asyncio.to_thread(cluster.row, 1)
                )
                figures["same"]["usher"].append(figures["index"]["usher"][-1])
            for servers in SERVERS:
                if servers > 1:  # the last one still runs
                    await asyncio.to_thread(cluster.leave, cluster.rows)
                    await asyncio.to_thread(cluster.row, servers)
                await search(cluster, direct, servers, asked, bench, figures)
    return shown(figures)


def of_each(bench: Bench) -> int:
    return QUICK_QUERIES if bench.quick else QUERIES


async def search(
    cluster: SearchCluster,
    direct: TantivyDirect,
    servers: int,
    asked: Iterator[str],
    bench: Bench,
    figures: Figures,
) -> None:
    """Measure queries to a front-end with this number of servers, alternating with Tantivy."""
    address = await asyncio.to_thread(cluster.start, "front", "front", "--bind", "127.0.0.1:0")
    asker = SearchClient(address)
    try:
        await warm(asker)
        if servers > 1:
            await asyncio.sleep(SETTLE_SECONDS)
        for _ in range(bench.repeats):
            texts = list(islice(asked, of_each(bench)))
            ours = await asker.one_by_one(texts)
            alone = await asyncio.to_thread(direct.one_by_one, texts)
            for part in (50, 99):
                figures[f"p{part} {servers}"]["usher"].append(1000 * percentile(ours, part))
                figures[f"p{part} {servers}"]["limit"].append(1000 * percentile(alone, part))
            many = list(islice(asked, of_each(bench)))
            figures[f"rate {servers}"]["usher"].append(await asker.together(many, CLIENTS))
            figures[f"rate {servers}"]["limit"].append(len(alone) / sum(alone))
    finally:
        asker.close()
        await asyncio.to_thread(cluster.end, "front")


async def warm(asker: SearchClient) -> None:
    """Wait until the front-end has a map of servers that answer."""
    for attempt in count():
        try:
            await asker.one_by_one(["the", "a", "first", "page"] * 5)
        except RuntimeError:
            if attempt > MOST_ATTEMPTS:
                raise
            await asyncio.sleep(0.1)
        else:
            return


def percentile(values: Sequence[float], part: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * part // 100)]


def shown(figures: Figures) -> list[Measure]:
    measures = [
        frame.measured("documents into an index server", "/s", figures["index"], better="higher"),
        frame.measured(
            "the same, beside Tantivy with the same fields", "/s", figures["same"], better="higher"
        ),
    ]
    for servers in SERVERS:
        of = f"{servers} server{'s' * (servers > 1)}"
        measures += [
            frame.measured(f"query p{part}, {of}", "ms", figures[f"p{part} {servers}"])
            for part in (50, 99)
        ]
        name = f"queries of {CLIENTS} clients, {of}"
        measures.append(frame.measured(name, "/s", figures[f"rate {servers}"], better="higher"))
    return measures


def whole_stack(bench: Bench, home: Path) -> list[Measure]:
    """Measure memory and speed of `usher crawl`."""
    if shutil.which("nginx") is None:
        bench.note("no whole crawl: apt-get install nginx-light")
        return []
    found, _ = documents(DOCUMENTS, frame.PEERS)
    said, ran = Crawl(home, found).run()
    bench.note(f"usher crawl of {DOCUMENTS} pages: {said}")
    bench.note(f"CPU seconds: { ({name: round(used) for name, used in ran.by_process.items()}) }")
    return [
        Measure("whole stack: peak memory (PSS)", "MB", ran.megabytes),
        Measure("whole stack: pages fetched and findable", "/s", ran.rate, better="higher"),
    ]


if __name__ == "__main__":
    frame.main("search", run)
