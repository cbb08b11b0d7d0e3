"""The broker returns the hits of one large index, survives failures of servers, and reports what is missing."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from support.index.documents import page
from support.index.rows import Chunks, Rows, ServerProcess, filled
from usher.errors import Unreachable
from usher.index.document import IndexDocument
from usher.query.language import parse_query
from usher.search import cluster_map
from usher.search.broker import Broker
from usher.search.cluster_map import ClusterView
from usher.search.merge import merge
from usher.search.search_result import MAX_HITS, SearchResult

WORDS = [f"{letter}{number}" for letter in "abcdefgh" for number in range(60)]
WEIGHTS = [1 / (number + 2) for number in range(len(WORDS))]
HOSTS = ("alpha.example", "beta.example", "gamma.example")


def texts(chance: random.Random, number: int) -> str:
    return " ".join(chance.choices(WORDS, WEIGHTS, k=number))


def made(chunks: int, each: int = 8) -> dict[int, list[IndexDocument]]:
    chance = random.Random(11)  # noqa: S311
    return {
        chunk: [
            page(
                f"{chunk}/{number}",
                f"{texts(chance, 60)} everywhere in{chunk}",
                host=chance.choice(HOSTS),
                title=texts(chance, 3),
                chunk=chunk,
            )
            for number in range(each)
        ]
        for chunk in range(1, chunks + 1)
    }


CHUNKS = made(12)


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    async with Rows(tmp_path) as here:
        yield here


async def find(
    cluster: ClusterView, text: str, *, k: int = 10, offset: int = 0, verbatim: bool = False
) -> SearchResult:
    return await Broker(cluster, deadline=1.0).search(
        parse_query(text), k=k, offset=offset, verbatim=verbatim
    )


def urls(answer: SearchResult) -> list[str]:
    return [found.hit.url for found in answer.results.hits]


async def test_servers_together_find_what_one_index_finds(rows: Rows, tmp_path: Path) -> None:
    await rows.rows(2, 3, CHUNKS)
    one = filled(tmp_path / "one", CHUNKS)
    chance = random.Random(3)  # noqa: S311
    same: list[float] = []
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=10)
        for _ in range(60):
            query = parse_query(texts(chance, chance.randint(1, 3)))
            alone = merge({"one": one.search(query, 20, hosts=True)}, k=10)
            answer = await broker.search(query, hosts=True)
            assert not answer.partial
            assert not answer.at_least
            assert answer.results.total == alone.total
            assert answer.results.hosts == alone.hosts
            wanted = {found.hit.url for found in alone.hits}
            same += [len(wanted.intersection(urls(answer))) / len(wanted)] if wanted else []
            assert set(answer.snippets) == {(f.hit.url, f.hit.chunk) for f in answer.results.hits}
    one.close()
    assert len(same) >= 50
    assert sum(same) / len(same) >= 0.95


async def test_answers_of_another_incarnation_are_partial(rows: Rows) -> None:
    """A server hears of a restored database first and drops chunks, while the front-end has the old map."""
    await rows.rows(2, 1, CHUNKS)
    rows.maps.incarnation = "before"
    async with rows.cluster() as cluster:
        for first, second, is_partial in (
            ("before", "before", False),
            ("", "", False),  # servers of another make do not say
            ("after", "before", False),  # one whole row is enough
            ("after", "after", True),
        ):
            rows.servers[0].engine.incarnation = first
            rows.servers[1].engine.incarnation = second
            for _ in range(2):  # rows take turns
                assert (await find(cluster, "everywhere")).partial is is_partial, (first, second)
        rows.maps.incarnation = "after"
        await cluster.refresh()
        assert not (await find(cluster, "everywhere")).partial


async def test_pages_have_every_hit_once(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    async with rows.cluster() as cluster:
        seen: list[str] = []
        for offset in range(0, 110, 10):
            answer = await find(cluster, "everywhere", offset=offset)
            assert answer.results.total == 96
            assert answer.results.more == (offset + 10 < 96)
            seen += urls(answer)
        beyond = await find(cluster, "everywhere", offset=MAX_HITS)
    assert len(seen) == len(set(seen)) == 96
    assert not beyond.results.hits


async def test_near_copies_are_shown_once_and_not_counted(rows: Rows) -> None:
    copies = {
        chunk: [page(f"copy/{chunk}", "the same words", text64=77, chunk=chunk)] for chunk in (1, 2)
    }
    await rows.rows(1, 2, copies)
    async with rows.cluster() as cluster:
        answer = await find(cluster, "same words")
    assert (answer.results.total, answer.results.hits[0].copies) == (1, 1)


async def test_rows_alternate_and_statistics_are_requested_once(rows: Rows) -> None:
    await rows.rows(2, 2, CHUNKS)
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=10)
        for _ in range(6):
            await broker.search(parse_query("a1 b2"))
    searched = [server.asked.count("/search") for server in rows.servers]
    assert searched == [3, 3, 3, 3]
    assert sum(server.asked.count("/stats") for server in rows.servers) == 2


async def test_a_dead_server_costs_no_results(rows: Rows) -> None:
    await rows.rows(2, 2, CHUNKS)
    await rows.servers[0].leave()
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=10)
        for _ in range(6):
            answer = await broker.search(parse_query("everywhere"))
            assert (answer.results.total, answer.partial, answer.at_least) == (96, False, False)
            assert answer.seconds < 5
        assert not cluster.is_available(rows.servers[0].host)
        assert rows.servers[1].asked.count("/search") <= 1  # its row is not whole


@pytest.mark.soak
async def test_a_frozen_server_delays_only_the_first_queries(rows: Rows) -> None:
    await rows.rows(2, 2, CHUNKS)
    rows.servers[3].open.clear()
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=6)
        times = []
        for _ in range(8):
            answer = await broker.search(parse_query("everywhere"))
            assert (answer.results.total, answer.partial) == (96, False)
            times.append(answer.seconds)
        assert max(times) < 5.5
        assert max(times[-2:]) < 1.6
        assert not cluster.is_available(rows.servers[3].host)
        rows.servers[3].open.set()
        assert await soon(cluster, lambda: cluster.is_available(rows.servers[3].host))


async def soon(cluster: ClusterView, true: Callable[[], bool]) -> bool:
    for _ in range(40):
        await cluster.refresh()
        if true():
            return True
        await asyncio.sleep(0.1)
    return False


def whole(cluster: ClusterView, servers: int) -> bool:
    """Whether so many servers are there, and what they hold is known too."""
    return len(cluster.servers) == servers and all(map(cluster.is_complete, cluster.row_map.rows))


async def test_the_missing_share_of_a_row_is_reported(rows: Rows) -> None:
    await rows.rows(1, 3, CHUNKS)
    await rows.servers[1].leave()
    async with rows.cluster() as cluster:
        answer = await find(cluster, "everywhere")
        assert answer.partial
        assert answer.missing == pytest.approx(1 / 3)
        assert (answer.results.total, answer.at_least) == (64, True)
        assert len(answer.snippets) == 10
        rows.maps.full = False  # another's MGMT, which has no such map
        cluster.row_map.chunks.clear()
        assert (await find(cluster, "everywhere")).missing == pytest.approx(1 / 3)


async def test_two_incomplete_rows_complement_each_other(rows: Rows) -> None:
    await rows.rows(2, 2, CHUNKS)
    first = next(server for server in rows.servers if server.row == 1 and 2 in server.chunks)
    other = next(server for server in rows.servers if server.row == 2 and 3 in server.chunks)
    await first.leave()
    await other.leave()
    async with rows.cluster() as cluster:
        found = [await find(cluster, f"in{chunk}", k=20) for chunk in CHUNKS]
        assert {len(answer.results.hits) for answer in found} <= {0, 8}
        assert sum(len(answer.results.hits) for answer in found) == 8 * 12
        assert not any(answer.partial for answer in found)
        everything = await find(cluster, "everywhere")
        assert everything.at_least
        assert len(set(urls(everything))) == 10


async def test_a_departed_server_is_missing_until_its_row_is_complete(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_map, "UNLISTED_SECONDS", 0.0)
    await rows.rows(1, 3, CHUNKS)
    lost = rows.servers[0]
    async with rows.cluster() as cluster:
        del rows.maps.rows[1][lost.host]
        await cluster.refresh()
        answer = await find(cluster, "everywhere")
        assert (answer.results.total, answer.partial) == (64, True)
        await rows.add(1, {chunk: CHUNKS[chunk] for chunk in lost.chunks})
        assert await soon(cluster, lambda: whole(cluster, 3))
        answer = await find(cluster, "everywhere")
        assert (answer.results.total, answer.partial) == (96, False)


async def test_a_row_that_lost_chunks_is_queried_last(rows: Rows) -> None:
    await rows.rows(2, 2, CHUNKS)
    async with rows.cluster() as cluster:
        del rows.maps.rows[1][rows.servers[0].host]
        await cluster.refresh()
        for _ in range(4):
            answer = await find(cluster, "everywhere")
            assert (answer.results.total, answer.partial, answer.at_least) == (96, False, False)
    assert "/search" not in rows.servers[1].asked


async def test_the_last_map_stays_in_use_while_mgmt_is_unavailable(rows: Rows) -> None:
    await rows.rows(1, 2, CHUNKS)
    async with rows.cluster() as cluster:
        await cluster.refresh()
        assert rows.maps.answered.count(200) == 3  # one for each map
        assert rows.maps.answered.count(304) >= 1
        rows.maps.away = True
        await cluster.refresh()
        assert cluster.mgmt_error
        assert (await find(cluster, "everywhere")).results.total == 96


async def test_no_server_answers(rows: Rows) -> None:
    async with rows.cluster() as cluster:
        with pytest.raises(Unreachable, match="no index server"):
            await find(cluster, "everywhere")
        await rows.rows(1, 2, CHUNKS)
        await cluster.refresh()
        for server in rows.servers:
            await server.leave()
        with pytest.raises(Unreachable, match="None of 2"):
            await find(cluster, "everywhere")
        rows.maps.away = True
        async with rows.cluster() as other:
            with pytest.raises(Unreachable, match="no map"):
                await find(other, "everywhere")


async def test_busy_and_garbled_servers_are_replaced_by_another_row(rows: Rows) -> None:
    await rows.rows(2, 1, CHUNKS)
    rows.servers[0].refused.add("/search")
    async with rows.cluster() as cluster:
        for _ in range(3):
            assert (await find(cluster, "everywhere")).results.total == 96
        assert cluster.is_available(rows.servers[0].host)
        rows.servers[0].refused.clear()
        rows.servers[0].garbled = True
        for _ in range(3):
            assert (await find(cluster, "everywhere")).results.total == 96
        rows.maps.rows[2]["ftp://nowhere"] = []
        await cluster.refresh()
        assert len(cluster.servers) == 2


async def test_snippets_come_from_any_server_with_the_chunk(rows: Rows) -> None:
    await rows.rows(2, 2, CHUNKS)
    for server in rows.servers[:2]:
        server.refused.add("/snippets")
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=10)
        for _ in range(2):
            answer = await broker.search(parse_query("everywhere"))
            assert len(answer.snippets) == 10


async def test_a_single_server_sends_snippets_with_its_hits(rows: Rows) -> None:
    await rows.rows(1, 1, CHUNKS)
    async with rows.cluster() as cluster:
        first = await find(cluster, "a1")
        assert rows.servers[0].asked == ["/search"]
        assert len(first.snippets) == 10
        assert all(("a1", True) in first.snippet(one) for one in first.results.hits)
        second = await find(cluster, "a1", offset=10)
        assert rows.servers[0].asked[-1] == "/snippets"
        assert len(second.snippets) == 10


async def test_a_spelling_is_suggested_only_if_it_has_more_hits(rows: Rows) -> None:
    chunks = {
        chunk: [page(f"{chunk}-{number}", "velvet theatre", chunk=chunk) for number in range(6)]
        for chunk in (1, 2)
    }
    await rows.rows(1, 2, chunks)
    async with rows.cluster() as cluster:
        answer = await find(cluster, "theatra")
        assert (answer.results.total, answer.query.text, answer.typed) == (12, "theatre", "theatra")
        assert len(answer.snippets) == len(answer.results.hits) == 10
        typed = await find(cluster, "theatra", verbatim=True)
        assert (typed.results.total, typed.suggestion, typed.typed) == (0, "theatre", "")
        some = await find(cluster, "velvet theatra")
        assert (some.results.total, some.query.text) == (12, "velvet theatre")
        for text in ("theatra -velvet", "theatre", "velvet theatre nowhere"):
            right = await find(cluster, text)
            assert (right.query.text, right.suggestion, right.typed) == (text, "", "")


async def test_unusual_queries_are_answered(rows: Rows) -> None:
    await rows.rows(1, 2, {1: CHUNKS[1], 2: CHUNKS[2]})
    odd = ["", "   ", '"', "-", "OR OR", "site:", "x" * 10_000, "a " * 5_000, "\0\x07\ud800\u202e"]
    async with rows.cluster() as cluster:
        for text in [*odd, "title:\"'", "-everywhere", "site:example after:2020"]:
            answer = await find(cluster, text)
            assert not answer.partial
            assert answer.results.total <= 16


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    """Two rows of two servers, each a process."""
    here: list[ServerProcess] = []
    try:
        for row in (1, 2):
            for place in (0, 1):
                path = tmp_path / f"process-{row}-{place}"
                filled(path, half(place)).close()
                here.append(ServerProcess(path))
        yield here
    finally:
        for one in here:
            if one.process.poll() is None:
                one.kill()


def half(place: int) -> Chunks:
    return {chunk: documents for chunk, documents in CHUNKS.items() if chunk % 2 == place}


@pytest.mark.soak
async def test_servers_are_killed_and_frozen_during_queries(
    rows: Rows, processes: list[ServerProcess]
) -> None:
    for number, one in enumerate(processes):
        rows.maps.rows.setdefault(1 + number // 2, {})[one.host] = list(half(number % 2))
    async with rows.cluster() as cluster:
        keeping = asyncio.create_task(cluster.run())
        broker = Broker(cluster, deadline=10)
        load = asyncio.create_task(loaded(broker, seconds=2.5))
        await asyncio.sleep(0.5)
        processes[0].kill()
        await asyncio.sleep(0.7)
        processes[0] = ServerProcess(processes[0].path, int(processes[0].host.rpartition(":")[2]))
        assert await soon(cluster, lambda: cluster.is_available(processes[0].host))
        processes[3].freeze()
        answers = await load
        processes[3].thaw()
        assert await soon(cluster, lambda: all(map(cluster.is_available, cluster.servers)))
        keeping.cancel()
    assert len(answers) > 20
    assert not [answer for answer in answers if answer.partial or answer.results.total != 96]


async def loaded(broker: Broker, seconds: float) -> list[SearchResult]:
    """A query every 20 ms, for so long."""
    until, asked = time.monotonic() + seconds, list[asyncio.Task[SearchResult]]()
    while time.monotonic() < until:
        asked.append(asyncio.create_task(broker.search(parse_query("everywhere"))))
        await asyncio.sleep(0.02)
    return await asyncio.gather(*asked)
