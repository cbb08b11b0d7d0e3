"""`usher crawl`, `up` and `demo` as a user runs them at a terminal: one process group with all child processes."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.processes.commands import clean
from support.processes.free_port import free_port
from support.processes.killable import eventually, running
from support.processes.stack import USHER

SCREEN = (40, 160)  # lines and columns
PORTS = ("mgmt", "front", "crawler", "builder", "server", "site")


@dataclass(frozen=True, slots=True)
class Show:
    """One run of `usher …`; its output and the logs of its processes are in files."""

    process: subprocess.Popen[bytes]
    data: Path
    file: Path

    @property
    def said(self) -> str:
        return self.file.read_text()

    @property
    def logs(self) -> str:
        """The end of its output and of all logs, for the message of a failed test."""
        ends = [file.read_text()[-1500:] for file in sorted(self.data.glob("log*/*.log"))]
        return "\n".join([self.said, *ends])

    def descendants(self) -> list[int]:
        """Every descendant process."""
        pids, waiting = [], [self.process.pid]
        while waiting:
            with suppress(OSError):
                for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
            pids += [pid for pid in waiting if pid not in pids]
        return pids

    def role_processes(self) -> dict[str, int]:
        """The pid of each role process by its name."""
        lines = {pid: words(pid) for pid in self.descendants()}
        return {line[-1]: pid for pid, line in lines.items() if "role-process" in line}

    def ctrl_c(self) -> None:
        """Send SIGINT to the whole group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ends(self, seconds: float = 40) -> int:
        """Its exit code, after all descendants have ended too."""
        below = self.descendants()
        code = self.process.wait(seconds)
        assert eventually(lambda: not any(map(running, below)), 10), [
            words(pid) for pid in below if running(pid)
        ]
        return code

    def is_up(self) -> None:
        assert eventually(lambda: "Ctrl-C to stop" in self.said, 60), self.logs

    def ask(self, query: str) -> Any:  # noqa: ANN401 - JSON
        port = json.loads((self.data / "ports.json").read_text())["front"]
        where = f"http://127.0.0.1:{port}/search.json?q={quote(query)}"
        with urllib.request.urlopen(where, timeout=20) as response:
            return json.load(response)

    def finds(self, query: str) -> list[str]:
        """The URLs of the first page of results."""
        return [result["url"] for result in self.ask(query)["results"]]


@contextmanager
def output_to(file: Path, *, terminal: bool) -> Iterator[int]:
    """The handle for a process's output: the file, or a pseudo-terminal whose output a thread copies to the file."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    if not terminal:
        yield handle
        os.close(handle)
        return
    controller, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
    threading.Thread(target=copy_screen, args=(controller, handle), daemon=True).start()
    yield screen
    os.close(screen)


def copy_screen(controller: int, handle: int) -> None:
    """Copy what a pseudo-terminal shows, until the last process with this terminal has ended."""
    with suppress(OSError):
        while shown := os.read(controller, 65536):
            os.write(handle, shown)
    os.close(handle)
    os.close(controller)


def words(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return []


@contextmanager
def show(
    data: Path, *given: str, dsn: str = "", ports: bool = True, terminal: bool = False
) -> Iterator[Show]:
    """Run `usher …` in this data directory on free ports; kill what is left of it at the end.

    With `terminal` its output goes to a pseudo-terminal, as a person sees it.
    """
    if ports and not (data / "ports.json").exists():
        data.mkdir(parents=True, exist_ok=True)
        (data / "ports.json").write_text(json.dumps({name: free_port() for name in PORTS}))
    file = data.with_name(f"{data.name}-{time.monotonic_ns()}.said")
    environment = clean({"DATABASE_URL": dsn, "USHER_CONTACT": "test@example.org"})
    with output_to(file, terminal=terminal) as out:
        process = subprocess.Popen(
            [*USHER, "--data", str(data), *given],
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    run = Show(process, data, file)
    below: Sequence[int] = ()
    try:
        yield run
    finally:
        below = run.descendants()
        process.kill()
        process.wait()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
