"""Where each role listens on this machine: the same place every time, so that it is the same component.

Comes from a file in the data directory, or from the usual ports as far as they are free; goes to every part. One
troupe at a time lives in a data directory.
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
SHUTDOWN_SECONDS: Final = 20.0  # for parts whose troupe was killed: they end by themselves


@dataclass(frozen=True, slots=True)
class Ports:
    """On loopback; only the search page may be shown to others."""

    mgmt: int = 8411
    front: int = 8400
    crawler: int = 8421
    builder: int = 8431
    server: int = 8441
    site: int = 8499  # the demo's

    @property
    def mgmt_url(self) -> str:
        return f"http://{LOOPBACK}:{self.mgmt}"

    def bind(self, role: str) -> Bind:
        return Bind(LOOPBACK, getattr(self, role))

    @classmethod
    def kept(cls, data: Path) -> Self:
        """Those of the last time; what others have taken meanwhile is replaced, and kept for the next."""
        found = cls.read(data)
        ports = {
            name: port if is_free(port) else free_port() for name, port in asdict(found).items()
        }
        write_file(data / PORTS_FILE, json.dumps(ports).encode())
        return cls(**ports)

    @classmethod
    def read(cls, data: Path) -> Self:
        """Those of the last time, or the usual ones."""
        file = data / PORTS_FILE
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{one.name: int(known[one.name]) for one in fields(cls)})
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataUnusable(
                f"{file} cannot be used: {error}.", hint="Remove it; it is made anew."
            ) from error


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
async def exclusive_run(data: Path, *, told: Callable[[str], None]) -> AsyncIterator[int]:
    """The stage of a data directory for one troupe; gives a file that parts keep open as long as they live."""
    with open_lock(data / "stage.lock") as ours, open_lock(data / "parts.lock") as theirs:
        if not try_lock(ours):
            hint = (
                "Add pages to what runs with `usher add`, or choose another directory with --data."
            )
            raise Conflict(f"Another `usher` has the stage in {data}.", hint=hint)
        # Parts that still end have the ports, and are the same components as those that are to start.
        loop = asyncio.get_running_loop()
        began, said = loop.time(), False
        while not try_lock(theirs):
            if loop.time() - began > SHUTDOWN_SECONDS:
                hint = "See `ps` for processes called `usher … part`, and end them."
                raise Conflict(f"Parts of an earlier run in {data} do not end.", hint=hint)
            if not said:
                told("waiting for parts of an earlier run to end …")
            said = True
            await asyncio.sleep(0.1)
        yield theirs


@contextmanager
def open_lock(file: Path) -> Iterator[int]:
    handle = open_file(file, os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Whether the lock of an open file is ours now; whoever inherits the file has it too."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
