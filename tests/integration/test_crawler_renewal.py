"""A crawler whose connection to MGMT stalls: it renews its lease over another one, or stops early enough."""

import asyncio
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import at_once, one
from support.processes.commands import clean
from support.site.fetches import fetching
from support.site.hostile import page
from support.site.website import Website
from usher.chunk_store import ChunkStore
from usher.crawl.crawler import Crawler, CrawlerLoad
from usher.crawl.page_visit import PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.crawl.warc.writer import CrawlInfo
from usher.http.client.mgmt_client import Client

LEASE_SECONDS = 5
MAX_LATE_SECONDS = 3
CRAWL_DELAY_SECONDS = 0.1
PAGES = 60  # of one chunk, which lasts longer than a lease
HOST = "127.0.0.1:1"
SETTINGS = {"USHER_CHUNK_LEASE": str(LEASE_SECONDS), "USHER_ALLOW_PRIVATE": "127.0.0.0/8"}
CRAWLED = "select count(*) from work.chunk where state = 'crawled'"
CLAIMED = "select count(*) from work.chunk where state = 'crawling'"
SECONDS_OF_LEASE = "select extract(epoch from lease_until - clock_timestamp()) from work.chunk"


class Relay:
    """Forwards connections to MGMT; those that are stalled lose every further packet."""

    def __init__(self, server: Mgmt) -> None:
        self.server = server
        self.is_cut = False
        self.loses_answers = False
        self._stalled: set[StreamWriter] = set()
        self._writers: set[StreamWriter] = set()

    def stall(self) -> None:
        """Lose what the open connections send from now on; new connections work."""
        self._stalled |= self._writers

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        there, onward = await asyncio.open_connection(*self.server.place)
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(self._copy(reader, onward), self._answer(there, writer))
        finally:
            writer.transport.abort()
            onward.transport.abort()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Copy answers; while they are lost, the connection ends in place of each."""
        with suppress(OSError):
            while (data := await reader.read(65536)) and not self.loses_answers:
                if not self.is_cut and writer not in self._stalled:
                    writer.write(data)
        writer.close()

    async def _copy(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not self.is_cut and writer not in self._stalled:
                    writer.write(data)
        writer.close()


@asynccontextmanager
async def crawling(server: Mgmt, directory: Path) -> AsyncIterator[Relay]:
    """A crawler at work, behind a relay."""
    relay = Relay(server)
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}", host=HOST, timeout=6, patience=60)
    async with listener, fetching() as fetcher, client as connection:
        await connection.set_state("online", type="crawler", anew=True, renews_leases=True)
        async with PageVisitor(PolitenessPolicy(fetcher, connection)) as visitor:
            crawler = Crawler(
                connection,
                visitor,
                ChunkStore(directory),
                CrawlerLoad(pages=PAGES, chunks=1),
                CrawlInfo(),
            )
            running = asyncio.create_task(crawler.run())
            try:
                yield relay
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


def add_slow_pages(dsn: str, site: Website) -> None:
    """Admit pages of one host with a crawl delay."""
    at_once(dsn)
    paths = [f"/{n}" for n in range(PAGES)]
    site.add_all({path: page(path) for path in paths})
    with psycopg.connect(dsn) as conn:
        conn.execute("update work.settings set crawl_delay = %s", [f"{CRAWL_DELAY_SECONDS} s"])
    links = [site.url(path) for path in paths]
    words = [sys.executable, "-m", "usher", "add", *links]
    subprocess.run(words, env=clean({"DATABASE_URL": dsn, **SETTINGS}), check=True)


async def wait_for(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - other threads and processes change it
            await asyncio.sleep(0.05)


async def test_a_renewal_that_hangs_does_not_cost_the_chunk(
    database: str, tmp_path: Path, site: Website
) -> None:
    with mgmt(database, tmp_path / "log", settings=SETTINGS) as server:
        add_slow_pages(database, site)
        async with crawling(server, tmp_path / "content") as relay:
            await wait_for(lambda: site.log)
            relay.stall()
            await wait_for(lambda: one(database, CRAWLED) == 1)
    assert one(database, "select count(*) from work.chunk") == 1


async def test_a_crawler_without_mgmt_stops_before_the_lease_ends(
    database: str, tmp_path: Path, site: Website
) -> None:
    with mgmt(database, tmp_path / "log", settings=SETTINGS) as server:
        add_slow_pages(database, site)
        async with crawling(server, tmp_path / "content") as relay:
            await wait_for(lambda: len(site.log) > 10)
            relay.is_cut = True
            seconds_left = float(one(database, SECONDS_OF_LEASE))
            lease_end = time.monotonic() + seconds_left
            before = len(site.log)
            await asyncio.sleep(seconds_left + 1)
    assert len(site.log) > before, "it goes on while the lease lasts"
    last = site.log[-1].at
    assert last < lease_end - 0.2, "the last tenth of the lease is not used"


async def test_a_chunk_whose_claim_lost_its_answer_is_free_after_one_lease(
    database: str, tmp_path: Path, site: Website
) -> None:
    """No crawler has it, so the calls of the crawler that claimed it must not renew its lease."""
    with mgmt(database, tmp_path / "log", settings=SETTINGS) as server:
        async with crawling(server, tmp_path / "content") as relay:
            relay.loses_answers = True
            add_slow_pages(database, site)
            await wait_for(lambda: one(database, CLAIMED) == 1)
            relay.loses_answers = False
            await asyncio.sleep(LEASE_SECONDS + MAX_LATE_SECONDS)
            seconds_left = float(one(database, SECONDS_OF_LEASE))
    assert site.log == []
    assert seconds_left < 0
