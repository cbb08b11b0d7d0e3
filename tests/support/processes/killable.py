"""Real processes for tests: lease holders of an embedded server that can be killed, and which processes run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LEASE_HOLDER_CODE = """
import sys
from pathlib import Path
from usher.db.embedded.server_lease import lease_server
with lease_server(Path(sys.argv[1]), pg_bin=sys.argv[2]) as lease:
    print(lease.cluster.pid(), flush=True)
    sys.stdin.readline()
"""


class LeaseHolder:
    """A process that holds a lease of a data directory until it is stopped or killed."""

    def __init__(self, data: Path, pg_bin: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEASE_HOLDER_CODE, str(data), pg_bin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.postmaster = int(self.process.stdout.readline() or 0)

    def stop(self) -> int:
        self.process.communicate("\n", timeout=30)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


@contextmanager
def lease_holders(data: Path, number: int, pg_bin: str = "") -> Iterator[list[LeaseHolder]]:
    """Start that many lease holders; kill those that still run at the end."""
    holders: list[LeaseHolder] = []
    try:
        for _ in range(number):
            holders.append(LeaseHolder(data, pg_bin))  # noqa: PERF401 - also those before a failure must end
        yield holders
    finally:
        for holder in holders:
            if holder.process.poll() is None:
                holder.kill()


def eventually(true: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def supervisor_pids(data: Path) -> list[int]:
    """Return the process ids of the supervisors of this directory."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"usher.db.embedded" in words and os.fsencode(data) in words:
            pids.append(int(entry.parent.name))
    return [pid for pid in pids if running(pid)]


def kill_9(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not running(pid))
