"""Machines: a process in its own network namespace, restarted by a supervisor when it exits by itself."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.network import Namespace
from chaos.scale import elapsed

SUPERVISE_SECONDS = 0.5
RESTART_SECONDS = 1.0
LOG_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Crash:
    """A process that exited although no fault ended it."""

    machine: str
    at: float  # on the monotonic clock, as all times here
    code: int
    tail: str

    def __str__(self) -> str:
        return f"{self.machine} at {elapsed(self.at):.1f} (exit {self.code}): {self.tail}"


@dataclass(slots=True)
class Machine:
    """One process of the cluster; `faults` ends and starts it, the supervisor keeps it running otherwise."""

    name: str
    role: str
    namespace: Namespace
    words: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    user: int | None = None
    process: subprocess.Popen[bytes] | None = None
    crashes: list[Crash] = field(default_factory=list)
    wanted: bool = False  # whether the supervisor starts it again
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def address(self) -> str:
        return self.namespace.address

    @property
    def log(self) -> Path:
        return self.directory.parent / f"{self.name}.log"

    def start(self, extra: Mapping[str, str] | None = None) -> None:
        """Start the process, if none runs; `extra` is added to its environment."""
        with self.lock:
            self.wanted = True
            if self.is_running():
                return
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.namespace.entered_by(self.command_line()),
                    env={**self.environment, **(extra or {})},
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,
                )

    def command_line(self) -> list[str]:
        """Return the words of the command, behind `setpriv` where another user is to run it."""
        if self.user is None:
            return list(self.words)
        identity = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        return ["setpriv", *identity, *self.words]

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, number: signal.Signals = signal.SIGKILL, seconds: float = 30) -> None:
        """End the process and keep it ended until `start`; after that time by SIGKILL."""
        with self.lock:
            self.wanted = False
            if self.process is None:
                return
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def send(self, number: signal.Signals) -> None:
        with self.lock, suppress(ProcessLookupError):
            if self.is_running() and self.process is not None:
                os.kill(self.process.pid, number)

    def check(self) -> Crash | None:
        """Return the crash if the process exited by itself."""
        with self.lock:
            if not self.wanted or self.process is None or self.process.poll() is None:
                return None
            crash = Crash(self.name, time.monotonic(), self.process.returncode, self.log_tail())
            self.crashes.append(crash)
            return crash

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


class Supervisor(threading.Thread):
    """Restarts machines that exit by themselves and remembers that they did, as systemd would."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.machines, self.stopping = machines, threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(SUPERVISE_SECONDS):
            for machine in self.machines:
                if machine.check():
                    time.sleep(RESTART_SECONDS)
                    self.restart(machine)

    def restart(self, machine: Machine) -> None:
        """Start it again, unless a fault or the end of the run asked otherwise meanwhile."""
        with machine.lock:
            if machine.wanted and not self.stopping.is_set():
                machine.start()
