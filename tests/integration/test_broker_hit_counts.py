"""How many hits the broker requests from each server of a row."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.index.documents import page
from support.index.rows import Rows
from usher.index.document import IndexDocument
from usher.query.language import parse_query
from usher.search.broker import Broker, server_share, snippet_share


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    async with Rows(tmp_path) as here:
        yield here


def plain(chunk: int) -> list[IndexDocument]:
    return [
        page(f"{chunk}/{number}", f"everywhere and nowhere {number}", chunk=chunk)
        for number in range(8)
    ]


async def test_servers_of_a_row_send_the_snippets_of_shown_hits(rows: Rows) -> None:
    await rows.rows(1, 3, {chunk: plain(chunk) for chunk in range(1, 7)})
    async with rows.cluster() as cluster:
        broker = Broker(cluster, deadline=10)
        for text in ("everywhere", "everywhere", "nowhere", "everywhere nowhere"):
            answer = await broker.search(parse_query(text))
            assert len(answer.snippets) == len(answer.results.hits) == 10
    for server in rows.servers:
        assert server.asked.count("/stats") == 2  # the last query has no new word
        assert server.asked.count("/search") >= 4


async def test_snippets_of_a_page_that_is_spread_evenly_come_with_its_hits(rows: Rows) -> None:
    chunks: dict[int, list[IndexDocument]] = {1: [], 2: [], 3: []}
    for number in range(30):  # of neighbours in the ranking, most are on different servers
        chunk = number % 3 + 1
        chunks[chunk].append(page(f"{number:02}", "velvet " * (40 - number), chunk=chunk))
    await rows.rows(1, 3, chunks)
    async with rows.cluster() as cluster:
        broker, query = Broker(cluster, deadline=10), parse_query("velvet")
        both = await broker.search(query, k=20)
        pages = [await broker.search(query)]
        assert not any("/snippets" in server.asked for server in rows.servers)
        pages.append(await broker.search(query, offset=10))
    assert all("/snippets" in server.asked for server in rows.servers)
    assert len(both.snippets) == 20
    every = pages[0].snippets | pages[1].snippets
    assert {address: passage.pieces for address, passage in every.items()} == {
        address: passage.pieces for address, passage in both.snippets.items()
    }


async def test_only_servers_that_may_have_more_hits_are_asked_again(rows: Rows) -> None:
    best = [
        page(f"best/{number:02}", "velvet velvet", chunk=1, text64=max(number, 12))
        for number in range(30)  # the first of them are copies
    ]
    less = {chunk: [page(f"{chunk}", "velvet and more", chunk=chunk)] for chunk in (2, 3)}
    await rows.rows(1, 3, {1: best, **less})
    async with rows.cluster() as cluster:
        answer = await Broker(cluster, deadline=10).search(parse_query("velvet"))
    assert [len(answer.snippets), answer.results.total] == [10, 20]
    assert all(found.hit.chunk == 1 for found in answer.results.hits)
    asked = {server.chunks[0]: server.asked.count("/search") for server in rows.servers}
    assert asked == {1: 3, 2: 1, 3: 1}  # as many as are shown, some more, many
    assert {server.chunks[0]: "/snippets" in server.asked for server in rows.servers} == {
        1: True,
        2: False,
        3: False,
    }


async def test_one_server_may_have_all_shown_hits(rows: Rows) -> None:
    rare = [page(f"rare/{number}", f"velvet {number}", chunk=1) for number in range(30)]
    await rows.rows(1, 3, {1: rare, 2: plain(2), 3: plain(3)})
    async with rows.cluster() as cluster:
        broker, query = Broker(cluster, deadline=10), parse_query("velvet")
        pages = [await broker.search(query, offset=offset) for offset in (0, 10, 20)]
    assert [len(answer.snippets) for answer in pages] == [10, 10, 10]
    assert len({found.hit.url for answer in pages for found in answer.results.hits}) == 30


async def test_copies_do_not_make_a_page_short(rows: Rows) -> None:
    chunks = {
        chunk: [
            page(
                f"{chunk}/{number}",
                "velvet velvet velvet" if number < 10 else f"velvet number {number}",
                text64=100 * chunk + max(9, number),  # the best ten are the same
                chunk=chunk,
            )
            for number in range(22)
        ]
        for chunk in (1, 2, 3)
    }
    await rows.rows(1, 3, chunks)
    async with rows.cluster() as cluster:
        answer = await Broker(cluster, deadline=10).search(parse_query("velvet"))
    assert len(answer.results.hits) == 10
    assert [found.copies for found in answer.results.hits[:3]] == [9, 9, 9]


async def test_few_hits_are_counted_without_copies(rows: Rows) -> None:
    pages = [
        page(
            f"velvet/{number}",
            "velvet " + "and more " * number,
            text64=100 + min(number, 13),  # the last two are the same
            chunk=1,
        )
        for number in range(15)
    ]
    await rows.rows(1, 3, {1: pages, 2: plain(2), 3: plain(3)})
    async with rows.cluster() as cluster:
        results = (await Broker(cluster, deadline=10).search(parse_query("velvet"))).results
    assert (results.total, results.hidden, results.exact) == (14, 1, True)


async def test_the_best_hits_are_found_on_any_server(rows: Rows) -> None:
    """However unevenly they are spread: as if every server had been asked for all it has."""
    best = [page(f"best/{number}", "velvet " * (40 - number), chunk=1) for number in range(30)]
    others = {
        chunk: [
            page(f"{chunk}/{number}", f"velvet {'and other things ' * number}", chunk=chunk)
            for number in range(1, 20)
        ]
        for chunk in (2, 3)
    }
    await rows.rows(1, 3, {1: best, **others})
    async with rows.cluster() as cluster:
        broker, query = Broker(cluster, deadline=10), parse_query("velvet")
        every = await broker.search(query, k=68)
        pages = [await broker.search(query, offset=offset) for offset in range(0, 60, 10)]
    urls = [found.hit.url for found in every.results.hits]
    assert len(urls) == 68
    assert [found.hit.url for answer in pages for found in answer.results.hits] == urls[:60]
    assert {answer.results.total for answer in pages} == {68}


@pytest.mark.parametrize(
    ("wanted", "servers", "asked"),
    [(20, 1, 20), (20, 2, 18), (20, 3, 13), (20, 10, 6), (20, 100, 3), (1, 3, 1), (20, 0, 20)],
)
def test_each_server_is_asked_for_a_share_of_the_hits(
    wanted: int, servers: int, asked: int
) -> None:
    assert server_share(wanted, servers) == asked


@pytest.mark.parametrize(
    ("shown", "servers", "sent"),
    [(10, 1, 10), (10, 2, 7), (10, 3, 5), (10, 10, 2), (10, 20, 0), (0, 3, 0), (1, 2, 1)],
)
def test_each_server_sends_snippets_for_its_share_of_the_page(
    shown: int, servers: int, sent: int
) -> None:
    assert snippet_share(shown, servers) == sent
