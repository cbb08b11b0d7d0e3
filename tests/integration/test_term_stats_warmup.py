"""A front-end loads the statistics of frequent words in advance."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.index.documents import page
from support.index.rows import Rows
from support.mgmt.chunk_trade import soon
from usher.index.document import IndexDocument
from usher.query.language import parse_query
from usher.search import term_stats_warmup
from usher.search.broker import Broker
from usher.search.term_stats import TermStatsCache
from usher.search.term_stats_warmup import TermStatsWarmup


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    async with Rows(tmp_path) as here:
        yield here


def plain(chunk: int) -> list[IndexDocument]:
    return [
        page(f"{chunk}/{number}", f"houses here and a house there, {number}", chunk=chunk)
        for number in range(8)
    ]


CHUNKS = {chunk: plain(chunk) for chunk in range(1, 7)}


def times(rows: Rows, path: str) -> int:
    return sum(server.asked.count(path) for server in rows.servers)


async def test_warm_statistics_are_not_requested_again(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.cluster() as cluster:
        fresh, broker = Broker(cluster, deadline=10), Broker(cluster, deadline=10)
        assert await TermStatsWarmup(cluster, broker.term_stats).warm_up(cluster.version)
        asked = times(rows, "/stats")
        for text in ("houses", "house there", "a house -elsewhere"):
            answer = await broker.search(parse_query(text))
            assert times(rows, "/stats") == asked
            expected = (await fresh.search(parse_query(text))).results
            assert answer.results.total == 48
            assert [one.hit for one in answer.results.hits] == [one.hit for one in expected.hits]
            asked = times(rows, "/stats")
        await broker.search(parse_query("house velvet"))
        assert times(rows, "/stats") == asked + 3


async def test_a_single_server_needs_no_warmup(rows: Rows) -> None:
    await rows.rows(2, 1, CHUNKS)
    async with rows.cluster() as cluster:
        assert await TermStatsWarmup(cluster, Broker(cluster).term_stats).warm_up(cluster.version)
    assert times(rows, "/common") == times(rows, "/stats") == 0


async def test_an_incomplete_row_is_not_warmed_up(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.cluster() as cluster:
        cluster.servers[rows.servers[1].host].broken = True
        assert not await TermStatsWarmup(cluster, Broker(cluster).term_stats).warm_up(
            cluster.version
        )
    assert times(rows, "/common") == times(rows, "/stats") == 0


async def test_a_server_without_frequent_words_is_still_searched(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    for server in rows.servers:
        server.refused = {"/common"}
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=10)
        await TermStatsWarmup(cluster, broker.term_stats).warm_up(cluster.version)
        assert (times(rows, "/common"), times(rows, "/stats")) == (1, 0)
        assert (await broker.search(parse_query("house"))).results.total == 48


async def test_the_warmup_stops_when_servers_load_chunks(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.cluster() as cluster:
        assert not await TermStatsWarmup(cluster, Broker(cluster).term_stats).warm_up(
            cluster.version - 1
        )
    assert (times(rows, "/common"), times(rows, "/stats")) == (1, 0)


async def test_the_warmup_runs_once_when_the_map_is_stable(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_stats_warmup, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(term_stats_warmup, "PAUSE_FACTOR", 1.0)
    await rows.rows(1, 3, CHUNKS)
    async with rows.cluster() as cluster:
        task = asyncio.create_task(TermStatsWarmup(cluster, Broker(cluster).term_stats).run())
        try:
            assert await soon(lambda: times(rows, "/stats"))
            await asyncio.sleep(0.3)
            assert times(rows, "/common") == 1
            await rows.add(1, {7: plain(7)})
            await cluster.refresh()
            assert await soon(lambda: times(rows, "/common") == 2)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_expired_statistics_are_warmed_up_again(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_stats_warmup, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(term_stats_warmup, "UNCHANGED_SECONDS", 0.2)
    monkeypatch.setattr(term_stats_warmup, "PAUSE_FACTOR", 0.0)
    await rows.rows(1, 3, CHUNKS)
    async with rows.cluster() as cluster:
        broker = Broker(cluster)
        broker.term_stats._cache = TermStatsCache(fresh_seconds=0.1, unchanged_seconds=0.2)
        task = asyncio.create_task(TermStatsWarmup(cluster, broker.term_stats).run())
        try:
            assert await soon(lambda: times(rows, "/common") >= 2)
            before = times(rows, "/stats")
            assert await soon(lambda: times(rows, "/stats") > before)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
