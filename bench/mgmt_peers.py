"""One process of a contender in its own venv: reads commands as JSON lines, writes when each began and ended.

`python mgmt_peers.py usher|crawlee|clients`, the server named by libpq's PGHOST, PGUSER and so on; and `plain`, an HTTP
server that answers at once and says at what address.
"""

import sys

sys.path.pop(0)  # bench/queue.py must not hide the standard module queue

import asyncio
import json
import logging
import os
import re
import socket
import warnings
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Usher is not installed in the peers' venvs
    from usher.db.pool import Connection
    from usher.mgmt.chunks import ClaimedChunk, PageClaim

AT_ONCE = timedelta(0)
CLIENTS = 8
CLAIMS = 8  # concurrent claims, each on a connection
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
ETAG = re.compile(rb"\r\netag: *([^\r]+)", re.IGNORECASE)
LINK = "https://agency-000001.mil/news/2026/00000001-a-page.html"
CHUNK = json.dumps({"chunk_id": 101, "links": [LINK] * 5}).encode()
UNCHANGED, OK = 304, 200
IDLE = """
select domain64 from work.hosts
where claim_at <= %s and claim_at < 'infinity' and policy = 'open'
order by claim_at limit 5 for no key update skip locked
"""

Message = MutableMapping[str, Any]


async def timed(times: int, call: Callable[[], Awaitable[object]]) -> list[float]:
    """Return the milliseconds of each call, which must return no work."""
    taken = []
    for _ in range(times):
        begin = perf_counter()
        found = await call()
        taken.append(1000 * (perf_counter() - begin))
        if found:
            raise RuntimeError("there was something where nothing is due")
    return taken


def page_claim(n: int, width: int, depth: int) -> "PageClaim":
    from usher.mgmt.chunks import PageClaim

    return PageClaim(n=n, width=width, depth=depth, wait=AT_ONCE)


class Usher:
    """MGMT without HTTP: one batcher for the claims of all tasks, one statement for a crawled chunk."""

    has_texts = False

    def __init__(self) -> None:
        self.crawlers: list[tuple[int, Connection]] = []  # each has its own connection for reports

    async def open(self) -> None:
        from usher.api.claim_batcher import ClaimBatcher
        from usher.db.pool import Database

        self.db = Database("", size=CLAIMS)
        await self.db.__aenter__()  # open until this process ends
        self.claims = ClaimBatcher(self.db)
        async with self.db.connection() as conn:
            rows = await conn.execute("select name, domain64 from work.hosts")
            self.numbers: dict[str, int] = dict(await rows.fetchall())
        await self.join()

    async def join(self) -> None:
        """Add a crawler."""
        from usher.db.pool import connect
        from usher.mgmt.caller_identity import CallerIdentity, identify

        host = f"crawler-{os.getpid()}-{len(self.crawlers)}:5000"
        conn = await connect("")
        crawler = await identify(conn, CallerIdentity(host, ("crawler",)), now=datetime.now(UTC))
        self.crawlers.append((crawler.id, conn))

    async def full(self, crawler: int, claim: "PageClaim") -> "ClaimedChunk":
        chunk = await self.claims.claim(crawler, claim)
        if not chunk or len(chunk.pages) != claim.n:
            raise RuntimeError(f"a claim of {claim.n} gave {len(chunk.pages) if chunk else 0}")
        return chunk

    async def complete(self, crawler: int, conn: "Connection", chunk: "ClaimedChunk") -> None:
        """Report each page and the chunk."""
        from usher.door.guestbook import FetchReport
        from usher.mgmt.chunks import finish_crawl

        now, reports = datetime.now(UTC), []
        for page in chunk.pages:
            _, _, host, path = page.url.split("/", 3)
            number = self.numbers[host]
            text64 = hash(page.url) if self.has_texts else None
            described = 200, 2, 20_000, "0" * 40, None, None, text64
            reports.append(FetchReport(number, f"/{path}", "success", chunk.chunk_id, *described))
        done = await finish_crawl(
            conn,
            crawler,
            chunk.chunk_id,
            sha256="0" * 64,
            size=100_000,
            now=now,
            reports=reports,
        )
        if not done or (done.reported, done.unreported) != (len(reports), 0):
            raise RuntimeError("a chunk was lost")

    async def work(self, pages: int, tasks: int, *of: int) -> None:
        """Run as many tasks as crawlers; they share the chunks."""
        while len(self.crawlers) < tasks:
            await self.join()
        claim = page_claim(*of)
        turns = iter(range(0, pages, claim.n))

        async def crawl(crawler: int, conn: "Connection") -> None:
            for _ in turns:
                await self.complete(crawler, conn, await self.full(crawler, claim))

        async with asyncio.TaskGroup() as all_at_once:
            for crawler in self.crawlers[:tasks]:
                all_at_once.create_task(crawl(*crawler))

    async def cost(self, claims: int, *of: int) -> list[float]:
        """Return the milliseconds of each claim; complete the chunks in between."""
        claim, taken, (crawler, conn) = page_claim(*of), [], self.crawlers[0]
        for _ in range(claims):
            begin = perf_counter()
            chunk = await self.full(crawler, claim)
            taken.append(1000 * (perf_counter() - begin))
            await self.complete(crawler, conn, chunk)
        return taken

    async def idle(self, times: int) -> list[float]:
        claim, (crawler, _) = page_claim(5, 5, 5), self.crawlers[0]
        return await timed(times, lambda: self.claims.claim(crawler, claim))

    async def bare_idle(self, times: int) -> list[float]:
        """Read only the index of hosts, with the same driver."""

        async def look() -> object:
            found = await self.crawlers[0][1].execute(IDLE, [datetime.now(UTC)])
            return await found.fetchall()

        return await timed(times, look)


class UsherWithTexts(Usher):
    """The same, but each page has a text, which MGMT compares with those of all other pages."""

    has_texts = True


class Crawlee:
    """Its SQL request queue with the engine of its guide; concurrent tasks fetch requests and mark them."""

    async def open(self) -> None:
        warnings.simplefilter("ignore")  # it warns that this client is experimental
        logging.getLogger("crawlee").setLevel(logging.ERROR)
        make: Any = import_module("sqlalchemy.ext.asyncio").create_async_engine
        engine = make(
            "postgresql+asyncpg://",
            pool_size=32,
            max_overflow=0,
            pool_recycle=3600,
            pool_pre_ping=False,
        )
        self.client: Any = import_module("crawlee.storage_clients").SqlStorageClient(engine=engine)
        self.queues: Any = import_module("crawlee.storages").RequestQueue
        self.queue: Any = None

    async def install(self, hosts: int, pages: int) -> None:
        """Return pages of as many hosts as Usher has, with alternating hosts."""
        await self.join()
        links = [
            f"https://agency-{n % hosts:06}.com/news/2026/{n:08x}-a-page.html" for n in range(pages)
        ]
        await self.queue.add_requests(
            links,
            batch_size=1_000,
            wait_time_between_batches=AT_ONCE,
            wait_for_all_requests_to_be_added=True,
        )

    async def join(self) -> None:
        self.queue = await self.queues.open(name="bench", storage_client=self.client)

    async def work(self, pages: int, tasks: int) -> None:
        turns = iter(range(pages))

        async def crawl() -> None:
            for _ in turns:
                request = await self.queue.fetch_next_request()
                if request is None or not await self.queue.mark_request_as_handled(request):
                    raise RuntimeError("crawlee has no request, or has lost one")

        async with asyncio.TaskGroup() as all_at_once:
            for _ in range(tasks):
                all_at_once.create_task(crawl())

    async def idle(self, times: int) -> list[float]:
        """Return the milliseconds of each poll of an empty queue."""
        empty: Any = await self.queues.open(name="idle", storage_client=self.client)
        return await timed(times, empty.fetch_next_request)


class Caller:
    """A component on one persistent connection."""

    def __init__(self, address: str, name: str) -> None:
        self.place = address.removeprefix("http://")
        self.headers = f"Host: {self.place}\r\nX-Usher-Host: {name}\r\n"
        self.etag = ""

    async def open(self) -> None:
        host, _, port = self.place.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))

    async def call(
        self, method: str, path: str, body: bytes = b"", more: str = ""
    ) -> tuple[int, bytes, bytes]:
        """Return status, head and body of the answer."""
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        request = f"{method} {path} HTTP/1.1\r\n{self.headers}{more}{length}\r\n"
        self.writer.write(request.encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, found = int(head[9:12]), LENGTH.search(head)
        there = found and status != UNCHANGED
        answer = await self.reader.readexactly(int(found[1])) if found and there else b""
        if status not in (OK, UNCHANGED):
            raise RuntimeError(f"{method} {path} was answered with {status}: {answer.decode()}")
        return status, head, answer

    async def links(self, path: str) -> dict[str, Any]:
        _, _, answer = await self.call("GET", path)
        return dict(json.loads(answer))

    async def claim(self, path: str, n: int) -> dict[str, Any]:
        chunk = await self.links(path)
        if len(chunk["links"]) != n:
            raise RuntimeError(f"{path} gave {len(chunk['links'])} links, not {n}")
        return chunk

    async def crawl(self, path: str, n: int) -> None:
        """Claim a chunk and report it as crawled."""
        chunk = await self.claim(path, n)
        body = json.dumps({"chunk_id": chunk["chunk_id"], "state": "crawled"}).encode()
        json_type = "Content-Type: application/json\r\n"
        await self.call("POST", "/set_content_chunk_metadata", body, json_type)

    async def map(self) -> None:
        """Get the servers map, which has not changed."""
        more = f"If-None-Match: {self.etag}\r\n" if self.etag else ""
        status, head, _ = await self.call("GET", "/get_servers_map", more=more)
        if self.etag and status != UNCHANGED:
            raise RuntimeError("the servers map was sent again")
        if found := ETAG.search(head):
            self.etag = found[1].decode()


class Clients:
    """Eight components that call the servers as fast as these answer."""

    async def open(self) -> None:
        self.callers: dict[str, list[Caller]] = {}

    async def of(self, addresses: list[str], kind: str) -> list[Caller]:
        key = " ".join([*addresses, kind])
        if key not in self.callers:
            self.callers[key] = [
                Caller(addresses[number % len(addresses)], f"{kind}-{number}:5000")
                for number in range(CLIENTS)
            ]
            for caller in self.callers[key]:
                await caller.open()
        return self.callers[key]

    async def work(self, addresses: list[str], calls: int, what: str, *given: Any) -> None:  # noqa: ANN401
        turns = iter(range(calls))

        async def ask(caller: Caller) -> None:
            for _ in turns:
                await getattr(caller, what)(*given)

        async with asyncio.TaskGroup() as all_at_once:
            for caller in await self.of(addresses, "front-end" if what == "map" else "crawler"):
                all_at_once.create_task(ask(caller))

    async def idle(self, addresses: list[str], times: int) -> list[float]:
        first, *_ = await self.of(addresses, "crawler")
        return await timed(times, lambda: first.links("/get_links"))


async def plain(
    scope: Message, _receive: object, send: Callable[[Message], Awaitable[None]]
) -> None:
    """Return a constant answer of the same size."""
    unchanged = scope["path"] == "/get_servers_map"
    body = b"" if unchanged else CHUNK
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    tag = [(b"etag", b'"1"')] if unchanged else headers
    status = UNCHANGED if unchanged else OK
    await send({"type": "http.response.start", "status": status, "headers": tag})
    await send({"type": "http.response.body", "body": body})


async def serve_plain() -> None:
    uvicorn: Any = import_module("uvicorn")
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as sock:
        print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        config = uvicorn.Config(
            plain,
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_keep_alive=60,
        )
        await uvicorn.Server(config).serve(sockets=[sock])


async def serve(peer: Any) -> None:  # noqa: ANN401 - any of the above
    await peer.open()
    for line in sys.stdin:
        name, *given = json.loads(line)
        begin = monotonic()
        answer = await getattr(peer, name)(*given)
        print(json.dumps([begin, monotonic(), answer]), flush=True)


if __name__ == "__main__":
    kinds: dict[str, type] = {
        "usher": Usher,
        "texts": UsherWithTexts,
        "crawlee": Crawlee,
        "clients": Clients,
    }
    who = sys.argv[1]
    with asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop) as runner:
        runner.run(serve_plain() if who == "plain" else serve(kinds[who]()))
