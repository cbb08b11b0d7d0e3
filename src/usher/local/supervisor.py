"""Start one process for each group of roles, restart it when it crashes, and stop all in order."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from usher.background import wait_up_to
from usher.errors import UsherError
from usher.local.roles import ROLE_PROCESSES
from usher.log_file import LogLimits, open_append, rotate
from usher.private_files import make_directory
from usher.telemetry import Log

log = Log("stage")
FIRST_PAUSE_SECONDS: Final = 0.5  # before a crashed process is restarted; doubles with each crash
MAX_PAUSE_SECONDS: Final = 30.0
STABLE_SECONDS: Final = 30.0  # without a crash; the pause then starts from the first again
START_SECONDS: Final = 90.0
MAX_START_CRASHES: Final = 3
STOP_SECONDS: Final = 40.0
LOG_DIRECTORY: Final = "logs"
LOG_SUFFIX: Final = ".log"
ShowMessage = Callable[[str], None]
OnCrash = Callable[[str, str, Path], None]  # called with the process, how it crashed, and its log


class RoleProcess:
    """One process, which is restarted whenever it crashes; its output goes to a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        log_limits: LogLimits,
        say: ShowMessage,
        on_crash: OnCrash | None = None,
    ) -> None:
        self.name, self.crashes = name, 0
        self.ready = asyncio.Event()
        self.log = directory / f"{name}{LOG_SUFFIX}"
        self._log_limits = log_limits
        self._command, self._say, self._on_crash = command, say, on_crash
        self._process: Process | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, open_files: Sequence[int] = ()) -> None:
        """Start the process; it inherits these files."""
        self._task = asyncio.create_task(self._supervise(open_files), name=f"process {self.name}")

    async def _supervise(self, open_files: Sequence[int]) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            start = loop.time()
            code = await self._run_once(open_files)
            self.ready.clear()
            if self._stopping.is_set():
                return
            self.crashes += 1
            stable = loop.time() - start > STABLE_SECONDS
            pause = FIRST_PAUSE_SECONDS if stable else min(2 * pause, MAX_PAUSE_SECONDS)
            log.warning("crashed", part=self.name, exit=code, again_in=pause, log=str(self.log))
            self._say(
                f"The {self.name} process {crash_text(code)} and was restarted. See {self.log}."
            )
            if self._on_crash is not None:
                self._on_crash(self.name, crash_text(code), self.log)
            await wait_up_to(pause, self._stopping)

    async def _run_once(self, open_files: Sequence[int]) -> int | None:
        """Run the process until it ends; its exit code, or None if it could not be started."""
        with suppress(OSError):
            rotate(self.log, self._log_limits)  # the process may crash before it does this itself
        try:
            with open_log(self.log) as file:
                # In its own session, because Ctrl-C goes to this process, which stops the others in order.
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=file,
                    start_new_session=True,
                    pass_fds=open_files,
                )
        except OSError as error:
            log.warning("not_started", part=self.name, error=str(error))
            return None
        if self._stopping.is_set():
            self._send(signal.SIGTERM)
        out = process.stdout
        while out is not None and (line := await out.readline()):
            self._append(line)
            if line.strip() == self.name.encode():
                self.ready.set()
        return await process.wait()

    def _append(self, line: bytes) -> None:
        """Write a line to the log, which the process may have rotated."""
        with suppress(OSError), open_log(self.log) as file:
            file.write(line)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Send TERM; send KILL after a timeout or when `hurry` is set."""
        self._stopping.set()
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
    """All role processes; entering waits until they are ready or `stop` is set, leaving stops them."""

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        directory: Path,
        *,
        log_limits: LogLimits,
        say: ShowMessage,
        stop: asyncio.Event,
        hurry: asyncio.Event,
        open_files: Sequence[int] = (),
        on_crash: OnCrash | None = None,
    ) -> None:
        make_directory(directory)
        self.processes = [
            RoleProcess(name, command(name), directory, log_limits, say, on_crash)
            for name in ROLE_PROCESSES
        ]
        self._stop, self._hurry, self._open_files = stop, hurry, open_files

    async def __aenter__(self) -> Self:
        for process in self.processes:
            process.start(self._open_files)
        ready: asyncio.Future[list[None]] = asyncio.gather(*map(wait_started, self.processes))
        stopped = asyncio.create_task(self._stop.wait())
        try:
            either: list[asyncio.Future[Any]] = [ready, stopped]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                await ready
        except BaseException:
            await self.stop_all()
            raise
        finally:
            stopped.cancel()
            ready.cancel()
            await asyncio.gather(stopped, ready, return_exceptions=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_all()

    async def stop_process(self, name: str) -> None:
        """Stop one process; the others continue."""
        for process in self.processes:
            if process.name == name:
                await process.stop(self._hurry)

    async def stop_all(self) -> None:
        """Stop the processes in reverse order, so that the crawler can still report to MGMT."""
        for process in reversed(self.processes):
            await process.stop(self._hurry)


async def wait_started(process: RoleProcess) -> None:
    """Wait until a process is ready; UsherError if it crashes repeatedly or takes too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while process.crashes < MAX_START_CRASHES:
                if await wait_up_to(FIRST_PAUSE_SECONDS, process.ready):
                    return
    crashed = f"it crashed {process.crashes} times"
    why = crashed if process.crashes else f"it took longer than {START_SECONDS:g} s"
    hint = f"Read its log: {process.log}"
    raise UsherError(f"The {process.name} process did not start: {why}.", hint=hint)


def crash_text(code: int | None) -> str:
    if code is None:
        return "could not be started"
    return f"crashed (signal {-code})" if code < 0 else f"crashed (exit code {code})"


def open_log(file: Path) -> IO[bytes]:
    """Open a log file to append to."""
    return os.fdopen(open_append(file), "ab")


def usher_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "usher", *words]
