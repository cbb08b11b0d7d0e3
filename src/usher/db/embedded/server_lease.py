"""Leases of the embedded server: the server runs while at least one process holds one."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final, Self

from usher.db.embedded import account, binaries
from usher.db.embedded.cluster import START_SECONDS, Cluster
from usher.db.embedded.locks import FileLock, exclusive_lock, is_locked
from usher.db.embedded.supervisor import LEASE_LOCK, SUPERVISOR_LOCK, StartReport
from usher.errors import DataUnusable, NoServer, ServerUnusable, errors_by_code
from usher.private_files import make_data_directory, open_file

SUPERVISOR_LOG: Final = "supervisor.log"


class EmbeddedServerLease:
    """Keeps the server running until it is released or the process ends."""

    def __init__(self, cluster: Cluster, lock: FileLock) -> None:
        self.cluster = cluster
        self.dsn = cluster.dsn()
        self._lock: FileLock | None = lock

    def release(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lease_server(data: Path, *, pg_bin: str = "", port: int = 0) -> EmbeddedServerLease:
    """Return a lease of the server in this directory. The first lease creates and starts the server."""
    if sys.platform == "win32":
        raise NoServer("The embedded server does not run on Windows.", hint="Set DATABASE_URL.")
    data = data.resolve()
    user = account.server_account()
    check_trusted(data, user)
    is_new = create_data_directory(data)
    lock = FileLock(data / LEASE_LOCK)
    try:
        lock.share()  # waits while a supervisor is stopping the server
        with exclusive_lock(data / "start.lock"):
            return EmbeddedServerLease(ready_cluster(data, user, pg_bin, port), lock)
    except BaseException:
        lock.close()
        if is_new and not (data / "postgres").exists():
            shutil.rmtree(data, ignore_errors=True)  # created above, and still without a server
        raise


def create_data_directory(data: Path) -> bool:
    """Create the data directory if it is missing; return whether it was."""
    try:
        is_new = make_data_directory(data)
        FileLock(data / LEASE_LOCK).close()
    except OSError as error:
        raise DataUnusable(
            f"The data directory {data} cannot be used: {error.strerror}.",
            hint="Choose another with --data or USHER_DATA, or use a server with DATABASE_URL.",
        ) from error
    return is_new


def check_trusted(data: Path, user: account.ServerAccount) -> None:
    """Refuse, as root, a data directory in which the database's user could create symlinks for root to follow."""
    if not user.drops:
        return
    directories = [path for path in (data, *data.parents) if path.exists()]
    writable = next((path for path in directories if user.may_write(path)), None)
    if writable:
        raise DataUnusable(
            f"The user {user.name!r} can write in {writable}, so root keeps no data in {data}.",
            hint=f"Run `chown root: {writable}` and `chmod go-w {writable}`, "
            "or choose another with --data.",
        )
    if data.exists() and data.stat().st_uid != os.geteuid():
        raise DataUnusable(
            f"The data directory {data} belongs to another user.",
            hint=f"Run Usher as that user, or `chown root: {data}`, or choose another with --data.",
        )


def ready_cluster(data: Path, user: account.ServerAccount, pg_bin: str, port: int) -> Cluster:
    """Return the server once it is ready; start a supervisor whenever there is none."""
    deadline = time.monotonic() + START_SECONDS
    cluster = Cluster(data, binaries.find_binaries(pg_bin), user, port)
    while time.monotonic() < deadline:
        if not is_locked(data / SUPERVISOR_LOCK):
            start_supervisor(data, pg_bin, port)
        if cluster.ready():
            return cluster
        time.sleep(0.005)
    raise ServerUnusable(
        f"The embedded PostgreSQL in {data} was not ready after {START_SECONDS} s.",
        hint=f"Its logs are in {cluster.log} and {cluster.start_log}.",
    )


def start_supervisor(data: Path, pg_bin: str, port: int) -> None:
    """Start the supervisor and read its report; raise the error that it reports."""
    reader, writer = os.pipe()
    log_file = open_file(data / SUPERVISOR_LOG, os.O_WRONLY | os.O_APPEND)
    with os.fdopen(log_file, "ab") as log, os.fdopen(reader, "rb") as report:
        try:
            # Not subprocess.Popen, which expects a wait: the supervisor outlives this process.
            supervisor = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "usher.db.embedded", str(data), pg_bin, str(port)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writer, 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
            )
        finally:
            os.close(writer)
        line = report.readline()
    if line:
        raise_reported_error(StartReport(**json.loads(line)), supervisor)
    elif os.waitpid(supervisor, 0)[1]:
        raise ServerUnusable(
            "The supervisor of the embedded server ended without a report.",
            hint=f"See {data / SUPERVISOR_LOG}.",
        )


def raise_reported_error(report: StartReport, supervisor: int) -> None:
    if report.code:
        os.waitpid(supervisor, 0)
        raise errors_by_code()[report.code](report.message, hint=report.hint)
