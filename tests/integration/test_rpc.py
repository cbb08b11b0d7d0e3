"""Quick lines: asked and answered as over HTTP, left to HTTP where they are not known, and never confused."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import uvloop
from msgspec import Struct

from support.mgmt.chunk_trade import soon
from usher.errors import Unreachable
from usher.http.rpc import UPGRADE_RESPONSE, RpcPool
from usher.http.server import rpc_connections
from usher.http.server.component import (
    QUERY,
    ComponentCall,
    ComponentEndpoint,
    GuardOptions,
    serve_component,
)
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind

ANY = read_bind("127.0.0.1:0")
UPGRADE_REQUEST = b"GET /lines HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: usher-lines/1\r\n\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Words(Struct, forbid_unknown_fields=True):
    words: str


class Room:
    """What is asked here, and who waits."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.over_http = self.begun = 0

    async def echo(self, call: ComponentCall[Words]) -> Words:
        self.over_http += "host" in call.headers
        return call.body

    async def wait(self, call: ComponentCall[Words]) -> Words:
        self.begun += 1
        await self.open.wait()
        return call.body

    async def break_down(self, _call: ComponentCall[None]) -> Words:
        raise ZeroDivisionError

    def endpoints(self, *, quick: bool = True) -> Sequence[ComponentEndpoint]:
        return [
            Endpoint("POST", "/echo", self.echo, Words, access=QUERY, rpc=quick),
            Endpoint("POST", "/wait", self.wait, Words, access=QUERY, rpc=quick),
            Endpoint("POST", "/break", self.break_down, access=QUERY, rpc=quick),
            Endpoint("POST", "/slow", self.echo, Words, access=QUERY),
        ]


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
async def address(room: Room) -> AsyncIterator[str]:
    async with serve_component(room.endpoints(), ANY) as found:
        yield found


@asynccontextmanager
async def quick_to(address: str) -> AsyncIterator[RpcPool]:
    quick = RpcPool("127.0.0.1", port(address), timeout=10)
    try:
        yield quick
    finally:
        quick.close()


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def put(
    quick: RpcPool, path: str, body: object, host: str = "localhost", **headers: str
) -> tuple[int, dict[str, object]]:
    given = body if isinstance(body, bytes) else json.dumps(body).encode()
    until = asyncio.get_running_loop().time() + 20
    status, told = await quick.call(path, given, {"Host": host, **headers}, until)
    return status, json.loads(told)


async def test_questions_are_answered_one_after_the_other_and_at_once(
    room: Room, address: str
) -> None:
    async with quick_to(address) as quick:
        for word in ("one", "zwei", "三", "x" * 300_000):
            assert await put(quick, "/echo", {"words": word}) == (200, {"words": word})
        many = [put(quick, "/echo", {"words": str(number)}) for number in range(50)]
        told = await asyncio.gather(*many)
    assert [answer["words"] for _, answer in told] == [str(number) for number in range(50)]
    assert room.over_http == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/echo", b"", 400),
        ("/echo", b"{", 400),
        ("/echo", b"\xff", 400),
        ("/echo", {"words": 7}, 422),
        ("/echo", {"words": "a", "more": 1}, 422),
        ("/break", {}, 500),
        ("/slow", {"words": "a"}, 404),
        ("/nowhere", {}, 404),
        ("/healthz", {}, 404),
    ],
)
async def test_what_goes_wrong_is_told_and_the_line_goes_on(
    address: str, path: str, body: object, status: int
) -> None:
    async with quick_to(address) as quick:
        got, problem = await put(quick, path, body)
        assert (got, problem["status"]) == (status, status)
        assert await put(quick, "/echo", {"words": "again"}) == (200, {"words": "again"})


async def test_a_server_without_quick_lines_is_asked_over_http(room: Room) -> None:
    async with (
        serve_component(room.endpoints(quick=False), ANY) as address,
        quick_to(address) as quick,
    ):
        for word in ("one", "two"):
            assert await put(quick, "/echo", {"words": word}) == (200, {"words": word})
    assert room.over_http == 2


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({}, 200),
    ],
)
async def test_who_may_not_ask_over_http_may_not_here(
    address: str, headers: dict[str, str], status: int
) -> None:
    async with quick_to(address) as quick:
        assert (await put(quick, "/echo", {"words": "a"}, **headers))[0] == status


async def test_a_ticket_is_checked_with_each_question(room: Room) -> None:
    everywhere = read_bind("0.0.0.0:0")
    options = GuardOptions(mgmt="http://127.0.0.1:9", token="secret")  # which does not answer
    async with serve_component(room.endpoints(), everywhere, options=options) as address:
        for headers, status in (({}, 401), ({"Authorization": "Basic secret"}, 401)):
            async with quick_to(address) as quick:
                got, _ = await put(quick, "/echo", {"words": "a"}, host="any.example", **headers)
                assert got == status
        async with quick_to(address) as quick:  # only MGMT could tell whether it is good
            got, _ = await put(quick, "/echo", {"words": "a"}, Authorization="Bearer other")
            assert got == 503


async def talk(address: str, *parts: bytes, answers: int = 0) -> bytes:
    """What is heard after the wish is granted and these parts were said: so many bytes, or all until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(address))
    try:
        async with asyncio.timeout(20):
            writer.write(UPGRADE_REQUEST)
            assert await reader.readexactly(len(UPGRADE_RESPONSE)) == UPGRADE_RESPONSE
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.001)
            return await (reader.readexactly(answers) if answers else reader.read())
    finally:
        writer.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"/echo -1\n",
        b"/echo\n",
        b"/echo 7 7\n",
        b"/echo 99999999999\n",
        b"/echo 10000001\n",
        b"x" * 300,
        b"\x00\xff\n" * 50,
    ],
)
async def test_whoever_speaks_otherwise_is_hung_up_on(address: str, said: bytes) -> None:
    assert await talk(address, said) == b""
    async with quick_to(address) as quick:
        assert (await put(quick, "/echo", {"words": "a"}))[0] == 200


async def test_a_question_may_come_in_parts_and_several_at_once(address: str) -> None:
    body = b'{"words":"a"}'
    question, answer = b"/echo 13\n" + body, b"200 13\n" + body
    single = [question[at : at + 1] for at in range(len(question))]
    assert await talk(address, *single, answers=len(answer)) == answer
    together = await talk(address, question * 3, answers=3 * len(answer))
    assert together == answer * 3


@pytest.mark.parametrize(
    "said",
    [
        UPGRADE_REQUEST.replace(b"usher-lines/1", b"usher-lines/2"),
        UPGRADE_REQUEST.replace(b"usher-lines/1", b"websocket"),
        UPGRADE_REQUEST.replace(b"Upgrade: usher-lines/1\r\n", b""),
        UPGRADE_REQUEST.replace(b"GET", b"POST"),
    ],
)
async def test_what_is_no_wish_for_a_line_is_http(address: str, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port(address))
    writer.write(said)
    async with asyncio.timeout(20):
        assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
    writer.close()


def test_only_a_complete_request_is_upgraded() -> None:
    headers = rpc_connections.read_upgrade(UPGRADE_REQUEST)
    assert headers is not None
    assert headers["host"] == "localhost"
    assert {
        rpc_connections.read_upgrade(UPGRADE_REQUEST[:size]) for size in range(len(UPGRADE_REQUEST))
    } == {None}


async def test_an_answer_under_way_is_given_before_the_server_ends(room: Room) -> None:
    async with serve_component(room.endpoints(), ANY) as address:
        quick = RpcPool("127.0.0.1", port(address), timeout=10)
        await put(quick, "/echo", {"words": "a"})  # this line will be idle
        asked = [asyncio.create_task(put(quick, "/wait", {"words": word})) for word in "bc"]
        assert await soon(lambda: room.begun == 2)
        asyncio.get_running_loop().call_later(0.3, room.open.set)
    assert [await one for one in asked] == [(200, {"words": word}) for word in "bc"]
    with pytest.raises(Unreachable):
        await put(quick, "/echo", {"words": "a"})
    quick.close()


async def test_whoever_stops_waiting_gets_nobody_elses_answer(room: Room, address: str) -> None:
    async with quick_to(address) as quick:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await put(quick, "/wait", {"words": "late"})
            assert await put(quick, "/echo", {"words": "new"}) == (200, {"words": "new"})
        room.open.set()


def test_an_answer_to_a_closed_connection_is_dropped() -> None:
    """On uvloop, which the components use, a closed transport refuses to write."""
    errors: list[str] = []

    async def hang_up_while_the_server_works() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: errors.append(context["message"]))
        room = Room()
        async with serve_component(room.endpoints(), ANY) as address:
            reader, writer = await asyncio.open_connection("127.0.0.1", port(address))
            writer.write(UPGRADE_REQUEST)
            await reader.readexactly(len(UPGRADE_RESPONSE))
            writer.write(b'/wait 13\n{"words":"a"}')
            assert await soon(lambda: room.begun == 1)
            writer.transport.abort()
            await asyncio.sleep(0.2)  # the server must notice, else this tests nothing
            room.open.set()
        gc.collect()  # an exception that no code retrieved is reported when its task is freed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hang_up_while_the_server_works())
    assert errors == []


async def test_a_line_that_is_not_used_is_closed_and_replaced(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_connections, "IDLE_SECONDS", 0.1)
    assert await talk(address, b"/echo 100\nand no more") == b""
    async with quick_to(address) as quick:
        for _ in range(3):
            assert (await put(quick, "/echo", {"words": "a"}))[0] == 200
            await asyncio.sleep(0.3)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"200",
        b"200 5\nab",
        b"200 2\nabcd",
        b"200 -2\nab",
        b"ok 2\nab",
        b"200 2 2\nab",
        b"200 999999999999\n",
        b"x" * 500,
    ],
)
async def test_a_server_that_answers_otherwise_is_away(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UPGRADE_RESPONSE)
        await reader.readline()
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with quick_to(f":{server.sockets[0].getsockname()[1]}") as quick:
        with pytest.raises(Unreachable):
            await put(quick, "/echo", {"words": "a"})
    server.close()
