"""The index builder: claims crawled chunks, pulls each from its crawler, makes its index chunk, and reports.

Comes from MGMT; goes to the shelf, from which index servers pull, and back to MGMT: built, or why not. Killed at any
moment, it goes on with what it had when it is started again, or others do when its leases end.
"""

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from usher.chunk_store import Kept, Shelf
from usher.component_health import ComponentHealth, disk_problem
from usher.errors import BadContent, Conflict, NotFound, Unreachable, UsherError
from usher.http.client.download import download_chunk
from usher.http.client.mgmt_client import Client
from usher.index.build_pool import BuildPool
from usher.index.chunk_documents import BuildJob, BuiltChunk, MergeSource
from usher.index.chunk_sources import download_index_chunk
from usher.index.claimed_chunks import ClaimedChunks
from usher.index.component_directory import background_task
from usher.index.metrics import BUILT, BUILT_DOCUMENTS, FOREIGN, count_skipped
from usher.messages.builder import ContentChunk, SourceChunk
from usher.messages.components import ForeignPages
from usher.telemetry import Log, observed

log = Log("index")
IDLE_PAUSE: Final = (0.1, 1.0)  # seconds between two questions: the first, the longest
PATIENCE: Final = 60.0  # seconds that a crawler may be away before its chunk is given back
PULL_PATIENCE: Final = 10.0
AWAY_PAUSE: Final = 2.0
MOST_AWAY: Final = 4  # so many times as many chunks may wait for crawlers that are away
LONGEST_REASON: Final = 1_000


class BuildFailure(NamedTuple):
    """Why there is no index chunk, in words, and whether that is because its crawler has lost the content."""

    reason: str
    missing: bool = False


class Builder:
    """One process of it; `stop` lets what is under way end and takes nothing new."""

    def __init__(
        self,
        mgmt: Client,
        shelf: Shelf,
        claims: ClaimedChunks,
        workshop: BuildPool,
        fitness: ComponentHealth,
    ) -> None:
        self.mgmt, self.shelf, self.claims, self.workshop = mgmt, shelf, claims, workshop
        self.fitness = fitness
        self._reporting: set[int] = set()
        self.chunks = 4  # at once
        self.renewal = 10.0  # seconds
        self.open: dict[int, asyncio.Task[None]] = {}
        self.away: set[int] = set()  # whose crawlers do not answer
        self.built = 0
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Until told to stop: what it had before, then as many chunks at once as it may have."""
        async with background_task(self._renew()):
            await self._go_on()
            pause = IDLE_PAUSE[0]
            while not self._stop.is_set():
                if self._places() <= 0:
                    await self._one_ends()
                elif await self._roomy() and await self._begin():
                    pause = IDLE_PAUSE[0]
                else:
                    await self._rest(pause)
                    pause = min(2 * pause, IDLE_PAUSE[1])
            await asyncio.gather(*self.open.values(), return_exceptions=True)

    def _places(self) -> int:
        """How many more it may have; one whose crawler is away takes no place, up to a point."""
        most = MOST_AWAY * self.chunks - len(self.open)
        return min(most, self.chunks - len(self.open) + len(self.away))

    async def _begin(self) -> bool:
        """More chunks, if there are any."""
        try:
            found = await self.mgmt.get_content_chunks(self._places(), compact=True)
            for one in found:
                self._start(one)
        except UsherError as error:
            log.warning("no_chunk", error=str(error))
            return False
        return bool(found)

    async def _go_on(self) -> None:
        """Go on with what an earlier life of this builder had, as far as it is still ours."""
        left = {one.chunk_id: one for one in await asyncio.to_thread(self.claims.take)}
        held = []
        if left:
            with suppress(UsherError):
                held = (await self.mgmt.renew(left)).held
        for chunk, one in left.items():
            if chunk in held:
                self._start(one)
            else:
                self.claims.drop(chunk)

    def _start(self, one: ContentChunk) -> None:
        task = asyncio.create_task(self._build(one), name=f"chunk {one.chunk_id}")
        self.open[one.chunk_id] = observed(task, log)

    async def _one_ends(self) -> None:
        stop = asyncio.create_task(self._stop.wait())
        # One whose crawler is away makes room too.
        pause = asyncio.create_task(asyncio.sleep(IDLE_PAUSE[1]))
        await asyncio.wait([*self.open.values(), stop, pause], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        pause.cancel()

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _roomy(self) -> bool:
        """Whether there is space for more; MGMT hears when that changes."""
        trouble = await asyncio.to_thread(disk_problem, self.shelf.directory)
        await self.fitness.be(self.mgmt, trouble)
        return not trouble

    # -- one chunk

    async def _build(self, one: ContentChunk) -> None:
        chunk = one.chunk_id
        try:
            made = await self._made(one)
            self._reporting.add(chunk)
            await self._report(chunk, made)
        except Conflict as error:  # not ours any more
            log.warning("chunk_lost", chunk=chunk, error=str(error))
            await asyncio.to_thread(self.shelf.drop, [chunk])
        except UsherError as error:
            # The file stays until MGMT says that it is not wanted: it may have heard the report, and not we the answer.
            log.warning("chunk_not_reported", chunk=chunk, error=str(error))
        except Exception as error:  # noqa: BLE001 - one chunk that fails must not end the others
            log.error("chunk_failed", chunk=chunk, error=repr(error))  # noqa: TRY400 - ours has none
            with suppress(UsherError):
                reason = self._without_paths(one, f"the builder failed: {error!r}")
                await self.mgmt.not_built(chunk, reason[:LONGEST_REASON])
        finally:
            self.claims.drop(chunk)
            self.away.discard(chunk)
            self._reporting.discard(chunk)
            self.open.pop(chunk, None)

    async def _made(self, one: ContentChunk) -> BuiltChunk | BuildFailure:
        """The index chunk, or why there is none."""
        chunk = one.chunk_id
        content, index = self.claims.content(chunk), self.shelf.path(chunk)
        try:
            await asyncio.to_thread(self.claims.add, one)
            parts = None if one.made_of is None else await self._pull_parts(one, one.made_of)
            if parts is None and (lost := await self._pull_whole(one)):
                return lost
            job = BuildJob(
                chunk,
                str(content),
                str(index),
                one.keys,
                one.textless_keys,
                parts=parts,
                name=content_name(one),
            )
            made = await self.workshop.make(job)
        except UsherError as error:
            return BuildFailure(self._without_paths(one, error.message))
        self.shelf.remember(chunk, Kept(index, made.sha256, made.size))
        return made

    def _without_paths(self, one: ContentChunk, reason: str) -> str:
        """Name chunks in place of the files of this machine: other machines show the reason."""
        names = {
            str(self.claims.content(one.chunk_id)): content_name(one),
            str(self.shelf.path(one.chunk_id)): f"The index of chunk {one.chunk_id}",
        }
        for source in one.made_of or []:
            path = self.claims.source(one.chunk_id, source.chunk_id)
            names |= dict.fromkeys((str(path), path.name), f"The index of chunk {source.chunk_id}")
        for directory in (self.claims.directory, self.shelf.directory):
            names[str(directory)] = "The builder's disk"
        for path_name, name in names.items():
            reason = reason.replace(path_name, name)
        return reason

    async def _pull_whole(self, one: ContentChunk) -> BuildFailure | None:
        """The content, unless its crawler has it no more, or another than it said."""
        try:
            await self._pull(one)
        except NotFound:
            words = (
                f"The content of chunk {one.chunk_id} is not at its crawler {one.host} any more."
            )
            return BuildFailure(words, missing=True)
        except BadContent as error:
            return BuildFailure(error.message, missing=True)
        return None

    async def _pull(self, one: ContentChunk) -> None:
        """The content; a crawler that is away for a moment is waited for, beside others."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            try:
                ticket = await self.mgmt.ticket(one.host)
                await download_chunk(
                    one.host,
                    one.chunk_id,
                    "content",
                    self.claims.content(one.chunk_id),
                    one.sha256,
                    size=one.bytes,
                    ticket=ticket,
                    patience=PULL_PATIENCE,
                )
                break
            except Unreachable:
                if loop.time() > deadline or self._stop.is_set():
                    raise
                self.away.add(one.chunk_id)
            await self._rest(AWAY_PAUSE)
        self.away.discard(one.chunk_id)

    async def _pull_parts(self, one: ContentChunk, made_of: list[SourceChunk]) -> list[MergeSource]:
        """The index chunks that one is made of, each from a server that has it."""
        parts = []
        for source in made_of:
            path = self.claims.source(one.chunk_id, source.chunk_id)
            await download_index_chunk(source, path, self.mgmt.ticket)
            parts.append(MergeSource(source.chunk_id, str(path), source.keys))
        return parts

    async def _report(self, chunk: int, made: BuiltChunk | BuildFailure) -> None:
        if isinstance(made, BuildFailure):
            log.warning("not_built", chunk=chunk, error=made.reason)
            BUILT.labels("failed").inc()
            reason = made.reason[:LONGEST_REASON]
            await self.mgmt.not_built(chunk, reason, missing=made.missing)
            return
        if made.foreign:
            # Before the chunk is settled: a builder that is killed here builds it again and reports again.
            await self._report_foreign(made.foreign)
        await self.mgmt.built(chunk, sha256=made.sha256, size=made.size)
        log.debug("built", chunk=chunk, documents=made.documents, left=made.left)
        self.built += 1
        BUILT.labels("built").inc()
        BUILT_DOCUMENTS.inc(made.documents)
        count_skipped(made.left)

    async def _report_foreign(self, pages: ForeignPages) -> None:
        """Tell MGMT that the crawler put pages into its content that the chunk was not given."""
        log.warning(
            "foreign_pages", chunk=pages.chunk_id, count=pages.count, examples=pages.examples
        )
        FOREIGN.inc(pages.count)
        await self.mgmt.foreign_pages([pages])

    # -- leases

    async def _renew(self) -> None:
        """Again and again; a chunk that is not ours any more is dropped at once."""
        while True:
            await asyncio.sleep(self.renewal)
            if not self.open:
                continue
            try:
                leases = await self.mgmt.renew(self.open)
            except UsherError as error:
                log.warning("leases_not_renewed", error=str(error))
                continue
            for chunk in leases.lost:
                # While a chunk is reported, the answer to the report says whether it is ours.
                if (task := self.open.get(chunk)) and chunk not in self._reporting:
                    log.warning("chunk_lost", chunk=chunk, error="its lease ended")
                    task.cancel()


def content_name(one: ContentChunk) -> str:
    """What errors call the content of a chunk."""
    return f"The content of chunk {one.chunk_id} from {one.host}"
