"""Ties are ordered by URL, so that no server must be asked twice."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.index.documents import HEAP, page
from support.index.rows import Rows
from usher.index.document import IndexDocument
from usher.index.engine import Engine
from usher.query.language import parse_query
from usher.query.results import rank_key
from usher.search.broker import Broker

ALIKE = 300  # documents that only differ in where they are


def alike(number: int, chunk: int) -> IndexDocument:
    """One of many, put in against the order of their URLs."""
    return page(f"{ALIKE - number:04}", "the same words everywhere", title="One", chunk=chunk)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine.open(tmp_path / "index", heap=HEAP)
    better = [page(f"better{n}", "everywhere everywhere", title="One", chunk=1) for n in range(3)]
    engine.add(1, [*(alike(n, 1) for n in range(ALIKE)), *better])
    engine.commit()
    yield engine
    engine.close()


def paths(engine: Engine, k: int, offset: int = 0, text: str = "everywhere") -> list[str]:
    found = engine.search(parse_query(text), k, offset, hosts=True)
    assert found.total == ALIKE + 3
    assert sum(found.hosts.values()) == found.total
    return [hit.url.rpartition("/")[2] for hit in found.hits]


def test_ties_are_ordered_by_url(engine: Engine) -> None:
    assert sorted(paths(engine, 10)) == [
        *(f"{n:04}" for n in range(1, 8)),
        *(f"better{n}" for n in range(3)),
    ]
    assert paths(engine, 3)[0].startswith("better")
    assert set(paths(engine, 3)) == {"better0", "better1", "better2"}


def test_ties_have_the_same_order_however_the_index_was_filled(tmp_path: Path) -> None:
    """As after a restore: the same pages in other chunks, and some of them loaded again."""
    query, orders = parse_query("everywhere"), []
    for number, chunks in enumerate((2, 9)):
        engine = Engine.open(tmp_path / str(number), heap=HEAP)
        for chunk in [*range(1, chunks + 1), 1]:
            engine.add(chunk, [alike(n, chunk) for n in range(chunk - 1, ALIKE, chunks)])
            engine.commit()
        hits = engine.search(query, 20, stats=engine.stats(query)).hits
        orders.append([hit.url for hit in sorted(hits, key=rank_key)])
        engine.close()
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 20


def test_pages_of_ties_have_each_hit_once(engine: Engine) -> None:
    found = [path for offset in range(0, ALIKE + 3, 7) for path in paths(engine, 7, offset)]
    assert len(found) == len(set(found)) == ALIKE + 3


def test_ties_of_queries_without_words_are_ordered_by_url(engine: Engine) -> None:
    """They are in the order of when they were crawled, which is the same for all here."""
    assert sorted(paths(engine, 4, text="site:a.org")) == [f"{n:04}" for n in range(1, 5)]


def test_hosts_of_few_hits_are_counted_without_an_aggregation(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path / "few", heap=HEAP)
    hosts = ["a.org"] * 4 + ["b.org"] * 3
    engine.add(1, [page(f"{n}", "rare", host=host) for n, host in enumerate(hosts)])
    engine.commit()
    for k in (1, 3, 7, 8, 30):
        found = engine.search(parse_query("rare"), k, hosts=True)
        assert (len(found.hits), found.total) == (min(k, 7), 7)
        assert found.hosts == {"a.org": 4, "b.org": 3}
        assert engine.search(parse_query("rare"), k).total == 7
    engine.close()


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    async with Rows(tmp_path) as here:
        yield here


async def test_ties_cause_no_second_request(rows: Rows) -> None:
    """Also if all that are shown are one's own, and however many others are like the last of them."""
    chunks = {
        chunk: [alike(n, chunk) for n in range(chunk * 30, chunk * 30 + 30)] for chunk in (1, 2, 3)
    }
    for chunk, some in chunks.items():
        await rows.add(1, {chunk: some})
    async with rows.cluster() as cluster:
        answer = await Broker(cluster).search(parse_query("everywhere"), k=10)
    shown = [found.hit for found in answer.results.hits]
    every = sorted(document.url for some in chunks.values() for document in some)
    assert [hit.url for hit in shown] == every[:10]
    assert shown == sorted(shown, key=rank_key)
    assert [server.asked.count("/search") for server in rows.servers] == [1, 1, 1]
