"""Runs programs for the manager, inside its event loop.

Comes in: orders. Goes out: `Started` and `Ended` for each, on the queue `events`. Behind it stands one launcher
process, which forks keepers; each keeper runs one job at a time and reports over a line of its own. Between jobs a
keeper waits for the next, so that a job costs one fork. Nothing outlives this process, however it ends.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Self

from usher.errors import UsherError
from usher.queue.job_states import EndReason
from usher.queue.runners.channel import Channel

IDLE_SECONDS: Final = 60  # how long a keeper waits for its next job
CLOSING_SECONDS: Final = 20
MAX_PRELOADED_MODULES: Final = 1000  # asked of the launcher, whatever names come
KILLED_EXIT_CODE: Final = -9
# Not with -m, whose machinery would stay in the memory that every job is forked from.
LAUNCHER_CODE: Final = "from usher.queue.runners.launcher import main; main()"
# What a program may know of the manager's surroundings; passwords and settings are not among it.
PASSED_VARIABLES: Final = frozenset(
    [
        *["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"],
        *["PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"],
        *["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"],
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One program to run: by its path (`exec`), or `module:function` in a fork of the warm launcher."""

    key: int  # the caller's number, unique among live runs
    how: Literal["exec", "fork"]
    program: str  # a path is absolute or relative to `directory`, and never looked up
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # over what `inherited` keeps
    directory: str = ""  # the manager's, if empty
    refusal: str = ""  # why it must not run; empty if it may
    defined_only: bool = False  # a function must be one that its module defines or lists in __all__
    account: tuple[int, int] | None = None  # user and group to run as; the manager's, if None
    kill_after: float = 900.0  # seconds
    grace: float = 10.0  # seconds between TERM and KILL
    memory: int | None = None  # bytes of address space
    cpu: int | None = None  # seconds
    output: int = 1 << 16  # bytes that are kept


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A process was made."""

    key: int
    pid: int


@dataclass(slots=True)
class RunEnded:
    """It is over, and none of its processes is left."""

    key: int
    pid: int | None
    code: int | None  # the exit code, or minus the signal; None if the program never ran
    why: EndReason
    detail: str
    output: str
    seconds: float
    result: str = ""  # JSON; empty if a function returned nothing


@dataclass(slots=True, eq=False)
class SupervisorHandle:
    """One keeper, seen from here."""

    modules: int  # how many the launcher had loaded when this keeper was made
    line: Channel = field(init=False)
    order: RunRequest | None = None
    pid: int | None = None
    output: str = ""
    since: float = 0.0  # when it became idle

    def take(self, order: RunRequest) -> None:
        self.order, self.pid, self.output = order, None, ""
        env = dict(order.env)
        what = (order.key, order.how, order.program, order.args, env, order.directory)
        rights = (order.defined_only, order.account)
        bounds = (order.kill_after, order.grace, order.memory, order.cpu, order.output)
        self.line.send("run", *what, *rights, *bounds)

    def end(self, grace: float, why: EndReason, detail: str = "") -> None:
        if self.order:
            self.line.send("end", self.order.key, grace, why, detail)


class ProcessRunner:
    """`async with Runner(preload=("my.worker",)) as runner`; on the way out, whatever still runs is killed."""

    def __init__(self, preload: Iterable[str] = (), *, path: Iterable[str] = ()) -> None:
        """Modules to have in memory from the start, and more directories where modules are found."""
        self.events: asyncio.Queue[RunStarted | RunEnded] = asyncio.Queue()
        self._path = tuple(path)
        self._warm = list(dict.fromkeys(preload))  # what every launcher loads
        self._asked = set(self._warm)
        self._loading = ""
        self._up = False
        self._modules = 0
        self._busy: dict[int, SupervisorHandle] = {}
        self._idle: deque[SupervisorHandle] = deque()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._launch()
        try:
            await self._ready
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up; the keepers end their jobs, and the launcher waits for the keepers."""
        for seat in (*self._busy.values(), *self._idle):
            seat.line.close()
        self._busy.clear()
        self._idle.clear()
        self._line.close()
        try:
            await asyncio.to_thread(self._process.wait, CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(self, order: RunRequest) -> None:
        """Begin; what becomes of it is told by events, also if it cannot begin."""
        if order.key in self._busy:
            raise ValueError(f"{order.key} is running already.")
        if order.refusal:
            self._refuse(order, order.refusal, "forbidden")
            return
        if flaw := nul_byte_error(order):
            self._refuse(order, flaw)
            return
        # The launcher runs as the manager's user, so it imports nothing for the jobs of another one.
        if order.how == "fork" and order.account is None:
            self._ask_for(order.program.partition(":")[0])
        try:
            seat = self._idle.pop() if self._idle else self._seat()
        except OSError as error:
            self._refuse(order, f"No line to a new process: {error.strerror}")
            return
        self._busy[order.key] = seat
        seat.take(order)

    def stop(self, key: int) -> None:
        """TERM to its process group, and KILL when its grace is over; one that has ended is left in peace."""
        if (seat := self._busy.get(key)) and seat.order:
            seat.end(seat.order.grace, "cancelled")

    def kill(self, key: int) -> None:
        if seat := self._busy.get(key):
            seat.end(0, "cancelled")

    def output(self, key: int) -> str:
        """What a running job has said, as of half a second ago; nothing if it does not run."""
        seat = self._busy.get(key)
        return seat.output if seat else ""

    def _refuse(self, order: RunRequest, detail: str, why: EndReason = "unstartable") -> None:
        self.events.put_nowait(RunEnded(order.key, None, None, why, detail, "", 0.0))

    # -- keepers

    def _seat(self) -> SupervisorHandle:
        """A new keeper; what is sent to it waits until it is there."""
        if self._line.closed:
            self._launch()
        ours, theirs = socket.socketpair()
        seat = SupervisorHandle(self._modules)
        heard, lost = partial(self._heard, seat), partial(self._lost, seat)
        seat.line = Channel(ours, heard=heard, lost=lost, loop=self._loop)
        self._line.send("keeper", gift=theirs)
        return seat

    def _heard(self, seat: SupervisorHandle, words: tuple[Any, ...]) -> None:
        match words:
            case ("started", pid) if seat.order:
                seat.pid = pid
                self.events.put_nowait(RunStarted(seat.order.key, pid))
            case ("output", text):
                seat.output = text
            case (_, code, why, detail, text, seconds, result, left):
                self._settle(seat, code, why, detail, text, seconds, result)
                self._free(seat, fit=not left)

    def _settle(
        self,
        seat: SupervisorHandle,
        code: int | None,
        why: EndReason,
        detail: str,
        text: str,
        seconds: float,
        result: str = "",
    ) -> None:
        if seat.order:
            key, seat.order = seat.order.key, None
            del self._busy[key]
            self.events.put_nowait(
                RunEnded(key, seat.pid, code, why, detail, text, seconds, result)
            )

    def _free(self, seat: SupervisorHandle, *, fit: bool) -> None:
        """Keep the keeper for another job, unless it is spoilt or knows fewer modules than a new one would."""
        now = time.monotonic()
        if fit and seat.modules == self._modules:
            seat.since = now
            self._idle.append(seat)
        else:
            seat.line.close()
        while self._idle and self._idle[0].since < now - IDLE_SECONDS:
            self._idle.popleft().line.close()

    def _lost(self, seat: SupervisorHandle) -> None:
        """A keeper died; the kernel has killed its job, and the launcher the rest."""
        if seat in self._idle:
            self._idle.remove(seat)
        if seat.order:
            who = "The launcher" if self._process.poll() is not None else "The keeper of this job"
            self._settle(seat, KILLED_EXIT_CODE, "ended", f"{who} died", seat.output, 0.0)

    # -- the launcher

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = start_launcher(theirs, self._warm, self._path)
            except OSError:
                ours.close()
                raise
        self._up = False
        self._line = Channel(ours, heard=self._told, lost=self._bereft, loop=self._loop)

    def _told(self, words: tuple[str, ...]) -> None:
        """How the launcher fares; what it has loaded, every keeper has from now on."""
        match words:
            case ("ready",):
                self._up = True
                if not self._ready.done():
                    self._ready.set_result(None)
            case ("loading", module):
                self._loading = module
            case ("loaded", module):
                self._loading = ""
                self._warm = [*dict.fromkeys([*self._warm, module])]
                self._renew()
            case ("failed", module):
                self._loading = ""
                self._warm = [name for name in self._warm if name != module]

    def _renew(self) -> None:
        """Keepers who know less than new ones would are not used again."""
        self._modules += 1
        while self._idle:
            self._idle.pop().line.close()

    def _ask_for(self, module: str) -> None:
        if module not in self._asked and len(self._asked) < MAX_PRELOADED_MODULES:
            self._asked.add(module)
            self._line.send("module", module)

    def _bereft(self) -> None:
        """The launcher died: so must the jobs, which nobody would clean up after, and a new one comes."""
        self._process.kill()
        self._process.wait()
        self._renew()
        for seat in self._busy.values():
            seat.end(0, "ended", "The launcher died")
        again = self._up or self._loading
        if self._loading:
            self._told(("failed", self._loading))
        elif not self._ready.done():
            self._ready.set_exception(UsherError("The launcher of jobs does not start."))
        if again:  # else the next order tries
            with suppress(OSError):
                self._launch()


def start_launcher(
    line: socket.socket, modules: Iterable[str], path: Iterable[str]
) -> "subprocess.Popen[bytes]":
    """A launcher that finds every module that we find."""
    environment = passed_environment(os.environ)
    pythonpath = environment.get("PYTHONPATH", "")
    found = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
    environment["PYTHONPATH"] = os.pathsep.join([*found, *path])
    environment["LD_BIND_NOW"] = "1"  # symbols are looked up here, not again in every fork
    command = [sys.executable, "-P", "-X", "utf8", "-c", LAUNCHER_CODE]
    return subprocess.Popen(
        [*command, str(line.fileno()), pythonpath, *modules],
        stdin=subprocess.DEVNULL,
        pass_fds=[line.fileno()],
        env=environment,
        start_new_session=True,
    )


def passed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the environment that is passed on to jobs."""
    return {
        name: value
        for name, value in environment.items()
        if name.upper() in PASSED_VARIABLES or name.startswith("LC_")
    }


def nul_byte_error(order: RunRequest) -> str:
    """Why the words of an order cannot reach any program; empty if they can."""
    words = (order.program, order.directory, *order.args, *order.env, *order.env.values())
    if any("\0" in word for word in words):
        return "A word holds a NUL byte, which no program can be given"
    return ""
