"""The face of a component: probes, chunk files in whole and in part, and who may ask."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Struct

from support.mgmt.chunk_trade import soon
from support.mgmt.mgmt_process import Mgmt, Reply
from support.mgmt.plain_components import one
from usher.chunk_store import ChunkStore, PartialFile
from usher.db.pool import connect
from usher.errors import BadInput, NotAllowed
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import QUERY, ComponentCall, GuardOptions, serve_component
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind
from usher.http.server.ticket_guard import Guard
from usher.mgmt import ping, tokens

ANY = read_bind("127.0.0.1:0")
DATA = bytes(range(256)) * 4000
WHOLE = (0, len(DATA))


class Question(Struct, forbid_unknown_fields=True):
    words: str
    k: int = 10


class Asked:
    """Requests to one address, each on a connection of its own."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.place = (host.replace("0.0.0.0", "127.0.0.1"), int(port))

    async def __call__(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await asyncio.to_thread(self._ask, method, path, body, sent)

    def _ask(self, method: str, path: str, body: bytes | None, sent: Mapping[str, str]) -> Reply:
        connection = http.client.HTTPConnection(*self.place, timeout=20)
        try:
            connection.request(method, path, body, dict(sent))
            got = connection.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return Reply(got.status, found, got.read())
        finally:
            connection.close()


@pytest.fixture
def shelf(tmp_path: Path) -> ChunkStore:
    found = ChunkStore(tmp_path)
    for chunk, data in ((7, DATA), (8, b"eight"), (1009, b"")):
        draft = PartialFile(found.path(chunk))
        draft.write(data)
        draft.commit()
    return found


async def search(call: ComponentCall[Question]) -> Question:
    return call.body


@pytest.fixture
async def ask(shelf: ChunkStore) -> AsyncIterator[Asked]:
    endpoints = [
        *chunk_endpoints(shelf, "/get_chunk"),
        Endpoint("POST", "/search", search, Question, access=QUERY),
    ]
    async with serve_component(endpoints, ANY, health=lambda: "probation") as address:
        yield Asked(address)


@pytest.mark.seed("001.36", "001.37")
async def test_every_component_has_the_same_probes(ask: Asked) -> None:
    assert (await ask("GET", "/healthz")).json == {"status": "ok"}
    assert set((await ask("GET", "/version")).json) == {"usher", "python"}
    assert b"usher_" in (await ask("GET", "/metrics")).body
    for path in ("/get_health_status", "/get_health", "/health_status"):
        assert (await ask("GET", path)).json == {"status": "probation"}
    assert await ping.ask(f"http://127.0.0.1:{ask.place[1]}/get_health_status") == "probation"


@pytest.mark.seed("001.20")
async def test_a_chunk_comes_whole_with_its_checksum(ask: Asked, shelf: ChunkStore) -> None:
    kept = shelf.find(7)
    assert kept is not None
    for path in ("/get_chunk/7", "/get_chunk/7c", "/get_chunk/000000007"):
        got = await ask("GET", path)
        assert (got.status, got.body) == (200, DATA)
        assert got.headers["etag"] == f'"{kept.sha256}"'
        assert got.headers["content-length"] == str(len(DATA))
        assert got.headers["content-type"] == "application/warc"
        assert got.headers["accept-ranges"] == "bytes"
    head = await ask("HEAD", "/get_chunk/7")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(DATA)))
    again = await ask("GET", "/get_chunk/7", If_None_Match=got.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    empty = await ask("GET", "/get_chunk/1009", Range="nonsense")
    assert (empty.status, empty.body) == (200, b"")


@pytest.mark.parametrize(
    ("wanted", "first", "end"),
    [
        ("bytes=5-", 5, len(DATA)),
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=-7", len(DATA) - 7, len(DATA)),
        ("bytes=1000-99999999999", 1000, len(DATA)),
        (f"bytes={len(DATA) - 1}-", len(DATA) - 1, len(DATA)),
        ("bytes=0-", *WHOLE),
        ("bytes=-99999999", *WHOLE),
        ("bytes=-", *WHOLE),
        ("bytes=9-3", *WHOLE),
        ("bytes=1-2,5-6", *WHOLE),
        ("lines=1-2", *WHOLE),
        ("bytes=٣-", *WHOLE),
        ("bytes=1-9999999999999999999999", *WHOLE),
    ],
)
async def test_a_part_of_a_chunk(ask: Asked, wanted: str, first: int, end: int) -> None:
    got = await ask("GET", "/get_chunk/7", Range=wanted.encode().decode("latin-1"))
    assert got.body == DATA[first:end]
    assert got.status == (200 if (first, end) == WHOLE else 206)
    if got.status == 206:
        assert got.headers["content-range"] == f"bytes {first}-{end - 1}/{len(DATA)}"
        assert got.headers["content-length"] == str(end - first)


async def test_a_part_of_another_file_is_no_part_of_this_one(ask: Asked) -> None:
    etag = (await ask("HEAD", "/get_chunk/7")).headers["etag"]
    same = await ask("GET", "/get_chunk/7", Range="bytes=9-", If_Range=etag)
    other = await ask("GET", "/get_chunk/7", Range="bytes=9-", If_Range='"other"')
    assert (same.status, other.status) == (206, 200)
    past = await ask("GET", "/get_chunk/7", Range=f"bytes={len(DATA)}-")
    assert past.problem == (416, "past_the_end")
    assert past.headers["content-range"] == f"bytes */{len(DATA)}"


@pytest.mark.seed("001.20")
async def test_all_chunks_are_listed_page_by_page(ask: Asked, shelf: ChunkStore) -> None:
    every = (await ask("GET", "/get_chunks")).json
    assert [one["chunk_id"] for one in every] == [7, 8, 1009]
    assert [one["bytes"] for one in every] == [len(DATA), 5, 0]
    assert all(len(one["sha256"]) == 64 for one in every)
    assert (await ask("GET", "/get_chunks?n=1&after=7")).json == every[1:2]
    shelf.drop([8])
    assert len((await ask("GET", "/get_chunks")).json) == 2
    assert (await ask("GET", "/get_chunks?n=0")).problem == (422, "bad_input")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/get_chunk/9", None, 404, "not_found"),
        ("GET", "/get_chunk/-1", None, 422, "bad_input"),
        ("GET", "/get_chunk/%2e%2e%2f%2e%2e", None, 404, "not_found"),
        ("GET", "/get_chunk/" + "9" * 40, None, 422, "bad_input"),
        ("GET", "/get_chunk/7/8", None, 404, "not_found"),
        ("GET", "/nowhere", None, 404, "not_found"),
        ("POST", "/nowhere", b"{}", 404, "not_found"),
        ("POST", "/get_chunk/7", b"{}", 405, "method_not_allowed"),
        ("GET", "/search", None, 405, "method_not_allowed"),
        ("POST", "/search", b"", 400, "malformed"),
        ("POST", "/search", b'{"words": 1}', 422, "bad_input"),
    ],
)
async def test_what_cannot_be_asked_is_a_problem(
    ask: Asked, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    assert (await ask(method, path, body)).problem == (status, code)


async def test_a_body_is_read_as_its_shape(ask: Asked) -> None:
    got = await ask("POST", "/search", json.dumps({"words": "row four"}).encode())
    assert got.json == {"words": "row four", "k": 10}
    assert got.headers["x-content-type-options"] == "nosniff"


async def test_a_name_that_others_gave_us_is_not_ours(ask: Asked) -> None:
    assert (await ask("GET", "/get_chunks", Host="evil.example")).problem == (403, "not_allowed")


async def test_whoever_hangs_up_is_not_waited_for(ask: Asked, shelf: ChunkStore) -> None:
    draft = PartialFile(shelf.path(10))
    draft.write(bytes(60_000_000))
    draft.commit()
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*ask.place)
        writer.write(b"GET /get_chunk/10 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.read(1000)
        writer.transport.abort()
    assert (await ask("GET", "/get_chunk/8")).body == b"eight"


async def test_where_others_reach_it_a_component_needs_a_token() -> None:
    with pytest.raises(NotAllowed, match="no token"):
        async with serve_component([], read_bind("0.0.0.0:0")):
            pass
    with pytest.raises(BadInput, match="MGMT"):
        Guard("ftp://mgmt.example", "secret")
    async with serve_component(
        [], read_bind("0.0.0.0:0"), options=GuardOptions(insecure=True)
    ) as address:
        assert (await Asked(address)("GET", "/healthz", Host="any.example")).status == 200


async def test_only_tickets_that_mgmt_signed_for_it_are_good(
    shelf: ChunkStore, door: Mgmt, guestbook: str
) -> None:
    secrets = {}
    async with await connect(guestbook) as conn:
        for kind in ("crawler", "index-builder", "index-server", "front-end"):
            now = datetime.now(UTC)
            secrets[kind] = await tokens.make(conn, kind, "work", kind, now=now)
    options = GuardOptions(
        mgmt=door.address, token=secrets["crawler"], host="10.0.0.7:8421", grace_seconds=0
    )
    endpoints = chunk_endpoints(shelf, "/get_chunk")
    async with (
        serve_component(endpoints, read_bind("0.0.0.0:0"), options=options) as address,
        Client(door.address, host="10.0.0.8:8431", token=secrets["index-builder"]) as builder,
        Client(door.address, host="10.0.0.9:8441", token=secrets["index-server"]) as server,
    ):
        ask, path = Asked(address), "/get_chunk/8"
        assert (await ask("GET", path)).problem == (401, "unproven")
        known = "select 1 from work.component where host = '10.0.0.7:8421'"
        assert await soon(lambda: one(guestbook, known))
        await builder.set_state("online", type="index-builder")
        good = await builder.ticket("10.0.0.7:8421")
        got = await ask("GET", path, Authorization=f"Bearer {good}", Host="crawler-7:5000")
        assert got.body == b"eight"
        assert await builder.ticket("10.0.0.99:1") == ""
        other = await server.ticket("10.0.0.7:8421")  # good for index chunks, not for content
        assert (await ask("GET", path, Authorization=f"Bearer {other}")).problem[0] == 403
        elsewhere = await builder.ticket("10.0.0.8:8431")
        for bad in (
            "Bearer wrong",
            f"Bearer {secrets['index-builder']}",
            f"Bearer {secrets['crawler']}",
            f"Bearer {elsewhere}",
            f"Bearer {good[:-1]}",
            f"Bearer {'x' * 30_000}",
            "Basic eDp5",
        ):
            got = await ask("GET", path, Authorization=bad)
            assert got.problem == (401, "unproven")
            assert got.headers["www-authenticate"] == "Bearer"
        assert (await ask("GET", "/get_health_status")).json == {"status": "healthy"}


async def test_without_mgmt_no_ticket_can_be_verified(shelf: ChunkStore) -> None:
    options = GuardOptions(mgmt="127.0.0.1:1", token="own", grace_seconds=0)
    endpoints = chunk_endpoints(shelf, "/get_chunk")
    async with serve_component(endpoints, read_bind("0.0.0.0:0"), options=options) as address:
        got = await Asked(address)("GET", "/get_chunk/8", Authorization="Bearer own")
        assert got.problem == (503, "unreachable")
