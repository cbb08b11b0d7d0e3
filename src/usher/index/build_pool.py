"""The presses of a builder: a few processes that read pages, and are replaced when they die of one.

Comes from the builder, chunk by chunk; goes to index chunks. A page that ends its press or takes too long is left out,
and the rest of its chunk is made without it.
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
MEMORY: Final = 4 << 30  # bytes of address space: Python and its libraries alone take half of one
MOST_LEFT_OUT: Final = 5  # pages of a chunk; with more of that kind the chunk is a trap
START_SECONDS: Final = 60.0  # until the first page: a machine with much to do starts slowly
END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """How long a page and a chunk may take, in seconds, and how much memory a press may have."""

    page: float = 30.0
    chunk: float = 900.0
    memory: int = MEMORY


class WorkerFailure(Exception):
    """A press died or was ended; at which page, if it had come to one."""

    def __init__(self, page: int | None, words: str) -> None:
        super().__init__(words)
        self.page = page
        self.words = words


class BuildPool:
    """As many presses as there are; whoever has work waits for a free one."""

    def __init__(self, presses: int, bounds: BuildLimits | None = None) -> None:
        self._bounds = bounds or BuildLimits()
        self._presses = [BuildWorker(self._bounds) for _ in range(presses)]
        self._free: asyncio.LifoQueue[BuildWorker] = asyncio.LifoQueue()  # the last one is warm
        for press in self._presses:
            self._free.put_nowait(press)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(press.end() for press in self._presses))

    async def make(self, job: BuildJob) -> BuiltChunk:
        """Make a chunk; BadContent says why that cannot be done."""
        async with self._press() as press:
            try:
                async with asyncio.timeout(self._bounds.chunk):
                    return await self._make(press, job)
            except TimeoutError:
                await press.kill()
                long = f"longer than {self._bounds.chunk:g} seconds"
                raise BadContent(f"Reading chunk {job.chunk} takes {long}.") from None
            except asyncio.CancelledError:
                await press.kill()
                raise

    async def _make(self, press: "BuildWorker", job: BuildJob) -> BuiltChunk:
        vain = 0
        while True:
            try:
                return await press.make(job)
            except WorkerFailure as stuck:
                log.warning("press_stuck", chunk=job.chunk, page=stuck.page, error=stuck.words)
                vain += 1
                if vain > MOST_LEFT_OUT or (stuck.page is None and vain > 1):
                    raise BadContent(f"Chunk {job.chunk} cannot be read: {stuck.words}.") from None
                if stuck.page is not None:
                    without = {**job.without, stuck.page: stuck.words}
                    job = msgspec.structs.replace(job, without=without)

    @asynccontextmanager
    async def _press(self) -> AsyncIterator["BuildWorker"]:
        press = await self._free.get()
        try:
            yield press
        finally:
            self._free.put_nowait(press)


class BuildWorker:
    """One process; started when it is needed, and again when it is gone."""

    def __init__(self, bounds: BuildLimits) -> None:
        self._bounds = bounds
        self._process: asyncio.subprocess.Process | None = None

    async def make(self, job: BuildJob) -> BuiltChunk:
        process = await self._started()
        assert process.stdin is not None  # noqa: S101 - as it was started
        place: int | None = None
        with suppress(ConnectionError):  # then there is no line to read either
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            await process.stdin.drain()
        while (line := await self._line(process, place)).made is None:
            if line.failed:
                raise BadContent(line.failed)
            place = line.at
        return line.made

    async def _line(self, process: asyncio.subprocess.Process, place: int | None) -> WorkerMessage:
        assert process.stdout is not None  # noqa: S101
        seconds = START_SECONDS if place is None else self._bounds.page
        try:
            async with asyncio.timeout(seconds):
                data = await process.stdout.readline()
        except TimeoutError:
            await self.kill()
            raise WorkerFailure(place, f"it takes longer than {seconds:g} seconds") from None
        if not data.endswith(b"\n"):
            code = await self._ended(process)
            raise WorkerFailure(place, f"it ended the process that read it ({describe_exit(code)})")
        return msgspec.json.decode(data, type=WorkerMessage)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            # In a session of its own: Ctrl-C is for the builder, which lets it end.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "usher.index.build_worker", str(self._bounds.memory)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        return self._process

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """What it ended with. To signal what is ending takes its code away from who waits for it: let it end first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        return await self.kill()

    async def kill(self) -> int:
        """End it at once; what it ended with, if it had already."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        return await close_process(process)

    async def end(self) -> None:
        """Let it go: it ends when nobody talks to it any more."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101
        process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            self._process = process
            await self.kill()
            return
        await close_process(process)


async def close_process(process: asyncio.subprocess.Process) -> int:
    """The exit code, once its pipes are closed too."""
    code = await process.wait()
    if process.stdin is not None:
        process.stdin.close()
        with suppress(OSError):
            await process.stdin.wait_closed()
    if process.stdout is not None:
        await process.stdout.read()
    return code


def describe_exit(code: int) -> str:
    """An exit code as people say it."""
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def available_cores() -> int:
    """How many processes this machine can run at once, as far as we may."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
