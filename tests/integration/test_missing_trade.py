"""Lost and damaged chunk files: the chunks are searchable or crawled again whichever component become searchable."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.index.chunk_files import noise
from support.index.stack import post
from support.mgmt.chunk_trade import Trade, acting, free_bind, soon, titled, trading
from support.processes.crawls import EMBEDDED
from usher.errors import Conflict
from usher.http.client.mgmt_client import Client
from usher.http.server.listen import Bind
from usher.index import builder_service, server
from usher.messages.crawler import PageReport
from usher.messages.index_server import LostChunks, MissingChunk

pytestmark = EMBEDDED


@pytest.fixture
async def trade(database: str, tmp_path: Path) -> AsyncIterator[Trade]:
    async with trading(database, tmp_path) as made:
        yield made


async def serves(trade: Trade, stack: AsyncExitStack, data: Path, bind: Bind) -> str:
    wish, settings = server.IndexServerOptions(bind=bind, row=1), trade.settings(data)
    actor = acting(lambda stop, ready: server.run_index_server(settings, wish, stop, ready=ready))
    return await stack.enter_async_context(actor)


async def builds(trade: Trade, stack: AsyncExitStack, data: Path) -> None:
    wish, settings = (
        builder_service.BuilderOptions(bind=free_bind(), processes=1),
        trade.settings(data),
    )
    actor = acting(
        lambda stop, ready: builder_service.run_builder(settings, wish, stop, ready=ready)
    )
    await stack.enter_async_context(actor)


def propagated(trade: Trade, chunk: int) -> bool:
    query = "select propagated_at is not null from work.chunk where id = %s"
    return trade.ask(query, chunk) == [(True,)]


def found(host: str, words: str) -> list[str]:
    status, told = post(int(host.rpartition(":")[2]), "/search", {"query": words})
    assert status == 200, told
    return sorted(hit["url"] for hit in told.get("hits", []))


async def test_what_a_builder_lost_is_built_again(
    trade: Trade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usher.index.chunk_sources.LOST_SECONDS", 1.0)
    bind = free_bind()
    async with Client(trade.server.address, host=str(bind)) as client:  # for which seats are kept
        await client.set_state("online", type="index-server", row=1)
    chunks = [await trade.build("saffron words") for _ in range(3)]
    gone, damaged, good = chunks
    trade.index.drop([gone])
    trade.index.path(damaged).write_bytes(noise(1, 500))
    again = sorted([*trade.links[gone], *trade.links[damaged]])
    async with AsyncExitStack() as stack:
        host = await serves(trade, stack, tmp_path / "server", bind)
        assert await soon(lambda: propagated(trade, good))
        lost = "select count(*) from work.event where kind = 'index_missing' and after = 'build'"
        assert await soon(lambda: trade.ask(lost) == [(2,)], 60)
        await builds(trade, stack, tmp_path / "builder")
        assert await soon(lambda: all(propagated(trade, one) for one in chunks), 60)
        assert await soon(lambda: found(host, "row four") == again, 60), "as they were crawled"
        assert await soon(lambda: found(host, "saffron") == trade.links[good], 60)


async def test_what_a_crawler_lost_is_crawled_again(trade: Trade, tmp_path: Path) -> None:
    gone = await trade.crawl(titled("/gone", "Gone"), kept=False)
    short = await trade.crawl(titled("/short", "Short"))
    path = trade.content.path(short)
    path.write_bytes(path.read_bytes()[:100])
    state = "select state from work.chunk where id = any(%s) order by id"
    async with AsyncExitStack() as stack:
        await builds(trade, stack, tmp_path / "builder")
        assert await soon(lambda: trade.ask(state, [gone, short]) == [("error",)] * 2, 60)
        again = [pack for _ in range(2) if (pack := await trade.crawler.get_links(1))]
        links = sorted(one.link for pack in again for one in pack.pages)
        assert links == sorted([*trade.links[gone], *trade.links[short]])
        for pack in again:
            pages = [PageReport(link=one.link, result="gone", status=410) for one in pack.pages]
            await trade.crawler.crawled(pack.chunk_id, pages=pages)
        ids = [pack.chunk_id for pack in again]
        assert await soon(lambda: trade.ask(state, ids) == [("error",)] * 2, 60)
        assert await trade.crawler.get_links(1) is None, "there was nothing in them to lose"


async def test_a_server_is_told_what_becomes_of_what_it_misses(trade: Trade) -> None:
    await trade.crawler.set_state("online", type="crawler")
    chunk = await trade.build("some words")
    with pytest.raises(Conflict, match="not index-server"):
        await trade.crawler.missing([MissingChunk(chunk)])
    seat = """
        with server as (insert into work.component (host, type, "row") values (%s, 'index-server', 1) returning id)
        insert into work.placement (component_id, chunk_id, "row", since)
        select id, %s, 1, now() from server returning 1
    """
    trade.ask(seat, "127.0.0.1", chunk)
    async with Client(trade.server.address, host="127.0.0.1") as client:
        assert await client.missing(
            [MissingChunk(chunk, "no\0where"), MissingChunk(chunk + 1)]
        ) == (LostChunks([chunk], [], []))
        assert await client.missing([MissingChunk(chunk)]) == LostChunks([], [], [])
        assert await client.missing([]) == LostChunks([], [], [])
    state = "select index_state, reason from work.chunk where id = %s"
    assert trade.ask(state, chunk) == [(None, "nowhere")]
