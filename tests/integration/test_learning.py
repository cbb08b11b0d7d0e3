"""A front-end knows how rare common words are before anybody asks for them."""

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
    return sum(seat.asked.count(path) for seat in rows.seats)


async def test_what_was_learnt_is_not_asked_again(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.hall() as hall:
        fresh, broker = Broker(hall, deadline=10), Broker(hall, deadline=10)
        assert await TermStatsWarmup(hall, broker.term_stats).warm_up(hall.version)
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


async def test_one_server_alone_has_nothing_to_teach(rows: Rows) -> None:
    await rows.rows(2, 1, CHUNKS)
    async with rows.hall() as hall:
        assert await TermStatsWarmup(hall, Broker(hall).term_stats).warm_up(hall.version)
    assert times(rows, "/common") == times(rows, "/stats") == 0


async def test_a_row_that_is_not_whole_is_left_alone(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.hall() as hall:
        hall.servers[rows.seats[1].host].broken = True
        assert not await TermStatsWarmup(hall, Broker(hall).term_stats).warm_up(hall.version)
    assert times(rows, "/common") == times(rows, "/stats") == 0


async def test_a_server_that_knows_nothing_of_it_is_searched_all_the_same(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    for seat in rows.seats:
        seat.refused = {"/common"}
    async with rows.hall() as hall:
        broker = Broker(hall, deadline=10)
        await TermStatsWarmup(hall, broker.term_stats).warm_up(hall.version)
        assert (times(rows, "/common"), times(rows, "/stats")) == (1, 0)
        assert (await broker.search(parse_query("house"))).results.total == 48


async def test_it_stops_when_servers_load_something(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.hall() as hall:
        assert not await TermStatsWarmup(hall, Broker(hall).term_stats).warm_up(hall.version - 1)
    assert (times(rows, "/common"), times(rows, "/stats")) == (1, 0)


async def test_it_learns_when_all_is_quiet_and_once(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_stats_warmup, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(term_stats_warmup, "PAUSE_FACTOR", 1.0)
    await rows.rows(1, 3, CHUNKS)
    async with rows.hall() as hall:
        task = asyncio.create_task(TermStatsWarmup(hall, Broker(hall).term_stats).run())
        try:
            assert await soon(lambda: times(rows, "/stats"))
            await asyncio.sleep(0.3)
            assert times(rows, "/common") == 1
            await rows.add(1, {7: plain(7)})
            await hall.refresh()
            assert await soon(lambda: times(rows, "/common") == 2)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_it_learns_again_what_was_forgotten(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_stats_warmup, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(term_stats_warmup, "UNCHANGED_SECONDS", 0.2)
    monkeypatch.setattr(term_stats_warmup, "PAUSE_FACTOR", 0.0)
    await rows.rows(1, 3, CHUNKS)
    async with rows.hall() as hall:
        broker = Broker(hall)
        broker.term_stats._cache = TermStatsCache(fresh_seconds=0.1, unchanged_seconds=0.2)
        task = asyncio.create_task(TermStatsWarmup(hall, broker.term_stats).run())
        try:
            assert await soon(lambda: times(rows, "/common") >= 2)
            before = times(rows, "/stats")
            assert await soon(lambda: times(rows, "/stats") > before)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
