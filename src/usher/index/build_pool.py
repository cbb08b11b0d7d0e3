"""The worker processes of a builder; a worker that crashes or hangs is replaced.

If a page crashes its worker or takes too long, the pool builds the chunk again without that page.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from usher.errors import BadContent
from usher.index.build_worker import WorkerMessage
from usher.index.chunk_documents import BuildJob, BuiltChunk
from usher.telemetry import Log

log = Log("index")
MAX_MEMORY_BYTES: Final = 4 << 30  # of address space: Python and its libraries alone use 2 GB
MAX_FATAL_PAGES: Final = 5  # per chunk; a chunk with more is hostile
START_SECONDS: Final = 60.0  # until the first page: a busy machine starts processes slowly
EXIT_SECONDS: Final = 5.0
MAX_MESSAGE_BYTES: Final = 16 << 20  # of a worker; the samples of 1,000 pages have 3 MB


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """Seconds for a page and for a chunk, and bytes of memory for a worker."""

    page: float = 30.0
    chunk: float = 900.0
    memory: int = MAX_MEMORY_BYTES


class WorkerFailure(Exception):
    """A worker crashed or was killed; `page` is the position of the page that it read, if any."""

    def __init__(self, page: int | None, reason: str) -> None:
        super().__init__(reason)
        self.page = page
        self.reason = reason


class BuildPool:
    """A fixed number of workers; a job waits for a free one."""

    def __init__(self, processes: int, limits: BuildLimits | None = None) -> None:
        self._limits = limits or BuildLimits()
        self._workers = [BuildWorker(self._limits) for _ in range(processes)]
        self._free: asyncio.LifoQueue[BuildWorker] = asyncio.LifoQueue()  # the last one is warm
        for worker in self._workers:
            self._free.put_nowait(worker)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def build(self, job: BuildJob) -> BuiltChunk:
        """Build a chunk; BadContent says why that failed."""
        async with self._free_worker() as worker:
            try:
                async with asyncio.timeout(self._limits.chunk):
                    return await self._build(worker, job)
            except TimeoutError:
                await worker.kill()
                long = f"longer than {self._limits.chunk:g} seconds"
                raise BadContent(f"Reading chunk {job.chunk} takes {long}.") from None
            except asyncio.CancelledError:
                await worker.kill()
                raise

    async def _build(self, worker: "BuildWorker", job: BuildJob) -> BuiltChunk:
        failures = 0
        while True:
            try:
                return await worker.build(job)
            except WorkerFailure as failure:
                page, reason = failure.page, failure.reason
                log.warning("press_stuck", chunk=job.chunk, page=page, error=reason)
                failures += 1
                if failures > MAX_FATAL_PAGES or (page is None and failures > 1):
                    raise BadContent(f"Chunk {job.chunk} cannot be read: {reason}.") from None
                if page is not None:
                    job = msgspec.structs.replace(job, skip={**job.skip, page: reason})

    @asynccontextmanager
    async def _free_worker(self) -> AsyncIterator["BuildWorker"]:
        worker = await self._free.get()
        try:
            yield worker
        finally:
            self._free.put_nowait(worker)


class BuildWorker:
    """One worker process, started when it is needed."""

    def __init__(self, limits: BuildLimits) -> None:
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None

    async def build(self, job: BuildJob) -> BuiltChunk:
        """Build a chunk; WorkerFailure if the process crashes or hangs."""
        process = await self._started()
        assert process.stdin is not None  # noqa: S101 - a pipe, see `_started`
        position: int | None = None
        with suppress(ConnectionError):  # reading the answer then fails too
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            await process.stdin.drain()
        while (message := await self._receive(process, position)).built is None:
            if message.error:
                raise BadContent(message.error)
            position = message.position
        return message.built

    async def _receive(
        self, process: asyncio.subprocess.Process, position: int | None
    ) -> WorkerMessage:
        assert process.stdout is not None  # noqa: S101
        seconds = START_SECONDS if position is None else self._limits.page
        try:
            async with asyncio.timeout(seconds):
                data = await process.stdout.readline()
        except TimeoutError:
            await self.kill()
            raise WorkerFailure(position, f"it takes longer than {seconds:g} seconds") from None
        if not data.endswith(b"\n"):
            # Let it exit by itself: a signal to an exiting process would lose its exit code.
            with suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await process.wait()
            code = describe_exit(await self.kill())
            raise WorkerFailure(position, f"it ended the process that read it ({code})")
        return msgspec.json.decode(data, type=WorkerMessage)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            # In a session of its own, so that Ctrl-C reaches only the builder, which stops its workers.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "usher.index.build_worker", str(self._limits.memory)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=MAX_MESSAGE_BYTES,
            )
        return self._process

    async def kill(self) -> int:
        """Kill the process and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        return await close_process(process)

    async def stop(self) -> None:
        """Close stdin, on which the process exits; kill it if it does not."""
        if self._process is None:
            return
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self._process.wait()
        await self.kill()


async def close_process(process: asyncio.subprocess.Process) -> int:
    """Wait for the exit code and close the pipes."""
    code = await process.wait()
    if process.stdin is not None:
        process.stdin.close()
        with suppress(OSError):
            await process.stdin.wait_closed()
    if process.stdout is not None:
        await process.stdout.read()
    return code


def describe_exit(code: int) -> str:
    """An exit code in words, such as SIGKILL."""
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def available_cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
