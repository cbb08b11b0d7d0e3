"""Measures bytes and CPU time per page, query and host, by size of the installation."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import uvloop

import frame
import mgmt_contenders
from capacity_engine import engines, mixed_document, topics
from capacity_processes import (
    Crawled,
    crawled,
    directory_bytes,
    postmaster_of,
    settled,
    spent,
    table_sizes,
    total,
    tree_spent,
    written,
)
from crawl import TREES, smaller
from frame import Bench, Child, Measure
from mgmt_contenders import PEERS
from search import warm
from search_contenders import CHUNK_DOCUMENTS, SearchClient, SearchCluster, documents, queries
from usher.chunk_store import INDEX_SUFFIX, ChunkStore
from usher.db.pool import Database
from usher.db.statements import split_statements
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Reason
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import read_bind
from usher.index.document import IndexDocument

FILL = dict(split_statements(Path(__file__).with_suffix(".sql").read_text()))["pages"]
SIZES = {False: (1_000_000, 10_000_000), True: (50_000, 150_000)}
PAGES_PER_HOST = 1_000
SERVED_DOCUMENTS = {False: 20_000, True: 1_000}
ENGINE_DOCUMENTS = {False: (20_000, 200_000, 1_000_000), True: (1_000, 3_000)}
URLS, QUICK_URLS, BATCH = 100_000, 10_000, 2_000
CLAIMED, QUICK_CLAIMED = 20_000, 2_000
QUERIES, QUICK_QUERIES = 400, 60
MAX_PAGES = 5_000  # that documents are mixed from
LOAD_SECONDS = 3_600.0
# A busy machine answers late; CPU time is what counts.
FRONT = ("front", "--bind", "127.0.0.1:0", "--deadline", "20")
# Pages asked for in one claim, hosts, and pages of each host; by concurrent crawlers.
CLAIM, CRAWLERS = (10, 10, 1), 8
PER_PAGE = ("guestbook", "chunk", "placement", "anchor", "anchored_page")
PER_HOST = ("hosts", "domain", "robots", "sampled_page", "site_template")
WORLD = """crawl: `usher crawl` of Python's manual served by nginx, default settings, politeness off, from an empty
directory until every page is searchable; CPU of each process with its children and its start, PostgreSQL's with its
background processes; `mgmt` includes the watchdog, `search` the index server and the front-end. Databases:
capacity.sql, 1,000 pages a host, after VACUUM; door: half of the URLs are known, batches of 2,000, one process; claim
and settle: chunks of 10 pages of 10 hosts by 8 crawlers, statements of MGMT without HTTP; WAL includes full pages
after a checkpoint. Queries: one to three words of titles and headings, ten results with passages, one client; documents
are mixed from real pages; one index server and one front-end, then the engine of an index server alone"""


def short(number: int) -> str:
    return f"{number // 10**6} M" if number >= 10**6 else f"{number // 1000} k"


# -- a whole crawl


def crawl(bench: Bench, home: Path) -> Iterator[Measure]:
    """Measure each role's CPU time and bytes for one page, with real pages."""
    tree = next((Path(name) for name in TREES if Path(name).is_dir()), None)
    if tree is None:
        bench.note("no whole crawl: apt-get install python3.11-doc nginx-light")
        return
    bench.say("crawling")
    ran = crawled(smaller(tree, home / "tree") if bench.quick else tree, home)
    bench.note(
        f"crawl of {ran.pages} searchable pages in {ran.seconds:.0f} s; rows: {dict(ran.rows)}"
    )
    for name, seconds in sorted(ran.cpu.items()):
        yield Measure(f"crawl: CPU of the process {name}", "ms/page", 1000 * seconds / ran.pages)
    yield from crawl_bytes(ran)


def crawl_bytes(ran: Crawled) -> Iterator[Measure]:
    for name, number in {
        "content chunks, until every row has them": ran.content_bytes,
        "index chunks, until every row has them": ran.chunk_bytes,
        "index of one row": ran.index_bytes,
    }.items():
        yield Measure(f"crawl: {name}", "bytes/page", number / ran.pages)
    for name in (*PER_PAGE, *PER_HOST):
        rows = sum(ran.tables.get(name, (0, 0)))
        yield Measure(f"crawl: table {name} with indexes", "bytes/page", rows / ran.pages)


# -- databases of several sizes


def filled(dsn: str, pages: int, *, texts: int = 2, samples: int = 32) -> None:
    """Fill in pages, texts of links to each, and sampled pages of each host."""
    hosts = pages // PAGES_PER_HOST
    given = {"hosts": hosts, "rows": pages, "days": -1, "texts": texts, "samples": samples}
    script = re.sub(r"(?<!:):([a-z_]+)\b", lambda name: str(given[name[1]]), FILL)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(mgmt_contenders.text("hosts", given))
        conn.execute("update work.settings set max_pages = 1000000000")
        conn.execute(script.encode())
        conn.execute("vacuum (freeze, analyze)")
        conn.execute("checkpoint")


def sizes(dsn: str, pages: int) -> Iterator[Measure]:
    """Bytes of each table, with its indexes, for one page or host."""
    found, hosts = table_sizes(dsn), pages // PAGES_PER_HOST
    for name in PER_PAGE:
        table, indexes = found[name]
        yield Measure(f"table {name}, {short(pages)} pages", "bytes/page", table / pages)
        yield Measure(f"indexes of {name}, {short(pages)} pages", "bytes/page", indexes / pages)
    for name in PER_HOST:
        yield Measure(
            f"table {name} with indexes, {short(pages)} pages",
            "bytes/host",
            sum(found[name]) / hosts,
        )
    yield Measure(
        f"all tables, {short(pages)} pages", "bytes/page", total(found, list(found)) / pages
    )


class Account:
    """CPU time of PostgreSQL and of one client, and WAL, since the last look."""

    def __init__(self, dsn: str, client: int) -> None:
        self.dsn, self.client, self.postgres = dsn, client, postmaster_of(dsn)
        self.before = self._now()

    def _now(self) -> tuple[float, float, float]:
        return tree_spent(self.postgres), spent(self.client), written(self.dsn)

    def measures(self, name: str, unit: str, number: int) -> Iterator[Measure]:
        postgres, client, wal = (
            after - before for after, before in zip(self._now(), self.before, strict=True)
        )
        yield Measure(f"{name}: CPU of PostgreSQL", f"µs/{unit}", 1e6 * postgres / number)
        yield Measure(f"{name}: CPU of the Python process", f"µs/{unit}", 1e6 * client / number)
        yield Measure(f"{name}: WAL", f"bytes/{unit}", wal / number)


async def door(bench: Bench, dsn: str, pages: int) -> list[Measure]:
    """Measure the door with URLs of which half are known."""
    urls = QUICK_URLS if bench.quick else URLS
    with psycopg.connect(dsn) as conn:
        [(hosts,)] = conn.execute("select array_agg(name order by id) from work.hosts")
    known = [
        f"https://{hosts[n % len(hosts)]}/documentation/release-{n % 9}/{n:08x}-a-page.html"
        for n in range(0, pages, 2 * pages // urls)
    ]
    new = [url.replace("-a-page", "-new") for url in known]
    mixed = [url for pair in zip(known, new, strict=True) for url in pair]
    async with Database(dsn) as db:
        keeper = Doorkeeper(db)
        await knocked(keeper, [f"https://{host}/" for host in hosts])  # so that it knows the hosts
        account = Account(dsn, client=_self())
        counts = await knocked(keeper, mixed)
        old = counts[Reason.PAGE_NOT_DUE] + counts[Reason.ALREADY_WAITING]
        if (counts[Reason.NEW_PAGE], old) != (len(new), len(known)):
            raise RuntimeError(f"the door answered {counts}")
        return list(account.measures(f"door, {short(pages)} pages", "URL", len(mixed)))


def _self() -> int:
    return int(Path("/proc/self").readlink().name)


async def knocked(keeper: Doorkeeper, urls: list[str]) -> Counter[str]:
    counts = Counter[str]()
    async for answers in keeper.stream(urls[at : at + BATCH] for at in range(0, len(urls), BATCH)):
        counts.update(answers.counts())
    return counts


def claims(bench: Bench, dsn: str, pages: int) -> list[Measure]:
    """Measure claimed and settled pages."""
    number = QUICK_CLAIMED if bench.quick else CLAIMED
    child = Child(sys.executable, PEERS, "usher", dsn)
    try:
        child.ask("work", 200, CRAWLERS, *CLAIM)  # plans and connections
        account = Account(dsn, client=child.process.pid)
        began = time.monotonic()
        child.ask("work", number, CRAWLERS, *CLAIM)
        bench.note(
            f"{short(pages)} pages: {number / (time.monotonic() - began):,.0f} pages/s claimed and settled"
        )
        return list(account.measures(f"claim and settle, {short(pages)} pages", "page", number))
    finally:
        child.end()


async def databases(bench: Bench) -> list[Measure]:
    found: list[Measure] = []
    for pages in SIZES[bench.quick]:
        async with frame.database() as dsn:
            began = time.monotonic()
            bench.say(f"filling in {short(pages)} pages")
            filled(dsn, pages)
            bench.say(f"took {time.monotonic() - began:.0f} s")
            found += sizes(dsn, pages)
            found += await door(bench, dsn, pages)
            found += claims(bench, dsn, pages)
    return found


# -- queries


async def searches(bench: Bench, home: Path, pages: Sequence[IndexDocument]) -> list[Measure]:
    """Measure one index server and one front-end."""
    given, number = topics(pages), SERVED_DOCUMENTS[bench.quick]
    found = [mixed_document(given, at) for at in range(number)]
    store = ChunkStore(home / "built", INDEX_SUFFIX)
    texts = queries(pages, 2 * (QUICK_QUERIES if bench.quick else QUERIES))
    async with (
        serve_component(chunk_endpoints(store, "/index_chunk"), read_bind("127.0.0.1:0")) as here,
        AsyncExitStack() as ends,
    ):
        cluster = ends.enter_context(SearchCluster(home / "cluster").open())
        await cluster.fill(found, store, here.removeprefix("http://"))
        began = time.monotonic()
        await asyncio.to_thread(cluster.row, 1, LOAD_SECONDS)
        bench.say(f"{number} documents loaded in {time.monotonic() - began:.0f} s")
        server = cluster.processes["server-1-0"].pid
        loading = tree_spent(server)
        front = await asyncio.to_thread(cluster.start, "front", *FRONT)
        return await queried(cluster, front, server, loading, number, texts)


async def queried(
    cluster: SearchCluster, front: str, server: int, loading: float, number: int, texts: list[str]
) -> list[Measure]:
    asker, of = SearchClient(front), f"{short(number)} documents"
    try:
        await warm(asker)
        await settled(server)
        half = len(texts) // 2
        await asker.one_by_one(texts[:half])
        pids = {"index server": server, "front-end": cluster.processes["front"].pid}
        before = {name: tree_spent(pid) for name, pid in pids.items()}
        times = sorted(await asker.one_by_one(texts[half:]))
        used = {name: tree_spent(pid) - before[name] for name, pid in pids.items()}
    finally:
        asker.close()
    index = directory_bytes(cluster.home / "index")
    return [
        Measure(f"index, {of}", "bytes/document", index / number),
        Measure(f"loading: CPU of an index server, {of}", "ms/document", 1000 * loading / number),
        *(
            Measure(f"query: CPU of the {name}, {of}", "ms/query", 1000 * seconds / half)
            for name, seconds in used.items()
        ),
        Measure(f"query p50, {of}", "ms", 1000 * times[half // 2]),
        Measure(f"query p99, {of}", "ms", 1000 * times[half * 99 // 100]),
    ]


def run(bench: Bench) -> list[Measure]:
    """Measure bytes and CPU time per page, host, URL and query; docs/capacity.md calculates with them."""
    bench.note(" ".join(WORLD.split()))
    bench.note(f"index chunks of {CHUNK_DOCUMENTS} documents")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, frame.scratch() as home:
        found = list(crawl(bench, home))
        pages, origin = documents(MAX_PAGES, frame.PEERS)
        bench.note(f"documents mixed from {origin}")
        found += runner.run(searches(bench, home, pages))
        texts = queries(pages, 2 * (QUICK_QUERIES if bench.quick else QUERIES))
        found += engines(bench, home, pages, texts, ENGINE_DOCUMENTS[bench.quick])
        return found + runner.run(databases(bench))


if __name__ == "__main__":
    frame.main("capacity", run)
