"""An answer goes out in one piece, if it is there in one; whatever is written goes out in order, and all of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop
from starlette.responses import Response, StreamingResponse

from usher.http.server.component import QUERY, ComponentCall, ComponentEndpoint, serve_component
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind
from usher.http.server.single_write import SingleWriteTransport

ANY = read_bind("127.0.0.1:0")
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


class Transport:
    """What is written, write by write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


async def test_a_head_waits_for_its_body() -> None:
    under = Transport()
    line = SingleWriteTransport(under)  # type: ignore[arg-type]
    line.write(b"HTTP/1.1 200 OK\r\n\r\n")
    line.write(b"body")
    line.write(b"more")
    assert under.written == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    await asyncio.sleep(0)
    assert len(under.written) == 2


async def test_a_head_without_a_body_does_not_wait_for_long() -> None:
    under = Transport()
    line = SingleWriteTransport(under)  # type: ignore[arg-type]
    line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert under.written == []
    await asyncio.sleep(0)
    assert under.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    line.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    line.close()
    assert under.written[1:] == [b"HTTP/1.1 204 No Content\r\n\r\n"]
    assert under.closed
    line.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.sleep(0)  # whoever hung up gets nothing
    assert len(under.written) == 2


async def hello(_call: ComponentCall[None]) -> Response:
    return Response(b"x" * 1000)


async def nothing(_call: ComponentCall[None]) -> Response:
    return Response(status_code=304)


async def parts(_call: ComponentCall[None]) -> Response:
    async def some() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number
            await asyncio.sleep(0.01)

    return StreamingResponse(some())


ENDPOINTS: list[ComponentEndpoint] = [
    Endpoint("GET", "/hello", hello, access=QUERY),
    Endpoint("GET", "/nothing", nothing, access=QUERY),
    Endpoint("GET", "/parts", parts, access=QUERY),
]


async def answers() -> None:
    async with serve_component(ENDPOINTS, ANY) as address:
        reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        writer.write(GET % b"/hello")
        first = await reader.read(65_536)
        assert first.endswith(b"\r\n\r\n" + b"x" * 1000)
        writer.write(GET % b"/nothing")
        assert (await reader.read(65_536)).startswith(b"HTTP/1.1 304 ")
        writer.write(GET % b"/parts" + GET % b"/hello")  # the next one before the answer
        both = b""
        while not both.endswith(b"x" * 1000):
            both += await reader.read(65_536)
        head, _, body = both.partition(b"\r\n\r\n")
        assert b"chunked" in head
        assert body.startswith(b"1\r\n0\r\n1\r\n1\r\n1\r\n2\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n")
        writer.close()
        await writer.wait_closed()


def test_answers_come_in_one_piece_and_in_order(loops: asyncio.Runner) -> None:
    with loops:
        loops.run(asyncio.wait_for(answers(), 20))
