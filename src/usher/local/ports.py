"""The ports of the local stack, and the locks that allow one run per data directory.

If another program uses a port, the stack uses another one for this run, and tries its own port again at the next start.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from shlex import quote
from typing import Final, Self

from usher.crawl.own_endpoints import PORTS_FILE
from usher.db.embedded.locks import FileLock, is_locked
from usher.errors import Conflict, DataUnusable
from usher.http.server.listen import Bind
from usher.private_files import write_file

LOOPBACK: Final = "127.0.0.1"
SHUTDOWN_SECONDS: Final = 20.0  # processes of a killed run stop by themselves
RUN_LOCK_FILE: Final = "run.lock"
DEMO_DIRECTORY: Final = "demo"  # in the data directory
MAX_PID_BYTES: Final = 20
ADD_HINT: Final = "Add pages to it with `usher add URL`, or use another directory with --data."


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
    def read(cls, data: Path) -> Self:
        """The ports of the last run, or the defaults."""
        return cls(**asdict(StoredPorts.read(data).ports))


@dataclass(frozen=True, slots=True)
class StoredPorts:
    """What the data directory knows about ports.

    `replaced` has the own port of each role that used another one in the last run. `moved_from` has the port before of
    each role whose component is being moved to its present port.
    """

    ports: Ports = field(default_factory=Ports)
    replaced: Mapping[str, int] = field(default_factory=dict)
    moved_from: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Path) -> Self:
        """Read the file; the defaults if there is none. Raises DataUnusable."""
        file = data / PORTS_FILE
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            roles = [role.name for role in fields(Ports)]
            replaced, moved_from = (
                {role: int(stored[name][role]) for role in roles if role in stored.get(name, {})}
                for name in ("replaced", "moved_from")
            )
            ports = Ports(**{role: int(stored[role]) for role in roles})
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            hint = f"Remove it: rm {file}"
            raise DataUnusable(f"{file} cannot be read: {error}.", hint=hint) from error
        return cls(ports, replaced, moved_from)

    def write(self, data: Path) -> None:
        values: dict[str, object] = {**asdict(self.ports)}
        for name, ports in (("replaced", self.replaced), ("moved_from", self.moved_from)):
            if ports:
                values[name] = dict(ports)
        write_file(data / PORTS_FILE, json.dumps(values).encode())

    def choose(self) -> "StoredPorts":
        """The ports of the next run: the own port of each role if it is free, else that of the last run or any."""
        ports, replaced = {}, {}
        for role, last in asdict(self.ports).items():
            own = self.replaced.get(role, last)
            ports[role] = next((port for port in (own, last) if is_free(port)), 0) or free_port()
            if ports[role] != own:
                replaced[role] = own
        return StoredPorts(Ports(**ports), replaced)


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


def is_run_locked(data: Path) -> bool:
    """Whether Usher runs in this data directory; False if this user may not know."""
    file = data / RUN_LOCK_FILE
    with suppress(OSError):
        return file.exists() and is_locked(file)
    return False


def ended_components(data: Path) -> list[str]:
    """The addresses of the components of the last run here, if it has ended; those where a program listens may run.

    Empty if the file of the ports cannot be read: what runs is then judged by the signs of life alone.
    """
    if is_run_locked(data) or not (data / PORTS_FILE).exists():
        return []
    try:
        ports = Ports.read(data)
    except DataUnusable:
        return []
    roles = ("crawler", "builder", "server", "front")
    return [str(ports.bind(role)) for role in roles if is_free(getattr(ports, role))]


def already_running(data: Path, hint: str) -> Conflict:
    """The error for a second run in a data directory."""
    pid = (data / RUN_LOCK_FILE).read_text(encoding="utf-8")[:MAX_PID_BYTES]
    if data.name == DEMO_DIRECTORY:
        hint = f"The demo runs: usher --data {quote(str(data))} search WORDS"
    return Conflict(f"Usher is already running in {data} (pid {pid}).", hint=hint)


@asynccontextmanager
async def exclusive_run(
    data: Path, *, say: Callable[[str], None], hint: str = ADD_HINT
) -> AsyncIterator[int]:
    """Lock a data directory for one run; yields the lock file that its role processes keep open.

    Raises Conflict if Usher already runs there, or if processes of an earlier run do not stop.
    """
    run_lock, process_lock = FileLock(data / RUN_LOCK_FILE), FileLock(data / "processes.lock")
    with closing(run_lock), closing(process_lock):
        run = run_lock.fileno()
        if not run_lock.try_take():
            raise already_running(data, hint)
        os.ftruncate(run, 0)
        os.pwrite(run, str(os.getpid()).encode(), 0)
        # Processes of an earlier run still have the ports, and are the same components.
        loop = asyncio.get_running_loop()
        start, reported = loop.time(), False
        while not process_lock.try_take():
            if loop.time() - start > SHUTDOWN_SECONDS:
                hint = "Find them with `ps ax | grep role-process` and kill them."
                raise Conflict(f"Processes of an earlier run in {data} do not stop.", hint=hint)
            if not reported:
                say("Waiting for processes of an earlier run to stop.")
            reported = True
            await asyncio.sleep(0.1)
        yield process_lock.fileno()  # child processes that inherit the file share the lock
