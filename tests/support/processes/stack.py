"""An embedded server and real commands as processes, which tests can kill, freeze and restart."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psycopg

from support.db.fixtures import open_directory, wait_stopped
from support.processes.command_forker import ForkedCommand, nursery
from support.processes.commands import clean
from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server

TESTS = Path(__file__).parents[2]
USHER = (sys.executable, "-m", "usher")


def start_process(
    command: Sequence[str], environment: dict[str, str], log: IO[bytes]
) -> ForkedCommand | subprocess.Popen[bytes]:
    """Start a process that writes to a log; one of ours is forked, which saves the time of its imports."""
    if tuple(command[: len(USHER)]) != USHER:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    with open(os.devnull, "rb") as stdin:  # noqa: PTH123 - a stream
        streams = [stdin.fileno(), log.fileno(), log.fileno()]
        return nursery().start(list(command[len(USHER) :]), environment, None, streams)


class ProcessStack:
    """The running processes, by name."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.environment = clean(
            {
                "USHER_DATA": str(data),
                "USHER_CONFIG": str(directory / "usher.toml"),
                "PYTHONPATH": str(TESTS),
            }
        )
        self.log = (directory / "log").open("ab")
        self.running: dict[str, ForkedCommand | subprocess.Popen[bytes]] = {}
        self.commands: dict[str, tuple[str, ...]] = {}

    def start(self, name: str, *command: str) -> None:
        self.commands[name] = command
        self.running[name] = start_process(command, self.environment, self.log)

    def kill(self, name: str) -> None:
        """Kill a process with -9 and start it again."""
        self.running[name].kill()
        self.running[name].wait()
        self.start(name, *self.commands[name])

    def freeze(self, name: str, seconds: float) -> None:
        """Stop a process for a while with SIGSTOP."""
        self.running[name].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.running[name].send_signal(signal.SIGCONT)

    def stop(self, names: Sequence[str] = ()) -> list[int]:
        """Send TERM to all (or some) and return their exit codes."""
        stopping = [self.running[name] for name in names or self.running]
        for process in stopping:
            process.terminate()
        return [process.wait(60) for process in stopping]

    def end(self) -> None:
        """Kill all processes."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()
        self.log.close()


@contextmanager
def open_stack(config: str) -> Iterator[tuple[ProcessStack, EmbeddedServerLease, Path]]:
    """Yield a stack without processes, an embedded server with every table, and a directory."""
    directory = open_directory()
    directory.chmod(0o755)
    (directory / "usher.toml").write_text(config)
    data = directory / "data"
    with lease_server(data) as lease:
        stack = ProcessStack(data, directory)
        migrated = subprocess.run([*USHER, "db", "migrate"], env=stack.environment, check=False)
        assert migrated.returncode == 0
        try:
            yield stack, lease, directory
        finally:
            stack.end()
    wait_stopped(data)
    shutil.rmtree(directory)


def ask(dsn: str, query: str) -> list[tuple[object, ...]]:
    """Run a query; retry while the server is away."""
    for _ in range(200):
        with suppress(psycopg.OperationalError), psycopg.connect(dsn) as conn:
            return conn.execute(query.encode()).fetchall()
        time.sleep(0.05)
    raise AssertionError("The server does not come back.")
