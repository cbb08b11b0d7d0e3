"""Directories that belong to the database account, handled safely by root.

The account can put a symlink, a FIFO or another user's process id anywhere in its directories. So root writes nothing
there (`ServerAccount.write` writes as the account) and opens only regular files of the account, following no links.
"""

import fnmatch
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from usher.db.embedded.account import ServerAccount
from usher.errors import DataUnusable

MAX_READ_BYTES: Final = 1_000_000
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for its other end.
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def open_directory(path: Path) -> Iterator[int]:
    """Open a directory without following a symlink."""
    handle = os.open(path, DIRECTORY_FLAGS)
    try:
        yield handle
    finally:
        os.close(handle)


def give_directory(path: Path, account: ServerAccount) -> None:
    """Create a directory if it is missing and make it the account's alone; fail if another user owns it."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        with open_directory(path) as handle:
            if os.fstat(handle).st_uid not in {account.uid, os.geteuid()}:
                raise directory_taken(path)
            if account.drops:
                os.fchown(handle, account.uid, account.gid)
            os.fchmod(handle, 0o700)
    except OSError as error:
        raise directory_taken(path) from error


def directory_taken(path: Path) -> DataUnusable:
    return DataUnusable(
        f"{path} belongs to another user or is not a directory.",
        hint="Remove it if it is yours, or choose another data directory with --data.",
    )


def names_in(directory: int, pattern: str) -> list[str]:
    """Return the names in an open directory that match."""
    with os.scandir(directory) as entries:
        return fnmatch.filter([entry.name for entry in entries], pattern)


def read_file(directory: int, name: str, account: ServerAccount) -> str:
    """Return the text of a regular file of the account, at most its last megabyte; OSError for anything else."""
    handle = os.open(name, FILE_FLAGS, dir_fd=directory)
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != account.uid:
            raise PermissionError(f"{name} is not a file of the user {account.name!r}.")
        file.seek(max(state.st_size - MAX_READ_BYTES, 0))
        return file.read(MAX_READ_BYTES).decode(errors="replace")


def read_file_or_empty(directory: Path, name: str, account: ServerAccount) -> str:
    """Return the text of a file as `read_file` does, empty if it cannot be read."""
    try:
        with open_directory(directory) as handle:
            return read_file(handle, name, account)
    except OSError:
        return ""
