"""An index server reloads chunks that differ from a restored database before it reports them."""

from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.index.stack import post
from support.mgmt.chunk_trade import Trade, acting, free_bind, soon, trading
from support.processes.crawls import EMBEDDED
from usher.http.client.mgmt_client import Client
from usher.http.client.pool import HttpResponse
from usher.http.server.listen import Bind
from usher.index.server import IndexServerOptions, run_index_server
from usher.messages.index_server import HeldChunk, HoldingsComparison

pytestmark = EMBEDDED
RESTORE = "select work.begin_incarnation('restored')"
INCARNATION = "select id::text from work.incarnation"
STATE = "select state from work.placement where chunk_id = %s"
LOADED = "select chunk_id from work.placement where state = 'loaded'"
UNREPORTED = "select count(*) from work.placement where unreported"
RETIRE = """
    insert into work.retirement
    select p.component_id, g.chunk_id, g.id from work.placement p join work.guestbook g using (chunk_id)
    where g.chunk_id = %s and g.path = '/1' returning 1
"""
Serves = Callable[[Bind], AbstractAsyncContextManager["Server"]]


class Server:
    """Questions to one server."""

    def __init__(self, host: str) -> None:
        self.port = int(host.rpartition(":")[2])

    async def finds(self, word: str, count: int) -> bool:
        """Whether it finds so many documents in time."""
        return await soon(lambda: self.count(word) == count)

    def count(self, word: str) -> int:
        return len(self.search(word).get("hits", []))

    def search(self, word: str) -> dict[str, Any]:
        status, answer = post(self.port, "/search", {"query": word, "k": 100})
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found


@pytest.fixture
async def trade(database: str, tmp_path: Path) -> AsyncIterator[Trade]:
    (tmp_path / "trade").mkdir()
    async with trading(database, tmp_path / "trade") as made:
        yield made


@pytest.fixture
def serves(trade: Trade, tmp_path: Path) -> Serves:
    """The only index server there is, in this process."""

    @asynccontextmanager
    async def running(bind: Bind) -> AsyncIterator[Server]:
        wish, settings = IndexServerOptions(bind=bind, row=1), trade.settings(tmp_path / "data")
        async with acting(
            lambda stop, ready: run_index_server(settings, wish, stop, ready=ready)
        ) as host:
            yield Server(host)

    return running


def is_loaded(trade: Trade, chunk: int) -> bool:
    return (chunk,) in trade.ask(LOADED)


async def taken_out(trade: Trade, server: Server, chunk: int, word: str) -> None:
    """A page of the chunk is taken out, in a history that will be lost."""
    assert await soon(lambda: is_loaded(trade, chunk))
    trade.ask(RETIRE, chunk)
    assert await server.finds(word, 1)
    assert await soon(lambda: trade.ask("select count(*) from work.retirement") == [(0,)])


async def test_a_running_server_reloads_chunks_with_retired_pages(
    trade: Trade, serves: Serves
) -> None:
    async with serves(free_bind()) as server:
        chunk = await trade.build("sienna words", "sienna text")
        await taken_out(trade, server, chunk, "sienna")
        trade.index.drop([chunk])  # from its own file
        [(before,)] = trade.ask(INCARNATION)
        assert (await to_thread(server.search, "sienna"))["incarnation"] == before
        trade.ask(RESTORE)
        [(after,)] = trade.ask(INCARNATION)
        assert await server.finds("sienna", 2)
        assert (await to_thread(server.search, "sienna"))["incarnation"] == after != before
        assert await soon(lambda: is_loaded(trade, chunk))
        assert trade.ask(UNREPORTED) == [(0,)]
        assert trade.ask("select * from work.unrestored where chunk_id = %s", chunk) == []


async def test_a_comparison_with_an_old_incarnation_is_repeated_with_the_new_one(
    trade: Trade, serves: Serves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second MGMT process may name the old incarnation for a moment after a restore."""
    compared: list[str] = []
    note, compare = Client._note_incarnation, Client.compare

    def note_the_old_one(self: Client, answer: HttpResponse) -> None:
        if compared == [after] and self.compared_with == after:
            self.incarnation = before
        else:
            note(self, answer)

    async def compare_and_record(
        self: Client, chunks: Sequence[HeldChunk], incarnation: str
    ) -> HoldingsComparison:
        compared.append(incarnation)
        return await compare(self, chunks, incarnation)

    async with serves(free_bind()) as server:
        chunk = await trade.build("sepia words")
        assert await soon(lambda: is_loaded(trade, chunk))
        [(before,)] = trade.ask(INCARNATION)
        trade.ask(RESTORE)
        [(after,)] = trade.ask(INCARNATION)
        monkeypatch.setattr(Client, "_note_incarnation", note_the_old_one)
        monkeypatch.setattr(Client, "compare", compare_and_record)
        assert await soon(lambda: before in compared), compared
        assert await soon(lambda: server.search("sepia").get("incarnation") == after)


async def test_a_chunk_that_cannot_be_loaded_again_is_never_reported(
    trade: Trade, serves: Serves, tmp_path: Path
) -> None:
    bind = free_bind()
    async with serves(bind) as server:
        chunk = await trade.build("russet words", "russet text")
        await taken_out(trade, server, chunk, "russet")
        trade.index.drop([chunk])
    trade.ask(RESTORE)
    [file] = tmp_path.glob(f"data/index/*/chunks/*/{chunk:09d}.idx")
    content = file.read_bytes()
    file.unlink()
    for word in ("bistre", "fallow"):  # it is started again and compares nothing the second time
        async with serves(bind) as server:
            assert await soon(lambda: trade.ask(UNREPORTED) == [(0,)])
            other = await trade.build(word)
            assert await soon(lambda: is_loaded(trade, other))  # noqa: B023
            assert trade.ask(STATE, chunk) == [("wanted",)]
            assert await server.finds("russet", 1), "it is found as it is meanwhile"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    async with serves(bind) as server:
        assert await server.finds("russet", 2)
        assert await soon(lambda: is_loaded(trade, chunk))


async def test_a_chunk_that_moved_meanwhile_leaves_no_documents(
    trade: Trade, serves: Serves, tmp_path: Path
) -> None:
    bind = free_bind()
    async with serves(bind) as server:
        chunk = await trade.build("maroon words", "maroon text")
        await taken_out(trade, server, chunk, "maroon")
        trade.index.drop([chunk])
    trade.ask(RESTORE)
    [file] = tmp_path.glob(f"data/index/*/chunks/*/{chunk:09d}.idx")
    file.unlink()
    async with serves(bind) as server:
        assert await soon(lambda: trade.ask(UNREPORTED) == [(0,)])
        assert trade.ask(STATE, chunk) == [("wanted",)]
    trade.ask("delete from work.placement where chunk_id = %s returning 1", chunk)
    async with serves(bind) as server:
        assert await server.finds("maroon", 0)
