"""Attacks on connections that are upgraded from HTTP to questions and answers (finding 3)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.responses import Response

from support.mgmt.chunk_trade import soon
from support.mgmt.mgmt_process import mgmt
from support.mgmt.plain_components import one
from support.site.raw_http import WAIT_SECONDS, RawClient, port_of, raw_client, send_raw
from usher.db.pool import connect
from usher.http.client.mgmt_client import Client
from usher.http.rpc import UPGRADE_RESPONSE
from usher.http.server import connection_limits, rpc_connections
from usher.http.server.component import (
    QUERY,
    ComponentCall,
    ComponentEndpoint,
    GuardOptions,
    serve_component,
)
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind
from usher.mgmt import tokens

ANY = read_bind("127.0.0.1:0")
EVERYWHERE = read_bind("0.0.0.0:0")
UPGRADE = (
    b"GET /lines HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: usher-lines/1\r\n"
)
LARGE_BYTES = 600_000
KERNEL_BYTES = 8_000_000  # more than the kernel buffers for one connection with a small send buffer


class Handlers:
    """What the server is asked, and how often."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.calls = 0

    async def wait(self, _call: ComponentCall[None]) -> Response:
        self.calls += 1
        await self.release.wait()
        return Response(b"done")

    async def large(self, _call: ComponentCall[None]) -> Response:
        self.calls += 1
        return Response(bytes(1_000_000))

    @property
    def endpoints(self) -> list[ComponentEndpoint]:
        return [
            Endpoint("POST", "/wait", self.wait, access=QUERY, rpc=True),
            Endpoint("POST", "/large", self.large, access=QUERY, rpc=True),
        ]


@pytest.fixture
async def handlers() -> AsyncIterator[Handlers]:
    handlers = Handlers()
    yield handlers
    handlers.release.set()


@pytest.fixture
async def address(handlers: Handlers) -> AsyncIterator[str]:
    async with serve_component(handlers.endpoints, ANY) as where:
        yield where


async def upgraded(client: RawClient, *headers: bytes) -> RawClient:
    """A connection that was upgraded."""
    await client.send(UPGRADE, *(header + b"\r\n" for header in headers), b"\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await client.reader.readexactly(len(UPGRADE_RESPONSE)) == UPGRADE_RESPONSE
    return client


@pytest.mark.attack(
    3, "upgrade without a ticket or with a bad one", "401 over HTTP, and no upgrade"
)
async def test_an_upgrade_needs_a_good_ticket(
    database: str, tmp_path: Path, handlers: Handlers
) -> None:
    handlers.release.set()
    host = "10.0.0.9:8441"
    with mgmt(database, tmp_path / "log") as server:
        now = datetime.now(UTC)
        async with await connect(database) as conn:
            own = await tokens.make(conn, "server", "work", "index-server", now=now)
            secret = await tokens.make(conn, "front", "work", "front-end", now=now)
        options = GuardOptions(mgmt=server.address, token=own, host=host)
        async with (
            serve_component(handlers.endpoints, EVERYWHERE, options=options) as address,
            Client(server.address, host="10.0.0.11:8400", token=secret) as front,
        ):
            known = f"select 1 from work.component where host = '{host}'"
            assert await soon(lambda: one(database, known))
            for bad in (b"", b"Bearer wrong", b"Bearer ", f"Bearer {secret}".encode()):
                shown = b"Authorization: " + bad + b"\r\n" if bad else b""
                answer = await send_raw(address, UPGRADE + shown + b"\r\n")
                assert answer.status == 401
                assert b"101 Switching" not in answer.data
                assert b"www-authenticate: bearer" in answer.head
            ticket = await front.ticket(host)
            async with raw_client(address) as client:
                await upgraded(client, f"Authorization: Bearer {ticket}".encode())
                await client.send(b"/wait 2\n{}")
                assert await client.reader.readexactly(10) == b"200 4\ndone"
                async with await connect(database) as conn:
                    await tokens.revoke(conn, "front", now=datetime.now(UTC))
                assert await soon_refused(client)


async def soon_refused(client: RawClient) -> bool:
    """Whether questions on an upgraded connection are refused once its token is revoked."""
    for _ in range(100):
        await client.send(b"/wait 2\n{}")
        head = await client.reader.readline()
        status, length = head.split()
        await client.reader.readexactly(int(length))
        if status == b"401":
            return True
        await asyncio.sleep(0.1)
    return False


async def test_without_mgmt_a_ticket_cannot_be_checked(handlers: Handlers) -> None:
    options = GuardOptions(mgmt="http://127.0.0.1:9", token="own")
    async with serve_component(handlers.endpoints, EVERYWHERE, options=options) as address:
        answer = await send_raw(address, UPGRADE + b"Authorization: Bearer other\r\n\r\n")
        assert answer.problem == (503, "unreachable")


@pytest.mark.attack(3, "upgrade with two Host headers or 200 headers", "400 or 431, and no upgrade")
async def test_an_upgrade_is_a_request_like_others(address: str) -> None:
    for more, status in (
        (b"Host: localhost\r\n", 400),
        (b"Host:\r\n", 400),
        (b"a: b\r\n" * 200, 431),
        (b"a: " + b"b" * 70_000 + b"\r\n", 431),
    ):
        answer = await send_raw(address, UPGRADE + more + b"\r\n")
        assert answer.status == status
    for host, status in ((b"evil.localhost", 403), (b"", 400)):
        answer = await send_raw(address, UPGRADE.replace(b"localhost", host) + b"\r\n")
        assert answer.status == status


@pytest.mark.attack(3, "hold many upgraded connections", "503 beyond a limit; HTTP is still served")
async def test_too_many_upgraded_connections(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_connections, "MAX_RPC_CONNECTIONS", 3)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await upgraded(await stack.enter_async_context(raw_client(address)))
        refused = await send_raw(address, UPGRADE + b"\r\n")
        assert refused.problem == (503, "too_many_connections")
        probe = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await send_raw(address, probe)).status == 200
    async with asyncio.timeout(WAIT_SECONDS):
        while True:  # until the server has noticed that the others left
            async with raw_client(address) as client:
                await client.send(UPGRADE + b"\r\n")
                if (await client.reader.readline()).startswith(b"HTTP/1.1 101"):
                    break


@pytest.mark.attack(
    3, "send questions without end", "the server reads no more until it has answered"
)
async def test_questions_that_are_not_waited_for(address: str, handlers: Handlers) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        sock.connect(("127.0.0.1", port_of(address)))
        sock.settimeout(0)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, UPGRADE + b"\r\n")
        await loop.sock_recv(sock, len(UPGRADE_RESPONSE))
        await loop.sock_sendall(sock, b"/wait 2\n{}")
        assert await soon(lambda: handlers.calls == 1)
        sent = 0
        with pytest.raises(TimeoutError):  # the server reads no more
            while sent < 2 * KERNEL_BYTES:
                async with asyncio.timeout(3):
                    await loop.sock_sendall(sock, b"/wait 2\n{}" * 1000)
                sent += 10_000
        assert sent < KERNEL_BYTES
        handlers.release.set()
        assert await loop.sock_recv(sock, 10) == b"200 4\ndone"


@pytest.mark.attack(
    3, "ask much and read no answers", "the server stops answering, then cuts the connection"
)
async def test_answers_that_are_not_read(
    address: str, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "STALLED_SECONDS", 1.0)
    async with raw_client(address) as client:
        await upgraded(client)
        await client.send(b"/large 2\n{}" * 5_000)
        assert await client.is_cut_off()
    assert 1 <= handlers.calls < 100


@pytest.mark.attack(3, "announce large questions on many connections", "503 beyond a shared limit")
async def test_large_questions_share_a_limit(
    address: str, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_connections, "MAX_REQUESTS_BYTES", LARGE_BYTES * 3 // 2)
    handlers.release.set()
    question = b"/wait %d\n" % LARGE_BYTES
    async with raw_client(address) as first, raw_client(address) as second:
        await upgraded(first)
        await upgraded(second)
        await first.send(question + b"x")
        await asyncio.sleep(0.1)
        await second.send(question)
        assert (await second.answer()).data.startswith(b"503 ")
        await first.send(b"x" * (LARGE_BYTES - 1))
        assert await first.reader.readexactly(10) == b"200 4\ndone"
        await first.send(question)  # what an answered question held is free again
    async with raw_client(address) as third:
        await upgraded(third)
        await third.send(question, b"x" * LARGE_BYTES)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await third.reader.readexactly(10) == b"200 4\ndone"


@pytest.mark.attack(3, "never finish a question", "the connection closes")
async def test_a_slow_question(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_connections, "IDLE_SECONDS", 0.5)
    async with raw_client(address) as client:
        await upgraded(client)
        await client.send(b"/wait 1000000\n")
        assert (await client.drip(b"x")).data == b""
