"""The index builder: claims crawled chunks, downloads each from its crawler, builds its index chunk and reports it.

A builder that is killed continues with its claims when it is restarted; otherwise other builders take them over when
the leases end.
"""

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from usher.background import background_tasks, wait_up_to
from usher.certificates import TrustedAuthorities
from usher.chunk_store import ChunkStore, StoredFile
from usher.chunk_upload import ChunkUpload
from usher.component_health import STORE_PROBLEM, ComponentHealth, disk_problem
from usher.errors import BadContent, Conflict, NotFound, StoreUnusable, Unreachable, UsherError
from usher.http.client.download import download_chunk
from usher.http.client.mgmt_client import Client
from usher.http.client.object_transfer import download_object
from usher.index.build_pool import BuildPool
from usher.index.chunk_documents import BuildJob, BuiltChunk, MergeSource
from usher.index.chunk_sources import download_index_chunk
from usher.index.claimed_chunks import ClaimedChunks
from usher.index.metrics import BUILT, BUILT_DOCUMENTS, FOREIGN, count_skipped
from usher.messages.builder import ContentChunk, SourceChunk
from usher.messages.components import ForeignPages
from usher.telemetry import Log, log_failure

log = Log("index")
IDLE_SECONDS: Final = (0.1, 1.0)  # between two claims without a chunk: at first, at most
CRAWLER_TIMEOUT_SECONDS: Final = 60.0  # after which the chunk of a silent crawler is given back
DOWNLOAD_TIMEOUT_SECONDS: Final = 10.0
CRAWLER_RETRY_SECONDS: Final = 2.0
STORE_RETRY_SECONDS: Final = 5.0
MAX_WAITING_FACTOR: Final = 4  # chunks that may wait for silent crawlers, in multiples of `chunks`
MAX_REASON_CHARACTERS: Final = 1_000


class BuildFailure(NamedTuple):
    """Why there is no index chunk; `missing` if the crawler has lost the content."""

    reason: str
    missing: bool = False


class BuilderLimits(NamedTuple):
    """How many chunks are built at once, and how often their leases are renewed."""

    chunks: int
    renewal_seconds: float


class Builder:
    """Builds up to `chunks` chunks at once; when `stop` is set it finishes them and claims no more."""

    def __init__(
        self,
        mgmt: Client,
        store: ChunkStore,
        claims: ClaimedChunks,
        pool: BuildPool,
        health: ComponentHealth,
        *,
        limits: BuilderLimits,
        stop: asyncio.Event,
        authorities: TrustedAuthorities,
    ) -> None:
        self.mgmt, self.store, self.claims, self.pool = mgmt, store, claims, pool
        self.health = health
        self.chunks, self.renewal_seconds = limits
        self.tasks: dict[int, asyncio.Task[None]] = {}  # by chunk
        self.built = 0
        self._waiting_for_crawler: set[int] = set()
        self._reporting: set[int] = set()
        self._stop = stop
        self._authorities = authorities
        self._uploads = ChunkUpload(
            mgmt, "index", stop=stop, report=self._report_health, authorities=authorities
        )
        self._disk_problem = ""
        self._store_failures: dict[int, str] = {}  # downloads that wait for the object store

    async def run(self) -> None:
        """Build until `stop` is set, beginning with the claims of the previous run."""
        async with background_tasks(log, self._renew_leases()):
            await self._resume()
            pause = IDLE_SECONDS[0]
            while not self._stop.is_set():
                if self._free_slots() <= 0:
                    await self._wait_for_slot()
                elif await self._can_store() and await self._claim():
                    pause = IDLE_SECONDS[0]
                else:
                    await wait_up_to(pause, self._stop)
                    pause = min(2 * pause, IDLE_SECONDS[1])
            await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def _free_slots(self) -> int:
        """How many more chunks to claim; a chunk with a silent crawler uses no slot, up to a limit."""
        limit = MAX_WAITING_FACTOR * self.chunks - len(self.tasks)
        return min(limit, self.chunks - len(self.tasks) + len(self._waiting_for_crawler))

    async def _claim(self) -> bool:
        """Claim and start more chunks; False if there are none."""
        try:
            claims = await self.mgmt.get_content_chunks(self._free_slots(), compact=True)
        except UsherError as error:
            log.warning("no_chunk", error=str(error))
            return False
        for claim in claims:
            self._start(claim)
        return bool(claims)

    async def _resume(self) -> None:
        """Continue with the claims of the previous run whose leases are still valid."""
        claims = {claim.chunk_id: claim for claim in await asyncio.to_thread(self.claims.restore)}
        held = []
        if claims:
            with suppress(UsherError):
                held = (await self.mgmt.renew(claims)).held
        for chunk, claim in claims.items():
            if chunk in held:
                self._start(claim)
            else:
                self.claims.drop(chunk)

    def _start(self, claim: ContentChunk) -> None:
        task = asyncio.create_task(self._process(claim), name=f"chunk {claim.chunk_id}")
        self.tasks[claim.chunk_id] = log_failure(task, log)

    async def _wait_for_slot(self) -> None:
        stop = asyncio.create_task(self._stop.wait())
        # A slot also becomes free when a crawler falls silent, which no task signals.
        pause = asyncio.create_task(asyncio.sleep(IDLE_SECONDS[1]))
        await asyncio.wait([*self.tasks.values(), stop, pause], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        pause.cancel()

    async def _can_store(self) -> bool:
        """Whether another chunk can be built and stored; tells MGMT when that changes."""
        self._disk_problem = await asyncio.to_thread(disk_problem, self.store.directory)
        await self._report_health()
        return not self.health.problem

    async def _report_health(self) -> None:
        store_problem = self._uploads.problem or next(iter(self._store_failures.values()), "")
        problem = self._disk_problem or store_problem
        await self.health.set_problem(self.mgmt, problem, keeps_chunks=not self._disk_problem)

    # -- one chunk

    async def _process(self, claim: ContentChunk) -> None:
        """Build and report one chunk."""
        chunk = claim.chunk_id
        try:
            outcome = await self._build(claim)
            is_stored = await self._upload(claim, outcome)
            self._reporting.add(chunk)
            await self._report(chunk, outcome, is_stored=is_stored)
            if is_stored:
                await asyncio.to_thread(self.store.drop, [chunk])
        except Conflict as error:  # the lease was lost
            log.warning("chunk_lost", chunk=chunk, error=str(error))
            await asyncio.to_thread(self.store.drop, [chunk])
        except UsherError as error:
            # MGMT may have received the report, so the file stays until MGMT says that it is not needed.
            log.warning("chunk_not_reported", chunk=chunk, error=str(error))
        except Exception as error:  # noqa: BLE001 - a failed chunk must not end the others
            log.error("chunk_failed", chunk=chunk, error=repr(error))  # noqa: TRY400 - ours has none
            with suppress(UsherError):
                reason = self._without_paths(claim, f"the builder failed: {error!r}")
                await self.mgmt.not_built(chunk, reason[:MAX_REASON_CHARACTERS])
        finally:
            self.claims.drop(chunk)
            self._waiting_for_crawler.discard(chunk)
            self._reporting.discard(chunk)
            self.tasks.pop(chunk, None)

    async def _build(self, claim: ContentChunk) -> BuiltChunk | BuildFailure:
        chunk = claim.chunk_id
        content, index = self.claims.content_path(chunk), self.store.path(chunk)
        try:
            await asyncio.to_thread(self.claims.add, claim)
            sources = None
            if claim.made_of is not None:
                sources = await self._download_sources(chunk, claim.made_of)
            elif failure := await self._download_content(claim):
                return failure
            job = BuildJob(
                chunk,
                str(content),
                str(index),
                claim.keys,
                claim.textless_keys,
                sources=sources,
                name=content_name(claim),
                links=claim.links,
                templates=claim.templates,
                samples=claim.samples,
            )
            built = await self.pool.build(job)
        except UsherError as error:
            return BuildFailure(self._without_paths(claim, error.message))
        self.store.remember_checksum(chunk, StoredFile(index, built.sha256, built.size))
        return built

    def _without_paths(self, claim: ContentChunk, reason: str) -> str:
        """Replace paths of this machine by the names of chunks, because other machines show the reason."""
        chunk = claim.chunk_id
        names = {
            str(self.claims.content_path(chunk)): content_name(claim),
            str(self.store.path(chunk)): f"The index of chunk {chunk}",
        }
        for source in claim.made_of or []:
            path = self.claims.source_path(chunk, source.chunk_id)
            names |= dict.fromkeys((str(path), path.name), f"The index of chunk {source.chunk_id}")
        for directory in (self.claims.directory, self.store.directory):
            names[str(directory)] = "The builder's disk"
        for path_name, name in names.items():
            reason = reason.replace(path_name, name)
        return reason

    async def _download_content(self, claim: ContentChunk) -> BuildFailure | None:
        """Download the content; a failure if the crawler no longer has it or has other content.

        Waits for a silent crawler while other chunks are built; Unreachable if it stays silent.
        """
        if claim.url:
            return await self._download_stored(claim)
        chunk = claim.chunk_id
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CRAWLER_TIMEOUT_SECONDS
        while True:
            try:
                await download_chunk(
                    claim.host,
                    chunk,
                    "content",
                    self.claims.content_path(chunk),
                    claim.sha256,
                    size=claim.bytes,
                    ticket=await self.mgmt.ticket(claim.host),
                    timeout_seconds=DOWNLOAD_TIMEOUT_SECONDS,
                )
            except NotFound:
                reason = f"The crawler {claim.host} no longer has the content of chunk {chunk}."
                return BuildFailure(reason, missing=True)
            except BadContent as error:
                return BuildFailure(error.message, missing=True)
            except Unreachable:
                if loop.time() > deadline or self._stop.is_set():
                    raise
                self._waiting_for_crawler.add(chunk)
                await wait_up_to(CRAWLER_RETRY_SECONDS, self._stop)
            else:
                self._waiting_for_crawler.discard(chunk)
                return None

    async def _download_stored(self, claim: ContentChunk) -> BuildFailure | None:
        """Download the content from the object store; a failure if the content is lost or damaged there.

        Waits while the store is away: another builder could not download it either. Raises if the builder stops.
        """
        chunk = claim.chunk_id
        try:
            while True:
                try:
                    await self._download_object(claim)
                except (NotFound, BadContent) as error:
                    return BuildFailure(error.message, missing=True)
                except (Unreachable, StoreUnusable) as error:
                    log.warning("store_away", chunk=chunk, error=error.message)
                    self._store_failures[chunk] = f"{STORE_PROBLEM}: {error.message}"
                    await self._report_health()
                    if await wait_up_to(STORE_RETRY_SECONDS, self._stop):
                        raise
                    if isinstance(error, StoreUnusable):  # the URL may have expired
                        with suppress(Unreachable):
                            claim.url = (await self.mgmt.content_url(chunk)).url
                else:
                    return None
        finally:
            self._store_failures.pop(chunk, None)

    async def _download_object(self, claim: ContentChunk) -> None:
        path = self.claims.content_path(claim.chunk_id)
        await download_object(
            *(claim.url, claim.chunk_id, "content", path, claim.sha256),
            size=claim.bytes,
            authorities=self._authorities,
        )

    async def _upload(self, claim: ContentChunk, outcome: BuiltChunk | BuildFailure) -> bool:
        """Upload the index if there is an object store; False if it stays on this disk."""
        if not claim.upload or isinstance(outcome, BuildFailure):
            return False
        file = StoredFile(self.store.path(claim.chunk_id), outcome.sha256, outcome.size)
        return await self._uploads.upload(claim.chunk_id, file)

    async def _download_sources(self, chunk: int, sources: list[SourceChunk]) -> list[MergeSource]:
        """Download the index chunks to merge, each from a server that has it."""
        merge_sources = []
        for source in sources:
            path = self.claims.source_path(chunk, source.chunk_id)
            await download_index_chunk(source, path, self.mgmt.ticket, self._authorities)
            merge_sources.append(MergeSource(source.chunk_id, str(path), source.keys))
        return merge_sources

    async def _report(
        self, chunk: int, outcome: BuiltChunk | BuildFailure, *, is_stored: bool
    ) -> None:
        if isinstance(outcome, BuildFailure):
            log.warning("not_built", chunk=chunk, error=outcome.reason)
            BUILT.labels("failed").inc()
            reason = outcome.reason[:MAX_REASON_CHARACTERS]
            await self.mgmt.not_built(chunk, reason, missing=outcome.missing)
            return
        if outcome.foreign:
            # Before the chunk is settled: a builder that is killed here builds and reports it again.
            await self._report_foreign(outcome.foreign)
        await self.mgmt.built(
            chunk,
            sha256=outcome.sha256,
            size=outcome.size,
            samples=outcome.samples,
            stored=is_stored,
        )
        log.debug("built", chunk=chunk, documents=outcome.documents, skipped=outcome.skipped)
        self.built += 1
        BUILT.labels("built").inc()
        BUILT_DOCUMENTS.inc(outcome.documents)
        count_skipped(outcome.skipped)

    async def _report_foreign(self, pages: ForeignPages) -> None:
        """Tell MGMT that the content has pages that do not belong to the chunk."""
        log.warning(
            "foreign_pages", chunk=pages.chunk_id, count=pages.count, examples=pages.examples
        )
        FOREIGN.inc(pages.count)
        await self.mgmt.foreign_pages([pages])

    # -- leases

    async def _renew_leases(self) -> None:
        """Renew the leases forever; cancels chunks whose lease is lost."""
        while True:
            await asyncio.sleep(self.renewal_seconds)
            if not self.tasks:
                continue
            try:
                leases = await self.mgmt.renew(self.tasks)
            except UsherError as error:
                log.warning("leases_not_renewed", error=str(error))
                continue
            for chunk in leases.lost:
                # For a chunk that is being reported, the response to the report decides.
                if (task := self.tasks.get(chunk)) and chunk not in self._reporting:
                    log.warning("chunk_lost", chunk=chunk, error="its lease ended")
                    task.cancel()


def content_name(claim: ContentChunk) -> str:
    """The name of the content in error messages."""
    source = "the object store" if claim.url else claim.host
    return f"The content of chunk {claim.chunk_id} from {source}"
