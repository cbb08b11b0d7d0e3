"""Compaction with a builder, a server in each of two rows and a watchdog at work: few chunks, and every page once."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from support.index.chunk_files import AT, chunk_file
from support.index.stack import post
from support.mgmt.chunk_trade import Trade, acting, free_bind, soon, titled, trading
from support.processes.crawls import EMBEDDED
from usher.crawl.warc.writer import WarcPage
from usher.index.builder_service import BuilderOptions as BuilderWish
from usher.index.builder_service import run_builder
from usher.index.server import IndexServerOptions as ServerWish
from usher.index.server import run_index_server
from usher.messages.crawler import PageReport
from usher.mgmt.watchdog import Watchdog
from usher.query.results import Hits
from usher.search.merge import merge

pytestmark = EMBEDDED
CHUNKS, SIZE = 10, 5
AGED = "update work.chunk set propagated_at = propagated_at - interval '2 days' returning id"
DUE = "update work.compaction_candidate set check_at = '-infinity' returning chunk_id"
AGAIN = """
    update work.guestbook set state = 'pending', admitted_at = now() where path = any(%s) returning id
"""
AWAKE = "update work.hosts set claim_at = '-infinity', ready_at = '-infinity' returning domain64"
SEATED = "select distinct chunk_id from work.placement order by 1"


class Shop:
    """A site of pages that change, and those who make them findable."""

    def __init__(self, trade: Trade, data: Path) -> None:
        self.trade, self.data = trade, data
        self.ports: list[int] = []
        self.titles: dict[str, str] = {}
        self.visits = self.raw = 0

    async def begin(self) -> None:
        """Every page is known, and none is waiting."""
        urls = [f"https://shop.test/{number}" for number in range(CHUNKS * SIZE)]
        await self.trade.crawler.add_links(urls)
        self.trade.ask("update work.guestbook set state = 'idle' returning id")

    async def crawl(self, *numbers: int) -> int:
        """Pages with a new text each, crawled for the first time or again."""
        self.visits += 1
        paths = [f"/{number}" for number in numbers]
        urls = [f"https://shop.test{path}" for path in paths]
        self.trade.ask(AGAIN, paths)
        pack = None
        for _ in range(200):
            self.trade.ask(AWAKE)
            if pack := await self.trade.crawler.get_links(len(urls)):
                break
            await asyncio.sleep(0.05)
        assert pack
        assert sorted(one.link for one in pack.pages) == sorted(urls)
        made = [self.page(number) for number in numbers]
        path = self.trade.content.path(pack.chunk_id)
        await chunk_file(path, *made)
        file = self.trade.content.find(pack.chunk_id)
        assert file
        pages = [PageReport(link=url, result="success", status=200) for url in urls]
        await self.trade.crawler.crawled(
            pack.chunk_id, pages=pages, sha256=file.sha256, size=file.size
        )
        return pack.chunk_id

    def page(self, number: int) -> WarcPage:
        """Words that no other page has."""
        title = f"Visit {self.visits} of {number}"
        self.titles[f"https://shop.test/{number}"] = title
        chance = random.Random(title)  # noqa: S311 - the same words each time
        words = " ".join(f"w{chance.randrange(10**9)}" for _ in range(80))
        body = f"<html lang=en><title>{title}</title><p>velvet {words}</p>".encode()
        found = titled(f"/{number}", title)
        url, at = f"https://shop.test/{number}", AT + timedelta(days=self.visits)
        return replace(found, url=url, at=at, body=body)

    async def found(self, row: int) -> dict[str, str]:
        """What a searcher gets of a row: titles by URL; no page is there twice."""
        status, told = await asyncio.to_thread(
            post, self.ports[row], "/search", {"query": "velvet", "k": 1000}
        )
        assert status == 200
        self.raw = len(told.get("hits", []))
        hits = merge({"": msgspec.convert(told, Hits, strict=False)}, k=1000)
        urls = [one.hit.url for one in hits.hits]
        assert len(urls) == len(set(urls))
        return {one.hit.url: one.hit.title for one in hits.hits}

    async def complete(self) -> bool:
        return all([await self.found(row) == self.titles for row in (0, 1)])

    async def becomes_complete(self) -> bool:
        for _ in range(300):
            if await self.complete():
                return True
            await asyncio.sleep(0.1)
        return False

    def propagated(self) -> bool:
        open_ = "select count(*) from work.chunk where propagated_at is null and state <> 'error'"
        return self.trade.ask(open_) == [(0,)]

    def settled(self) -> bool:
        left = "select (select count(*) from work.retirement) + (select count(*) from work.chunk_source where open)"
        return self.propagated() and self.trade.ask(left) == [(0,)]

    def seated(self) -> set[int]:
        return {chunk for (chunk,) in self.trade.ask(SEATED)}

    def files(self) -> set[int]:
        """The chunks whose files servers have."""
        return {int(path.stem) for path in self.data.glob("index/*/chunks/**/*.idx")}

    async def compacted(self, most: int) -> None:
        """Until few are left; searches meanwhile find every page once and as it is."""

        def done() -> bool:
            self.trade.ask(DUE)
            seated = self.seated()
            return self.settled() and len(seated) <= most and self.files() == seated

        waiting = asyncio.create_task(soon(done, 60))
        while not waiting.done():
            assert await self.complete()
            await asyncio.sleep(0.05)
        assert waiting.result(), (
            self.seated(),
            self.files(),
            self.trade.ask("table work.compaction_candidate"),
        )
        assert await self.complete()
        assert self.raw == len(self.titles)  # and no server has anything that is out of date


@asynccontextmanager
async def shop(database: str, data: Path) -> AsyncIterator[Shop]:
    """MGMT, a server in each of two rows, and a watchdog; who builds comes later."""
    async with trading(database, data) as trade, AsyncExitStack() as stack:
        trade.ask("update work.settings set rows = 2 returning rows")
        made, settings = Shop(trade, data), trade.settings(data)
        for row in (1, 2):
            wish = ServerWish(bind=free_bind(), row=row)
            host = await stack.enter_async_context(
                acting(
                    lambda stop, ready, wish=wish: run_index_server(
                        settings, wish, stop, ready=ready
                    )  # type: ignore[misc]
                )
            )
            made.ports.append(int(host.rpartition(":")[2]))
        stop = asyncio.Event()
        watching = asyncio.create_task(Watchdog(database, tick=0.2).run(stop))
        try:
            yield made
        finally:
            stop.set()
            await watching


def building(made: Shop, data: Path) -> AbstractAsyncContextManager[str]:
    settings, wish = made.trade.settings(data), BuilderWish(bind=free_bind(), processes=1)
    return acting(lambda stop, ready: run_builder(settings, wish, stop, ready=ready))


async def thinned(made: Shop) -> list[int]:
    """Ten chunks, of each of which one page is still as it was."""
    await made.begin()
    old = [await made.crawl(*range(first, first + SIZE)) for first in range(0, CHUNKS * SIZE, SIZE)]
    assert await soon(made.propagated, 60)
    numbers = [number for number in range(CHUNKS * SIZE) if number % SIZE]
    for first in range(0, len(numbers), 20):
        await made.crawl(*numbers[first : first + 20])
    assert await soon(made.settled, 60)
    assert await made.becomes_complete()
    assert made.seated() >= set(old)
    return old


@pytest.mark.soak
async def test_few_chunks_are_left_and_every_page_is_found_once(
    database: str, tmp_path: Path
) -> None:
    async with shop(database, tmp_path) as made:
        async with building(made, tmp_path):
            old = await thinned(made)
        # A builder that takes the chunk and is never heard of again.
        made.trade.ask(AGED)
        made.trade.ask(DUE)
        claimed = None
        while not claimed:
            claimed = await made.trade.builder.get_content_chunks(compact=True)
            await asyncio.sleep(0.05)
        [one] = claimed
        assert sorted(part.chunk_id for part in one.made_of or []) == sorted(old)
        assert await made.complete()
        async with building(made, tmp_path):
            await made.compacted(most=3)
        assert not made.files() & set(old)
        stages = dict(made.trade.ask("select index_state, count(*) from work.chunk group by 1"))
        assert stages == {"retired": CHUNKS, "built": 3}


@pytest.mark.soak
async def test_a_page_crawled_while_its_chunk_is_made_is_found_as_it_is_now(
    database: str, tmp_path: Path
) -> None:
    async with shop(database, tmp_path) as made, building(made, tmp_path):
        await thinned(made)
        made.trade.ask(AGED)
        made.trade.ask(DUE)
        begun = "select count(*) from work.chunk_source where open"
        assert await soon(lambda: made.trade.ask(begun) != [(0,)], 30)
        await made.crawl(0, 5, 10)
        assert await made.becomes_complete()
        await made.compacted(most=4)
