"""Real processes for tests: guests of an embedded server that can be killed, and looking at who runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

GUEST = """
import sys
from pathlib import Path
from usher.db.embedded.server_lease import lodge
with lodge(Path(sys.argv[1]), pg_bin=sys.argv[2]) as lodging:
    print(lodging.cluster.pid(), flush=True)
    sys.stdin.readline()
"""


class Guest:
    """Another process that lodges in a data directory until told or killed."""

    def __init__(self, data: Path, pg_bin: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", GUEST, str(data), pg_bin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.postmaster = int(self.process.stdout.readline() or 0)

    def leave(self) -> int:
        self.process.communicate("\n", timeout=30)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


@contextmanager
def guests(data: Path, number: int, pg_bin: str = "") -> Iterator[list[Guest]]:
    """That many guests; whoever is left at the end is killed."""
    here: list[Guest] = []
    try:
        for _ in range(number):
            here.append(Guest(data, pg_bin))  # noqa: PERF401 - those made before a failure must be ended too
        yield here
    finally:
        for guest in here:
            if guest.process.poll() is None:
                guest.kill()


def eventually(true: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def keepers(data: Path) -> list[int]:
    """Process ids of the keepers of this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"usher.db.embedded" in words and os.fsencode(data) in words:
            found.append(int(entry.parent.name))
    return [pid for pid in found if running(pid)]


def kill_9(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not running(pid))
