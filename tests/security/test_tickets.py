"""Tickets are good at one component, for a short time, and until the token behind them is revoked."""

import asyncio
import os
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

import msgspec
import psycopg
import pytest

from support.mgmt.chunk_trade import soon
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, one
from support.processes.commands import usher
from usher.errors import NotAllowed, Unreachable, UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.component import QUERY, ComponentCall, GuardOptions, serve_component
from usher.http.server.endpoint import AccessRule, Endpoint
from usher.http.server.listen import read_bind
from usher.http.server.middleware import HttpError
from usher.http.server.ticket_guard import OUT_OF_TOUCH_SECONDS, Guard
from usher.messages.components import GuardState
from usher.search.index_servers import SEARCH, IndexServer
from usher.tickets import PREFIX, Ticket, audience_key, sign, verify

HOST = "10.0.0.7:8421"
KEY = audience_key(b"secret of MGMT", HOST)
REVOCATION_SECONDS = 2.0


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as process:
        yield process


def token(database: str, *words: str) -> str:
    ran = usher("tokens", "add", *words, environment={"DATABASE_URL": database})
    assert ran.code == 0, ran.err
    return ran.out.strip()


class Listener:
    """A server that a hostile component declares as its address: it keeps what it is shown."""

    def __init__(self) -> None:
        self.heads: list[str] = []

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    def bearers(self) -> list[str]:
        lines = [line for head in self.heads for line in head.splitlines()]
        prefix = "authorization: bearer "
        return [line[len(prefix) :] for line in lines if line.lower().startswith(prefix)]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self.hear, "127.0.0.1", 0) as server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextmanager
def component(running: Mgmt, secret: str, data: Path, *words: str) -> Iterator[None]:
    """A real component process that has this token."""
    clean = {name: value for name, value in os.environ.items() if "USHER" not in name}
    environment = {**clean, "USHER_TOKEN": secret, "USHER_MGMT_URL": running.address}
    command = [sys.executable, "-m", "usher", "--data", str(data), *words, "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.attack(
    5, "a crawler declares an address of the attacker's, and a builder downloads from it",
    "the attacker sees a ticket that is good at no other component and not at MGMT",
)  # fmt: skip
async def test_a_builder_shows_no_token_to_a_declared_address(
    running: Mgmt, database: str, tmp_path: Path
) -> None:
    builder_secret = token(database, "builder", "--type", "index-builder")
    listener = Listener()
    async with listener.listening() as address:
        hostile = Component(running, host=address, token=token(database, "--type", "crawler"))
        hostile.post("/add_links", links=[f"https://a.example/{n}" for n in range(5)])
        chunk = hostile.get("/get_links")["chunk_id"]
        hostile.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
        with component(running, builder_secret, tmp_path / "data", "builder"):
            assert await soon(lambda: listener.heads, seconds=60)
    assert builder_secret not in "".join(listener.heads)
    [shown, *_] = listener.bearers()
    assert shown.startswith(PREFIX)
    headers = {"Authorization": f"Bearer {shown}"}
    for path in ("/get_content_chunk_metadata", "/v1/jobs", "/v1/guard"):
        told = await asyncio.to_thread(running.ask_unproven, "GET", path, None, headers)
        assert told.problem == (401, "unproven")
    elsewhere = audience_key(b"any other component's secret", "10.0.0.9:8421")
    assert verify(shown, elsewhere, "10.0.0.9:8421") is None


async def hello(_call: ComponentCall[None]) -> str:
    return "hello"


@pytest.mark.attack(10, "a token is revoked and its bearer goes on asking", "refused within 2 s")
async def test_a_revocation_counts_everywhere(running: Mgmt, database: str) -> None:
    secret = token(database, "front", "--type", "front-end")
    own = token(database, "server", "--type", "index-server")
    options = GuardOptions(mgmt=running.address, token=own, host="10.0.0.9:8441")
    endpoints = [Endpoint("GET", "/hello", hello, access=QUERY)]
    async with (
        serve_component(endpoints, read_bind("0.0.0.0:0"), options=options) as address,
        Client(running.address, host="10.0.0.11:8400", token=secret) as front,
    ):
        known = "select 1 from work.component where host = '10.0.0.9:8441'"
        assert await soon(lambda: one(database, known))
        headers = {"Authorization": f"Bearer {await front.ticket('10.0.0.9:8441')}"}
        server = Mgmt(
            running.process, address.replace("0.0.0.0", "127.0.0.1"), *running_rest(running)
        )
        told = await asyncio.to_thread(server.ask_unproven, "GET", "/hello", None, headers)
        assert told.json == "hello"
        revoked = usher("tokens", "revoke", "front", environment={"DATABASE_URL": database})
        assert revoked.code == 0
        began = asyncio.get_running_loop().time()
        at_server = at_mgmt = False
        while not (at_server and at_mgmt):
            assert asyncio.get_running_loop().time() - began < REVOCATION_SECONDS
            told = await asyncio.to_thread(server.ask_unproven, "GET", "/hello", None, headers)
            at_server = told.status == 401
            asked = {"Authorization": f"Bearer {secret}"}
            told = await asyncio.to_thread(
                running.ask_unproven, "GET", "/get_servers_map", None, asked
            )
            at_mgmt = told.status == 401


def running_rest(running: Mgmt) -> tuple[Path, Path]:
    return running.log, running.data


@pytest.mark.attack(10, "a token for `read` asks for a ticket to index chunks", "queries only")
async def test_reading_does_not_include_index_chunks(running: Mgmt, database: str) -> None:
    own = token(database, "server", "--type", "index-server")
    options = GuardOptions(mgmt=running.address, token=own, host="10.0.0.9:8441")
    endpoints = [
        Endpoint("GET", "/index_chunk/7", hello, access=AccessRule("ticket", action="index")),
        Endpoint("GET", "/hello", hello, access=QUERY),
    ]
    async with (
        serve_component(endpoints, read_bind("0.0.0.0:0"), options=options) as address,
        Client(running.address, token=token(database, "--scope", "read")) as reader,
    ):
        known = "select 1 from work.component where host = '10.0.0.9:8441'"
        assert await soon(lambda: one(database, known))
        headers = {"Authorization": f"Bearer {await reader.ticket('10.0.0.9:8441')}"}
        server = Mgmt(
            running.process, address.replace("0.0.0.0", "127.0.0.1"), *running_rest(running)
        )
        statuses = [
            (await asyncio.to_thread(server.ask_unproven, "GET", path, None, headers)).status
            for path in ("/hello", "/index_chunk/7")
        ]
        assert statuses == [200, 403]


async def test_a_refused_ticket_is_replaced_at_once(running: Mgmt, database: str) -> None:
    """A database that was restored may have another key: tickets that were good are good no more."""
    host = "10.0.0.9:8441"
    own = token(database, "server", "--type", "index-server")
    secret = token(database, "front", "--type", "front-end")
    options = GuardOptions(mgmt=running.address, token=own, host=host)
    async with (
        serve_component(
            [Endpoint("POST", "/search", hello, access=QUERY)],
            read_bind("0.0.0.0:0"),
            options=options,
        ) as at,
        Client(running.address, host="10.0.0.11:8400", token=secret) as front,
    ):
        known = f"select 1 from work.component where host = '{host}'"
        assert await soon(lambda: one(database, known))
        server = IndexServer(at.removeprefix("http://").replace("0.0.0.0", "127.0.0.1"))
        old = await front.ticket(host)
        server.set_ticket(old)
        assert not await is_refused(server)
        with psycopg.connect(database) as conn:
            conn.execute("update work.ticket_key set key = decode(repeat('ab', 32), 'hex')")
        async with asyncio.timeout(15):
            await refused_at_last(server)
        server.set_ticket(old)
        assert server.refused, "the same ticket is no better"
        front.forget_tickets([host])
        new = await front.ticket(host)
        assert new != old
        server.set_ticket(new)
        assert not await is_refused(server)
        server.close()


async def refused_at_last(server: IndexServer) -> None:
    """Ask until the guard has heard of the new key."""
    for pause in repeat(0.1):
        if await is_refused(server):
            return
        await asyncio.sleep(pause)


async def is_refused(server: IndexServer) -> bool:
    with pytest.raises(Unreachable):  # what it answers is no answer to a search
        await server.call(SEARCH, b"{}", asyncio.get_running_loop().time() + 20)
    return server.refused


async def test_a_ticket_for_queries_lasts_as_long_as_a_front_end_may_be_cut_off(
    running: Mgmt, database: str
) -> None:
    own = token(database, "server", "--type", "index-server")
    lifetimes = {}
    async with Client(running.address, host=HOST, token=own) as server:
        await server.set_state("online", type="index-server", row=1)
    for kind in ("front-end", "index-builder"):
        secret = token(database, kind, "--type", kind)
        async with Client(running.address, host=f"10.0.0.20:{len(kind)}", token=secret) as client:
            text = await client.ticket(HOST)
        payload = text.removeprefix(PREFIX).partition(".")[0]
        expires = msgspec.json.decode(urlsafe_b64decode(payload), type=Ticket).expires
        lifetimes[kind] = expires - datetime.now(UTC).timestamp()
    assert lifetimes["front-end"] == pytest.approx(43_200, abs=60)
    assert lifetimes["index-builder"] == pytest.approx(600, abs=60)


# -- the guard's clock


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def guard_at(clock: Clock, grace_seconds: float) -> Guard:
    guard = Guard("http://127.0.0.1:9", "token", grace_seconds=grace_seconds, clock=clock)
    guard.update(GuardState(HOST, KEY.hex(), now=5_000.0, revoked=[66]))
    return guard


def ticket(*, expires: float, token_id: int = 5, audience: str = HOST) -> str:
    return sign(Ticket(audience, token_id, ("query",), expires), KEY)


async def refused(guard: Guard, text: str) -> bool:
    try:
        await guard.check(text, "query")
    except (HttpError, UsherError):
        return True
    return False


async def test_tickets_expire_by_mgmts_clock() -> None:
    clock = Clock()
    guard = guard_at(clock, grace_seconds=3600)
    assert not await refused(guard, ticket(expires=5_001.0))
    clock.now += 2
    assert await refused(guard, ticket(expires=5_001.0))


async def test_without_mgmt_known_tickets_stay_good_for_the_grace_period() -> None:
    clock = Clock()
    guard = guard_at(clock, grace_seconds=3600)
    good = ticket(expires=5_000.0 + OUT_OF_TOUCH_SECONDS + 1)
    clock.now += 3_599
    assert not await refused(guard, good)
    assert await refused(guard, ticket(expires=6_000.0, token_id=66))  # its revocation was heard
    clock.now += 2
    assert await refused(guard, good)


@pytest.mark.attack(5, "a component forges or alters a ticket, or uses another's", "401")
async def test_only_the_key_of_the_audience_signs() -> None:
    guard = guard_at(Clock(), grace_seconds=3600)
    good = ticket(expires=9_000.0)
    payload, _, signature = good.removeprefix(PREFIX).partition(".")
    foreign = sign(Ticket(HOST, 5, ("query",), 9_000.0), audience_key(b"other", HOST))
    for bad in (
        foreign,
        ticket(expires=9_000.0, audience="10.0.0.8:8421"),
        f"{PREFIX}{payload}.{signature[:-2]}AA",
        f"{PREFIX}{payload[:-4]}AAAA.{signature}",
        f"{PREFIX}.{signature}",
        f"{PREFIX}{payload}",
        "",
        "x" * 10_000,
    ):
        assert await refused(guard, bad)
    assert not await refused(guard, good)
    with pytest.raises(NotAllowed):
        await guard.check(good, "index")


async def test_expiry_is_stored(database: str) -> None:
    token(database, "later", "--scope", "read", "--expires", "90d")
    expires = one(database, "select expires_at from work.token where name = 'later'")
    assert 89 <= (expires - datetime.now(UTC)).days <= 90
