"""Keeps the chunks of an index server as MGMT wants them: loads new ones, drops moved ones, retires outdated pages.

The loader reports each change to MGMT after the commit. If the server is killed, it has at least what MGMT believes,
and reports the rest when it is back.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from usher.background import wait_up_to
from usher.component_health import ComponentHealth, disk_problem
from usher.errors import BadInput, Conflict, UnsoundChunk, UsherError
from usher.http.client.mgmt_client import Client
from usher.index import chunk_file
from usher.index.chunk_documents import page_key
from usher.index.chunk_sources import ChunkSources
from usher.index.engine import COMPARED_WITH, Engine
from usher.index.holdings import NOT_COMPARED, held_chunks
from usher.index.metrics import DOCUMENTS, FOREIGN, LOADED, NOT_LOADED, RETIRED
from usher.index.page_filter import PageFilter
from usher.index.removed_text import RemovedTextPurge
from usher.messages.components import ForeignPages
from usher.messages.index_server import ChunkPages, HeldChunk, ServerChunk
from usher.telemetry import Log
from usher.urls import UrlRefusal, parse

T = TypeVar("T")
log = Log("index")
IDLE_SECONDS: Final = (0.2, 1.0)  # between two rounds without a change: at first, at most
ERROR_SECONDS: Final = 5.0  # between two rounds while something is wrong, at most
CHUNKS_PER_COMMIT: Final = 32
BATCHES_AHEAD: Final = 2  # files of the next batch are downloaded while one is added
BATCH_WAIT_SECONDS: Final = 0.2  # for the downloads of a batch; the rest joins a later one
LEAVING_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 2.0  # without a change, after which segments are merged
HOLDINGS_SECONDS: Final = 600.0
CLEANUP_SECONDS: Final = 60.0
MAX_PER_REQUEST: Final = 1_000  # chunks or pages in one request to MGMT
RELOADING: Final = "Its index could not be used and is loaded again."


class IndexWriteError(Exception):
    """The engine could not write; the index is as it was before."""


class Loader:
    """The only writer of a server's engine."""

    def __init__(
        self, mgmt: Client, engine: Engine, sources: ChunkSources, health: ComponentHealth
    ) -> None:
        self.mgmt, self.engine, self.sources, self.health = mgmt, engine, sources, health
        self.store = sources.store
        self.held: set[int] = set()
        self.purge = RemovedTextPurge(engine)
        self.is_reloading = False  # whether the whole index must be loaded again
        self._writer = ThreadPoolExecutor(1, "index-writer")
        self._downloads: dict[int, asyncio.Task[bool]] = {}
        self._pages: dict[int, ChunkPages] = {}  # of the chunks in `_downloads`
        self._foreign: dict[int, ForeignPages] = {}  # of loaded chunks, until MGMT knows them
        self._batch_size = CHUNKS_PER_COMMIT
        self._quiet_since = 0.0
        self._due = {"leaving": 0.0, "holdings": 0.0, "cleanup": 0.0}

    async def run(self, stop: asyncio.Event) -> None:
        """Run rounds until `stop` is set, without a pause as long as something changes."""
        pause = IDLE_SECONDS[0]
        try:
            while not stop.is_set():
                if await self._round():
                    pause, self._quiet_since = IDLE_SECONDS[0], asyncio.get_running_loop().time()
                    continue
                await self._merge_segments()
                await wait_up_to(pause, stop)
                limit = ERROR_SECONDS if self.health.problem else IDLE_SECONDS[1]
                pause = min(2 * pause, limit)
        finally:
            await self._cancel_downloads()
            await asyncio.to_thread(self._writer.shutdown, wait=True)

    async def _round(self) -> bool:
        """Synchronize once with MGMT; returns whether something changed. Errors are logged and retried."""
        problem, changed = await asyncio.to_thread(self._find_problem), False
        try:
            await self._report_holdings()
            changed = await self._retire()
            changed |= await self._drop_leaving()
            if not problem:
                changed |= await self._load()
        except IndexWriteError as error:
            problem = str(error)
            self._batch_size = 1
        except UsherError as error:
            log.warning("round_failed", error=error.message)
        await self.health.set_problem(
            self.mgmt, problem or (RELOADING if self.is_reloading else "")
        )
        await self.health.set_notice(self.mgmt, self.sources.store_problem)
        return changed

    def _find_problem(self) -> str:
        """Why no chunk can be loaded: there is no space for its file, or the index cannot be written."""
        return self.engine.problem() or disk_problem(self.store.directory)

    async def _merge_segments(self) -> None:
        """Merge small segments once the index is quiet, and use the merged segments when they are ready."""
        quiet_seconds = asyncio.get_running_loop().time() - self._quiet_since
        with suppress(IndexWriteError):
            if QUIET_SECONDS <= quiet_seconds < math.inf and not self.health.problem:
                self._quiet_since = -math.inf
                await self._write(self.engine.force_merge)
            elif quiet_seconds == math.inf and not self.health.problem:
                await self.purge.step(self.mgmt.last_removal, self._write)
            await self._write(self.engine.refresh)

    def _is_due(self, name: str, seconds: float) -> bool:
        """Whether an activity is due; if so, it is next due after these seconds."""
        now = asyncio.get_running_loop().time()
        due = now >= self._due[name]
        if due:
            self._due[name] = now + seconds
        return due

    # -- chunks that the server holds

    async def _report_holdings(self) -> None:
        """Tell MGMT at the start and periodically which chunks are here; drop those that it does not want."""
        if not self._is_due("holdings", HOLDINGS_SECONDS) and not self._is_restored():
            return
        self._due["holdings"] = 0.0  # until the report succeeds
        self.held = await self._write(self._read_chunks)
        if self._is_restored():
            await self._compare(self.mgmt.incarnation)
        stray = await self.mgmt.holds(sorted(self.held))
        await self._drop(stray)
        await self._drop_orphans()
        self._is_due("holdings", HOLDINGS_SECONDS)

    def _is_restored(self) -> bool:
        """Whether the database was restored since the chunks were compared with it."""
        return self.mgmt.incarnation != self.mgmt.compared_with

    async def _compare(self, incarnation: str) -> None:
        """Compare all chunks with a restored database; drop or reload those that differ."""
        log.warning("comparing", incarnation=incarnation, chunks=len(self.held))
        # Set first, so that an interrupted comparison starts again.
        self.engine.incarnation, self.mgmt.compared_with = NOT_COMPARED, ""
        await self._write(self.engine.write_state, COMPARED_WITH, "")
        await self._cancel_downloads()
        held = sorted(self.held)
        for start in range(0, len(held), MAX_PER_REQUEST):
            part = held[start : start + MAX_PER_REQUEST]
            chunks = await asyncio.to_thread(held_chunks, self.engine, self.store, part)
            answer = await self.mgmt.compare(chunks, incarnation)
            await self._drop(answer.stray)
            if answer.reload:
                await self._write(self._change, self.engine.unload, answer.reload)
                self.held.difference_update(answer.reload)
            stray, again = len(answer.stray), len(answer.reload)
            log.info("compared", chunks=len(part), stray=stray, reload=again)
        await self._write(self.engine.write_state, COMPARED_WITH, incarnation)
        self.engine.incarnation = self.mgmt.compared_with = incarnation

    async def _drop_orphans(self) -> None:
        """Drop documents of chunks that should be reloaded after a restore but have moved since."""
        orphans = await self._write(self.engine.not_loaded)
        if orphans and self.mgmt.compared_with:
            chunks = [HeldChunk(chunk, 0) for chunk in sorted(orphans)[:MAX_PER_REQUEST]]
            answer = await self.mgmt.compare(chunks, self.mgmt.compared_with)
            await self._write(self._change, self.engine.drop, answer.stray)

    async def _cancel_downloads(self) -> None:
        for task in self._downloads.values():
            task.cancel()
        await asyncio.gather(*self._downloads.values(), return_exceptions=True)
        self._downloads.clear()
        self._pages.clear()

    async def _retire(self) -> bool:
        """Remove outdated versions of pages."""
        copies = await self.mgmt.to_retire(MAX_PER_REQUEST)
        if not copies:
            return False
        urls = [(parse(copy.url), copy.chunk_id) for copy in copies]
        old = [(page_key(url), chunk) for url, chunk in urls if not isinstance(url, UrlRefusal)]
        await self._write(self._change, self.engine.retire, old)
        RETIRED.inc(len(old))
        if any(copy.removed for copy in copies):
            await self._write(self.purge.forget)
        await self.mgmt.retired(copies)
        return True

    async def _drop_leaving(self) -> bool:
        """Drop chunks that have moved to another server."""
        if not self._is_due("leaving", LEAVING_SECONDS):
            return False
        chunks = await self.mgmt.leaving()
        if chunks:
            await self._drop(chunks)
            await self.mgmt.dropped(chunks)
        return bool(chunks)

    async def _drop(self, chunks: Sequence[int]) -> None:
        if loaded := self.held.intersection(chunks):
            await self._write(self._change, self.engine.drop, loaded)
            self.held -= loaded
        if chunks:
            await asyncio.to_thread(self.store.drop, chunks)

    # -- new chunks

    async def _load(self) -> bool:
        """Download the chunks that MGMT wants and load those that have arrived; returns whether any has."""
        await self._report_lost()
        await self._report_foreign()
        limit = BATCHES_AHEAD * self._batch_size
        busy = len(self._downloads) + self.sources.waiting()
        wanted = await self.mgmt.get_chunks(min(MAX_PER_REQUEST, limit + busy))
        await self._start_downloads(wanted, limit)
        if self._downloads:
            return await self._load_downloaded()
        if self.is_reloading:  # all available chunks are loaded
            self.is_reloading = False
            self.engine.incarnation = self.mgmt.compared_with or NOT_COMPARED
        if not wanted and self._is_due("cleanup", CLEANUP_SECONDS):
            await self._remove_unused_files()
        return False

    async def _start_downloads(self, wanted: Sequence[ServerChunk], limit: int) -> None:
        """Start downloads up to the limit; MGMT first says which pages each chunk may have."""
        new = [
            chunk
            for chunk in wanted
            if chunk.chunk_id not in self._downloads and self.sources.may_try(chunk.chunk_id)
        ][: max(0, limit - len(self._downloads))]
        if not new:
            return
        keys = await self.mgmt.page_keys([chunk.chunk_id for chunk in new])
        self._pages |= {pages.chunk_id: pages for pages in keys}
        for chunk in new:
            if chunk.chunk_id in self._pages:  # otherwise it has moved meanwhile
                self._downloads[chunk.chunk_id] = asyncio.create_task(self.sources.fetch(chunk))

    async def _report_lost(self) -> None:
        """Report lost chunks to MGMT, which has them built again."""
        if not (lost := self.sources.pop_lost()):
            return
        chunks = [chunk.chunk_id for chunk in lost]
        log.warning("chunks_nowhere", chunks=chunks, example=lost[0].reason)
        try:
            answer = await self.mgmt.missing(lost)
        except UsherError as error:  # other chunks must still be loaded
            log.warning("loss_not_told", error=error.message)
            return
        for chunk in (*answer.build, *answer.crawl, *answer.parked):
            self.sources.forget_failures(chunk)

    async def _remove_unused_files(self) -> None:
        """Delete the files of chunks that are not in the index."""
        chunks = await asyncio.to_thread(self.store.chunks)
        unused = [chunk for chunk in chunks if chunk not in self.held]
        await asyncio.to_thread(self.store.drop, unused)

    async def _load_downloaded(self) -> bool:
        if len(self._finished_downloads()) < self._batch_size:
            await asyncio.wait(self._downloads.values(), timeout=BATCH_WAIT_SECONDS)
        finished = self._finished_downloads()[: self._batch_size]
        ready = [chunk for chunk in finished if self._succeeded(chunk, self._downloads.pop(chunk))]
        pages = {chunk: self._pages.pop(chunk) for chunk in finished}
        if not ready:
            return False
        if loaded := await self._add(ready, pages):
            await self._report_loaded(loaded)
        self._batch_size = min(2 * self._batch_size, CHUNKS_PER_COMMIT)
        return True

    def _finished_downloads(self) -> list[int]:
        return [chunk for chunk, task in self._downloads.items() if task.done()]

    def _succeeded(self, chunk: int, download: "asyncio.Task[bool]") -> bool:
        error = download.exception()
        if error is not None:
            log.warning("chunk_not_fetched", chunk=chunk, error=str(error))
            NOT_LOADED.inc()
            self.sources.add_failure(chunk)
            return False
        if not download.result():
            self.held.discard(chunk)  # the loaded documents came from another file
        return True

    async def _add(self, ready: Sequence[int], pages: Mapping[int, ChunkPages]) -> list[int]:
        """Add chunks to the index; returns those that it has now."""
        new = [pages[chunk] for chunk in ready if chunk not in self.held]
        try:
            bad = await self._write(self._add_batch, new) if new else {}
        except IndexWriteError:
            if len(new) == 1:  # the chunk itself may be the cause
                self.sources.add_failure(new[0].chunk_id)
            raise
        for chunk, reason in bad.items():
            NOT_LOADED.inc()
            self.sources.add_failure(chunk, unsound=reason)
        await asyncio.to_thread(self.store.drop, bad)
        loaded = [chunk for chunk in ready if chunk not in bad]
        self.held.update(loaded)
        LOADED.inc(len(new) - len(bad))
        return loaded

    async def _report_loaded(self, loaded: list[int]) -> None:
        """Report loaded chunks to MGMT and drop those that it no longer wants here."""
        for chunk in loaded:
            self.sources.forget_failures(chunk)
        await self._report_foreign()
        try:
            wanted = await self.mgmt.loaded(loaded)
        except Conflict:
            wanted = []
        await self._drop([chunk for chunk in loaded if chunk not in wanted])

    async def _report_foreign(self) -> None:
        """Report chunks with foreign documents; a failure stops nothing, since the documents are dropped."""
        if not self._foreign:
            return
        try:
            await self.mgmt.foreign_pages(list(self._foreign.values()))
        except Conflict:
            pass  # none of these chunks belongs to this server any more
        except UsherError as error:
            log.warning("foreign_pages_not_reported", error=error.message)
            return
        self._foreign.clear()

    # -- in the writer's thread

    async def _write(self, work: Callable[..., T], *arguments: object) -> T:
        """Run a function in the writer's thread; IndexWriteError if it fails."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._writer, work, *arguments)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # Tantivy's panics are not Exceptions
            log.error("index_not_written", error=repr(error))  # noqa: TRY400 - ours has none
            raise IndexWriteError(str(error)) from error

    def _read_chunks(self) -> set[int]:
        DOCUMENTS.set(self.engine.documents)
        return self.engine.chunks()

    def _change(self, work: Callable[[Iterable[T]], None], items: Iterable[T]) -> None:
        work(items)
        self._commit()

    def _commit(self) -> None:
        self.engine.commit()
        DOCUMENTS.set(self.engine.documents)

    def _add_batch(self, chunks: Sequence[ChunkPages]) -> dict[int, str]:
        """Add chunks and commit; returns the reasons for chunks with a bad file.

        The reason is empty if another copy of the file may be good.
        """
        bad = dict[int, str]()
        for pages in chunks:
            try:
                self._add_chunk(pages)
            except BadInput as error:
                log.warning("chunk_not_sound", chunk=pages.chunk_id, error=error.message)
                bad[pages.chunk_id] = error.message if isinstance(error, UnsoundChunk) else ""
        self._commit()
        return bad

    def _add_chunk(self, pages: ChunkPages) -> None:
        """Add a chunk without the documents of foreign pages."""
        chunk = pages.chunk_id
        page_filter = PageFilter(chunk, pages.keys, pages.textless_keys)
        _, documents = chunk_file.read(self.store.path(chunk), chunk)
        self.engine.add(chunk, page_filter.passed(documents))
        if report := page_filter.report:
            FOREIGN.inc(report.count)
            log.warning("foreign_pages", chunk=chunk, count=report.count, examples=report.examples)
            self._foreign[chunk] = report
