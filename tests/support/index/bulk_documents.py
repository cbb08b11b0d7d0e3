"""Thousands of documents for index servers, delivered by a crawler and a builder that the test implements."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from support.index.documents import page
from usher.chunk_store import INDEX_SUFFIX, ChunkStore
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import read_bind
from usher.index import chunk_file
from usher.index.document import IndexDocument
from usher.messages.crawler import PageReport

EACH = 50  # documents of a chunk
LETTERS = "bcdfghklmnprstv"
VOWELS = "aeiou"


def vocabulary(number: int, chance: random.Random) -> list[str]:
    """So many words that could be said, none twice."""
    found: dict[str, None] = {}
    while len(found) < number:
        syllables = range(chance.randint(2, 4))
        word = "".join(chance.choice(LETTERS) + chance.choice(VOWELS) for _ in syllables)
        found[word] = None
    return list(found)


class Texts:
    """Texts whose words are as common as words are: the second half as common as the first, and so on."""

    def __init__(self, words: int, seed: int = 7) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - the same every time
        self.words = vocabulary(words, self.chance)
        self._sums: list[float] = []
        total = 0.0
        for rank in range(words):
            total += 1 / (rank + 3)
            self._sums.append(total)

    def text(self, number: int) -> str:
        return " ".join(self.chance.choices(self.words, cum_weights=self._sums, k=number))

    def documents(self, hosts: int) -> list[IndexDocument]:
        """`EACH` pages of each of so many hosts; every one has the word everywhere."""
        return [
            page(
                f"{number}",
                f"{self.text(self.chance.randint(60, 240))} everywhere",
                host=f"h{host}.example",
                title=self.text(4),
                key=f"h{host}.example/{number}",
                simhash=0,
            )
            for host in range(hosts)
            for number in range(EACH)
        ]

    def queries(self, number: int) -> list[str]:
        """One to three words each, common ones and rare ones."""
        return [self.text(self.chance.randint(1, 3)) for _ in range(number)]


class Stock:
    """Who crawls and builds, and the files that were built."""

    def __init__(self, crawler: Client, builder: Client, shelf: ChunkStore) -> None:
        self.crawler, self.builder, self.shelf = crawler, builder, shelf
        self.chunks: dict[int, list[IndexDocument]] = {}

    async def fill(self, documents: Sequence[IndexDocument]) -> None:
        """Crawl these pages, a chunk for each host, and build them."""
        known = {one.url: one for one in documents}
        for start in range(0, len(documents), 5_000):
            await self.crawler.add_links([one.url for one in documents[start : start + 5_000]])
        while pack := await self.crawler.get_links(EACH, hosts=1, each=EACH):
            pages = [PageReport(link=one.link, result="success", status=200) for one in pack.pages]
            await self.crawler.crawled(pack.chunk_id, pages=pages)
            self.chunks[pack.chunk_id] = [known[one.link] for one in pack.pages]
        while found := await self.builder.get_content_chunks(50):
            for one in found:
                await self._build(one.chunk_id)

    async def _build(self, chunk: int) -> None:
        path = self.shelf.path(chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(chunk_file.write, path, chunk, self.chunks[chunk])
        file = self.shelf.find(chunk)
        assert file
        await self.builder.built(chunk, sha256=file.sha256, size=file.size)


@asynccontextmanager
async def stocked(
    mgmt: str,
    directory: Path,
    *,
    tokens: tuple[str, str] = ("", ""),
    ports: tuple[int, int] = (0, 0),
) -> AsyncIterator[Stock]:
    """A crawler and a builder at this MGMT, until the servers have all they want."""
    shelf = ChunkStore(directory, INDEX_SUFFIX)
    crawler_bind, builder_bind = (read_bind(f"127.0.0.1:{port}") for port in ports)
    async with (
        serve_component([], crawler_bind) as crawler_at,
        serve_component(chunk_endpoints(shelf, "/index_chunk"), builder_bind) as builder_at,
        Client(mgmt, host=crawler_at.removeprefix("http://"), token=tokens[0]) as crawler,
        Client(mgmt, host=builder_at.removeprefix("http://"), token=tokens[1]) as builder,
    ):
        await crawler.set_state("online", type="crawler")
        await builder.set_state("online", type="index-builder")
        yield Stock(crawler, builder, shelf)
