"""The client as our own components use it, against a running MGMT and against servers that misbehave."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.mgmt.mgmt_process import mgmt
from support.mgmt.plain_components import at_once, one, states
from support.processes.killable import eventually
from usher.errors import BadInput, Conflict, NotAllowed, NotFound, Unreachable, UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import PageReport

LINKS = [f"https://h{n}.example/{n}" for n in range(7)]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def test_the_whole_way_of_a_chunk(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log") as server:
        async with (
            Client(server.address, host="c:1") as crawler,
            Client(server.address, host="b:1") as builder,
            Client(server.address, host="s:1") as holder,
        ):
            assert (await crawler.set_state("online", type="crawler")).type == "crawler"
            assert (await holder.set_state("online", type="index-server", weight=2)).row == 1
            assert await crawler.get_links() is None
            added = await crawler.add_links([*LINKS, "javascript:1"])
            assert (added.counts.admit, added.reasons["unsupported_scheme"]) == (7, 1)
            pack = await crawler.get_links()
            assert pack
            assert len(pack.pages) == 5
            told = await crawler.set_link_state(pack.pages[0].link, "error", pack.chunk_id)
            more = await crawler.more_links(3, pack.chunk_id)
            fetched = [*(page.link for page in pack.pages[1:]), told.link or "", more[0].link]
            assert sorted([*fetched, pack.pages[0].link]) == LINKS
            assert (await crawler.renew([pack.chunk_id, 1])).lost == [1]
            pages = [
                PageReport(
                    link=link,
                    result="success",
                    status=200,
                    content_length=1,
                    content_sha1="ab" * 20,
                )
                for link in fetched
            ]
            done = await crawler.crawled(pack.chunk_id, pages=pages, sha256="cd" * 32, size=6)
            assert done.state == "crawled"
            (chunk,) = await builder.get_content_chunks()
            assert (chunk.host, chunk.sha256, chunk.bytes) == ("c:1", "cd" * 32, 6)
            assert (await builder.built(chunk.chunk_id, sha256="ef" * 32, size=3)).state == "built"
            (wanted,) = await holder.get_chunks()
            assert (wanted.index_builder_host, wanted.index_sha256) == ("b:1", "ef" * 32)
            assert await crawler.unpropagated() == [chunk.chunk_id]
            assert await holder.loaded([chunk.chunk_id]) == [chunk.chunk_id]
            assert await crawler.unpropagated() == []
            assert await holder.holds([chunk.chunk_id, 77]) == [77]
            assert await holder.holds([]) == []
            assert await holder.leaving() == []
            assert [(row.row, row.servers) for row in await holder.servers_map()] == [(1, ["s:1"])]
            await holder.send_query_stats("words", 0.25, at=1512142011.0)
            await holder.send_queries([("more", 0.5, 1512142012.0), ("and more", 1, 1512142013)])
            await holder.send_queries([])
    assert states(database) == {"crawled": 6, "error": 1}
    kept = "select array_agg((extract(epoch from at)::int, term, seconds)::text order by at) from work.query_stat"
    assert one(database, kept) == [
        "(1512142011,words,0.25)",
        "(1512142012,more,0.5)",
        '(1512142013,"and more",1)',
    ]


async def test_a_chunk_may_be_as_wide_and_deep_as_a_crawler_likes(
    database: str, tmp_path: Path
) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings={"USHER_CHUNK_WAIT": "0"}) as server:
        async with Client(server.address, host="c:1") as crawler:
            await crawler.add_links(
                [f"https://h{n}.example/{m}" for n in range(4) for m in range(9)]
            )
            pack = await crawler.get_links(100, hosts=3, each=2)
            assert pack
            hosts = [page.link.split("/")[2] for page in pack.pages]
            assert len(hosts) == len(set(hosts)) * 2
            assert len(set(hosts)) >= 3
            assert pack.pages[0].crawl_delay == 0
            assert (await crawler.not_crawled(pack.chunk_id, "too wide")).state == "error"
    assert states(database) == {"pending": 36}


async def test_what_is_declined_is_raised(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log") as server:
        async with (
            Client(server.address, host="c:1") as one_,
            Client(server.address, host="d:1") as two,
        ):
            with pytest.raises(NotFound, match="no chunk 99"):
                await one_.crawled(99)
            await one_.add_links(LINKS[:5])
            pack = await one_.get_links()
            assert pack
            with pytest.raises(Conflict, match="not assigned to d:1"):
                await two.not_crawled(pack.chunk_id)
            with pytest.raises(BadInput):
                await one_.set_state("broken")  # type: ignore[arg-type]
        async with Client(server.address, token="wrong") as stranger:
            with pytest.raises(NotAllowed, match="not known"):
                await stranger.get_links()


async def test_the_map_is_asked_for_cheaply(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log", level="debug") as server:
        async with Client(server.address, host="s:1") as holder:
            await holder.set_state("online", type="index-server")
            first = await holder.servers_map()
            assert [await holder.servers_map() for _ in range(3)] == [first] * 3

        def told() -> list[int]:
            return [one["status"] for one in server.lines if one.get("path") == "/get_servers_map"]

        assert eventually(lambda: told() == [200, 304, 304, 304], 5)


async def test_patience_outlasts_a_server_that_is_away(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "a") as server:
        client = Client(server.address, host="c:1", patience=20)
        assert await client.get_links() is None
        where = server.address.removeprefix("http://")
        server.stop(signal.SIGTERM)
        asking = asyncio.create_task(client.get_links())
        await asyncio.sleep(0.5)
        assert not asking.done()
        with mgmt(database, tmp_path / "b", "--bind", where):
            async with client:
                assert await asking is None


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[str]:
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b'HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{"chunk_id": "no"}',
    ],
)
async def test_answers_that_are_none_are_errors(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async with talking(talk) as address, Client(address, timeout=5) as client:
        with pytest.raises(UsherError):
            await client.get_links()


async def test_silence_ends() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with talking(talk) as address, Client(address, timeout=0.2) as client:
        with pytest.raises(Unreachable, match=r"within 0\.2 seconds"):
            await client.get_links()


async def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with talking(talk) as address, Client(address, timeout=5) as client:
        for _ in range(3):
            assert await client.get_links() is None
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("address", ["http://", "ftp://x"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(BadInput):
        Client(address)


async def test_a_host_with_a_line_break_is_no_second_header() -> None:
    async with Client("http://127.0.0.1:9", host="a\r\nX: y") as client:
        with pytest.raises(ValueError, match="line break"):
            await client.get_links()
