"""File locks, which the kernel releases when their holder ends, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from usher.private_files import open_file


class FileLock:
    """A lock on an open file, shared or exclusive."""

    def __init__(self, path: Path) -> None:
        self._file = open_file(path, os.O_RDWR)

    def fileno(self) -> int:
        return self._file

    def share(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def take(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def try_take(self, *, patience: float = 0) -> bool:
        """Try to take the lock for that many seconds; return whether it was taken."""
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
            else:
                return True

    def close(self) -> None:
        os.close(self._file)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock exclusively within the block; waits for it."""
    with closing(FileLock(path)) as lock:
        lock.take()
        yield


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock exclusively now."""
    with closing(FileLock(path)) as lock:
        return not lock.try_take()
