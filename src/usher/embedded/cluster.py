"""One PostgreSQL data directory on disk: make it, configure it, start it, stop it.

Comes from a data directory that may be empty; goes to a running postmaster that is ready.
"""

import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from usher.embedded.account import Account
from usher.embedded.binaries import Binaries
from usher.embedded.processes import postmaster_alive
from usher.embedded.tuning import configuration
from usher.errors import DataUnusable, ServerUnusable, WrongVersion

ROLE = DATABASE = "usher"
SOCKET_LIMIT = 100  # bytes of a unix socket's path; the kernels' own limits are 104 and 108
START_SECONDS = 300  # crash recovery of a big database takes its time
STOP_SECONDS = 60
# After a kill -9 of the postmaster its orphans need a moment to see it; until then nobody can start.
ORPHANS = "is still in use"
ORPHAN_SECONDS = 20


class Cluster:
    def __init__(self, data: Path, binaries: Binaries, account: Account, port: int = 0) -> None:
        self.data = data.absolute()
        self.binaries = binaries
        self.account = account
        self.tcp_port = port
        self.pgdata = self.data / "postgres"
        self.log = self.data / "log"
        self.sockets = socket_directory(self.data)
        self._child: subprocess.Popen[str] | None = None

    # -- what is there

    @property
    def pid_file(self) -> Path:
        return self.pgdata / "postmaster.pid"

    def pid_lines(self) -> list[str]:
        try:
            return self.pid_file.read_text().splitlines()
        except OSError:
            return []

    def pid(self) -> int:
        """The postmaster's process id, 0 where none is written."""
        return first_number(self.pid_file)

    def alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        pid = self.pid()
        return pid > 0 and postmaster_alive(pid, self.pgdata)

    def status(self) -> str:
        """What the postmaster says of itself, in the eighth line of its pid file."""
        lines = self.pid_lines()
        return lines[7].strip() if len(lines) > 7 else ""  # noqa: PLR2004

    def ready(self) -> bool:
        """Whether it takes connections that write."""
        return self.status() == "ready" and self.alive()

    def port(self) -> int:
        lines = self.pid_lines()
        return int(lines[3]) if len(lines) > 3 else self.tcp_port or 5432  # noqa: PLR2004

    def dsn(self) -> str:
        return (
            f"postgresql://{ROLE}:{quote(self.password(), safe='')}@/{DATABASE}"
            f"?host={quote(str(self.sockets), safe='')}&port={self.port()}&sslmode=disable"
        )

    def password(self) -> str:
        """The superuser's password, which only the server's user and root can read."""
        try:
            return (self.data / "password").read_text().strip()
        except OSError as error:
            raise DataUnusable(
                f"The password of the server cannot be read: {error}.",
                hint="Run Usher as the user who made this directory, or choose another with --data.",
            ) from error

    # -- making it

    def prepare(self) -> None:
        """Leave a data directory that this server can start on, made whole or not at all."""
        if not self.account.may_enter(self.data):
            raise DataUnusable(
                f"PostgreSQL runs as the user {self.account.name!r}, who cannot reach {self.data}.",
                hint="Choose a directory outside private homes, with --data or USHER_DATA.",
            )
        for directory in (self.log, self.sockets):
            self.make_directory(directory)
        if not self.pgdata.exists():
            self.create()
        self.check_version()
        (self.pgdata / "usher.conf").write_text(
            configuration(self.sockets, self.log, self.tcp_port)
        )
        self.account.own(self.pgdata / "usher.conf", 0o600)

    def make_directory(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.stat().st_uid not in {self.account.uid, os.geteuid()}:
            raise DataUnusable(f"{directory} belongs to somebody else.", hint="Remove it.")
        self.account.own(directory, 0o700)

    def create(self) -> None:
        """Run initdb beside the final name and rename, so that a crash leaves nothing half-made."""
        fresh = self.pgdata.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            fresh.mkdir(mode=0o700)
            self.account.own(fresh, 0o700)
            self.initdb(fresh)
            with (fresh / "postgresql.conf").open("a") as file:
                file.write("\n# Written anew at each start; ALTER SYSTEM goes over it.\n")
                file.write("include_if_exists = 'usher.conf'\n")
            fresh.rename(self.pgdata)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def initdb(self, fresh: Path) -> None:
        password = self.data / "password"
        password.write_text(secrets.token_urlsafe(24) + "\n")
        self.account.own(password, 0o600)
        options = ["--username", ROLE, "--encoding", "UTF8", "--data-checksums"]
        # Also over the socket: jobs may open it, and without passwords each could log in as the superuser.
        options += ["--auth-local", "scram-sha-256", "--auth-host", "scram-sha-256"]
        options += ["--pwfile", str(password), "--locale", "C"]
        if self.binaries.major >= 17:  # noqa: PLR2004 - the first with a Unicode provider of its own
            options += ["--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
        # Nothing waits for the disk until the end, where everything is written through once.
        initdb = [self.binaries / "initdb", "--pgdata", str(fresh)]
        self.do([*initdb, *options, "--no-sync"])
        single = [self.binaries / "postgres", "--single", "-F", "-D", str(fresh), "postgres"]
        self.do(single, given=f"create database {DATABASE}\n")
        self.do([*initdb, "--sync-only"])

    def do(self, command: list[str], *, given: str = "") -> None:
        code, said = self.account.run(command, given=given)
        if code:
            tail = " ".join(said.strip().splitlines()[-3:])
            raise DataUnusable(
                f"PostgreSQL could not make its data directory in {self.data}: {tail}",
                hint="Check free space and permissions there, or choose another with --data.",
            )

    def check_version(self) -> None:
        try:
            made_by = (self.pgdata / "PG_VERSION").read_text().strip()
        except OSError as error:
            raise DataUnusable(
                f"{self.pgdata} exists but is not a PostgreSQL data directory.",
                hint="Move it away, or choose another with --data.",
            ) from error
        if made_by != str(self.binaries.major):
            raise WrongVersion(
                f"{self.pgdata} was made by PostgreSQL {made_by}; "
                f"the programs in {self.binaries.directory} are {self.binaries.version}.",
                hint=f"Name programs of version {made_by} with USHER_PG_BIN, run `usher db dump`, "
                "then restore into a new --data directory.",
            )

    # -- running it

    def start(self) -> None:
        """Start the postmaster, or take over one that runs, and wait until it is ready."""
        deadline = time.monotonic() + START_SECONDS
        patience = time.monotonic() + ORPHAN_SECONDS
        if not self.alive():
            self._child = None  # one that died before has had its say
        while not self.ready():
            if not self.alive():
                said = self.last_words()
                if self._child and (ORPHANS not in said or time.monotonic() > patience):
                    self._child = None
                    raise self.not_started(said)
                self.spawn()
            if time.monotonic() > deadline:
                raise self.not_started(f"not ready after {START_SECONDS} s")
            time.sleep(0.003)

    def not_started(self, reason: str) -> ServerUnusable:
        hint = f"Its log is in {self.log}."
        if self.tcp_port:
            hint += f" Is port {self.tcp_port} free?"
        return ServerUnusable(f"PostgreSQL did not start: {reason}", hint=hint)

    def spawn(self) -> None:
        self.clear_stale_locks()
        with (self.log / "start.log").open("wb") as said:
            command = [self.binaries / "postgres", "-D", str(self.pgdata)]
            self._child = self.account.popen(command, out=said)

    def clear_stale_locks(self) -> None:
        """Remove lock files of a postmaster that is no more, but whose number still answers.

        PostgreSQL takes whoever has the number for itself and refuses to start: another program
        (a container's restart reuses low numbers), or its own zombie where nobody reaps. Only the
        keeper comes here, so no server of ours can be on its way. A number that is nobody's
        PostgreSQL clears by itself.
        """
        for file in (self.pid_file, *self.sockets.glob(".s.PGSQL.*.lock")):
            pid = first_number(file)
            if pid and not postmaster_alive(pid, self.pgdata):
                file.unlink(missing_ok=True)

    def last_words(self) -> str:
        """Why our child ended; its log's collector may write a moment after its end."""
        if self._child is None:
            return ""
        for _ in range(20):
            if said := fatal_line(self.log, self._child.pid):
                return said
            time.sleep(0.05)
        return f"exit code {self._child.returncode}"

    def stop(self) -> None:
        """Fast shutdown: connections are closed, everything committed is on disk."""
        for name, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10)):
            pid = self.pid()
            if not pid or not self.alive():
                return
            os.kill(pid, name)
            deadline = time.monotonic() + patience
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.003)


def first_number(file: Path) -> int:
    """The process id a lock file of PostgreSQL's begins with, 0 where there is none."""
    try:
        first, *_ = file.read_text().split() or [""]
    except OSError:
        return 0
    return int(first) if first.isdigit() else 0


def fatal_line(log: Path, pid: int) -> str:
    """The fatal line this process wrote, and the one before that names the cause."""
    mark = f"[{pid}] "
    newest = sorted(log.glob("postgres-*.log"), key=lambda path: path.stat().st_mtime)[-1:]
    for file in (log / "start.log", *newest):
        lines = file.read_text(errors="replace").splitlines()
        said = [line.partition(mark)[2].removeprefix("@ ") for line in lines if mark in line]
        for number, line in enumerate(said):
            if line.startswith(("FATAL", "PANIC")):
                return " ".join(said[max(number - 1, 0) : number + 1])
    return ""


def socket_directory(data: Path) -> Path:
    """Beside the data where its name is short enough for a socket, else under the temporary one."""
    beside = data / "run"
    if len(os.fsencode(beside / ".s.PGSQL.65535.lock")) <= SOCKET_LIMIT:
        return beside
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"usher-{name}")
