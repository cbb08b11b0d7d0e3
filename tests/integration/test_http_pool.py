"""Connections to our own servers: kept as long as both sides want, and replaced when one has gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from usher.errors import Unreachable
from usher.http.client.pool import HttpPool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
UNCHANGED = b"HTTP/1.1 304 Not Modified\r\nETag: 7\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nhi"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Server:
    """Gives the same answer again and again, and counts who came; hangs up after so many."""

    def __init__(self, answer: bytes, each: int = 1_000) -> None:
        self.answer, self.each = answer, each
        self.met = 0
        self.port = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        try:
            for _ in range(self.each):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def lines_to(server: Server) -> AsyncIterator[HttpPool]:
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    lines = HttpPool("127.0.0.1", listener.sockets[0].getsockname()[1], timeout=5)
    try:
        yield lines
    finally:
        lines.close()
        listener.close()
        await asyncio.sleep(0)


async def ask(lines: HttpPool) -> int:
    return (await lines.ask("GET", "/", b"", {"Host": "here"})).status


@pytest.mark.parametrize(
    ("answer", "met"),
    [(OK, 1), (CHUNKED, 1), (UNCHANGED, 1), (LAST, 3), (OLD, 3)],
    ids=["length", "chunked", "empty", "last", "old"],
)
async def test_a_connection_is_kept_unless_the_server_says_otherwise(
    answer: bytes, met: int
) -> None:
    server = Server(answer)
    async with lines_to(server) as lines:
        assert [await ask(lines) for _ in range(3)] == [int(answer[9:12])] * 3
        assert server.met == met


async def test_what_the_server_has_closed_is_replaced() -> None:
    server = Server(OK, each=2)
    async with lines_to(server) as lines:
        for _ in range(6):
            assert await ask(lines) == 200
        assert server.met == 3
        together = await asyncio.gather(*(ask(lines) for _ in range(4)))
        assert together == [200] * 4


async def test_a_server_that_says_nothing_is_away() -> None:
    server = Server(OK, each=0)
    async with lines_to(server) as lines:
        with pytest.raises(Unreachable):
            await ask(lines)


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
async def test_what_is_no_answer_is_away(answer: bytes) -> None:
    async with lines_to(Server(answer)) as lines:
        with pytest.raises(Unreachable):
            await ask(lines)
