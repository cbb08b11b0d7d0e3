"""The crawler: claims chunks from MGMT, visits their pages, writes one WARC file for each chunk, and reports it.

The links of a chunk are reported before its pages and the chunk itself, which go in one call. If the crawler is
killed, its leases expire and MGMT hands out the pages again; nothing is counted twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, get_args

from usher.certificates import SYSTEM_AUTHORITIES, TrustedAuthorities
from usher.chunk_store import ChunkStore, StoredFile
from usher.chunk_upload import ChunkUpload
from usher.component_health import DISK_FULL, ComponentHealth, disk_problem
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.fetch_outcome import asks_for_pause, is_no_response, url_of
from usher.crawl.link_reporter import LinkReporter
from usher.crawl.page_visit import PageVisitor
from usher.crawl.recent_anchors import RecentAnchors
from usher.crawl.recent_links import RecentLinks
from usher.crawl.warc.chunk_writer import WarcChunkWriter
from usher.crawl.warc.writer import CrawlInfo
from usher.errors import Conflict, DiskUnusable, UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import LinkChunk, PageReport, PageResult, PageToFetch
from usher.telemetry import CRAWLED_PAGES, Log, log_failure
from usher.urls import UrlRefusal

log = Log("crawl")
for page_result in get_args(PageResult):  # from 0, so that Prometheus sees the first of each
    CRAWLED_PAGES.labels(page_result)
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0  # between two claims while there is no chunk
DISK_RETRY_SECONDS: Final = 30.0  # after a failed write
DISK_CHECK_SECONDS: Final = 1.0
LINK_REPORT_SECONDS: Final = 1.0  # between two reports of the links of open chunks
MAX_PAGES_PER_CHUNK: Final = 1_000  # of a report
MAX_REQUESTS_PER_HOST: Final = 16  # at once, if the host needs no crawl delay
# MGMT processes estimate the database's time, and may be wrong by half a second each (usher.db.clock). One of them may
# see the end of a lease earlier than the one that granted it, so the crawler does not use the last part.
USED_LEASE_SHARE: Final = 0.9
RENEWALS_PER_LEASE: Final = 3


@dataclass(frozen=True, slots=True)
class CrawlerLoad:
    """How many pages a chunk has, and how many chunks the crawler works on at once."""

    pages: int = 50
    chunks: int = 8


@dataclass(slots=True)
class ChunkCrawl:
    """A chunk that is being crawled: its lease, links, file, and the results of its pages so far."""

    chunk_id: int
    lease: ChunkLease
    links: LinkReporter
    writer: WarcChunkWriter
    uploads: bool = False  # to the object store
    pages: list[PageReport] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    is_reporting: bool = False  # then MGMT's response decides whether we own the chunk


@dataclass(slots=True)
class HostQueue:
    """The pages of one host that a chunk still has to visit."""

    waiting: list[PageToFetch]
    responds: bool = False

    def update(self, page: PageReport) -> None:
        """Skip the other pages if the host asks for a pause, or has not responded at all."""
        self.responds = self.responds or page.status is not None
        if asks_for_pause(page) or (is_no_response(page) and not self.responds):
            self.waiting.clear()


class Crawler:
    """Crawls chunks until `stop`; chunks in progress are finished and reported."""

    def __init__(
        self,
        mgmt: Client,
        visitor: PageVisitor,
        store: ChunkStore,
        load: CrawlerLoad,
        info: CrawlInfo,
        *,
        keeps_files: bool = False,
        authorities: TrustedAuthorities = SYSTEM_AUTHORITIES,
    ) -> None:
        self.mgmt, self.visitor, self.store, self.load = mgmt, visitor, store, load
        self.info = info
        self.keeps_files = keeps_files
        self.open: dict[int, ChunkCrawl] = {}
        self.pages = 0
        self._recent, self._recent_anchors = RecentLinks(), RecentAnchors()
        self._incarnation = ""  # of the database that has the links in `_recent`
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()  # the crawler was stopped, or a chunk ended
        self._pause = MIN_POLL_SECONDS
        # A crawler without disk space claims nothing but still serves its files, so its state is not an error.
        self.fitness = ComponentHealth(problem_state="waiting")
        self._uploads = ChunkUpload(
            *(mgmt, "content"),
            stop=self._stopping,
            report=self._report_fitness,
            authorities=authorities,
        )
        self._disk_problem = ""
        self._disk_check_at = 0.0  # on the loop's clock
        self._lease = 0.0
        self._leased = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        for crawl in self.open.values():
            crawl.lease.end()

    async def run(self) -> None:
        """Work on up to `load.chunks` chunks at once, until stopped."""
        async with self._background_tasks():
            while not self._stopping.is_set():
                self._wake.clear()
                if len(self.open) >= self.load.chunks:
                    await self._wake.wait()
                elif await self._begin():
                    self._pause = MIN_POLL_SECONDS
                else:
                    await self._wait()
            # Open requests finish. Pages that were not requested yet are not reported, so MGMT hands them out again.
            tasks = [crawl.task for crawl in self.open.values() if crawl.task]
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> None:
        """Wait before the next claim, longer each time; less if a chunk ended, which may have brought new pages."""
        try:
            async with asyncio.timeout(self._pause):
                await self._wake.wait()
            self._pause = max(MIN_POLL_SECONDS, self._pause / 2)
        except TimeoutError:
            self._pause = min(2 * self._pause, MAX_POLL_SECONDS)

    async def _begin(self) -> bool:
        """Claim a chunk and start to crawl it; return whether there was one."""
        if not await self._can_store():
            return False
        claimed_at = asyncio.get_running_loop().time()
        try:
            pack = await self.mgmt.get_links(
                self.load.pages,
                hold=True,
                wait=None if self.open else 0,  # an idle crawler does not wait for a full chunk
            )
        except UsherError as error:
            log.warning("no_chunk", error=str(error))
            return False
        if pack is None:
            return False
        self._lease = pack.lease or self._lease
        self._leased.set()
        lease = ChunkLease(claimed_at + USED_LEASE_SHARE * self._lease)
        links = LinkReporter(self.mgmt, self._recent, self._recent_anchors)
        writer = WarcChunkWriter(self.store, pack.chunk_id, self.info)
        crawl = ChunkCrawl(pack.chunk_id, lease, links, writer, pack.upload)
        if self._stopping.is_set():
            crawl.lease.end()
        self.open[pack.chunk_id] = crawl
        task = asyncio.create_task(self._crawl(crawl, pack), name=f"chunk {pack.chunk_id}")
        crawl.task = log_failure(task, log)
        return True

    async def _can_store(self) -> bool:
        """Return whether another chunk can be stored; MGMT learns when that changes."""
        now = asyncio.get_running_loop().time()
        if now >= self._disk_check_at:
            self._disk_check_at = check_at = now + DISK_CHECK_SECONDS
            problem = await asyncio.to_thread(disk_problem, self.store.directory)
            if self._disk_check_at == check_at:  # else a write of a chunk has failed meanwhile
                self._disk_problem = problem
        await self._report_fitness()
        return not self.fitness.problem

    async def _report_fitness(self) -> None:
        await self.fitness.set_problem(self.mgmt, self._disk_problem or self._uploads.problem)

    # -- one chunk

    async def _crawl(self, crawl: ChunkCrawl, pack: LinkChunk) -> None:
        try:
            async with crawl.writer:
                failures = await self._visit_all(crawl, pack.pages)
                wanted = min(failures, MAX_PAGES_PER_CHUNK - len(pack.pages))
                if wanted and not self._stopping.is_set():
                    more = await self.mgmt.more_links(wanted, crawl.chunk_id, hold=True)
                    await self._visit_all(crawl, more)
                await crawl.links.send()
                await self._report(crawl)
        except Exception as error:  # noqa: BLE001 - one chunk that fails must not end the others
            await self._give_up(crawl.chunk_id, first_cause(error))
        finally:
            self.open.pop(crawl.chunk_id, None)
            self._wake.set()

    async def _report(self, crawl: ChunkCrawl) -> None:
        if not crawl.pages:
            crawl.is_reporting = True
            await self.mgmt.not_crawled(crawl.chunk_id, "the crawler visited none of its pages")
            return
        file = await crawl.writer.close()
        is_stored = await self._upload(crawl, file)
        crawl.is_reporting = True
        await self.mgmt.crawled(
            crawl.chunk_id, pages=crawl.pages, sha256=file.sha256, size=file.size, stored=is_stored
        )
        if is_stored and not self.keeps_files:
            await asyncio.to_thread(self.store.drop, [crawl.chunk_id])

    async def _upload(self, crawl: ChunkCrawl, file: StoredFile) -> bool:
        """Upload the file if there is an object store; if the chunk is lost meanwhile, remove the file."""
        if not crawl.uploads:
            return False
        try:
            return await self._uploads.upload(crawl.chunk_id, file)
        except asyncio.CancelledError:
            self.store.drop([crawl.chunk_id])
            raise

    async def _give_up(self, chunk: int, error: Exception) -> None:
        if isinstance(error, Conflict):  # the chunk belongs to another crawler
            log.warning("chunk_lost", chunk=chunk, error=str(error))
            self.store.drop([chunk])
            return
        if isinstance(error, UsherError) and not isinstance(error, DiskUnusable):
            # The file stays until MGMT does not need it: maybe MGMT has the report, and only its response was lost.
            log.warning("chunk_not_reported", chunk=chunk, error=str(error))
            return
        if isinstance(error, DiskUnusable):
            self._disk_check_at = asyncio.get_running_loop().time() + DISK_RETRY_SECONDS
            self._disk_problem = f"{DISK_FULL} or unusable: {error}"
        log.error("chunk_failed", chunk=chunk, error=repr(error))
        with suppress(UsherError):
            await self.mgmt.not_crawled(chunk, f"the crawler failed: {error!r}"[:1000])

    async def _visit_all(self, crawl: ChunkCrawl, pages: Sequence[PageToFetch]) -> int:
        """Visit all pages, the hosts in parallel; return how many pages failed."""
        hosts: dict[str, list[PageToFetch]] = defaultdict(list)
        for page in pages:
            url = url_of(page.link)
            hosts["" if isinstance(url, UrlRefusal) else url.host].append(page)
        before = len(crawl.pages)
        async with asyncio.TaskGroup() as group:
            for links in hosts.values():
                group.create_task(self._visit_host(crawl, HostQueue(links[::-1])))
        return sum(page.result == "failure" for page in crawl.pages[before:])

    async def _visit_host(self, crawl: ChunkCrawl, queue: HostQueue) -> None:
        """Visit the first page alone, which reads the host's rules, then the others in parallel.

        The crawl delay, if there is one, makes them wait for each other.
        """
        await self._visit_next(crawl, queue)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(MAX_REQUESTS_PER_HOST, len(queue.waiting))):
                group.create_task(self._visit_rest(crawl, queue))

    async def _visit_rest(self, crawl: ChunkCrawl, queue: HostQueue) -> None:
        while queue.waiting and not self._stopping.is_set():
            await self._visit_next(crawl, queue)

    async def _visit_next(self, crawl: ChunkCrawl, queue: HostQueue) -> None:
        visit = await self.visitor.visit(queue.waiting.pop(), crawl.lease)
        if visit is None:
            return  # not requested, so MGMT hands it out again
        page = visit.outcome.page
        queue.update(page)
        await crawl.writer.add(visit)
        await crawl.links.add(visit)
        crawl.pages.append(page)
        self.pages += 1
        CRAWLED_PAGES.labels(page.result).inc()

    # -- leases

    @asynccontextmanager
    async def _background_tasks(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._report_links())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _report_links(self) -> None:
        """Report links soon, also those of a chunk that one slow page keeps open."""
        while True:
            await asyncio.sleep(LINK_REPORT_SECONDS)
            if self.mgmt.incarnation != self._incarnation:
                self._incarnation = self.mgmt.incarnation
                self._recent.forget()
                self._recent_anchors.forget()
            for crawl in list(self.open.values()):
                with suppress(UsherError):  # retried, at the latest before the chunk is reported
                    await crawl.links.send()

    async def _renew(self) -> None:
        """Renew the leases again and again; cancel chunks that belong to another crawler.

        A call that hangs, because a packet was lost, must not use up the lease: the next one gets another connection.
        """
        await self._leased.wait()
        while True:
            pause = self._lease / RENEWALS_PER_LEASE
            await asyncio.sleep(pause)
            if not self.open:
                continue
            sent_at = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(pause):
                    leases = await self.mgmt.renew(self.open)
            except (UsherError, TimeoutError) as error:
                log.warning("leases_not_renewed", error=str(error) or "MGMT did not answer in time")
                continue
            for chunk in leases.held:
                if crawl := self.open.get(chunk):
                    crawl.lease.renew(sent_at + USED_LEASE_SHARE * self._lease)
            for chunk in leases.lost:
                crawl = self.open.get(chunk)
                if crawl and crawl.task and not crawl.is_reporting:
                    log.warning("chunk_lost", chunk=chunk, error="its lease ended")
                    crawl.task.cancel()


def first_cause(error: Exception) -> Exception:
    """Return the first error of a group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
