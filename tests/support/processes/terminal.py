"""The one command as somebody at a terminal runs it: a process in a group of its own, and all that it starts."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.db.failover_pair import free_port
from support.processes.commands import clean
from support.processes.killable import eventually, running
from support.processes.stack import USHER

PORTS = ("mgmt", "front", "crawler", "builder", "server", "site")


@dataclass(frozen=True, slots=True)
class Show:
    """One run of `usher …`; its words are in a file, as those of its parts are."""

    process: subprocess.Popen[bytes]
    data: Path
    file: Path

    @property
    def said(self) -> str:
        return self.file.read_text()

    @property
    def logs(self) -> str:
        """The end of what everybody said, for whoever reads why a test failed."""
        ends = [file.read_text()[-1500:] for file in sorted(self.data.glob("log*/*.log"))]
        return "\n".join([self.said, *ends])

    def kin(self) -> list[int]:
        """Every process below it."""
        found, waiting = [], [self.process.pid]
        while waiting:
            with suppress(OSError):
                for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
            found += [pid for pid in waiting if pid not in found]
        return found

    def role_processes(self) -> dict[str, int]:
        """The pid of each role process by its name."""
        lines = {pid: words(pid) for pid in self.kin()}
        return {line[-1]: pid for pid, line in lines.items() if "role-process" in line}

    def ctrl_c(self) -> None:
        """As a terminal does it: to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ends(self, seconds: float = 40) -> int:
        """Its exit code, once nobody below it is left either."""
        below = self.kin()
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
        with urllib.request.urlopen(where, timeout=20) as told:
            return json.load(told)

    def finds(self, query: str) -> list[str]:
        """The URLs of the first page of results."""
        return [one["url"] for one in self.ask(query)["results"]]


def words(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return []


@contextmanager
def show(data: Path, *given: str, dsn: str = "", ports: bool = True) -> Iterator[Show]:
    """`usher …` in this data directory, at ports of its own; whatever is left of it at the end is killed."""
    if ports and not (data / "ports.json").exists():
        data.mkdir(parents=True, exist_ok=True)
        (data / "ports.json").write_text(json.dumps({name: free_port() for name in PORTS}))
    file = data.with_name(f"{data.name}-{time.monotonic_ns()}.said")
    environment = clean({"DATABASE_URL": dsn, "USHER_CONTACT": "test@example.org"})
    with file.open("wb") as out:
        process = subprocess.Popen(
            [*USHER, "--data", str(data), *given],
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    one = Show(process, data, file)
    below: Sequence[int] = ()
    try:
        yield one
    finally:
        below = one.kin()
        process.kill()
        process.wait()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
