"""MGMT as a process, and a crawler and a builder played by the test: what builders and index servers trade with."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from support.index.chunk_files import chunk_file, page
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import at_once
from support.processes.command_forker import ForkedCommand
from support.processes.commands import clean
from support.processes.stack import USHER, start_process
from usher.chunk_store import INDEX_SUFFIX, ChunkStore
from usher.crawl.warc.writer import WarcPage
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import Bind, read_bind
from usher.index import chunk_file as chunkfile
from usher.index.document import IndexDocument
from usher.messages.crawler import PageReport
from usher.settings import Settings

SMALL = b"<html lang=en><title>%s</title><p>Some words of a page.</p>"
ANY = read_bind("127.0.0.1:0")
NUMBERS = count(1)
Actor = Callable[[asyncio.Event, Callable[[str], None]], Awaitable[None]]


@dataclass(slots=True)
class Trade:
    """MGMT, and a client of it that crawls and one that builds, with their shelves served."""

    server: Mgmt
    dsn: str
    crawler: Client
    builder: Client
    content: ChunkStore
    index: ChunkStore
    links: dict[int, list[str]] = field(default_factory=dict)  # of each chunk

    def settings(self, data: Path) -> Settings:
        return Settings(data=data, mgmt_url=self.server.address, chunk_lease=3.0)

    def ask(self, query: str, *given: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query.encode(), given).fetchall()

    def chunk(self, chunk: int) -> tuple[str, str]:
        """State of its index, and what went wrong."""
        [(state, reason)] = self.ask(
            "select index_state, reason from work.chunk where id = %s", chunk
        )
        return state, reason

    async def crawl(
        self,
        *records: WarcPage,
        damage: bytes = b"",
        kept: bool = True,
        rewrite: Callable[[bytes], bytes] | None = None,
    ) -> int:
        """A chunk of these pages, crawled; `damage` is what its file is instead, `rewrite` what becomes of it."""
        host = f"h{next(NUMBERS)}.test"
        found = [replace(one, url=one.url.replace("example.com", host)) for one in records]
        await self.crawler.add_links([one.url for one in found])
        for _ in range(100):
            if pack := await self.crawler.get_links(max(1, len(found))):
                break
            await asyncio.sleep(0.05)
        assert pack
        self.links[pack.chunk_id] = [one.url for one in found]
        path = self.content.path(pack.chunk_id)
        if damage:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(damage)
        else:
            await chunk_file(path, *found)
        if rewrite:
            path.write_bytes(rewrite(path.read_bytes()))
        file = self.content.find(pack.chunk_id)
        assert file
        pages = [PageReport(link=one.url, result="success", status=200) for one in found]
        sha256 = file.sha256
        await self.crawler.crawled(pack.chunk_id, pages=pages, sha256=sha256, size=file.size)
        if not kept:
            self.content.drop([pack.chunk_id])
        return pack.chunk_id

    async def build(self, *texts: str, sha256: str | None = None) -> int:
        """A chunk with a document for each of these texts, built."""
        chunk = await self.crawl(*(page(f"/{number}") for number in range(max(1, len(texts)))))
        assert [one.chunk_id for one in await self.builder.get_content_chunks()] == [chunk]
        path = self.index.path(chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        chunkfile.write(path, chunk, documents(chunk, self.links[chunk], texts))
        file = self.index.find(chunk)
        assert file
        await self.builder.built(chunk, sha256=sha256 or file.sha256, size=file.size)
        return chunk


def documents(chunk: int, links: Iterable[str], texts: Iterable[str]) -> list[IndexDocument]:
    return [
        IndexDocument(
            key=link.removeprefix("https://"),
            url=link,
            host=link.split("/")[2],
            chunk=chunk,
            crawled=datetime(2026, 11, 16, tzinfo=UTC),
            title="A document",
            body=text,
            language="en",
        )
        for link, text in zip(links, texts, strict=False)
    ]


@asynccontextmanager
async def trading(dsn: str, directory: Path, *, lease: int = 3) -> AsyncIterator[Trade]:
    at_once(dsn)
    settings = {"USHER_CHUNK_LEASE": str(lease), "USHER_CHUNK_WAIT": "0"}
    content, index = (
        ChunkStore(directory / "content"),
        ChunkStore(directory / "index", INDEX_SUFFIX),
    )
    with mgmt(dsn, directory / "log", settings=settings) as server:
        async with (
            serve_component(chunk_endpoints(content, "/get_chunk"), ANY) as crawler_at,
            serve_component(chunk_endpoints(index, "/index_chunk"), ANY) as builder_at,
            Client(server.address, host=crawler_at.removeprefix("http://")) as crawler,
            Client(server.address, host=builder_at.removeprefix("http://")) as builder,
        ):
            await crawler.set_state("online", type="crawler")
            yield Trade(server, dsn, crawler, builder, content, index)


@asynccontextmanager
async def acting(actor: Actor) -> AsyncIterator[str]:
    """An actor while it is needed, once it is ready; gives its host, and sees that it stops in order."""
    stop, said = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(actor(stop, said.set_result))
    try:
        await asyncio.wait([task, said], return_when=asyncio.FIRST_COMPLETED, timeout=30)
        if task.done():
            await task
        yield (await said).split()[-1]
    finally:
        stop.set()
        await asyncio.wait_for(task, 30)


async def soon(true: Callable[[], object], seconds: float = 15) -> bool:
    """Whether it becomes true in time, while everything here goes on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await asyncio.to_thread(true):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def titled(path: str, title: str, *lines: str, **more: object) -> WarcPage:
    given = {"meta": {"result": "success"}, **more}
    return replace(page(path, SMALL % title.encode(), *lines), **given)  # type: ignore[arg-type]


def free_bind() -> Bind:
    """An address of this test's own, so that its directory has a name."""
    from support.processes.free_port import free_port

    return read_bind(f"127.0.0.1:{free_port()}")


def texts_of(path: Path, chunk: int) -> dict[str, str]:
    """URLs and titles of an index chunk."""
    return {one.url: one.title for one in chunkfile.read(path, chunk)[1]}


@contextmanager
def component(
    trade: Trade, data: Path, *words: str
) -> Iterator[ForkedCommand | subprocess.Popen[bytes]]:
    """A real process of ours, whose log is beside its data; killed at the end if it still runs."""
    command = [*USHER, *words, "--mgmt", trade.server.address]
    environment = clean({"USHER_DATA": str(data), "USHER_CHUNK_LEASE": "30"})
    with (data / "components.log").open("ab") as log:
        process = start_process(command, environment, log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
