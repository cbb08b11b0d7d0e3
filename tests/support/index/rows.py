"""Rows of index servers with real engines behind real HTTP, and a small MGMT that draws the map."""

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any, Self, TypeVar

from starlette.responses import Response

from support.index.documents import HEAP, page
from usher.errors import BadInput, NotFound, Unreachable
from usher.http.server.component import (
    QUERY,
    ComponentCall,
    ComponentEndpoint,
    GuardOptions,
    serve_component,
)
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind
from usher.index.document import IndexDocument
from usher.index.engine import Engine
from usher.index.rpc_handlers import QueryHandlers
from usher.index.tantivy_engine import TantivyEngine
from usher.messages.fields import INCARNATION_HEADER
from usher.search.cluster_map import ClusterView, MapClient
from usher.search.front_end import FrontEndOptions, run_front_end
from usher.settings import Settings

ANY = read_bind("127.0.0.1:0")
T = TypeVar("T")
Chunks = Mapping[int, Sequence[IndexDocument]]
SERVES = """
import asyncio, sys
from pathlib import Path
from support.index.rows import serve_engine
asyncio.run(serve_engine(Path(sys.argv[1]), sys.argv[2]))
"""


@dataclass
class RowServer:
    """One index server of a row: its address, its chunks, and whether it delays its answers."""

    row: int
    host: str
    chunks: list[int]
    stack: AsyncExitStack
    engine: Engine
    open: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # paths that it is too busy for
    garbled: bool = False

    async def leave(self) -> None:
        await self.stack.aclose()


@dataclass
class Maps:
    """What MGMT says; `away` makes it answer nothing of use."""

    rows: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    probation: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    away: bool = False
    full: bool = True
    incarnation: str = ""
    old: bool = False  # it knows no endpoints of ours
    told: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    after_rows: Callable[[], None] = lambda: None  # called after each answer to /get_servers_map

    def drawn(self, value: object, call: ComponentCall[None]) -> Response:
        body = json.dumps(value).encode()
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        status = 503 if self.away else 304 if call.headers.get("if-none-match") == etag else 200
        self.answered.append(status)
        kept = body if status == 200 else b""
        headers = {"ETag": etag, INCARNATION_HEADER: self.incarnation}
        return Response(kept, status, headers, media_type="application/json")

    async def servers_map(self, call: ComponentCall[None]) -> Response:
        rows = [{"row": row, "servers": list(hosts)} for row, hosts in self.rows.items()]
        response = self.drawn(rows, call)
        self.after_rows()
        return response

    async def full_map(self, call: ComponentCall[None]) -> Response:
        return self.chunk_map(self.rows, call)

    async def probation_map(self, call: ComponentCall[None]) -> Response:
        return self.chunk_map(self.probation, call)

    def chunk_map(
        self, rows: dict[int, dict[str, list[int]]], call: ComponentCall[None]
    ) -> Response:
        if not self.full:
            return Response("no such thing", 404)
        numbers = range(1, max(rows, default=0) + 1)
        every = [
            [{"host": host, "chunk_ids": chunks} for host, chunks in rows.get(row, {}).items()]
            for row in numbers
        ]
        return self.drawn({"incarnation": self.incarnation, "rows": every, "unrestored": []}, call)

    async def send_query_stats(self, call: ComponentCall[None]) -> Response:
        one = json.loads(await call.request.body())
        if "unwanted" in one["term"]:
            raise BadInput("It is not wanted.")
        self.told.append(one)
        return Response(b'{"status": "ok"}', media_type="application/json")

    async def query_stats(self, call: ComponentCall[None]) -> dict[str, str]:
        queries = json.loads(await call.request.body())["queries"]
        if self.old:
            raise NotFound("There is no such thing.")
        if any("unwanted" in one["term"] for one in queries):
            raise BadInput("One of them is not wanted.")
        self.told += queries
        return {"status": "ok"}

    async def set_state(self, call: ComponentCall[None]) -> dict[str, object]:
        self.states.append(json.loads(await call.request.body()))
        host = call.headers["x-usher-host"]
        told = {"host": host, "type": "front-end", "state": "online", "health": "healthy"}
        return {**told, "row": None}

    def endpoints(self) -> list[ComponentEndpoint]:
        return [
            Endpoint("GET", "/get_servers_map", self.servers_map, access=QUERY),
            Endpoint("GET", "/v1/map", self.full_map, access=QUERY),
            Endpoint("GET", "/v1/probation", self.probation_map, access=QUERY),
            Endpoint("POST", "/send_query_stats", self.send_query_stats, access=QUERY),
            Endpoint("POST", "/set_component_state", self.set_state, access=QUERY),
            Endpoint("POST", "/v1/query_stats", self.query_stats, access=QUERY),
        ]


class Rows:
    """Everything a front-end needs, in this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.maps = Maps()
        self.address = ""
        self.servers: list[RowServer] = []
        self.stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.address = await self.stack.enter_async_context(
            serve_component(self.maps.endpoints(), ANY)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            server.open.set()
        # Together: each takes a moment to stop.
        await asyncio.gather(self.stack.aclose(), *(server.leave() for server in self.servers))

    async def add(self, row: int, chunks: Chunks) -> RowServer:
        """One more server in a row, with these chunks."""
        path = self.directory / f"server-{row}-{len(self.servers)}"
        stack = AsyncExitStack()
        engine = await asyncio.to_thread(filled, path, chunks)
        stack.callback(engine.close)
        desk = QueryHandlers(2)
        desk.engine = engine
        stack.callback(desk.close)
        server = RowServer(row, "", list(chunks), stack, engine)
        server.open.set()
        endpoints = [watched(one, server) for one in desk.endpoints()]
        address = await stack.enter_async_context(serve_component(endpoints, ANY))
        server.host = address.removeprefix("http://")
        self.servers.append(server)
        self.maps.rows.setdefault(row, {})[server.host] = server.chunks
        return server

    async def rows(self, number: int, each: int, chunks: Chunks) -> None:
        """So many rows of so many servers; each row has every chunk once."""
        for row in range(1, number + 1):
            for place in range(each):
                await self.add(row, {c: d for c, d in chunks.items() if (c + row) % each == place})

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[ClusterView]:
        async with MapClient(self.address, timeout=5) as mgmt:
            cluster = ClusterView(mgmt)
            await cluster.refresh()
            try:
                yield cluster
            finally:
                cluster.close()


def watched(endpoint: ComponentEndpoint, server: RowServer) -> ComponentEndpoint:
    async def handler(call: ComponentCall[None]) -> object:
        server.asked.append(endpoint.path)
        await server.open.wait()
        if endpoint.path in server.refused:
            raise Unreachable("There is too much to do.")
        if server.garbled:
            return Response("<html>It works!", media_type="text/html")
        return await endpoint.handler(call)

    return replace(endpoint, handler=handler)


def filled(path: Path, chunks: Chunks) -> TantivyEngine:
    engine = TantivyEngine.open(path, heap=HEAP)
    for chunk, documents in chunks.items():
        engine.add(chunk, documents)
    engine.commit()
    return engine


class LoopThread:
    """A loop in a thread of its own, so that a test can wait for a browser, and the rows in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@asynccontextmanager
async def running_front_end(rows: Rows, data: Path, **wish: Any) -> AsyncIterator[str]:  # noqa: ANN401
    """A front-end for these rows, as `usher front` would run it; gives its address."""
    stop, ready = asyncio.Event(), asyncio.Queue[str]()
    settings = Settings(data=data, mgmt_url=rows.address)
    actor = run_front_end(settings, FrontEndOptions(bind=ANY, **wish), stop, ready=ready.put_nowait)
    task = asyncio.create_task(actor)
    try:
        async with asyncio.timeout(20):
            said = await ready.get()
        yield said.split()[-1].removesuffix("/")
    finally:
        stop.set()
        await task


SEEN = datetime(2026, 11, 16, tzinfo=UTC)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def library() -> dict[int, list[IndexDocument]]:
    """What the search page is tried on: many pages of three hosts, some odd, some hostile."""
    odd = [
        page("evil", f"{EVIL} hostile words", title=f"{EVIL} hostile", description=EVIL),
        page("script", "hostile script", title="Click me", url="javascript:alert(document.domain)"),
        page(
            "data", "hostile data", title="And me", url="data:text/html,<script>alert(3)</script>"
        ),
        page("turned", "hostile turn", title="gnp.\u202eexe\u0007", url="https://a.org/%E2%80%AEx"),
        page("haus/alt", "Das alte Haus steht am Fluss.", title="Häuser", language="de"),
        page(
            "dated",
            "A report of the year.",
            title="Report",
            published=datetime(2024, 3, 9, tzinfo=UTC),
        ),
        page("copy/1", "two of a kind", title="Kind", text64=5),
        page("copy/2", "two of a kind", title="Kind", text64=5),
        page("untitled/page.html", "an author without a name wrote this nameless page", title=""),
        page("a/very/long/way/to/go/in/the/end", "a long way", title="Far away"),
    ]
    hosts = ("docs.example.org", "www.example.org", "news.example.net")
    many = [
        page(
            f"guide/{number}",
            f"The theatre has velvet seats. An usher shows every guest to row {number}, seat {number * 7 % 97}.",
            host=hosts[number % 3 if number % 5 else 0],
            title=f"Theatre guide {number}",
            chunk=1 + number % 4,
            crawled=SEEN - timedelta(days=number),
        )
        for number in range(240)
    ]
    return {5: odd} | {chunk: many[chunk - 1 :: 4] for chunk in (1, 2, 3, 4)}


class ServerProcess:
    """An index server as a process of its own, which can be frozen and killed."""

    def __init__(
        self, path: Path, port: int = 0, *, address: str = "127.0.0.1", within: Sequence[str] = ()
    ) -> None:
        """`within` is a command that runs the server elsewhere, such as `ip netns exec NAME`."""
        self.path = path
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", SERVES, str(path), f"{address}:{port}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    @cached_property
    def host(self) -> str:
        """Once it listens."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


async def serve_engine(path: Path, bind: str) -> None:
    desk = QueryHandlers(2)
    desk.engine = TantivyEngine.open(path, heap=HEAP)
    options = GuardOptions(insecure=True)
    async with serve_component(desk.endpoints(), read_bind(bind), options=options) as address:
        print(address.removeprefix("http://"), flush=True)  # noqa: T201 - the parent process reads it
        await asyncio.Event().wait()
