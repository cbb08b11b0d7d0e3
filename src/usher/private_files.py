"""Files of mode 0600 and directories of mode 0700, whatever the umask."""

import os
import secrets
from itertools import takewhile
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
# For root: the account that runs PostgreSQL must reach its directory in the data directory, but not list it.
ROOT_DATA_MODE: Final = 0o711
OWNER_ONLY_UMASK: Final = 0o077


def make_data_directory(data: Path) -> bool:
    """Create the data directory if it is missing; return whether it was."""
    if data.exists():
        return False
    for directory in make_missing(data):
        directory.chmod(ROOT_DATA_MODE if os.geteuid() == 0 else DIRECTORY_MODE)
    return True


def make_missing(path: Path) -> list[Path]:
    """Create a directory and its missing parents with mode 0700; return those that were missing."""
    missing = list(takewhile(lambda directory: not directory.exists(), [path, *path.parents]))
    for directory in reversed(missing):
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)  # another process may create it too
    return missing


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700; close an existing one to other users."""
    make_missing(path)
    state = path.stat()
    if state.st_uid == os.geteuid() and state.st_mode & OWNER_ONLY_UMASK:
        path.chmod(DIRECTORY_MODE)


def open_file(path: Path, flags: int) -> int:
    """Open a file for its owner only and return its descriptor; fail on a symlink."""
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        state = os.fstat(handle)
        if state.st_uid == os.geteuid() and state.st_mode & OWNER_ONLY_UMASK:
            os.fchmod(handle, FILE_MODE)  # an older version or another program created it
    except BaseException:
        os.close(handle)
        raise
    return handle


def write_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole; a reader sees the old content or the new one."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(open_file(part, os.O_WRONLY | os.O_EXCL), "wb") as file:
            file.write(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
