"""Log files of services: rotated by size while they run, and opened again if another program moved them.

`crawler.log` becomes `crawler.log.1`, that becomes `crawler.log.2`, and the oldest is deleted. No line is split or lost
otherwise. Each process has a file of its own.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.private_files import make_missing, open_file

STANDARD_ERROR: Final = 2


@dataclass(frozen=True, slots=True)
class LogLimits:
    """When a file is rotated, and how many files there are at most."""

    max_bytes: int = 20_000_000
    max_files: int = 5


class LogFile:
    """A stream for log lines.

    With `handle` it replaces that file of the process, so that what other code writes there is in the file too. The
    logger serializes the calls.
    """

    def __init__(self, path: Path, limits: LogLimits, *, handle: int | None = None) -> None:
        self.path, self._limits = path, limits
        make_missing(path.parent)
        file = open_append(path)
        self._handle = file if handle is None else handle
        if handle is not None:
            replace_handle(file, handle)

    def write(self, text: str) -> int:
        """Append lines; rotate before they would exceed the limit. If that fails, the present file grows."""
        data = text.encode("utf-8", "backslashreplace")
        with suppress(OSError):
            self._follow_path()
            if rotate(self.path, self._limits, more=len(data)):
                self._reopen()
        while data:
            data = data[os.write(self._handle, data) :]
        return len(text)

    def flush(self) -> None:
        """Every line is written at once."""

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        os.close(self._handle)

    def _follow_path(self) -> None:
        """Open the file again if another program moved or deleted it."""
        own = os.fstat(self._handle)
        try:
            present = self.path.lstat()
        except FileNotFoundError:
            self._reopen()
        else:
            if (own.st_dev, own.st_ino) != (present.st_dev, present.st_ino):
                self._reopen()

    def _reopen(self) -> None:
        replace_handle(open_append(self.path), self._handle)


def open_append(path: Path) -> int:
    return open_file(path, os.O_WRONLY | os.O_APPEND)


def replace_handle(file: int, handle: int) -> None:
    """Let a handle mean this file; in one step, so that no line goes elsewhere."""
    os.dup2(file, handle, inheritable=handle == STANDARD_ERROR)
    os.close(file)


def rotate(path: Path, limits: LogLimits, *, more: int = 0) -> bool:
    """Rename a file that has no room for `more` bytes, and the older ones; return whether it was renamed."""
    try:
        size = path.lstat().st_size
    except FileNotFoundError:
        return False
    if not size or size + more <= limits.max_bytes:
        return False
    for number in range(limits.max_files - 2, 0, -1):
        with suppress(FileNotFoundError):
            rotated(path, number).replace(rotated(path, number + 1))
    if limits.max_files > 1:
        path.replace(rotated(path, 1))
    else:
        path.unlink()
    return True


def rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
