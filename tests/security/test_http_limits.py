"""Attacks with heads, bodies and connections on every kind of HTTP server we run (finding 3)."""

import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.responses import Response

from support.db.fixtures import Server, clone
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.processes.commands import clean
from support.site.raw_http import RawClient, raw_client, send_raw
from usher.http.server import bodies, connection, connection_limits, listen
from usher.http.server.component import QUERY, ComponentCall, ComponentEndpoint, serve_component
from usher.http.server.connection import MAX_HEAD_BYTES, MAX_HEADERS
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind
from usher.http.server.middleware import LINGER_BYTES

ANY = read_bind("127.0.0.1:0")
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
LAST = GET + b"Connection: close\r\n\r\n"
MEGABYTE = b"x" * 1_000_000
KERNEL_BYTES = 20_000_000  # more than the kernel buffers for one connection


async def echo(call: ComponentCall[None]) -> Response:
    seen = call.headers.get("x-secret", "")
    return Response(await bodies.read_body(call.request), headers={"x-seen": seen})


async def large(_call: ComponentCall[None]) -> Response:
    return Response(bytes(30_000_000))


ENDPOINTS: list[ComponentEndpoint] = [
    Endpoint("POST", "/echo", echo, access=QUERY),
    Endpoint("GET", "/large", large, access=QUERY),
    # so that connections of this server can be upgraded
    Endpoint("POST", "/rpc", echo, access=QUERY, rpc=True),
]


@pytest.fixture(scope="module")
async def mgmt_server(
    migrated: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mgmt]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        with mgmt(dsn, tmp_path_factory.mktemp("mgmt") / "log") as running:
            yield running


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serve_component(ENDPOINTS, ANY) as where:
        yield where


@pytest.fixture
def servers(address: str, mgmt_server: Mgmt) -> tuple[str, str]:
    """A component in this process (asyncio), and an `usher mgmt` process (uvloop)."""
    return address, mgmt_server.address


async def is_serving(address: str) -> bool:
    return (await send_raw(address, LAST)).status == 200


@pytest.mark.attack(3, "send one header of 96 MB", "431 after 64 kB, and the connection closes")
async def test_a_header_of_96_megabytes(servers: tuple[str, str]) -> None:
    for server in servers:
        async with raw_client(server) as client:
            answer = asyncio.create_task(client.answer())
            await client.send(GET + b"X-Large: ", *[MEGABYTE] * 96)
            assert (await answer).problem == (431, "head_too_large")
            assert client.sent_bytes < LINGER_BYTES + KERNEL_BYTES
        assert await is_serving(server)


@pytest.mark.attack(3, "send 100,000 small headers", "431 and the connection closes")
async def test_a_hundred_thousand_headers(servers: tuple[str, str]) -> None:
    for server in servers:
        answer = await send_raw(server, GET, b"a:b\r\n" * 100_000)
        assert answer.problem == (431, "head_too_large")
        assert b"connection: close" in answer.head
        assert await is_serving(server)


async def test_the_number_of_headers_has_a_limit(servers: tuple[str, str]) -> None:
    for server in servers:
        fields = [b"x-%d: y\r\n" % number for number in range(MAX_HEADERS)]
        allowed = GET + b"Connection: close\r\n" + b"".join(fields[2:])
        assert (await send_raw(server, allowed + b"\r\n")).status == 200
        assert (await send_raw(server, allowed + b"one: more\r\n\r\n")).status == 431


async def test_the_size_of_a_head_has_a_limit(servers: tuple[str, str]) -> None:
    for server in servers:
        start = GET + b"Connection: close\r\nX-Large: "
        room = MAX_HEAD_BYTES - len(start) - len(b"\r\n\r\n")
        assert (await send_raw(server, start + b"x" * room + b"\r\n\r\n")).status == 200
        assert (await send_raw(server, start + b"x" * (room + 1) + b"\r\n\r\n")).status == 431
        pieces = [b"x" * 7] * (room // 7)
        assert (await send_raw(server, start, pieces=[*pieces, b"\r\n", b"\r\n"])).status == 200


@pytest.mark.attack(3, "send a URL of 1 MB", "431 and the connection closes")
async def test_a_long_url(servers: tuple[str, str]) -> None:
    for server in servers:
        answer = await send_raw(server, b"GET /", MEGABYTE, b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.problem == (431, "head_too_large")


@pytest.mark.attack(
    3, "send a long header byte by byte", "431 after 64 kB; each byte is copied once"
)
async def test_a_header_byte_by_byte(address: str) -> None:
    async with raw_client(address) as client:
        answer = asyncio.create_task(client.answer())
        await client.send(GET + b"X-Large: ")
        while not answer.done() and client.sent_bytes < 4 * MAX_HEAD_BYTES:
            client.writer.write(b"x")
            client.sent_bytes += 1
            await asyncio.sleep(0)
        assert (await answer).problem == (431, "head_too_large")


@pytest.mark.attack(3, "hide a large head behind another request", "200 for the first, then closed")
async def test_a_large_head_behind_another_request(servers: tuple[str, str]) -> None:
    for server in servers:
        large_head = GET + b"X-Large: " + b"x" * (MAX_HEAD_BYTES + 1000) + b"\r\n\r\n"
        answer = await send_raw(server, GET + b"\r\n" + large_head + LAST)
        assert answer.status == 200
        assert answer.data.count(b"HTTP/1.1 200") == 1


@pytest.mark.attack(3, "send 200 or 96 MB of trailers", "431 and the connection closes")
@pytest.mark.parametrize(
    "trailer", [[b"a: b\r\n"] * 200, [b"X-Large: ", *[MEGABYTE] * 96]], ids=["many", "large"]
)
async def test_trailers(address: str, trailer: list[bytes]) -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
    answer = await send_raw(address, POST + chunks, *trailer, b"\r\n")
    assert answer.problem == (431, "head_too_large")


@pytest.mark.attack(3, "send a header as a trailer", "the trailer is dropped")
async def test_a_trailer_is_no_header(address: str) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await send_raw(address, head + b"5\r\nhello\r\n0\r\nX-Secret: shown\r\n\r\n")
    assert answer.status == 200
    assert answer.data.endswith(b"hello")
    assert b"shown" not in answer.data


async def test_chunks_of_any_size_are_still_read(address: str) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"%x\r\n%s\r\n" % (len(MEGABYTE), MEGABYTE)
    slow = [head[at : at + 1] for at in range(len(head))] + [b"5\r\n", b"hel", b"lo\r", b"\n", b"0"]
    answer = await send_raw(address, pieces=[*slow, b"\r\n", b"a: b\r", b"\n\r\n"])
    assert answer.data.endswith(b"hello")
    answer = await send_raw(address, head, body, body, b"0\r\n\r\n")
    assert answer.data.endswith(MEGABYTE * 2)


@pytest.mark.attack(3, "pipeline thousands of requests", "100 may wait; then the connection closes")
async def test_thousands_of_pipelined_requests(servers: tuple[str, str]) -> None:
    for server in servers:
        answer = await send_raw(server, (GET + b"\r\n") * 5_000)
        assert 1 <= answer.data.count(b"HTTP/1.1 200") < 5_000
        assert await is_serving(server)


@pytest.mark.attack(3, "never finish a head", "408 and the connection closes")
async def test_a_slow_head(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    assert (await send_raw(address, GET)).problem == (408, "too_slow")
    assert (await send_raw(address, GET + b"\r\n" + GET)).data.count(b"HTTP/1.1 408") == 1
    async with raw_client(address) as client:
        await client.send(GET + b"X-Slow: ")
        assert (await client.drip(b"x")).status == 408


@pytest.mark.attack(3, "connect and send nothing, or only blank lines", "the connection closes")
async def test_an_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(listen, "KEEP_ALIVE_SECONDS", 1)
    async with serve_component(ENDPOINTS, ANY) as address:
        assert (await send_raw(address)).data == b""
        async with raw_client(address) as client:
            await client.send(GET + b"\r\n")
            assert (await client.drip(b"\r\n")).status == 200


@pytest.mark.attack(3, "never finish a body that is read", "408 and the connection closes")
async def test_a_slow_body(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.3)
    answer = await send_raw(address, POST + b"Content-Length: 10\r\n\r\nhel")
    assert answer.status == 408


@pytest.mark.attack(3, "drip a body that nothing reads", "the connection closes")
async def test_a_body_that_nothing_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "KEEP_ALIVE_SECONDS", 1)
    async with serve_component(ENDPOINTS, ANY) as address, raw_client(address) as client:
        head = POST.replace(b"/echo", b"/nowhere") + b"Content-Length: 1000000\r\n\r\n"
        await client.send(head)
        assert (await client.drip(b"x")).status == 404


@pytest.mark.attack(3, "ask for much and read nothing", "the connection is cut")
async def test_an_answer_that_is_not_read(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "STALLED_SECONDS", 1.0)
    async with raw_client(address) as client:
        await client.send(GET.replace(b"/healthz", b"/large") + b"\r\n")
        assert await client.is_cut_off()


@pytest.mark.attack(
    3, "leave 900 requests half open", "all are closed after 10 s; others are served"
)
async def test_900_half_open_requests(mgmt_server: Mgmt) -> None:
    async with AsyncExitStack() as stack:
        clients: list[RawClient] = []
        for number in range(900):
            client = await stack.enter_async_context(raw_client(mgmt_server.address))
            await client.send(GET[: 10 + number % 30])
            clients.append(client)
        assert await is_serving(mgmt_server.address)
        answers = await asyncio.gather(*(client.answer() for client in clients))
    assert {answer.status for answer in answers} == {408}


@pytest.mark.attack(
    3, "open thousands of connections", "503 beyond a limit, and beyond half per address"
)
async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(connection_limits, "MIN_CONNECTIONS", 1)
    async with serve_component(ENDPOINTS, ANY) as address, AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(raw_client(address))
        refused = await send_raw(address)
        assert refused.problem == (503, "too_many_connections")
        assert b"retry-after: " in refused.head
        async with raw_client(address, source="127.0.0.2") as other:
            await other.send(LAST)
            assert (await other.answer()).status == 200
        await stack.aclose()
        assert await served_again(address)


async def served_again(address: str) -> bool:
    """Whether a client is served once the server has noticed that others left."""
    for _ in range(100):
        if await is_serving(address):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_flood_beyond_the_limit_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(connection_limits, "MIN_CONNECTIONS", 1)
    monkeypatch.setattr(connection_limits, "RESERVED_FILES", 4)
    async with serve_component(ENDPOINTS, ANY) as address, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(address)) for _ in range(12)]
        answers = await asyncio.gather(*(client.answer() for client in clients[6:]))
        assert {answer.data for answer in answers} == {b""}
        assert (await clients[4].answer()).status == 503


def test_the_limit_leaves_files_for_the_rest() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for files, connections in ((1024, 768), (300, 64), (hard, 4_000)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            assert connection_limits.connection_limit() == connections
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_ipv6_network_is_one_client() -> None:
    assert connection_limits.address_group("192.0.2.1") == "192.0.2.1"
    same = {connection_limits.address_group(f"2001:db8:1:2::{number}") for number in range(9)}
    assert same == {connection_limits.address_group("2001:db8:1:2:ffff::")}
    assert connection_limits.address_group("2001:db8:1:3::1") not in same


@contextmanager
def scheduler(dsn: str, log: Path) -> Iterator[Path]:
    """`usher scheduler --metrics` on any free port."""
    words = ["scheduler", "--metrics", "127.0.0.1:0"]
    environment = {**clean(None), "DATABASE_URL": dsn, "USHER_LOG_LEVEL": "info"}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "usher", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), log.read_text()
        yield log
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.attack(3, "send 100,000 headers to --metrics", "431: it is the same server")
async def test_the_metrics_server(database: str, tmp_path: Path) -> None:
    with scheduler(database, tmp_path / "log") as log:
        [line] = [line for line in log.read_text().splitlines() if '"serving"' in line]
        address = line.partition("http://")[2].partition('"')[0]
        assert (await send_raw(address, GET, b"a:b\r\n" * 100_000)).status == 431
        text = await send_raw(address, LAST.replace(b"/healthz", b"/metrics"))
        assert b'usher_http_refused_total{status="431"} 1.0' in text.data
