"""A process as a guest of the embedded server: comes in, starts it if it is the first, leaves.

Comes from settings; goes to a DSN that is good until `leave()` or the process's end.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Self

from usher.db.embedded import account, binaries
from usher.db.embedded.cluster import START_SECONDS, Cluster
from usher.db.embedded.locks import FileLock, exclusive_lock, is_locked
from usher.db.embedded.supervisor import StartReport
from usher.errors import DataUnusable, NoServer, ServerUnusable, errors_by_code
from usher.private_files import make_data_directory, open_file


class EmbeddedServerLease:
    """Our place in the server, which stays up at least as long as this is held."""

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
    """Become a guest of the server in this directory; the first one has it made and started."""
    if sys.platform == "win32":
        raise NoServer("The embedded server does not run on Windows.", hint="Set DATABASE_URL.")
    data = data.resolve()
    user = account.server_account()
    check_trusted(data, user)
    fresh = create_data_directory(data)
    guests = FileLock(data / "guests.lock")
    try:
        guests.share()  # waits while a keeper is stopping the server
        with exclusive_lock(data / "start.lock"):
            return EmbeddedServerLease(ready_cluster(data, user, pg_bin, port), guests)
    except BaseException:
        guests.close()
        if fresh and not (data / "postgres").exists():
            shutil.rmtree(data, ignore_errors=True)  # ours a moment ago, and nothing came of it
        raise


def create_data_directory(data: Path) -> bool:
    """Create the data directory if it is missing; return whether it was."""
    try:
        fresh = make_data_directory(data)
        FileLock(data / "guests.lock").close()
    except OSError as error:
        raise DataUnusable(
            f"The data directory {data} cannot be used: {error.strerror}.",
            hint="Choose another with --data or USHER_DATA, or use a server with DATABASE_URL.",
        ) from error
    return fresh


def check_trusted(data: Path, user: account.ServerAccount) -> None:
    """Refuse as root a data directory in which the database's user could put symlinks for root to follow."""
    if not user.drops:
        return
    places = [place for place in (data, *data.parents) if place.exists()]
    open_to = next((place for place in places if user.may_write(place)), None)
    if open_to:
        raise DataUnusable(
            f"The user {user.name!r} can write in {open_to}, so root keeps no data in {data}.",
            hint=f"Run `chown root: {open_to}` and `chmod go-w {open_to}`, "
            "or choose another with --data.",
        )
    if data.exists() and data.stat().st_uid != os.geteuid():
        raise DataUnusable(
            f"The data directory {data} belongs to another user.",
            hint=f"Run Usher as that user, or `chown root: {data}`, or choose another with --data.",
        )


def ready_cluster(data: Path, user: account.ServerAccount, pg_bin: str, port: int) -> Cluster:
    """The server once it is ready; a keeper is started whenever there is none."""
    deadline = time.monotonic() + START_SECONDS
    cluster = Cluster(data, binaries.find_binaries(pg_bin), user, port)
    while time.monotonic() < deadline:
        if not is_locked(data / "keeper.lock"):
            start_supervisor(data, pg_bin, port)
        if cluster.ready():
            return cluster
        time.sleep(0.005)
    raise ServerUnusable(
        f"The embedded PostgreSQL in {data} did not become ready in {START_SECONDS} s.",
        hint=f"Its logs are in {cluster.log} and {cluster.start_log}.",
    )


def start_supervisor(data: Path, pg_bin: str, port: int) -> None:
    """Start the keeper and hear its report; its failure is raised here as our own."""
    hears, tells = os.pipe()
    log_file = open_file(data / "keeper.log", os.O_WRONLY | os.O_APPEND)
    with os.fdopen(log_file, "ab") as log, os.fdopen(hears, "rb") as report:
        try:
            # Not subprocess.Popen: the keeper outlives this process, and nobody here waits for it.
            keeper = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "usher.db.embedded", str(data), pg_bin, str(port)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, tells, 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
            )
        finally:
            os.close(tells)
        line = report.readline()
    if line:
        raise_reported_error(StartReport(**json.loads(line)), keeper)
    elif os.waitpid(keeper, 0)[1]:
        raise ServerUnusable(
            "The embedded server's keeper ended without a word.",
            hint=f"See {data / 'keeper.log'}.",
        )


def raise_reported_error(report: StartReport, keeper: int) -> None:
    if report.code:
        os.waitpid(keeper, 0)
        raise errors_by_code()[report.code](report.message, hint=report.hint)
