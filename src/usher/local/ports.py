"""The ports of the local stack, and the locks that allow one run per data directory.

Each role keeps its port between runs, because a component is identified by its address.
"""

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, Self

from usher.crawl.own_endpoints import PORTS_FILE
from usher.errors import Conflict, DataUnusable
from usher.http.server.listen import Bind
from usher.private_files import open_file, write_file

LOOPBACK: Final = "127.0.0.1"
SHUTDOWN_SECONDS: Final = 20.0  # processes of a killed run stop by themselves
MAX_PID_BYTES: Final = 20


@dataclass(frozen=True, slots=True)
class Ports:
    """All on loopback; only the search page may listen elsewhere."""

    mgmt: int = 8411
    front: int = 8400
    crawler: int = 8421
    builder: int = 8431
    server: int = 8441
    site: int = 8499  # of the demo

    @property
    def mgmt_url(self) -> str:
        return f"http://{LOOPBACK}:{self.mgmt}"

    def bind(self, role: str) -> Bind:
        return Bind(LOOPBACK, getattr(self, role))

    @classmethod
    def reserve(cls, data: Path) -> Self:
        """The ports of the last run; replaces those that another program uses now, and stores them."""
        ports = {
            name: port if is_free(port) else free_port()
            for name, port in asdict(cls.read(data)).items()
        }
        write_file(data / PORTS_FILE, json.dumps(ports).encode())
        return cls(**ports)

    @classmethod
    def read(cls, data: Path) -> Self:
        """The ports of the last run, or the defaults."""
        file = data / PORTS_FILE
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{field.name: int(stored[field.name]) for field in fields(cls)})
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = f"Remove it: rm {file}"
            raise DataUnusable(f"{file} cannot be read: {error}.", hint=hint) from error


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.bind((LOOPBACK, 0))
        return int(trial.getsockname()[1])


@asynccontextmanager
async def exclusive_run(data: Path, *, say: Callable[[str], None]) -> AsyncIterator[int]:
    """Lock a data directory for one run; yields the lock file that its role processes keep open.

    Raises Conflict if Usher already runs there, or if processes of an earlier run do not stop.
    """
    with open_lock(data / "run.lock") as run, open_lock(data / "processes.lock") as processes:
        if not try_lock(run):
            pid = os.pread(run, MAX_PID_BYTES, 0).decode()
            raise Conflict(
                f"Usher is already running in {data} (pid {pid}).",
                hint="Add pages to it with `usher add`, or use another directory with --data.",
            )
        os.ftruncate(run, 0)
        os.pwrite(run, str(os.getpid()).encode(), 0)
        # Processes of an earlier run still have the ports, and are the same components.
        loop = asyncio.get_running_loop()
        start, reported = loop.time(), False
        while not try_lock(processes):
            if loop.time() - start > SHUTDOWN_SECONDS:
                hint = "Find them with `ps ax | grep role-process` and kill them."
                raise Conflict(f"Processes of an earlier run in {data} do not stop.", hint=hint)
            if not reported:
                say("Waiting for processes of an earlier run to stop.")
            reported = True
            await asyncio.sleep(0.1)
        yield processes


@contextmanager
def open_lock(file: Path) -> Iterator[int]:
    handle = open_file(file, os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file if it is free; child processes that inherit the file share the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
