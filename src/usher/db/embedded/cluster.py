"""One PostgreSQL data directory: creates, configures, starts and stops its server."""

import hashlib
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from usher.db.embedded.account import ServerAccount
from usher.db.embedded.account_files import (
    give_directory,
    names_in,
    open_directory,
    read_file,
    read_file_or_empty,
)
from usher.db.embedded.binaries import Binaries
from usher.db.embedded.processes import postmaster_alive
from usher.db.embedded.tuning import configuration
from usher.errors import DataUnusable, ServerNotStarted, WrongVersion
from usher.private_files import make_directory, open_file, write_file

ROLE = DATABASE = "usher"
PID_FILE = "postmaster.pid"
INCLUDE = """
# Usher rewrites it at each start; ALTER SYSTEM overrides it.
include_if_exists = 'usher.conf'
"""
# Only root may create entries here. In a temporary directory another user could take the name first.
ROOT_SOCKETS = Path("/run")
SOCKET_LIMIT = 100  # bytes of the path of a Unix socket; kernels allow 104 or 108
START_SECONDS = 300  # crash recovery of a big database takes long
STOP_SECONDS = 60
# After a kill -9 of the postmaster its children need a moment to exit; until then no server can start.
ORPHANS_MESSAGE = "is still in use"
ORPHAN_SECONDS = 20


class Cluster:
    def __init__(
        self, data: Path, binaries: Binaries, account: ServerAccount, port: int = 0
    ) -> None:
        self.data = data.absolute()
        self.binaries = binaries
        self.account = account
        self.tcp_port = port
        self.pgdata = self.data / "postgres"
        self.log = self.data / "log"  # written by PostgreSQL
        self.start_log = self.data / "logs" / "start.log"  # written by the supervisor
        self.sockets = socket_directory(self.data)
        self._child: subprocess.Popen[str] | None = None

    # -- its state

    def pid_lines(self) -> list[str]:
        return read_file_or_empty(self.pgdata, PID_FILE, self.account).splitlines()

    def pid(self) -> int:
        """Return the postmaster's process id; 0 if there is none."""
        return first_number("\n".join(self.pid_lines()))

    def alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        pid = self.pid()
        return pid > 0 and self.is_postmaster(pid)

    def is_postmaster(self, pid: int) -> bool:
        return postmaster_alive(pid, self.pgdata, self.account.uid)

    def status(self) -> str:
        """Return the status that the postmaster writes in the eighth line of its pid file."""
        lines = self.pid_lines()
        return lines[7].strip() if len(lines) > 7 else ""  # noqa: PLR2004

    def ready(self) -> bool:
        """Whether it accepts connections that write."""
        return self.status() == "ready" and self.alive()

    def port(self) -> int:
        lines = self.pid_lines()
        stored = first_number(lines[3]) if len(lines) > 3 else 0  # noqa: PLR2004
        return stored or self.tcp_port or 5432

    def dsn(self) -> str:
        return (
            f"postgresql://{ROLE}:{quote(self.password(), safe='')}@/{DATABASE}"
            f"?host={quote(str(self.sockets), safe='')}&port={self.port()}&sslmode=disable"
        )

    def password(self) -> str:
        """Return the superuser's password, which only the server's user and root can read."""
        try:
            return (self.data / "password").read_text().strip()
        except OSError as error:
            raise DataUnusable(
                f"The password of the server cannot be read: {error}.",
                hint="Run Usher as the user who created this directory, or choose another with --data.",
            ) from error

    # -- creating it

    def prepare(self) -> None:
        """Create the data directory if it is missing, check it, and write the configuration."""
        if not self.account.may_enter(self.data):
            raise DataUnusable(
                f"PostgreSQL runs as the user {self.account.name!r}, who cannot reach {self.data}.",
                hint="Choose a directory outside private homes, with --data or USHER_DATA.",
            )
        for directory in (self.log, self.sockets):
            give_directory(directory, self.account)
        make_directory(self.start_log.parent)
        if not os.path.lexists(self.pgdata):
            self.create()
        self.check_owner()
        self.check_version()
        self.write(self.pgdata / "usher.conf", configuration(self.sockets, self.log, self.tcp_port))

    def create(self) -> None:
        """Run initdb under another name and rename the result, so that a crash leaves no incomplete directory."""
        fresh = self.pgdata.with_name("postgres.new")
        # rmtree works with directory descriptors, so the account cannot redirect it with a symlink.
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            give_directory(fresh, self.account)
            self.initdb(fresh)
            self.write(fresh / "postgresql.conf", INCLUDE, append=True)
            fresh.rename(self.pgdata)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def write(self, file: Path, text: str, *, append: bool = False) -> None:
        self.check(*self.account.write(file, text, append=append))

    def initdb(self, fresh: Path) -> None:
        password = secrets.token_urlsafe(24) + "\n"
        write_file(self.data / "password", password.encode())
        options = ["--username", ROLE, "--encoding", "UTF8", "--data-checksums"]
        # Passwords also on the socket: jobs may open it, and could log in as the superuser otherwise.
        options += ["--auth-local", "scram-sha-256", "--auth-host", "scram-sha-256"]
        options += ["--pwfile", "/dev/stdin", "--locale", "C"]
        if self.binaries.major >= 17:  # noqa: PLR2004 - the first with a Unicode provider of its own
            options += ["--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
        # No sync until the end, where everything is synced once.
        initdb = [self.binaries / "initdb", "--pgdata", str(fresh)]
        # The account cannot read the password file. `cat` gives it a pipe that it may open as /dev/stdin.
        piped = ["/bin/sh", "-c", 'cat | "$@"', "sh"]
        self.run([*piped, *initdb, *options, "--no-sync"], stdin=password)
        single = [self.binaries / "postgres", "--single", "-F", "-D", str(fresh), "postgres"]
        self.run(single, stdin=f"create database {DATABASE}\n")
        self.run([*initdb, "--sync-only"])

    def run(self, command: list[str], *, stdin: str = "") -> None:
        self.check(*self.account.run(command, stdin=stdin))

    def check(self, code: int, output: str) -> None:
        """Raise ServerNotStarted if a program failed."""
        if code:
            tail = " ".join(output.strip().splitlines()[-3:])
            raise ServerNotStarted(
                f"PostgreSQL could not create its data directory in {self.data}: {tail}",
                hint="Check free space and permissions there, or choose another with --data.",
            )

    def check_owner(self) -> None:
        """Refuse a directory of another user, such as the `postgres` of a Debian package."""
        state = self.pgdata.lstat()
        if stat.S_ISLNK(state.st_mode):
            raise DataUnusable(
                f"{self.pgdata} is a symlink.",
                hint="Choose the directory with --data, and keep `postgres` a directory in it.",
            )
        if state.st_uid != self.account.uid:
            name, ours = self.account.name, f"{self.pgdata} {self.log} {self.sockets}"
            raise DataUnusable(
                f"{self.pgdata} belongs to user id {state.st_uid}, "
                f"but PostgreSQL runs as the user {name!r}.",
                hint=f"If the data is yours, run `chown -hR {name}: {ours}`; "
                "else choose another directory with --data.",
            )

    def check_version(self) -> None:
        version = read_file_or_empty(self.pgdata, "PG_VERSION", self.account).strip()
        if not version:
            raise DataUnusable(
                f"{self.pgdata} exists but is not a PostgreSQL data directory.",
                hint="Move it away, or choose another with --data.",
            )
        if version != str(self.binaries.major):
            raise WrongVersion(
                f"{self.pgdata} was created by PostgreSQL {version}; "
                f"the programs in {self.binaries.directory} are {self.binaries.version}.",
                hint=f"Name programs of version {version} with USHER_PG_BIN, run `usher db dump`, "
                "then restore into a new --data directory.",
            )

    # -- running it

    def start(self) -> None:
        """Start the postmaster, or take over one that runs, and wait until it is ready."""
        deadline = time.monotonic() + START_SECONDS
        patience = time.monotonic() + ORPHAN_SECONDS
        if not self.alive():
            self._child = None  # an earlier one that died
        while not self.ready():
            if not self.alive():
                reason = self.failure_reason()
                if self._child and (ORPHANS_MESSAGE not in reason or time.monotonic() > patience):
                    self._child = None
                    raise self.not_started(reason)
                self.spawn()
            if time.monotonic() > deadline:
                raise self.not_started(f"not ready after {START_SECONDS} s")
            time.sleep(0.003)

    def not_started(self, reason: str) -> ServerNotStarted:
        hint = f"Its logs are in {self.log} and {self.start_log}."
        if self.tcp_port:
            hint += f" Is port {self.tcp_port} free?"
        return ServerNotStarted(f"PostgreSQL did not start: {reason}", hint=hint)

    def spawn(self) -> None:
        self.clear_stale_locks()
        with os.fdopen(open_file(self.start_log, os.O_WRONLY | os.O_TRUNC), "wb") as log:
            command = [self.binaries / "postgres", "-D", str(self.pgdata)]
            self._child = self.account.popen(command, out=log)

    def clear_stale_locks(self) -> None:
        """Remove lock files of a postmaster that has ended but whose process id is in use.

        PostgreSQL would take the process with that id for a running server and refuse to start. It may be another
        program, because a restarted container reuses low ids, or an unreaped zombie. Only the supervisor calls this, so
        that no other server of ours is starting. PostgreSQL itself clears the lock of an id that no process has.
        """
        for directory, pattern in ((self.pgdata, PID_FILE), (self.sockets, ".s.PGSQL.*.lock")):
            with open_directory(directory) as handle:
                for name in names_in(handle, pattern):
                    with suppress(OSError):
                        pid = first_number(read_file(handle, name, self.account))
                        if pid and not self.is_postmaster(pid):
                            os.unlink(name, dir_fd=handle)

    def failure_reason(self) -> str:
        """Return why our child ended; the log collector may write it a moment later."""
        if self._child is None:
            return ""
        for _ in range(20):
            if line := fatal_line(self.log_lines(), self._child.pid):
                return line
            time.sleep(0.05)
        return f"exit code {self._child.returncode}"

    def log_lines(self) -> list[str]:
        """Return the lines that the server wrote at its start, and those of its newest log file."""
        lines = self.start_log.read_text(errors="replace").splitlines()
        with suppress(OSError), open_directory(self.log) as handle:
            names = names_in(handle, "postgres-*.log")
            times = {os.lstat(name, dir_fd=handle).st_mtime_ns: name for name in names}
            if times:
                lines += read_file(handle, times[max(times)], self.account).splitlines()
        return lines

    def stop(self) -> None:
        """Shut the server down: close its connections and sync what is committed."""
        for number, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10)):
            if not self.alive():
                return
            self.send(number)
            deadline = time.monotonic() + patience
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.003)

    def send(self, number: signal.Signals) -> None:
        """Signal our child, or the postmaster of an earlier supervisor, whose id is in a file of the account."""
        if self._child is not None:
            self._child.send_signal(number)
        elif pid := self.pid():
            self.account.signal(pid, number)


def first_number(text: str) -> int:
    """Return the process id at the beginning of a lock file of PostgreSQL; 0 if there is none."""
    number = re.match(r"\s*([0-9]{1,10})\s", f"{text}\n")
    return int(number[1]) if number else 0


def fatal_line(lines: list[str], pid: int) -> str:
    """Return the fatal line of this process and the line before it, which names the cause."""
    mark = f"[{pid}] "
    own = [line.partition(mark)[2].removeprefix("@ ") for line in lines if mark in line]
    for number, line in enumerate(own):
        if line.startswith(("FATAL", "PANIC")):
            return " ".join(own[max(number - 1, 0) : number + 1])
    return ""


def socket_directory(data: Path) -> Path:
    """Return a directory inside the data, or in /run (root) or /tmp if that path is too long for a socket."""
    beside = data / "run"
    if len(os.fsencode(beside / ".s.PGSQL.65535.lock")) <= SOCKET_LIMIT:
        return beside
    name = f"usher-{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"
    if os.geteuid() == 0 and ROOT_SOCKETS.is_dir():
        return ROOT_SOCKETS / name
    return Path(tempfile.gettempdir(), name)
