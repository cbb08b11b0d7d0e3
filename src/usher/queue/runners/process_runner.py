"""Runs programs for the manager, from its event loop.

`start` takes a RunRequest; the queue `events` reports `RunStarted` and `RunEnded` of each run. One launcher process
forks supervisors. Each supervisor runs one job at a time, reports over its own channel and then waits for the next, so
that a job costs one fork. No process outlives this one, however it ends.
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

IDLE_SECONDS: Final = 60  # how long a supervisor waits for its next job
CLOSING_SECONDS: Final = 20
MAX_PRELOADED_MODULES: Final = 1000  # a bound, whatever names jobs have
KILLED_EXIT_CODE: Final = -9
LAUNCHER_DIED: Final = "The launcher died"
# Not with -m, whose modules would stay in the memory that every job is forked from.
LAUNCHER_CODE: Final = "from usher.queue.runners.launcher import main; main()"
# The variables of the manager that jobs inherit; no passwords or settings are among them.
PASSED_VARIABLES: Final = frozenset(
    [
        *["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"],
        *["PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"],
        *["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"],
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One program to run: by its path (`exec`), or `module:function` in a fork of the launcher."""

    key: int  # the caller's number, unique among live runs
    how: Literal["exec", "fork"]
    program: str  # a path is absolute or relative to `directory`, and never looked up
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # added to PASSED_VARIABLES
    directory: str = ""  # the manager's, if empty
    refusal: str = ""  # why it must not run; empty if it may
    defined_only: bool = False  # a function must be one that its module defines or lists in __all__
    account: tuple[int, int] | None = None  # user and group to run as; the manager's, if None
    kill_after: float = 900.0  # seconds
    grace: float = 10.0  # seconds between TERM and KILL
    memory: int | None = None  # bytes of address space
    cpu: int | None = None  # seconds
    output: int = 1 << 16  # bytes that are stored

    def message(self) -> dict[str, Any]:
        """Return the fields as the supervisor gets them."""
        return {name: getattr(self, name) for name in self.__slots__} | {"env": dict(self.env)}


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The process of a run has started."""

    key: int
    pid: int


@dataclass(slots=True)
class RunEnded:
    """A run has ended, and none of its processes is left."""

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
    """The runner's view of one supervisor."""

    modules: int  # how many modules the launcher had loaded when it forked this supervisor
    channel: Channel = field(init=False)
    request: RunRequest | None = None
    pid: int | None = None
    output: str = ""
    idle_since: float = 0.0

    def run(self, request: RunRequest) -> None:
        self.request, self.pid, self.output = request, None, ""
        self.channel.send("run", request.message())

    def end(self, grace: float, why: EndReason, detail: str = "") -> None:
        if self.request:
            self.channel.send("end", self.request.key, grace, why, detail)


class ProcessRunner:
    """`async with ProcessRunner(preload=("my.worker",)) as runner`; at the end it kills what still runs."""

    def __init__(self, preload: Iterable[str] = (), *, path: Iterable[str] = ()) -> None:
        """Take the modules to preload, and additional directories in which modules are found."""
        self.events: asyncio.Queue[RunStarted | RunEnded] = asyncio.Queue()
        self._path = tuple(path)
        self._preloaded = list(dict.fromkeys(preload))  # what every launcher loads
        self._requested = set(self._preloaded)
        self._loading = ""
        self._is_up = False
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
        """Close all channels. The supervisors end their jobs, and the launcher waits for the supervisors."""
        for supervisor in (*self._busy.values(), *self._idle):
            supervisor.channel.close()
        self._busy.clear()
        self._idle.clear()
        self._channel.close()
        try:
            await asyncio.to_thread(self._process.wait, CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(self, request: RunRequest) -> None:
        """Start a run. Events report what becomes of it, also if it cannot start."""
        if request.key in self._busy:
            raise ValueError(f"{request.key} is running already.")
        if request.refusal:
            self._refuse(request, request.refusal, "forbidden")
            return
        if error_text := nul_byte_error(request):
            self._refuse(request, error_text)
            return
        # The launcher runs as the manager's user, so it imports nothing for jobs of another user.
        if request.how == "fork" and request.account is None:
            self._preload(request.program.partition(":")[0])
        try:
            supervisor = self._idle.pop() if self._idle else self._new_supervisor()
        except OSError as error:
            self._refuse(request, f"Could not create a socket: {error.strerror}")
            return
        self._busy[request.key] = supervisor
        supervisor.run(request)

    def stop(self, key: int) -> None:
        """Send TERM to the process group of a run, and KILL after its grace. Ignore a run that has ended."""
        if (supervisor := self._busy.get(key)) and supervisor.request:
            supervisor.end(supervisor.request.grace, "cancelled")

    def kill(self, key: int) -> None:
        if supervisor := self._busy.get(key):
            supervisor.end(0, "cancelled")

    def output(self, key: int) -> str:
        """Return the output of a running job, at most half a second old; empty if it does not run."""
        supervisor = self._busy.get(key)
        return supervisor.output if supervisor else ""

    def _refuse(self, request: RunRequest, detail: str, why: EndReason = "unstartable") -> None:
        self.events.put_nowait(RunEnded(request.key, None, None, why, detail, "", 0.0))

    # -- supervisors

    def _new_supervisor(self) -> SupervisorHandle:
        """Request a supervisor of the launcher; messages to it wait until it runs."""
        if self._channel.closed:
            self._launch()
        ours, theirs = socket.socketpair()
        supervisor = SupervisorHandle(self._modules)
        supervisor.channel = Channel(
            ours,
            on_message=partial(self._on_supervisor_message, supervisor),
            on_close=partial(self._on_supervisor_death, supervisor),
            loop=self._loop,
        )
        self._channel.send("supervisor", passed=theirs)
        return supervisor

    def _on_supervisor_message(
        self, supervisor: SupervisorHandle, message: tuple[Any, ...]
    ) -> None:
        match message:
            case ("started", pid) if supervisor.request:
                supervisor.pid = pid
                self.events.put_nowait(RunStarted(supervisor.request.key, pid))
            case ("output", text):
                supervisor.output = text
            case ("ended", *end, left):
                self._report_end(supervisor, *end)
                self._release(supervisor, reusable=not left)

    def _report_end(
        self,
        supervisor: SupervisorHandle,
        code: int | None,
        why: EndReason,
        detail: str,
        text: str,
        seconds: float,
        result: str = "",
    ) -> None:
        if supervisor.request:
            key, supervisor.request = supervisor.request.key, None
            del self._busy[key]
            pid = supervisor.pid
            self.events.put_nowait(RunEnded(key, pid, code, why, detail, text, seconds, result))

    def _release(self, supervisor: SupervisorHandle, *, reusable: bool) -> None:
        """Keep the supervisor for another job, unless a new one would have more modules loaded."""
        now = time.monotonic()
        if reusable and supervisor.modules == self._modules:
            supervisor.idle_since = now
            self._idle.append(supervisor)
        else:
            supervisor.channel.close()
        while self._idle and self._idle[0].idle_since < now - IDLE_SECONDS:
            self._idle.popleft().channel.close()

    def _on_supervisor_death(self, supervisor: SupervisorHandle) -> None:
        """Report the end of its job: the kernel has killed it, and the launcher kills what it left behind."""
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        if supervisor.request:
            is_launcher_dead = self._process.poll() is not None
            detail = LAUNCHER_DIED if is_launcher_dead else "The supervisor of this job died"
            output = supervisor.output
            self._report_end(supervisor, KILLED_EXIT_CODE, "ended", detail, output, 0.0)

    # -- the launcher

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = start_launcher(theirs, self._preloaded, self._path)
            except OSError:
                ours.close()
                raise
        self._is_up = False
        self._channel = Channel(
            ours,
            on_message=self._on_launcher_message,
            on_close=self._on_launcher_death,
            loop=self._loop,
        )

    def _on_launcher_message(self, message: tuple[str, ...]) -> None:
        """Note which modules the launcher has loaded: supervisors have these from now on."""
        match message:
            case ("ready",):
                self._is_up = True
                if not self._ready.done():
                    self._ready.set_result(None)
            case ("loading", module):
                self._loading = module
            case ("loaded", module):
                self._loading = ""
                self._preloaded = [*dict.fromkeys([*self._preloaded, module])]
                self._retire_idle()
            case ("failed", module):
                self._loading = ""
                self._preloaded = [name for name in self._preloaded if name != module]

    def _retire_idle(self) -> None:
        """Stop using supervisors that have fewer modules than new ones."""
        self._modules += 1
        while self._idle:
            self._idle.pop().channel.close()

    def _preload(self, module: str) -> None:
        if module not in self._requested and len(self._requested) < MAX_PRELOADED_MODULES:
            self._requested.add(module)
            self._channel.send("module", module)

    def _on_launcher_death(self) -> None:
        """End all jobs, since no launcher cleans up after them, and start a new launcher."""
        self._process.kill()
        self._process.wait()
        self._retire_idle()
        for supervisor in self._busy.values():
            supervisor.end(0, "ended", LAUNCHER_DIED)
        restart = self._is_up or self._loading
        if self._loading:
            self._on_launcher_message(("failed", self._loading))
        elif not self._ready.done():
            self._ready.set_exception(UsherError("The launcher of jobs does not start."))
        if restart:  # else the next request tries
            with suppress(OSError):
                self._launch()


def start_launcher(
    channel: socket.socket, modules: Iterable[str], path: Iterable[str]
) -> "subprocess.Popen[bytes]":
    """Start a launcher that finds every module that this process finds."""
    environment = passed_environment(os.environ)
    pythonpath = environment.get("PYTHONPATH", "")
    entries = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
    environment["PYTHONPATH"] = os.pathsep.join([*entries, *path])
    environment["LD_BIND_NOW"] = "1"  # symbols are resolved here, not again in every fork
    command = [sys.executable, "-P", "-X", "utf8", "-c", LAUNCHER_CODE]
    return subprocess.Popen(
        [*command, str(channel.fileno()), pythonpath, *modules],
        stdin=subprocess.DEVNULL,
        pass_fds=[channel.fileno()],
        env=environment,
        start_new_session=True,
    )


def passed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the environment that jobs inherit."""
    return {
        name: value
        for name, value in environment.items()
        if name.upper() in PASSED_VARIABLES or name.startswith("LC_")
    }


def nul_byte_error(request: RunRequest) -> str:
    """Return why no program can get these arguments; empty if one can."""
    texts = (request.program, request.directory, *request.args, *request.env, *request.env.values())
    if any("\0" in text for text in texts):
        return "An argument or a variable contains a NUL byte, which no program can be given"
    return ""
