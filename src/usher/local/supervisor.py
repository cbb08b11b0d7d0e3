"""The troupe: one process for each part, started again when it falls, ended in order.

Comes from whoever runs everything on this machine; goes to child processes, whose words go to files there.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from usher.errors import UsherError
from usher.local.roles import ROLE_PROCESSES
from usher.private_files import make_directory, open_file
from usher.telemetry import Log

log = Log("stage")
# Seconds before a part that fell is started again: the first, the longest.
PAUSES: Final = (0.5, 30.0)
STABLE_SECONDS: Final = 30.0  # seconds on its feet after which a part is trusted again
START_SECONDS: Final = 90.0
MAX_START_CRASHES: Final = 3  # of a part that never was on its feet
STOP_SECONDS: Final = 40.0
MAX_LOG_BYTES: Final = 20_000_000  # bytes; then the file before it is dropped
NOT_STARTED: Final = -1  # where there is no exit code
ShowMessage = Callable[[str], None]


class RoleProcess:
    """One process, and another whenever it falls."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, told: ShowMessage
    ) -> None:
        self.name, self.falls = name, 0
        self.up = asyncio.Event()
        self.log = directory / f"{name}.log"
        self._command, self._told = command, told
        self._process: Process | None = None
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, kept_open: Sequence[int] = ()) -> None:
        """Begin; the process holds these files open for as long as it lives."""
        self._task = asyncio.create_task(self._keep_up(kept_open), name=f"part {self.name}")

    async def _keep_up(self, kept_open: Sequence[int]) -> None:
        loop, pause = asyncio.get_running_loop(), PAUSES[0]
        while not self._ending.is_set():
            began = loop.time()
            code = await self._run_once(kept_open)
            self.up.clear()
            if self._ending.is_set():
                return
            self.falls += 1
            pause = PAUSES[0] if loop.time() - began > STABLE_SECONDS else min(2 * pause, PAUSES[1])
            log.warning("fell", part=self.name, exit=code, again_in=pause, log=str(self.log))
            self._told(f"{self.name} fell (exit {code}) and is started again; see {self.log}")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()

    async def _run_once(self, kept_open: Sequence[int]) -> int:
        with open_log(self.log) as file:
            try:
                # In a session of its own: Ctrl-C is for us, who end everybody in order.
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=file,
                    start_new_session=True,
                    pass_fds=kept_open,
                )
            except OSError as error:
                log.warning("not_started", part=self.name, error=str(error))
                return NOT_STARTED
            if self._ending.is_set():
                self._send(signal.SIGTERM)
            out = process.stdout
            while out is not None and (line := await out.readline()):
                file.write(line)
                file.flush()
                if line.strip() == self.name.encode():
                    self.up.set()
            return await process.wait()

    async def end(self, hurry: asyncio.Event) -> None:
        """Let it end in order, for a while or until somebody is in a hurry; then end it."""
        self._ending.set()
        if self._task is None:
            return
        self._send(signal.SIGTERM)
        hurried = asyncio.create_task(hurry.wait())
        either = [self._task, hurried]
        await asyncio.wait(either, timeout=STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not self._task.done():
            self._send(signal.SIGKILL)
        await asyncio.gather(self._task, return_exceptions=True)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


class Supervisor:
    """All parts; entered when every one is on its feet or `stop` is set, left when every one has gone."""

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        directory: Path,
        *,
        told: ShowMessage,
        stop: asyncio.Event,
        hurry: asyncio.Event,
        kept_open: Sequence[int] = (),
    ) -> None:
        make_directory(directory)
        self.parts = [RoleProcess(name, command(name), directory, told) for name in ROLE_PROCESSES]
        self._stop, self._hurry, self._kept_open = stop, hurry, kept_open

    async def __aenter__(self) -> Self:
        for part in self.parts:
            part.start(self._kept_open)
        up: asyncio.Future[list[None]] = asyncio.gather(
            *(wait_started(part) for part in self.parts)
        )
        stopped = asyncio.create_task(self._stop.wait())
        try:
            either: list[asyncio.Future[Any]] = [up, stopped]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                await up
        except BaseException:
            await self.end()
            raise
        finally:
            stopped.cancel()
            up.cancel()
            await asyncio.gather(stopped, up, return_exceptions=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """The last first: what was fetched is still reported, and whom it is reported to is still there."""
        for part in reversed(self.parts):
            await part.end(self._hurry)


async def wait_started(part: RoleProcess) -> None:
    """Wait until a part is up; UsherError if it keeps falling or takes too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while part.falls < MAX_START_CRASHES:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSES[0]):
                        await part.up.wait()
                        return
    why = f"fell {part.falls} times" if part.falls else f"took longer than {START_SECONDS:g} s"
    raise UsherError(
        f"The part '{part.name}' did not start: it {why}.",
        hint=f"Its own words are in {part.log}.",
    )


def open_log(file: Path) -> IO[bytes]:
    """A log file to append to; one that grew large is put aside."""
    with suppress(FileNotFoundError):
        if file.lstat().st_size > MAX_LOG_BYTES:
            file.replace(file.with_suffix(".old"))
    return os.fdopen(open_file(file, os.O_WRONLY | os.O_APPEND), "ab")


def usher_command(*words: str) -> list[str]:
    """Our own command, by the interpreter that runs us."""
    return [sys.executable, "-m", "usher", *words]
