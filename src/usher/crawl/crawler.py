"""The crawler: asks MGMT for chunks, visits their pages, writes what came into one file each, and reports.

Comes from MGMT; goes to the shelf, from which builders pull, and back to MGMT: first the links that were found, then
the pages and the chunk in one call. Killed at any moment, its leases end and its pages come back, and nothing is
counted twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from usher.chunk_store import ChunkStore
from usher.component_health import DISK_FULL, ComponentHealth, disk_problem
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.fetch_outcome import asks_for_pause, is_no_response, url_of
from usher.crawl.link_reporter import LinkReporter
from usher.crawl.page_visit import PageVisitor
from usher.crawl.recent_links import RecentLinks
from usher.crawl.warc.chunk_writer import WarcChunkWriter
from usher.crawl.warc.writer import CrawlInfo
from usher.errors import Conflict, DiskUnusable, UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import LinkChunk, PageReport, PageToFetch
from usher.telemetry import CRAWLED_PAGES, Log, log_failure
from usher.urls import UrlRefusal

log = Log("crawl")
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0  # seconds between two questions while nothing waits
DISK_RETRY_SECONDS: Final = 30.0  # after it refused something
DISK_CHECK_SECONDS: Final = 1.0
LINK_REPORT_SECONDS: Final = 1.0  # seconds until links are told that a chunk has brought so far
MAX_PAGES_PER_CHUNK: Final = 1_000  # of a chunk: a report names no more
MAX_REQUESTS_PER_HOST: Final = 16  # pages of one host at once, where it needs no rest


@dataclass(frozen=True, slots=True)
class CrawlerLoad:
    """How much a crawler takes on: pages of a chunk, chunks at once, hosts and pages of one host in a chunk."""

    pages: int = 50
    chunks: int = 8
    hosts: int | None = None
    each: int | None = None


@dataclass(slots=True)
class ChunkCrawl:
    """A chunk in hand, what its pages lead to, and what became of them so far."""

    chunk_id: int
    lease: ChunkLease
    news: LinkReporter
    pages: list[PageReport] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    is_reporting: bool = (
        False  # from then on MGMT's answer to the report says whether the chunk is ours
    )


@dataclass(slots=True)
class HostQueue:
    """The pages of one host that are still to visit in a chunk, and whether it answers."""

    waiting: list[PageToFetch]
    answers: bool = False

    def mind(self, page: PageReport) -> None:
        """A host that asks for rest, or says nothing at all, is left alone: its other pages wait for another time."""
        self.answers = self.answers or page.status is not None
        if asks_for_pause(page) or (is_no_response(page) and not self.answers):
            self.waiting.clear()


class Crawler:
    """One process of it; `stop` lets what is under way end and takes nothing new."""

    def __init__(
        self,
        mgmt: Client,
        visitor: PageVisitor,
        shelf: ChunkStore,
        load: CrawlerLoad,
        about: CrawlInfo,
    ) -> None:
        self.mgmt, self.visitor, self.shelf, self.load = mgmt, visitor, shelf, load
        self.about = about
        self.open: dict[int, ChunkCrawl] = {}
        self.pages = 0
        self._heard = RecentLinks()
        self._incarnation = ""  # of the database that was told of the links in `_heard`
        self._stopped = False
        self._wake = asyncio.Event()  # somebody stopped us, or a chunk ended
        self._pause = MIN_POLL_SECONDS
        # A crawler without space takes no chunk, and still serves those it has: it waits, it does not fail.
        self.fitness = ComponentHealth(problem_state="waiting")
        self._disk_trouble = ""
        self._disk_check_at = 0.0  # on the loop's clock
        self._lease = 0.0
        self._leased = asyncio.Event()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        for crawl in self.open.values():
            crawl.lease.end()

    async def run(self) -> None:
        """Until told to stop: as many chunks at once as it may have, each on its own."""
        async with self._signs_of_life():
            while not self._stopped:
                self._wake.clear()
                if len(self.open) >= self.load.chunks:
                    await self._wake.wait()
                elif await self._begin():
                    self._pause = MIN_POLL_SECONDS
                else:
                    await self._rest()
            # What is under way ends; pages whose turn has not come are left out, and wait again.
            tasks = [crawl.task for crawl in self.open.values() if crawl.task]
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rest(self) -> None:
        """A while, longer each time; a chunk that ends may have brought new pages."""
        try:
            async with asyncio.timeout(self._pause):
                await self._wake.wait()
            self._pause = max(MIN_POLL_SECONDS, self._pause / 2)
        except TimeoutError:
            self._pause = min(2 * self._pause, MAX_POLL_SECONDS)

    async def _begin(self) -> bool:
        """One more chunk, if there is one."""
        if not await self._has_space():
            return False
        asked = asyncio.get_running_loop().time()
        try:
            pack = await self.mgmt.get_links(
                self.load.pages,
                hosts=self.load.hosts,
                each=self.load.each,
                hold=True,
                wait=None if self.open else 0,  # who has nothing to do takes what there is
            )
        except UsherError as error:
            log.warning("no_chunk", error=str(error))
            return False
        if pack is None:
            return False
        self._lease = pack.lease or self._lease
        self._leased.set()
        crawl = ChunkCrawl(
            pack.chunk_id, ChunkLease(asked + self._lease), LinkReporter(self.mgmt, self._heard)
        )
        if self._stopped:
            crawl.lease.end()
        self.open[pack.chunk_id] = crawl
        task = asyncio.create_task(self._crawl(crawl, pack), name=f"chunk {pack.chunk_id}")
        crawl.task = log_failure(task, log)
        return True

    async def _has_space(self) -> bool:
        """Whether the disk takes another chunk; MGMT hears when that changes."""
        now = asyncio.get_running_loop().time()
        if now >= self._disk_check_at:
            self._disk_check_at = check_at = now + DISK_CHECK_SECONDS
            trouble = await asyncio.to_thread(disk_problem, self.shelf.directory)
            if self._disk_check_at == check_at:  # else a chunk failed at the disk meanwhile
                self._disk_trouble = trouble
        await self.fitness.set_problem(self.mgmt, self._disk_trouble)
        return not self._disk_trouble

    # -- one chunk

    async def _crawl(self, crawl: ChunkCrawl, pack: LinkChunk) -> None:
        try:
            async with WarcChunkWriter(self.shelf, crawl.chunk_id, self.about) as chest:
                failures = await self._visit_all(crawl, pack.pages, chest)
                room = MAX_PAGES_PER_CHUNK - len(pack.pages)
                if failures and room and not self._stopped:
                    wanted = min(failures, room)
                    more = await self.mgmt.more_links(wanted, crawl.chunk_id, hold=True)
                    await self._visit_all(crawl, more, chest)
                await crawl.news.send()
                await self._report(crawl, chest)
        except Exception as error:  # noqa: BLE001 - one chunk that fails must not end the others
            await self._give_up(crawl.chunk_id, cause_of(error))
        finally:
            self.open.pop(crawl.chunk_id, None)
            self._wake.set()

    async def _report(self, crawl: ChunkCrawl, chest: WarcChunkWriter) -> None:
        crawl.is_reporting = True
        if not crawl.pages:
            await self.mgmt.not_crawled(crawl.chunk_id, "the crawler visited none of its pages")
            return
        kept = await chest.close()
        await self.mgmt.crawled(
            crawl.chunk_id, pages=crawl.pages, sha256=kept.sha256, size=kept.size
        )

    async def _give_up(self, chunk: int, error: Exception) -> None:
        if isinstance(error, Conflict):  # not ours any more
            log.warning("chunk_lost", chunk=chunk, error=str(error))
            self.shelf.drop([chunk])
            return
        if isinstance(error, UsherError) and not isinstance(error, DiskUnusable):
            # The file stays until MGMT says that it is not wanted: it may have heard the report, and not we the answer.
            log.warning("chunk_not_reported", chunk=chunk, error=str(error))
            return
        if isinstance(error, DiskUnusable):
            self._disk_check_at = asyncio.get_running_loop().time() + DISK_RETRY_SECONDS
            self._disk_trouble = f"{DISK_FULL} or unusable: {error}"
        log.error("chunk_failed", chunk=chunk, error=repr(error))
        with suppress(UsherError):
            await self.mgmt.not_crawled(chunk, f"the crawler failed: {error!r}"[:1000])

    async def _visit_all(
        self, crawl: ChunkCrawl, pages: Sequence[PageToFetch], chest: WarcChunkWriter
    ) -> int:
        """All pages, the hosts beside each other; how many failed."""
        hosts: dict[str, list[PageToFetch]] = defaultdict(list)
        for page in pages:
            url = url_of(page.link)
            hosts["" if isinstance(url, UrlRefusal) else url.host].append(page)
        before = len(crawl.pages)
        async with asyncio.TaskGroup() as group:
            for links in hosts.values():
                group.create_task(self._visit_host(crawl, HostQueue(links[::-1]), chest))
        return sum(page.result == "failure" for page in crawl.pages[before:])

    async def _visit_host(self, crawl: ChunkCrawl, turn: HostQueue, chest: WarcChunkWriter) -> None:
        """The first page alone, which finds out how the host wants to be visited; the rest in turn or together."""
        await self._visit_next(crawl, turn, chest)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(MAX_REQUESTS_PER_HOST, len(turn.waiting))):
                group.create_task(self._visit_rest(crawl, turn, chest))

    async def _visit_rest(self, crawl: ChunkCrawl, turn: HostQueue, chest: WarcChunkWriter) -> None:
        while turn.waiting and not self._stopped:
            await self._visit_next(crawl, turn, chest)

    async def _visit_next(self, crawl: ChunkCrawl, turn: HostQueue, chest: WarcChunkWriter) -> None:
        seen = await self.visitor.visit(turn.waiting.pop(), crawl.lease)
        if seen is None:
            return  # its turn did not come: it waits again
        page = seen.outcome.page
        turn.mind(page)
        await chest.add(seen)
        await crawl.news.add(seen)
        crawl.pages.append(page)
        self.pages += 1
        CRAWLED_PAGES.labels(page.result).inc()

    # -- leases

    @asynccontextmanager
    async def _signs_of_life(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._tell())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self) -> None:
        """What was found is told soon, also where one slow page keeps its chunk open."""
        while True:
            await asyncio.sleep(LINK_REPORT_SECONDS)
            if self.mgmt.incarnation != self._incarnation:
                self._incarnation = self.mgmt.incarnation
                self._heard.forget()
            for crawl in list(self.open.values()):
                with suppress(UsherError):  # told again, at the latest before its chunk is reported
                    await crawl.news.send()

    async def _renew(self) -> None:
        """Every third of a lease; a chunk that is not ours any more is dropped at once."""
        await self._leased.wait()
        while True:
            await asyncio.sleep(self._lease / 3)
            if not self.open:
                continue
            asked = asyncio.get_running_loop().time()
            try:
                leases = await self.mgmt.renew(self.open)
            except UsherError as error:
                log.warning("leases_not_renewed", error=str(error))
                continue
            for chunk in leases.held:
                if crawl := self.open.get(chunk):
                    crawl.lease.renew(asked + self._lease)
            for chunk in leases.lost:
                crawl = self.open.get(chunk)
                if crawl and crawl.task and not crawl.is_reporting:
                    log.warning("chunk_lost", chunk=chunk, error="its lease ended")
                    crawl.task.cancel()


def cause_of(error: Exception) -> Exception:
    """The first of errors that came together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
