"""The keeper: one small process beside each embedded server, alive as long as the server has guests.

It makes and starts the server, starts it again when it dies, and stops it when nobody holds the guests' lock any
more. Guests need not say goodbye: the kernel drops the lock of a killed process. A keeper that is killed itself
leaves the server running; the next guest starts a new keeper, which takes the server over.
Run as `python -m usher.db.embedded DATA PG_BIN PORT`; its first line of output is its report to the guest.
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

CHECK_SECONDS = 0.1  # seconds between two looks at the server


@dataclass(frozen=True, slots=True)
class StartReport:
    """What the keeper tells the guest that started it."""

    dsn: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""


class SupervisorTerminated(BaseException):
    """The keeper itself was asked to go."""


def main() -> None:
    data, pg_bin, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    signal.signal(signal.SIGTERM, terminated)
    lock = FileLock(data / "keeper.lock")
    # Held already: another keeper came first, and the guest will see its server.
    if lock.try_take(patience=2) and (cluster := started_cluster(data, pg_bin, port)):
        supervise(cluster)


def started_cluster(data: Path, pg_bin: str, port: int) -> Cluster | None:
    """The server, made if need be and ready; the guest hears of it either way."""
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
    # Whoever hears that the server runs may tell us to stop it, and `keep` does not listen yet.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    send_report(StartReport(dsn=cluster.dsn()))
    return cluster


def terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SupervisorTerminated


def supervise(cluster: Cluster) -> None:
    """Stay while there are guests, then stop the server; a guest who comes meanwhile waits at the lock."""
    deserted = threading.Event()
    guests = FileLock(cluster.data / "guests.lock")
    threading.Thread(target=wait_for_last_client, args=(guests, deserted), daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        while not deserted.wait(CHECK_SECONDS):
            if not cluster.alive():
                restart_server(cluster)
    except SupervisorTerminated:
        log_line("told to stop")
    cluster.stop()


def wait_for_last_client(guests: FileLock, deserted: threading.Event) -> None:
    """The lock is ours alone once every guest has gone; new ones come in past us until then."""
    guests.take()
    deserted.set()


def restart_server(cluster: Cluster) -> None:
    """One try to start the dead server again; the loop of `keep` makes the next."""
    log_line("the server died, starting it again")
    try:
        cluster.start()
        log_line("the server is back")
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
    """The programs where the unprivileged user can run them: a venv in a private home is closed to it."""
    if not target.exists():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(programs.directory.parent, partial, symlinks=True)
        partial.chmod(0o755)
        partial.rename(target)
    return binaries.Binaries(target / programs.directory.name, programs.version)


def send_report(report: StartReport) -> None:
    """The report to the guest, who may be gone already; after it, output goes to the keeper's log."""
    try:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
    except OSError:
        log_line("the guest did not wait")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, not a file
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def log_line(words: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {words}\n")
    sys.stderr.flush()
