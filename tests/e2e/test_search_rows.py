"""Rows of index servers behind a front-end: results stay complete while servers are killed and come back."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.index.bulk_documents import EACH, Texts, stocked
from support.index.query_load import FrontEndClient, under_load
from support.index.rows import Chunks, filled
from support.index.stack import Stack, running_stack
from support.processes.crawls import EMBEDDED
from support.processes.stack import USHER
from usher.query.language import parse_query
from usher.search.merge import merge

pytestmark = EMBEDDED
ROWS, SERVERS = 2, 3
GRACE = 3.0  # seconds
WATCHDOG = ("--every", "0.5", "--misses", "2", "--probation", "0.5", "--grace", str(GRACE))
LOOK = 0.4  # seconds: checking takes time from the servers
QUERIES = 200
CHUNKS = int(os.environ.get("SEARCH_CHUNKS", "80"))  # 50 documents each; 400 takes three minutes
SEATS = """
    select c.host, p.row, p.chunk_id from work.placement p join work.component c on c.id = p.component_id
    where p.state = 'loaded'
"""
UNSETTLED = "select count(*) from work.placement where state <> 'loaded'"
Seats = dict[tuple[int, int], str]  # of a chunk in a row, the server


class Hall:
    """The running stack, and what its rows hold."""

    def __init__(self, stack: Stack, documents: int) -> None:
        self.stack, self.documents = stack, documents

    def seats(self) -> Seats:
        return {(chunk, row): host for host, row, chunk in self.stack.crawl.ask(SEATS)}

    def in_row(self, row: int) -> Counter[str]:
        """How many chunks each of its servers has."""
        return Counter(host for (_, at), host in self.seats().items() if at == row)

    def found(self, row: int) -> int:
        """How many documents the servers of a row that answer have, together."""
        found = 0
        for name in self.stack.row(row):
            if self.stack.processes.running[name].poll() is None:
                told = self.stack.ask(name, "/search", {"query": "everywhere", "k": 1})
                found += told.get("total", 0)
        return found

    def whole(self, row: int) -> bool:
        try:
            return self.found(row) == self.documents
        except (OSError, AssertionError):
            return False

    def balanced(self) -> bool:
        """Every row whole, its chunks evenly spread, and nothing on its way."""
        even = all(
            len(counts) == len(self.stack.row(row))
            and max(counts.values()) - min(counts.values()) <= 1
            for row in range(1, ROWS + 1)
            if (counts := self.in_row(row))
        )
        settled = self.stack.crawl.ask(UNSETTLED) == [(0,)]
        return even and settled and all(self.whole(row) for row in range(1, ROWS + 1))

    def host(self, name: str) -> str:
        return f"127.0.0.1:{self.stack.crawl.ports[name]}"


async def becomes(true: Callable[[], bool], seconds: float, hall: Hall) -> float:
    """How long it takes until it is true."""
    began = time.monotonic()
    while not await asyncio.to_thread(true):
        held = (hall.in_row(1), hall.in_row(2))
        assert time.monotonic() - began < seconds, (held, hall.stack.crawl.log[-3000:])
        await asyncio.sleep(LOOK)
    return time.monotonic() - began


@asynccontextmanager
async def rows_of(
    dsn: str, directory: Path, texts: Texts, chunks: int
) -> AsyncIterator[tuple[Hall, FrontEndClient, Chunks]]:
    """Two rows of three servers with so many chunks, a watchdog and a front-end."""
    with running_stack(dsn, directory, chunk_wait=0, chunk_pages=EACH) as stack:
        stack.servers(rows=ROWS, each=SERVERS)
        stack.start("front", "front", "--deadline", "5")
        stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        documents = texts.documents(chunks)
        hall = Hall(stack, len(documents))
        async with stocked(f"http://127.0.0.1:{stack.crawl.port}", directory / "built") as stock:
            await stock.fill(documents)
            assert len(stock.chunks) == chunks
            await becomes(hall.balanced, 60 + chunks / 10, hall)
            client = FrontEndClient(stack.crawl.ports["front"])
            try:
                yield hall, client, stock.chunks
            finally:
                client.close()


async def agreement(
    hall: Hall, client: FrontEndClient, path: Path, chunks: Chunks, queries: list[str]
) -> dict[str, int]:
    """How many documents each query finds in one big index, whose first ten the rows agree with."""
    engine = await asyncio.to_thread(filled, path, chunks)
    totals, overlaps = {}, []
    for query in queries:
        alone = merge({"": engine.search(parse_query(query), 100)}, k=10)
        expected = {one.hit.url for one in alone.hits}
        found = {one.url for one in (await client.ask(query)).results}
        totals[query] = alone.total
        overlaps.append(len(found & expected) / max(len(expected), 1) if expected else 1.0)
    engine.close()
    mean = sum(overlaps) / len(overlaps)
    print(f"overlap@10 with one index of {hall.documents} documents: {mean:.4f}")  # noqa: T201
    assert mean >= 0.95
    assert sum(total > 0 for total in totals.values()) > len(queries) / 2
    return totals


async def play(dsn: str, directory: Path, chunks: int) -> None:
    """Every death and return, one after the other, under load."""
    texts = Texts(5_000)
    async with rows_of(dsn, directory, texts, chunks) as (hall, client, stock):
        queries = texts.queries(QUERIES)
        totals = await agreement(hall, client, directory / "alone", stock, queries)
        async with under_load(client, totals) as load:
            await one_dies(hall)
            await a_row_dies(hall)
            await all_come_back(hall)
        print(load.shown())  # noqa: T201 - the issue asks
        async with under_load(client, totals):
            await one_joins(hall, chunks)


async def one_dies(hall: Hall) -> None:
    await asyncio.sleep(1)
    hall.stack.kill("server-1-1")
    took = await becomes(lambda: hall.whole(1), 30, hall)
    print(f"one server killed: its row was whole after {took:.1f} s with a grace of {GRACE:g} s")  # noqa: T201
    assert hall.host("server-1-1") not in hall.in_row(1)


async def a_row_dies(hall: Hall) -> None:
    for name in ("server-1-2", "server-1-3"):
        hall.stack.kill(name)
    await asyncio.sleep(2)


async def all_come_back(hall: Hall) -> None:
    for name in hall.stack.row(1):
        hall.stack.start(name, "index-server", "--row", "1")
    took = await becomes(hall.balanced, 60, hall)
    print(f"a whole row back: balance after {took:.1f} s, {dict(hall.in_row(1))}")  # noqa: T201


async def one_joins(hall: Hall, chunks: int) -> None:
    """Those chunks move that it needs for its share, and no others."""
    before = hall.seats()
    hall.stack.start("server-1-4", "index-server", "--row", "1")
    took = await becomes(hall.balanced, 60, hall)
    after = hall.seats()
    moved = Counter(after[seat] for seat in before if after[seat] != before[seat])
    print(f"a server joined: {dict(moved)} chunks of {chunks} moved, {took:.1f} s")  # noqa: T201
    assert set(moved) == {hall.host("server-1-4")}
    assert chunks // (SERVERS + 1) <= moved.total() <= -(-chunks // (SERVERS + 1))


@pytest.mark.soak
async def test_results_stay_complete_while_servers_die(database: str, tmp_path: Path) -> None:
    async with asyncio.timeout(400):
        await play(database, tmp_path, CHUNKS)
