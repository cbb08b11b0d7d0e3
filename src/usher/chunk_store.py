"""Files that are whole or not there: drafts that become files at once, and a shelf of one file for each chunk.

Comes from crawlers, builders and whoever pulls their chunks; goes to a directory that one component owns.
"""

import fcntl
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.errors import DiskUnusable
from usher.private_files import (
    OWNER_ONLY_UMASK,
    make_data_directory,
    make_directory,
    open_file,
)

PARTIAL_SUFFIX: Final = ".part"
CHUNKS_PER_FOLDER: Final = 1000  # chunks in one folder
PIECE: Final = 1 << 20
FOLDER_NAME, FILE_NAME = re.compile(r"\d{6,}"), re.compile(r"(\d{9,})(\..+)")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is whole and on the disk."""

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class StoreUsage:
    chunks: int
    bytes: int


class PartialFile:
    """A file in the making, under another name beside its own; locked, so that nobody tidies it away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
        self.size = 0
        self._sum = hashlib.sha256()
        self._lock = threading.Lock()
        self._unwanted = False
        with translate_disk_errors(path):
            make_folder(path.parent)
            self._file = open_file(self.part, os.O_EXCL | os.O_WRONLY)
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes | bytearray) -> None:
        """Append; if that fails, the draft is gone, and what space it took is free again."""
        if self._file < 0:
            raise self._given_up()
        try:
            with translate_disk_errors(self.path), memoryview(data) as rest:
                done = 0
                while done < len(rest):
                    done += os.write(self._file, rest[done:])
        except DiskUnusable:
            self.discard()
            raise
        self._sum.update(data)
        self.size += len(data)

    def truncate(self) -> None:
        """Forget what was written."""
        with translate_disk_errors(self.path):
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
        self.size, self._sum = 0, hashlib.sha256()

    def sha256(self) -> str:
        """Of what is written so far."""
        return self._sum.hexdigest()

    def commit(self) -> StoredFile:
        """Make it a file that survives a power cut, and block until it is; if that fails, the draft is gone.

        It may run in a thread: one that is dropped meanwhile does not become a file.
        """
        file = self._take()
        if file < 0:
            raise self._given_up()
        try:
            with translate_disk_errors(self.path):
                os.fsync(file)
                if self._unwanted:
                    raise self._given_up()
                self.part.replace(self.path)
                sync_folder(self.path.parent)
        finally:
            with suppress(OSError):  # as a rule it is gone: it has its name
                self.part.unlink()
            os.close(file)
        return StoredFile(self.path, self.sha256(), self.size)

    def discard(self) -> None:
        """Leave nothing; of one that was kept or dropped already nothing is left to do."""
        self._unwanted = True
        file = self._take()
        if file >= 0:
            with suppress(OSError):
                self.part.unlink()
            os.close(file)

    def _take(self) -> int:
        """The open file, for one taker alone: a number that is closed twice may be another's file by then."""
        with self._lock:
            file, self._file = self._file, -1
        return file

    def _given_up(self) -> DiskUnusable:
        return DiskUnusable(f"{self.path} was given up.")


class ChunkStore:
    """The chunk files of one component, by chunk id: `000123/000123456.warc.gz`."""

    def __init__(self, directory: Path, suffix: str = ".warc.gz") -> None:
        self.directory = directory
        self.suffix = suffix
        self._sums: dict[int, tuple[int, int, str]] = {}  # size, time of change, sha256

    def path(self, chunk: int) -> Path:
        return self.directory / f"{chunk // CHUNKS_PER_FOLDER:06d}" / f"{chunk:09d}{self.suffix}"

    def chunks(self) -> list[int]:
        """Every chunk that is here, in order."""
        return sorted(chunk for chunk, _ in self._files())

    def find(self, chunk: int) -> StoredFile | None:
        """A chunk's file, if it is here; reads it whole the first time, for its checksum."""
        path = self.path(chunk)
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                kept = self._sums.get(chunk)
                if kept is None or kept[:2] != (found.st_size, found.st_mtime_ns):
                    sum_ = hashlib.file_digest(file, "sha256").hexdigest()
                    kept = self._sums[chunk] = (found.st_size, found.st_mtime_ns, sum_)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(path, error, "read") from error
        return StoredFile(path, kept[2], kept[0])

    def remember_checksum(self, chunk: int, kept: StoredFile) -> None:
        """The checksum of a chunk that was just written, which then nobody needs to read for it."""
        with suppress(OSError):
            found = kept.path.stat()
            self._sums[chunk] = (found.st_size, found.st_mtime_ns, kept.sha256)

    def drop(self, chunks: Iterable[int]) -> list[int]:
        """Remove these; returns those that were here."""
        gone = []
        for chunk in chunks:
            self._sums.pop(chunk, None)
            with translate_disk_errors(self.path(chunk)), suppress(FileNotFoundError):
                self.path(chunk).unlink()
                gone.append(chunk)
        return gone

    def usage(self) -> StoreUsage:
        sizes = [size for _, size in self._files(sized=True)]
        return StoreUsage(len(sizes), sum(sizes))

    def remove_leftovers(self) -> int:
        """Remove what a crash left half-written, and folders with nothing in them; returns how many files."""
        gone = sum(map(remove_unlocked, self.directory.glob(f"*/*{PARTIAL_SUFFIX}")))
        for folder in self._folders():
            with suppress(OSError):
                folder.rmdir()
        return gone

    def _folders(self) -> list[Path]:
        with translate_disk_errors(self.directory), suppress(FileNotFoundError):
            found = self.directory.iterdir()
            return [one for one in found if FOLDER_NAME.fullmatch(one.name) and one.is_dir()]
        return []

    def _files(self, *, sized: bool = False) -> Iterator[tuple[int, int]]:
        """Chunks and, if wanted, their sizes; a file that goes away meanwhile is not there."""
        for folder in self._folders():
            with (
                translate_disk_errors(folder),
                suppress(FileNotFoundError),
                os.scandir(folder) as entries,
            ):
                for entry in entries:
                    name = FILE_NAME.fullmatch(entry.name)
                    if name and name[2] == self.suffix:
                        with suppress(FileNotFoundError):
                            yield int(name[1]), entry.stat().st_size if sized else 0


@contextmanager
def translate_disk_errors(path: Path) -> Iterator[None]:
    """What the disk refuses, in words."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error, "written") from error


def disk_error(path: Path, error: OSError, done: str) -> DiskUnusable:
    return DiskUnusable(
        f"{path} cannot be {done}: {error.strerror or error}.",
        hint="Check free space and permissions there; `usher doctor` looks at both.",
    )


def keep_files_private(data: Path) -> None:
    """Prepare the process of a role that stores pages: libraries such as Tantivy obey only the umask."""
    with translate_disk_errors(data):
        make_data_directory(data)
    os.umask(OWNER_ONLY_UMASK)


def make_folder(folder: Path) -> None:
    """Create a folder that other users cannot read and that survives a power cut."""
    is_new = not folder.is_dir()
    make_directory(folder)
    if is_new:
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_unlocked(part: Path) -> bool:
    """Remove a draft unless a process that lives works on it."""
    try:
        handle = os.open(part, os.O_WRONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.unlink()
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
