"""Front-ends ask servers on probation as a second choice, and detect servers whose answers never arrive."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from support.index.documents import page
from support.index.rows import Rows, ServerProcess, filled
from usher.errors import Unreachable
from usher.query.language import parse_query
from usher.search import cluster_map
from usher.search.broker import Broker
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import PROBE_TIMEOUT_SECONDS
from usher.search.search_result import SearchResult

DOCUMENTS = {
    chunk: [page(f"{chunk}/{number}", "everywhere", chunk=chunk) for number in range(8)]
    for chunk in range(1, 5)
}
TOTAL = 32


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    async with Rows(tmp_path) as here:
        yield here


async def test_servers_on_probation_answer_only_where_no_row_is_complete(rows: Rows) -> None:
    await rows.rows(2, 1, DOCUMENTS)
    first, second = rows.servers
    rows.maps.probation[1] = rows.maps.rows.pop(1)
    async with rows.cluster() as cluster:
        for _ in range(4):
            answer = await search(cluster)
            assert (answer.results.total, answer.partial) == (TOTAL, False)
        assert not first.asked
        del rows.maps.rows[2]
        assert await becomes(cluster, lambda: second.host not in cluster.servers)
        answer = await search(cluster)
        assert (answer.results.total, answer.partial) == (TOTAL, False)
        assert "/search" in first.asked


async def test_a_large_map_is_read_again_at_once_if_no_row_is_complete(rows: Rows) -> None:
    """Reading the map took long, so the next time is far off; then the only healthy server goes on probation."""
    await rows.rows(1, 1, DOCUMENTS)
    async with rows.cluster() as cluster:
        cluster._holdings_due = time.monotonic() + 1_000
        rows.maps.probation[1] = rows.maps.rows.pop(1)
        await cluster.refresh()  # the row is gone
        await cluster.refresh()
        answer = await search(cluster)
    assert (answer.results.total, answer.partial) == (TOTAL, False)


async def test_a_server_that_leaves_probation_between_two_calls_is_not_forgotten(
    rows: Rows,
) -> None:
    """MGMT is away after that, so the maps of this moment stay in force."""
    await rows.rows(1, 1, DOCUMENTS)
    rows.maps.probation[1] = rows.maps.rows.pop(1)

    def become_healthy() -> None:
        rows.maps.rows |= rows.maps.probation
        rows.maps.probation = {}
        rows.maps.after_rows = lambda: None

    async with rows.cluster() as cluster:
        rows.maps.after_rows = become_healthy
        cluster._holdings_due = 0
        await cluster.refresh()
        rows.maps.away = True
        await cluster.refresh()
        answer = await search(cluster)
    assert (answer.results.total, answer.partial) == (TOTAL, False)


async def test_a_server_that_no_map_lists_for_a_moment_is_still_asked(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MGMT's maps are cached, each for itself: a server that changes from one to the other may be in neither."""
    monkeypatch.setattr(cluster_map, "UNLISTED_SECONDS", 1.0)
    await rows.rows(1, 1, DOCUMENTS)
    async with rows.cluster() as cluster:
        del rows.maps.rows[1]
        await cluster.refresh()
        cluster._holdings_due = 0
        await cluster.refresh()
        answer = await search(cluster)
        assert (answer.results.total, answer.partial) == (TOTAL, False)
        assert await becomes(cluster, lambda: not cluster.servers)


async def test_a_search_waits_for_a_server_that_is_back(rows: Rows) -> None:
    """During an upgrade the last available server stops before the front-end knows that another one is back."""
    path = rows.directory / "engine"
    filled(path, DOCUMENTS).close()
    process = ServerProcess(path)
    host = process.host
    rows.maps.rows[1] = {host: list(DOCUMENTS)}
    try:
        async with rows.cluster() as cluster:
            await asyncio.to_thread(process.kill)
            with pytest.raises(Unreachable):
                await Broker(cluster, deadline=0.2).search(parse_query("everywhere"))
            process = ServerProcess(path, int(host.rpartition(":")[2]))
            assert await asyncio.to_thread(lambda: process.host) == host
            cluster.servers[host]._probe_at += 60
            answer = await search(cluster)
            assert (answer.results.total, answer.partial) == (TOTAL, False)
    finally:
        process.kill()


async def test_a_search_waits_for_a_server_that_no_map_lists_yet(rows: Rows) -> None:
    first = await rows.add(1, DOCUMENTS)
    async with rows.cluster() as cluster:
        await first.leave()
        waiting = asyncio.create_task(search(cluster))
        await asyncio.sleep(0.3)
        del rows.maps.rows[1]
        await rows.add(2, DOCUMENTS)
        cluster._holdings_due = 0
        answer = await waiting
    assert (answer.results.total, answer.partial) == (TOTAL, False)


async def test_a_silent_server_is_detected_without_a_query(rows: Rows) -> None:
    """One-way loss as a proxy makes it: connections and requests arrive, answers do not."""
    await rows.rows(2, 1, DOCUMENTS)
    silent = rows.servers[0]
    async with swallowing(silent.host) as (proxy, is_passing):
        rows.maps.rows[1] = {proxy: rows.maps.rows[1][silent.host]}
        async with rows.cluster() as cluster:
            assert cluster.is_available(proxy)
            is_passing.clear()
            began = time.monotonic()
            async with asyncio.timeout(20):
                while cluster.is_available(proxy):
                    await cluster.refresh()
            assert time.monotonic() - began >= PROBE_TIMEOUT_SECONDS
            answer = await search(cluster)
            assert (answer.results.total, answer.partial) == (TOTAL, False)
            assert rows.servers[1].asked
            is_passing.set()
            assert await becomes(cluster, lambda: cluster.is_available(proxy))


async def search(cluster: ClusterView) -> SearchResult:
    return await Broker(cluster, deadline=5).search(parse_query("everywhere"))


async def becomes(cluster: ClusterView, is_true: Callable[[], bool]) -> bool:
    """Whether it becomes true while the front-end polls and probes."""
    until = time.monotonic() + 60
    while not is_true() and time.monotonic() < until:
        await cluster.refresh()
        await asyncio.sleep(0.1)
    return is_true()


@asynccontextmanager
async def swallowing(target: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A proxy that passes answers on only while the event is set."""
    is_passing = asyncio.Event()
    is_passing.set()
    host, _, port = target.rpartition(":")

    async def copy(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, gate: bool
    ) -> None:
        with suppress(OSError):
            while part := await reader.read(65_536):
                if is_passing.is_set() or not gate:
                    writer.write(part)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, back, gate=False), copy(there, writer, gate=True))

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", is_passing
