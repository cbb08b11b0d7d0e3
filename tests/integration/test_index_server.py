"""The index server loads the chunks that MGMT wants and keeps them through restarts and failures."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.db.fixtures import Server, clone
from support.index.chunk_files import noise, small_disk
from support.index.stack import post
from support.mgmt.chunk_trade import Trade, acting, free_bind, soon, trading
from support.processes.crawls import EMBEDDED
from usher.chunk_store import ChunkStore
from usher.http.client.download import download_chunk
from usher.index.server import IndexServerOptions, run_index_server

pytestmark = EMBEDDED
ALONE = """
    update work.component set health = 'failure', down = '1 year'
    where host <> %s and type = 'index-server' returning 1
"""
RETIRE = """
    insert into work.retirement
    select c.id, g.chunk_id, g.id from work.component c, work.guestbook g
    where c.host = %s and g.chunk_id = %s and g.path = '/1' returning 1
"""
MOVE = """
    update work.placement set state = 'leaving', released_at = now() - interval '1 minute'
    where chunk_id = %s returning 1
"""
Serves = Callable[..., AbstractAsyncContextManager["Asked"]]


class Asked:
    """Questions to one server."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.port = int(host.rpartition(":")[2])

    async def ask(self, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        status, told = await asyncio.to_thread(post, self.port, path, body)
        assert status == 200, told
        return told

    async def find(self, words: str) -> list[str]:
        told = await self.ask("/search", {"query": words, "k": 100})
        return sorted(hit["url"] for hit in told.get("hits", []))

    async def finds(self, words: str, number: int) -> bool:
        """Whether it finds so many in time."""
        for _ in range(150):
            if len(await self.find(words)) == number:
                return True
            await asyncio.sleep(0.1)
        return False


@pytest.fixture(scope="module")
async def trade(migrated: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trade]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        async with trading(dsn, tmp_path_factory.mktemp("trade")) as made:
            yield made


@pytest.fixture
def serves(trade: Trade, tmp_path: Path) -> Serves:
    """The only index server there is, in this process."""

    @asynccontextmanager
    async def made(bind: object = None, data: Path = tmp_path) -> AsyncIterator[Asked]:
        wish = IndexServerOptions(bind=bind or free_bind(), row=1)  # type: ignore[arg-type]
        trade.ask(ALONE, str(wish.bind))
        settings = trade.settings(data)
        async with acting(
            lambda stop, ready: run_index_server(settings, wish, stop, ready=ready)
        ) as host:
            yield Asked(host)

    return made


def loaded(trade: Trade, host: str) -> list[int]:
    query = """
        select p.chunk_id from work.placement p join work.component c on c.id = p.component_id
        where c.host = %s and p.state = 'loaded' order by 1
    """
    return [chunk for (chunk,) in trade.ask(query, host)]


async def test_chunks_are_loaded_once_and_survive_a_restart(
    trade: Trade, serves: Serves, tmp_path: Path
) -> None:
    bind = free_bind()
    async with serves(bind) as server:
        chunks = [await trade.build("violet words", "violet text") for _ in range(3)]
        empty = await trade.build()
        assert await server.finds("violet", 6)
        assert await soon(lambda: loaded(trade, server.host) == [*chunks, empty])
        peer = await download_chunk(server.host, chunks[0], "index", tmp_path / "pulled")
        assert peer.sha256 == ChunkStore(trade.index.directory, ".idx").find(chunks[0]).sha256  # type: ignore[union-attr]
    trade.index.drop(chunks)  # the server must not download them again
    async with serves(bind) as server:
        assert len(await server.find("violet")) == 6
        assert await soon(lambda: loaded(trade, server.host) == [*chunks, empty])


async def test_moved_chunks_are_dropped_and_outdated_pages_are_retired(
    trade: Trade, serves: Serves
) -> None:
    async with serves() as server:
        kept, left = [await trade.build("amber words", "amber text") for _ in range(2)]
        assert await server.finds("amber", 4)
        assert await soon(lambda: loaded(trade, server.host) == [kept, left])
        old = trade.links[kept][1]
        trade.ask(RETIRE, server.host, kept)
        assert await server.finds("amber", 3)
        assert old not in await server.find("amber")
        assert await soon(lambda: trade.ask("select count(*) from work.retirement") == [(0,)])
        trade.ask(MOVE, left)
        assert await server.finds("amber", 1)
        gone = "select count(*) from work.placement where chunk_id = %s"
        assert await soon(lambda: trade.ask(gone, left) == [(0,)])


async def test_a_damaged_file_is_retried_and_others_are_loaded(
    trade: Trade, serves: Serves
) -> None:
    async with serves() as server:
        damaged = await trade.build("ochre words")
        whole = trade.index.path(damaged).read_bytes()
        trade.index.path(damaged).write_bytes(noise(1, len(whole)))
        false = await trade.build("ochre text", sha256="ab" * 32)
        good = await trade.build("ochre")
        assert await soon(lambda: loaded(trade, server.host) == [good])
        assert len(await server.find("ochre")) == 1
        trade.index.path(damaged).write_bytes(whole)
        assert await soon(lambda: loaded(trade, server.host) == [damaged, good])
        assert false not in loaded(trade, server.host)
        trade.ask("delete from work.placement where chunk_id = %s returning 1", false)


async def test_an_index_that_cannot_be_opened_is_rebuilt_from_chunk_files(
    trade: Trade, serves: Serves, tmp_path: Path
) -> None:
    bind = free_bind()
    async with serves(bind) as server:
        chunks = [await trade.build("indigo words") for _ in range(3)]
        assert await soon(lambda: loaded(trade, server.host) == chunks)
    trade.index.drop(chunks)
    [meta] = tmp_path.glob("index/*/engine/meta.json")
    meta.write_text("{")
    async with serves(bind) as server:
        assert await server.finds("indigo", 3)
        state = "select state from work.component where host = %s"
        assert await soon(lambda: trade.ask(state, server.host) == [("online",)])
        assert loaded(trade, server.host) == chunks


async def test_a_server_reports_a_full_disk_and_resumes_when_there_is_space(
    trade: Trade, serves: Serves, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "80m"):
        async with serves(data=disk) as server:
            before = await trade.build("umber words")
            assert await server.finds("umber", 1)
            (disk / "filler").write_bytes(bytes(40_000_000))
            state = "select state, state_reason from work.component where host = %s"
            assert await soon(lambda: trade.ask(state, server.host)[0][0] == "error")
            assert "MB are free" in trade.ask(state, server.host)[0][1]
            after = await trade.build("umber text")
            assert len(await server.find("umber")) == 1
            (disk / "filler").unlink()
            assert await server.finds("umber", 2)
            assert await soon(lambda: loaded(trade, server.host) == [before, after])
            assert await soon(lambda: trade.ask(state, server.host)[0][0] == "online")
        gc.collect()  # what maps the files of the index


async def test_all_kinds_of_requests_are_answered(trade: Trade, serves: Serves) -> None:
    async with serves() as server:
        chunk = await trade.build("Crimson seats are in the front row of this house.")
        assert await server.finds("crimson", 1)
        [url] = trade.links[chunk]
        stats = await server.ask("/stats", {"query": "crimson seat"})
        assert stats["terms"]["body:crimson"] == 1
        hits = await server.ask(
            "/search",
            {"query": {"groups": [[{"text": "crimson"}]]}, "stats": stats, "hosts": True},
        )
        assert (hits["total"], hits["hits"][0]["url"], hits["hosts"]) == (
            1,
            url,
            {url.split("/")[2]: 1},
        )
        [snippet] = await server.ask(
            "/snippets", {"query": "crimson", "wanted": [[url, chunk], [url, 1]]}
        )
        assert snippet["pieces"][0] == ["Crimson", True]
        assert await server.ask("/suggest", {"query": "crimsn"}) == []
        nothing = {"incarnation": hits["incarnation"]}
        assert await server.ask("/search", {"query": '"unbalanced -( OR ' * 500}) == nothing
