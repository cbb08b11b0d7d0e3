"""Crawlers and builders that put pages into a chunk that they were not given: no search finds these pages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import msgspec
import pytest

from support.index.chunk_files import chunk_file
from support.index.stack import post
from support.mgmt.chunk_trade import Trade, acting, documents, free_bind, soon, titled, trading
from support.processes.crawls import EMBEDDED
from usher.crawl.warc.writer import WarcPage
from usher.errors import Conflict
from usher.http.client.mgmt_client import Client
from usher.index import builder_service, server
from usher.index import chunk_file as chunkfile
from usher.index.document import IndexDocument
from usher.messages.components import ForeignPages
from usher.messages.crawler import PageReport

pytestmark = EMBEDDED
NUMBERS = count(1)
EVENTS = """
    select c.host, e.chunk_id, e.reason from work.event e join work.component c on c.id = e.component_id
    where e.kind = 'foreign_pages' order by e.id
"""
RECLAIM = """
    update work.guestbook set state = 'pending', admitted_at = now() where path = %s and domain64 = (
        select domain64 from work.hosts where name = %s
    ) returning id
"""
AWAKE = "update work.hosts set claim_at = '-infinity', ready_at = '-infinity' returning domain64"


@dataclass(slots=True)
class House:
    """Real MGMT, builder and index server; a crawler and a builder that the test plays."""

    trade: Trade
    data: Path
    builder: str = ""
    server: str = ""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start_builder(self) -> None:
        wish, settings = (
            builder_service.BuilderOptions(bind=free_bind(), processes=1),
            self.trade.settings(self.data),
        )
        actor = acting(
            lambda stop, ready: builder_service.run_builder(settings, wish, stop, ready=ready)
        )
        self.builder = await self.stack.enter_async_context(actor)

    async def start_server(self) -> None:
        wish, settings = (
            server.IndexServerOptions(bind=free_bind(), row=1),
            self.trade.settings(self.data),
        )
        actor = acting(
            lambda stop, ready: server.run_index_server(settings, wish, stop, ready=ready)
        )
        self.server = await self.stack.enter_async_context(actor)

    async def claim(self, *paths: str) -> tuple[int, str]:
        """A new chunk of these pages of a new host, and the host."""
        host = f"p{next(NUMBERS)}.test"
        await self.trade.crawler.add_links([f"https://{host}{path}" for path in paths])
        return await self.claim_waiting(len(paths)), host

    async def claim_waiting(self, pages: int) -> int:
        for _ in range(200):
            self.trade.ask(AWAKE)
            if pack := await self.trade.crawler.get_links(pages):
                assert len(pack.pages) == pages
                return pack.chunk_id
            await asyncio.sleep(0.05)
        raise AssertionError("MGMT gives no chunk")

    async def crawled(
        self, chunk: int, records: Sequence[WarcPage], pages: Sequence[PageReport] | None
    ) -> None:
        """Store these records as the content of a chunk and report these pages."""
        await chunk_file(self.trade.content.path(chunk), *records)
        file = self.trade.content.find(chunk)
        assert file
        await self.trade.crawler.crawled(chunk, pages=pages, sha256=file.sha256, size=file.size)

    async def built(self, chunk: int, made: Sequence[IndexDocument]) -> None:
        """Build a chunk as a hostile builder does: of these documents, whatever MGMT says."""
        claimed = await self.trade.builder.get_content_chunks()
        assert chunk in {one.chunk_id for one in claimed}
        path = self.trade.index.path(chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        chunkfile.write(path, chunk, made)
        file = self.trade.index.find(chunk)
        assert file
        await self.trade.builder.built(chunk, sha256=file.sha256, size=file.size)

    async def loaded(self, chunk: int) -> None:
        state = "select state from work.placement where chunk_id = %s"
        done = await soon(lambda: self.trade.ask(state, chunk) == [("loaded",)], 30)
        assert done, self.trade.chunk(chunk)

    async def search(self, words: str) -> list[str]:
        """The URLs of every hit of the index server."""
        port = int(self.server.rpartition(":")[2])
        status, answer = await asyncio.to_thread(post, port, "/search", {"query": words, "k": 100})
        assert status == 200, answer
        return sorted(hit["url"] for hit in answer.get("hits", []))

    def events(self, chunk: int) -> list[tuple[str, str]]:
        """The component at fault and the reason of each report of a chunk."""
        return [(host, reason) for host, id_, reason in self.trade.ask(EVENTS) if id_ == chunk]

    def crawler_host(self, chunk: int) -> str:
        query = "select c.host from work.component c join work.chunk k on k.crawler_id = c.id where k.id = %s"
        [(host,)] = self.trade.ask(query, chunk)
        return str(host)

    def builder_host(self, chunk: int) -> str:
        query = "select c.host from work.component c join work.chunk k on k.builder_id = c.id where k.id = %s"
        [(host,)] = self.trade.ask(query, chunk)
        return str(host)


@pytest.fixture
async def house(database: str, tmp_path: Path) -> AsyncIterator[House]:
    async with trading(database, tmp_path, lease=30) as trade, AsyncExitStack() as stack:
        yield House(trade, tmp_path, stack=stack)


def record(url: str, word: str) -> WarcPage:
    return replace(titled("/", f"{word} page of {url}"), url=url)


def fetched(*urls: str) -> list[PageReport]:
    return [PageReport(link=url, result="success", status=200) for url in urls]


@pytest.mark.attack(
    6,
    "a crawler stores pages of other hosts and of another crawler's chunk, and a page twice",
    "the builder drops them and MGMT names the crawler; only its own pages are found",
)
async def test_a_crawler_adds_pages_it_was_not_given(house: House) -> None:
    other, victim = await house.claim("/victim")
    chunk, host = await house.claim("/a", "/b")
    records = [
        record(f"https://{host}/a", "crimson"),
        record("https://bank.test/login", "crimson"),
        record(f"https://{victim}/victim", "crimson"),
        record(f"https://{host}/never-given", "crimson"),
        record(f"https://{host}/b", "crimson"),
        record(f"http://{host}/b", "crimson second"),
        record(f"ftp://{host}/a", "crimson"),  # would make the index server accuse the builder
    ]
    await house.crawled(chunk, records, fetched(f"https://{host}/a", f"https://{host}/b"))
    await house.crawled(
        other, [record(f"https://{victim}/victim", "azure")], fetched(f"https://{victim}/victim")
    )
    await house.start_builder()
    await house.start_server()
    for one in (chunk, other):
        await house.loaded(one)
    assert await house.search("crimson") == [f"http://{host}/b", f"https://{host}/a"]
    assert await house.search("azure") == [f"https://{victim}/victim"]
    [(suspect, reason)] = house.events(chunk)
    assert suspect == house.crawler_host(chunk)
    assert reason.startswith(f"index-builder {house.builder} dropped 3 foreign pages")
    assert "https://bank.test/login" in reason
    assert house.events(other) == []


@pytest.mark.attack(
    6,
    "a builder writes documents of foreign pages, of foreign URLs under its own keys, and copies",
    "the index server drops them and MGMT names the builder; only the chunk's pages are found",
)
async def test_a_builder_adds_documents_of_foreign_pages(house: House) -> None:
    other, victim = await house.claim("/victim")
    chunk, host = await house.claim("/a", "/paper.pdf")
    own, paper = f"https://{host}/a", f"https://{host}/paper.pdf"
    for one, urls in ((other, [f"https://{victim}/victim"]), (chunk, [own, paper])):
        await house.crawled(one, [record(url, "none") for url in urls], fetched(*urls))
    [good] = documents(chunk, [own], ["scarlet words"])
    [read] = documents(chunk, [paper], ["scarlet words"])
    [foreign] = documents(chunk, ["https://bank.test/login"], ["scarlet words"])
    [stolen] = documents(chunk, [f"https://{victim}/victim"], ["scarlet words"])
    await house.start_server()
    await house.built(
        chunk,
        [
            good,
            *(replace_document(read, url=f"{paper}#page={number}") for number in (1, 2)),
            foreign,
            stolen,
            replace_document(foreign, key=good.key),
            replace_document(good, host="bank.test"),
            replace_document(good, url="javascript:alert(1)"),
            good,
            replace_document(good, url=f"{own}#again"),
            replace_document(good, url=f"{own}#page=501"),
        ],
    )
    await house.loaded(chunk)
    expected = sorted([own, f"{paper}#page=1", f"{paper}#page=2"])
    assert await house.search("scarlet") == expected
    assert await house.search("scarlet site:bank.test") == []
    [(suspect, reason)] = house.events(chunk)
    assert suspect == house.builder_host(chunk)
    assert reason.startswith(f"index-server {house.server} dropped 8 foreign documents")
    assert house.crawler_host(chunk) in reason


def replace_document(document: IndexDocument, **changes: str) -> IndexDocument:
    return msgspec.structs.replace(document, **changes)


@pytest.mark.attack(
    6,
    "a crawler stores a page that it reports as gone, and one that it hands back",
    "the builder leaves both out, so the next crawl of the page is the only one to be found",
)
async def test_a_crawler_stores_pages_that_it_did_not_report_as_fetched(house: House) -> None:
    chunk, host = await house.claim("/a", "/gone", "/back")
    urls = [f"https://{host}{path}" for path in ("/a", "/gone", "/back")]
    pages = [*fetched(urls[0]), PageReport(link=urls[1], result="gone", status=410)]
    await house.crawled(chunk, [record(url, "umber") for url in urls], pages)
    await house.start_builder()
    await house.start_server()
    await house.loaded(chunk)
    assert await house.search("umber") == [urls[0]]
    assert house.events(chunk) == []


async def test_a_page_that_a_later_chunk_takes_stays_in_the_earlier_one(house: House) -> None:
    chunk, host = await house.claim("/a", "/b")
    urls = [f"https://{host}/a", f"https://{host}/b"]
    await house.crawled(chunk, [record(url, "indigo") for url in urls], fetched(*urls))
    house.trade.ask(RECLAIM, "/a", host)
    assert await house.claim_waiting(1) > chunk
    await house.start_builder()
    await house.start_server()
    await house.loaded(chunk)
    assert await house.search("indigo") == urls
    assert house.events(chunk) == []


async def test_pages_of_a_crawler_that_reports_no_pages_are_found(house: House) -> None:
    """Crawlers of the first document say only that the chunk is crawled."""
    chunk, host = await house.claim("/a", "/b")
    urls = [f"https://{host}/a", f"https://{host}/b"]
    records = [replace(record(url, "olive"), meta={}) for url in urls]
    await house.crawled(chunk, [*records, record("https://bank.test/", "olive")], None)
    await house.start_builder()
    await house.start_server()
    await house.loaded(chunk)
    assert await house.search("olive") == urls
    [(suspect, _)] = house.events(chunk)
    assert suspect == house.crawler_host(chunk)


@pytest.mark.attack(
    6,
    "an index server or builder reports foreign pages of chunks that it does not have, or repeatedly",
    "MGMT records a report once, of its own chunks only, and names the reporter",
)
async def test_a_component_frames_others(house: House) -> None:
    chunk, host = await house.claim("/a")
    await house.crawled(chunk, [record(f"https://{host}/a", "teal")], fetched(f"https://{host}/a"))
    false = ForeignPages(chunk, 7, ["https://bank.test/"])
    async with (
        Client(house.trade.server.address, host="liar:1") as liar,
        Client(house.trade.server.address, host="liar:2") as stranger,
    ):
        await liar.set_state("online", type="index-server", row=1)
        await stranger.set_state("online", type="index-builder")
        with pytest.raises(Conflict):
            await stranger.foreign_pages([false])
        with pytest.raises(Conflict):
            await liar.foreign_pages([false])
        assert house.events(chunk) == []
        await house.built(chunk, documents(chunk, [f"https://{host}/a"], ["teal"]))
        for pages in (7, 8):
            assert await liar.foreign_pages([ForeignPages(chunk, pages)]) == [chunk]
    [(suspect, reason)] = house.events(chunk)
    assert suspect == house.builder_host(chunk)
    assert reason.startswith("index-server liar:1 dropped 7 foreign documents")
