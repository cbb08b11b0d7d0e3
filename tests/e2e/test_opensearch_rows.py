"""Rows on Tantivy and on OpenSearch beside each other: the same pages, kills under load, and the move to OpenSearch."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.index.bulk_documents import EACH, Texts, stocked
from support.index.query_load import FrontEndClient, under_load
from support.index.stack import running_stack
from support.opensearch.cluster import OpenSearchCluster
from support.opensearch.fixtures import own_cluster
from support.opensearch.installation import OpenSearchInstallation
from support.opensearch.rows import EngineRows
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER

pytestmark = [EMBEDDED, pytest.mark.soak]
CHUNKS = int(os.environ.get("OPENSEARCH_CHUNKS", "8"))  # 50 documents each; 400 takes minutes
QUERIES = 200
MIN_OVERLAP = 0.85
WATCHDOG = ("--every", "0.5", "--misses", "2", "--probation", "0.5", "--grace", "600")
LOAD_SECONDS = 120 + CHUNKS
KILL_SECONDS = 5.0  # of queries between two kills


@asynccontextmanager
async def filled_stack(
    dsn: str, directory: Path, cluster: OpenSearchCluster, index: str, texts: Texts, *, rows: int
) -> AsyncIterator[EngineRows]:
    """A stack with a watchdog, a front-end and built chunks, still without index servers."""
    with running_stack(dsn, directory, chunk_wait=0, chunk_pages=EACH) as stack:
        stack.crawl.run("update work.settings set rows = %s", rows)
        stack.start("front", "front", "--deadline", "30")
        stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        async with stocked(f"http://127.0.0.1:{stack.crawl.port}", directory / "built") as stock:
            await stock.fill(texts.documents(CHUNKS))
            assert len(stock.chunks) == CHUNKS
            yield EngineRows(stack, cluster, index)


async def becomes(
    true: Callable[[], bool], rows: EngineRows, seconds: float = LOAD_SECONDS
) -> float:
    """How long it takes until it is true."""
    began = time.monotonic()
    assert await asyncio.to_thread(eventually, true, seconds), rows.stack.crawl.log[-6000:]
    return time.monotonic() - began


@asynccontextmanager
async def front_end(rows: EngineRows) -> AsyncIterator[FrontEndClient]:
    """A client of the front-end, once that answers completely."""
    client = FrontEndClient(rows.stack.crawl.ports["front"])

    async def is_complete() -> bool:
        try:
            answer = await client.ask("everywhere")
        except (AssertionError, OSError):
            return False
        return not answer.partial and answer.total == CHUNKS * EACH

    try:
        for _ in range(300):
            if await is_complete():
                break
            await asyncio.sleep(0.2)
        else:
            pytest.fail(f"The front-end is not complete: {rows.stack.crawl.log[-4000:]}")
        yield client
    finally:
        client.close()


async def least_totals(rows: EngineRows, names: list[str], queries: list[str]) -> dict[str, int]:
    """How many documents each query finds at least, on whichever of these servers."""

    def count() -> dict[str, int]:
        return {query: min(rows.total(name, query) for name in names) for query in queries}

    return await asyncio.to_thread(count)


async def test_both_rows_find_the_same_pages(
    database: str, tmp_path: Path, opensearch: OpenSearchCluster
) -> None:
    texts = Texts(5_000)
    async with filled_stack(database, tmp_path, opensearch, "same", texts, rows=2) as rows:
        names = rows.start_tantivy(1), rows.start_opensearch(2)
        for row, name in enumerate(names, 1):
            seconds = await becomes(lambda row=row: rows.is_complete(row), rows)  # type: ignore[misc]
            print(f"{name} was complete after {seconds:.1f} s more")  # noqa: T201 - a figure for the docs
            assert rows.total(name, "everywhere") == CHUNKS * EACH
        queries = texts.queries(QUERIES)
        overlap = await asyncio.to_thread(rows.overlap, names, queries)
        print(f"overlap@10 of {CHUNKS * EACH} documents: {overlap:.3f}")  # noqa: T201 - as above
        assert overlap >= MIN_OVERLAP


async def test_kills_of_nodes_and_of_the_index_server_fail_no_query(
    database: str, tmp_path: Path, opensearch_installation: OpenSearchInstallation
) -> None:
    texts = Texts(5_000)
    (tmp_path / "stack").mkdir()
    with own_cluster(opensearch_installation, tmp_path / "cluster") as cluster:
        async with filled_stack(
            database, tmp_path / "stack", cluster, "kills", texts, rows=2
        ) as rows:
            tantivy, other = rows.start_tantivy(1), rows.start_opensearch(2)
            await becomes(lambda: rows.is_complete(1) and rows.is_complete(2), rows)
            totals = await least_totals(rows, [tantivy, other], texts.queries(QUERIES))
            async with front_end(rows) as client:
                async with under_load(client, totals) as load:
                    await kill_in_two_rows(rows, other)
                print(f"with a second row: {load.shown()}")  # noqa: T201 - a figure for the docs
                rows.stack.kill(tantivy)
                await asyncio.sleep(2)
                async with under_load(client, totals, may_be_partial=True) as load:
                    await kill_in_one_row(rows)
                    # One of three nodes has not all shards. On a busy machine its answers come late.
                    await becomes(lambda: load.partial > 0, rows)
                print(f"with OpenSearch only: {load.shown()}")  # noqa: T201 - as above


async def kill_in_two_rows(rows: EngineRows, server: str) -> None:
    """The index server, one node and then every node die; the other row answers meanwhile."""
    await asyncio.sleep(1)
    rows.stack.processes.kill(server)
    await asyncio.sleep(KILL_SECONDS)
    rows.cluster.kill(0)
    await asyncio.sleep(KILL_SECONDS)
    rows.cluster.stop()
    await asyncio.sleep(KILL_SECONDS)
    await asyncio.to_thread(rows.cluster.start)
    seconds = await becomes(lambda: answers(rows, server), rows)
    print(f"the row on OpenSearch answers {seconds:.1f} s after its nodes")  # noqa: T201 - as above


async def kill_in_one_row(rows: EngineRows) -> None:
    """A node dies, whose shards have replicas, and comes back; then two die, and the last one has not all shards."""
    await asyncio.sleep(1)
    rows.cluster.kill(1)
    await asyncio.sleep(KILL_SECONDS)
    await asyncio.to_thread(rows.cluster.start)
    await asyncio.sleep(KILL_SECONDS)
    for number in (1, 2):
        rows.cluster.kill(number)
        await asyncio.sleep(KILL_SECONDS)


def answers(rows: EngineRows, server: str) -> bool:
    try:
        return rows.total(server, "everywhere") == CHUNKS * EACH
    except (OSError, AssertionError):
        return False


async def test_an_installation_moves_to_opensearch_under_load(
    database: str, tmp_path: Path, opensearch: OpenSearchCluster
) -> None:
    texts = Texts(5_000)
    async with filled_stack(database, tmp_path, opensearch, "moved", texts, rows=1) as rows:
        old = rows.start_tantivy(1)
        await becomes(lambda: rows.is_complete(1), rows)
        queries = texts.queries(QUERIES)
        async with front_end(rows) as client:
            totals = await least_totals(rows, [old], queries)
            usher = rows.stack.crawl.usher
            # The engines may judge differently whether a page lacks a word that hardly matters.
            totals = {query: int(0.9 * total) for query, total in totals.items()}
            async with under_load(client, totals) as load:
                await asyncio.sleep(1)
                await asyncio.to_thread(usher, "components", "rows", "--set", "2")
                new = rows.start_opensearch(2)
                seconds = await becomes(lambda: rows.is_complete(2), rows)
                await asyncio.sleep(2)
                await asyncio.to_thread(usher, "components", "rows", "--remove", "1", "--yes")
                await asyncio.sleep(2)
                rows.stack.kill(old)
                await asyncio.sleep(KILL_SECONDS)
            print(f"moved, complete after {seconds:.1f} s: {load.shown()}")  # noqa: T201 - as above
            shown = await asyncio.to_thread(usher, "components", "rows")
            assert f":{rows.stack.crawl.ports[new]}" in shown
            assert f":{rows.stack.crawl.ports[old]}" not in shown
            assert rows.is_complete(1)
            await restart_with_its_new_row(rows, new)


async def restart_with_its_new_row(rows: EngineRows, name: str) -> None:
    """The server starts with the number that its row has now, and loads nothing again."""
    rows.stack.kill(name)
    words = [word if word != "2" else "1" for word in rows.stack.processes.commands[name]]
    rows.stack.processes.start(name, *words)
    await becomes(lambda: answers(rows, name), rows, 30)
    assert rows.is_complete(1)


async def test_a_server_at_another_address_continues_without_loading(
    database: str, tmp_path: Path, opensearch: OpenSearchCluster
) -> None:
    async with filled_stack(
        database, tmp_path, opensearch, "successor", Texts(5_000), rows=1
    ) as rows:
        first, crawl = rows.start_opensearch(1), rows.stack.crawl
        await becomes(lambda: rows.is_complete(1), rows)
        total = await asyncio.to_thread(rows.total, first, "everywhere")
        rows.stack.kill(first)
        crawl.run(
            "update work.chunk set index_sha256 = repeat('0', 64)"
        )  # no file would be accepted
        rows.stack.start("successor", "index-server", "--row", "1", *rows.engine_words())
        await becomes(lambda: answers(rows, "successor") and rows.is_complete(1), rows, 60)
        assert total == CHUNKS * EACH
        [(host,)] = crawl.ask(
            "select host from work.component where type = 'index-server' and row = 1"
        )
        assert host == f"127.0.0.1:{crawl.ports['successor']}"
