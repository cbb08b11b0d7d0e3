"""What an index server has: chunks that are wanted come, those that moved leave, outdated pages are taken out.

Comes from MGMT, and from builders or other servers that have the files; goes to the engine. MGMT hears of each change
only after it is committed: killed at any moment, a server has at least what MGMT believes, and tells the rest when it
is back.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from usher.component_health import ComponentHealth, disk_problem
from usher.errors import BadInput, Conflict, UnsoundChunk, UsherError
from usher.http.client.mgmt_client import Client
from usher.index import chunk_file
from usher.index.chunk_documents import page_key
from usher.index.chunk_sources import ChunkSources
from usher.index.engine import Engine
from usher.index.holdings import (
    NOT_COMPARED,
    count_documents,
    forget_incarnation,
    write_incarnation,
)
from usher.index.metrics import DOCUMENTS, FOREIGN, LOADED, NOT_LOADED, RETIRED
from usher.index.page_filter import PageFilter
from usher.messages.components import ForeignPages
from usher.messages.index_server import ChunkPages, HeldChunk, ServerChunk
from usher.telemetry import Log
from usher.urls import Refused, parse

T = TypeVar("T")
log = Log("index")
IDLE_PAUSE: Final = (0.2, 1.0)  # seconds between two rounds: the first, the longest
BROKEN_PAUSE: Final = 5.0
BATCH: Final = 32  # chunks of one commit
AHEAD: Final = 2  # batches: the files of the next one come while one is added
GATHER_SECONDS: Final = 0.2  # for the files of a batch to come; the rest is in a later one
LEAVING_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 2.0  # without a change, after which the index is put in order
HOLDS_SECONDS: Final = 600.0
TIDY_SECONDS: Final = 60.0
MOST: Final = 1_000  # asked of MGMT at once
COMPARED_AT_ONCE: Final = 1_000  # chunks
ANEW: Final = "Its index could not be used and is loaded again."


class IndexWriteError(Exception):
    """The engine could not write; what it holds is what it held before."""


class Loader:
    """The one that writes into the engine of a server."""

    def __init__(
        self, mgmt: Client, engine: Engine, sources: ChunkSources, fitness: ComponentHealth
    ) -> None:
        self.mgmt, self.engine, self.sources, self.fitness = mgmt, engine, sources, fitness
        self.shelf = sources.shelf
        self.held: set[int] = set()
        self.anew = False  # whether all of it has to be loaded again before it can answer
        self._writer = ThreadPoolExecutor(1, "index-writer")
        self._fetching: dict[int, asyncio.Task[bool]] = {}
        self._pages: dict[int, ChunkPages] = {}  # of the chunks that are fetched
        self._foreign: dict[int, ForeignPages] = {}  # of loaded chunks, until MGMT knows
        self._batch = BATCH
        self._quiet_since = 0.0
        self._due = {"leaving": 0.0, "holds": 0.0, "tidy": 0.0}

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop: rounds, quickly after one another as long as there is something to do."""
        pause = IDLE_PAUSE[0]
        try:
            while not stop.is_set():
                if await self._round():
                    pause, self._quiet_since = IDLE_PAUSE[0], asyncio.get_running_loop().time()
                    continue
                await self._rest()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stop.wait()
                pause = min(2 * pause, BROKEN_PAUSE if self.fitness.trouble else IDLE_PAUSE[1])
        finally:
            await self._end()

    async def _end(self) -> None:
        await self._give_up_fetching()
        await asyncio.to_thread(self._writer.shutdown, wait=True)

    async def _round(self) -> bool:
        """Everything once; whether something changed. What goes wrong is said, and tried again later."""
        trouble, changed = await asyncio.to_thread(disk_problem, self.engine.path), False
        try:
            await self._hold()
            changed = await self._retire()
            changed |= await self._leave()
            if not trouble:
                changed |= await self._load()
        except IndexWriteError as error:
            trouble = str(error)
            self._batch = 1
        except UsherError as error:
            log.warning("round_failed", error=error.message)
        await self.fitness.be(self.mgmt, trouble or (ANEW if self.anew else ""))
        return changed

    async def _rest(self) -> None:
        """Nothing changes: the index is put in order, once, and seen as it is then."""
        quiet = asyncio.get_running_loop().time() - self._quiet_since
        with suppress(IndexWriteError):
            if QUIET_SECONDS <= quiet < math.inf and not self.fitness.trouble:
                self._quiet_since = -math.inf
                await self._write(self.engine.settle)
            await self._write(self.engine.refresh)

    def _is_due(self, what: str, seconds: float) -> bool:
        now = asyncio.get_running_loop().time()
        due = now >= self._due[what]
        if due:
            self._due[what] = now + seconds
        return due

    async def _hold(self) -> None:
        """Tell MGMT what is here, at first and now and then; what it has no use for is dropped."""
        if not self._is_due("holds", HOLDS_SECONDS) and not self._is_restored():
            return
        self._due["holds"] = 0.0  # until it has heard
        self.held = await self._write(self._look)
        if self._is_restored():
            await self._compare(self.mgmt.incarnation)
        stray = await self.mgmt.holds(sorted(self.held))
        await self._drop(stray)
        await self._drop_orphans()
        self._is_due("holds", HOLDS_SECONDS)

    def _is_restored(self) -> bool:
        """Whether the database was restored since the chunks were compared with it."""
        return self.mgmt.incarnation != self.mgmt.compared_with

    async def _compare(self, incarnation: str) -> None:
        """Compare all chunks with a restored database; those of another history are dropped or loaded again."""
        log.warning("comparing", incarnation=incarnation, chunks=len(self.held))
        directory = self.engine.path.parent
        self.engine.incarnation, self.mgmt.compared_with = (
            NOT_COMPARED,
            "",
        )  # also if it ends halfway
        await asyncio.to_thread(forget_incarnation, directory)
        await self._give_up_fetching()
        held = sorted(self.held)
        for start in range(0, len(held), COMPARED_AT_ONCE):
            part = held[start : start + COMPARED_AT_ONCE]
            chunks = await asyncio.to_thread(count_documents, self.engine, self.shelf, part)
            answer = await self.mgmt.compare(chunks, incarnation)
            await self._drop(answer.stray)
            if answer.reload:
                await self._write(self._committed, self.engine.unload, answer.reload)
                self.held.difference_update(answer.reload)
            stray, again = len(answer.stray), len(answer.reload)
            log.info("compared", chunks=len(part), stray=stray, reload=again)
        await asyncio.to_thread(write_incarnation, directory, incarnation)
        self.engine.incarnation = self.mgmt.compared_with = incarnation

    async def _drop_orphans(self) -> None:
        """Drop what is left of chunks that were to be loaded again after a restore, and that moved since."""
        orphans = await self._write(self.engine.not_loaded)
        if orphans and self.mgmt.compared_with:
            chunks = [HeldChunk(chunk, 0) for chunk in sorted(orphans)[:COMPARED_AT_ONCE]]
            answer = await self.mgmt.compare(chunks, self.mgmt.compared_with)
            await self._write(self._committed, self.engine.drop, answer.stray)

    async def _give_up_fetching(self) -> None:
        """What is on its way was wanted in another history."""
        for task in self._fetching.values():
            task.cancel()
        await asyncio.gather(*self._fetching.values(), return_exceptions=True)
        self._fetching.clear()
        self._pages.clear()

    async def _retire(self) -> bool:
        """Take out pages that are out of date."""
        copies = await self.mgmt.to_retire(MOST)
        if not copies:
            return False
        urls = [(parse(copy.url), copy.chunk_id) for copy in copies]
        old = [(page_key(url), chunk) for url, chunk in urls if not isinstance(url, Refused)]
        await self._write(self._committed, self.engine.retire, old)
        RETIRED.inc(len(old))
        await self.mgmt.retired(copies)
        return True

    async def _leave(self) -> bool:
        """Drop what has moved to another server."""
        if not self._is_due("leaving", LEAVING_SECONDS):
            return False
        chunks = await self.mgmt.leaving()
        if chunks:
            await self._drop(chunks)
            await self.mgmt.dropped(chunks)
        return bool(chunks)

    async def _drop(self, chunks: Sequence[int]) -> None:
        if here := self.held.intersection(chunks):
            await self._write(self._committed, self.engine.drop, here)
            self.held -= here
        if chunks:
            await asyncio.to_thread(self.shelf.drop, chunks)

    # -- chunks that come

    async def _load(self) -> bool:
        """Fetch what is wanted, and load what has come; whether anything has."""
        await self._tell_lost()
        await self._report_foreign()
        busy, most = len(self._fetching) + self.sources.resting(), AHEAD * self._batch
        wanted = await self.mgmt.get_chunks(min(MOST, most + busy))
        await self._fetch(wanted, most)
        if not self._fetching:
            if self.anew:  # all that can be had is here
                self.anew = False
                self.engine.incarnation = self.mgmt.compared_with or NOT_COMPARED
            if not wanted and self._is_due("tidy", TIDY_SECONDS):
                await self._tidy()
            return False
        return await self._load_fetched()

    async def _fetch(self, wanted: Sequence[ServerChunk], most: int) -> None:
        """Fetch chunks that are not on their way yet; MGMT says first which pages they may hold."""
        new = [
            chunk
            for chunk in wanted
            if chunk.chunk_id not in self._fetching and self.sources.may_try(chunk.chunk_id)
        ][: max(0, most - len(self._fetching))]
        if not new:
            return
        keys = await self.mgmt.page_keys([chunk.chunk_id for chunk in new])
        self._pages |= {pages.chunk_id: pages for pages in keys}
        for chunk in new:
            if chunk.chunk_id in self._pages:  # else it has left this server meanwhile
                self._fetching[chunk.chunk_id] = asyncio.create_task(self.sources.fetch(chunk))

    async def _tell_lost(self) -> None:
        """MGMT hears of chunks that nobody has, and has them made again; then they come as new ones do."""
        if not (lost := self.sources.lost()):
            return
        log.warning("chunks_nowhere", chunks=[one.chunk_id for one in lost], some=lost[0].reason)
        try:
            told = await self.mgmt.missing(lost)
        except UsherError as error:  # what else is wanted must come all the same
            log.warning("loss_not_told", error=error.message)
            return
        for chunk in (*told.build, *told.crawl, *told.parked):
            self.sources.good(chunk)

    async def _tidy(self) -> None:
        """Nothing is wanted: what is not in the index is on the shelf for nothing."""
        here = await asyncio.to_thread(self.shelf.chunks)
        await asyncio.to_thread(self.shelf.drop, [one for one in here if one not in self.held])

    async def _load_fetched(self) -> bool:
        if len(self._come()) < self._batch:
            await asyncio.wait(self._fetching.values(), timeout=GATHER_SECONDS)
        come = self._come()[: self._batch]
        ready = [chunk for chunk in come if self._has_come(chunk, self._fetching.pop(chunk))]
        pages = {chunk: self._pages.pop(chunk) for chunk in come}
        if not ready:
            return False
        added = await self._added(ready, pages)
        if added:
            await self._report(added)
        self._batch = min(2 * self._batch, BATCH)
        return True

    def _come(self) -> list[int]:
        return [chunk for chunk, task in self._fetching.items() if task.done()]

    def _has_come(self, chunk: int, task: "asyncio.Task[bool]") -> bool:
        error = task.exception()
        if error is not None:
            log.warning("chunk_not_fetched", chunk=chunk, error=str(error))
            NOT_LOADED.inc()
            self.sources.failed(chunk)
            return False
        if not task.result():
            self.held.discard(chunk)  # another file than it was loaded from
        return True

    async def _added(self, ready: Sequence[int], pages: Mapping[int, ChunkPages]) -> list[int]:
        """Those of these that are in the index now."""
        new = [pages[chunk] for chunk in ready if chunk not in self.held]
        try:
            bad = await self._write(self._add, new) if new else {}
        except IndexWriteError:
            if len(new) == 1:  # it may be this one that breaks it
                self.sources.failed(new[0].chunk_id)
            raise
        for chunk, reason in bad.items():
            NOT_LOADED.inc()
            self.sources.failed(chunk, unsound=reason)
        await asyncio.to_thread(self.shelf.drop, bad)
        added = [chunk for chunk in ready if chunk not in bad]
        self.held.update(added)
        LOADED.inc(len(new) - len(bad))
        return added

    async def _report(self, added: list[int]) -> None:
        """Tell MGMT; what it does not want here any more is dropped again."""
        for chunk in added:
            self.sources.good(chunk)
        await self._report_foreign()
        try:
            wanted = await self.mgmt.loaded(added)
        except Conflict:
            wanted = []
        await self._drop([chunk for chunk in added if chunk not in wanted])

    async def _report_foreign(self) -> None:
        """Tell MGMT which chunks had foreign documents; they are dropped already, so a failure stops nothing."""
        if not self._foreign:
            return
        try:
            await self.mgmt.foreign_pages(list(self._foreign.values()))
        except Conflict:
            self._foreign.clear()  # none of these chunks is for this server any more
        except UsherError as error:
            log.warning("foreign_pages_not_reported", error=error.message)
        else:
            self._foreign.clear()

    # -- in the writer's thread

    async def _write(self, work: Callable[..., T], *given: object) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._writer, work, *given)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # Tantivy's panics are no Exceptions
            log.error("index_not_written", error=repr(error))  # noqa: TRY400 - ours has none
            raise IndexWriteError(str(error)) from error

    def _look(self) -> set[int]:
        DOCUMENTS.set(self.engine.documents)
        return self.engine.chunks()

    def _committed(self, work: Callable[[Iterable[T]], None], given: Iterable[T]) -> None:
        work(given)
        self.engine.commit()
        DOCUMENTS.set(self.engine.documents)

    def _add(self, chunks: Sequence[ChunkPages]) -> dict[int, str]:
        """Put chunks into the index and commit; returns those whose files are not sound.

        The reason is empty if another copy of the file may be sound.
        """
        bad = dict[int, str]()
        for pages in chunks:
            try:
                self._add_one(pages)
            except BadInput as error:
                log.warning("chunk_not_sound", chunk=pages.chunk_id, error=error.message)
                bad[pages.chunk_id] = error.message if isinstance(error, UnsoundChunk) else ""
        self.engine.commit()
        DOCUMENTS.set(self.engine.documents)
        return bad

    def _add_one(self, pages: ChunkPages) -> None:
        """Put a chunk into the index, without the documents of pages that it may not hold."""
        chunk = pages.chunk_id
        own = PageFilter(chunk, pages.keys, pages.textless_keys)
        _, documents = chunk_file.read(self.shelf.path(chunk), chunk)
        self.engine.add(chunk, own.passed(documents))
        if report := own.report:
            FOREIGN.inc(report.count)
            log.warning("foreign_pages", chunk=chunk, count=report.count, examples=report.examples)
            self._foreign[chunk] = report
