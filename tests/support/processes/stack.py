"""Processes on a stage of their own: an embedded server, real commands, and whoever takes the place of a fallen one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from support.db.fixtures import open_directory, wait_stopped
from support.processes.commands import clean
from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server

TESTS = Path(__file__).parents[2]
USHER = (sys.executable, "-m", "usher")


class Cast:
    """The processes that play, by name."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.environment = clean(
            {
                "USHER_DATA": str(data),
                "USHER_CONFIG": str(directory / "usher.toml"),
                "PYTHONPATH": str(TESTS),
            }
        )
        self.log = (directory / "log").open("ab")
        self.playing: dict[str, subprocess.Popen[bytes]] = {}
        self.commands: dict[str, tuple[str, ...]] = {}

    def enter(self, name: str, *command: str) -> None:
        self.commands[name] = command
        self.playing[name] = subprocess.Popen(
            command, env=self.environment, stdout=self.log, stderr=self.log
        )

    def kill(self, name: str) -> None:
        """Kill -9, and another comes."""
        self.playing[name].kill()
        self.playing[name].wait()
        self.enter(name, *self.commands[name])

    def freeze(self, name: str, seconds: float) -> None:
        """It stands still for a while and does not know of it."""
        self.playing[name].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.playing[name].send_signal(signal.SIGCONT)

    def leave(self, names: Sequence[str] = ()) -> list[int]:
        """Let all (or some) go in order; their exit codes."""
        leaving = [self.playing[name] for name in names or self.playing]
        for process in leaving:
            process.terminate()
        return [process.wait(60) for process in leaving]

    def end(self) -> None:
        """Nobody is left, however they are."""
        for process in self.playing.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()
        self.log.close()


@contextmanager
def stage(config: str) -> Iterator[tuple[Cast, EmbeddedServerLease, Path]]:
    """An embedded server with every table, and nobody on stage yet."""
    directory = open_directory()
    directory.chmod(0o755)
    (directory / "usher.toml").write_text(config)
    data = directory / "data"
    with lease_server(data) as lodging:
        cast = Cast(data, directory)
        made = subprocess.run([*USHER, "db", "migrate"], env=cast.environment, check=False)
        assert made.returncode == 0
        try:
            yield cast, lodging, directory
        finally:
            cast.end()
    wait_stopped(data)
    shutil.rmtree(directory)


def ask(dsn: str, query: str) -> list[tuple[object, ...]]:
    """An answer, as soon as the server gives one."""
    for _ in range(200):
        with suppress(psycopg.OperationalError), psycopg.connect(dsn) as conn:
            return conn.execute(query.encode()).fetchall()
        time.sleep(0.05)
    raise AssertionError("The server does not come back.")
