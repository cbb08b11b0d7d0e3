"""Files that are complete or absent: partial files that get their name when complete, and a store of chunk files."""

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
from usher.private_files import OWNER_ONLY_UMASK, make_data_directory, make_directory, open_file

PARTIAL_SUFFIX: Final = ".part"
CHUNKS_PER_FOLDER: Final = 1000
CONTENT_SUFFIX: Final = ".warc.gz"
INDEX_SUFFIX: Final = ".idx"
# Directories of a data directory with a folder for each component, named after its address.
CONTENT_DIRECTORY: Final = "content"
BUILT_DIRECTORY: Final = "built"
INDEX_DIRECTORY: Final = "index"
CHUNKS_FOLDER: Final = "chunks"  # in the folder of an index server
FOLDER_NAME, FILE_NAME = re.compile(r"\d{6,}"), re.compile(r"(\d{9,})(\..+)")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A complete file on the disk."""

    path: Path
    sha256: str
    size: int


class PartialFile:
    """A file that is being written beside its final path; its lock protects it from `remove_leftovers`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
        self.size = 0
        self._sum = hashlib.sha256()
        self._lock = threading.Lock()
        self._discarded = False
        with translate_disk_errors(path):
            make_folder(path.parent)
            self._file = open_file(self.part, os.O_EXCL | os.O_WRONLY)
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes | bytearray) -> None:
        """Append data; if that fails, the file is discarded, which frees its space."""
        if self._file < 0:
            raise self._discarded_error()
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
        """Remove everything that was written."""
        with translate_disk_errors(self.path):
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
        self.size, self._sum = 0, hashlib.sha256()

    def sha256(self) -> str:
        """Return the checksum of the data so far."""
        return self._sum.hexdigest()

    def commit(self) -> StoredFile:
        """Give the file its name, and block until it survives a power cut; if that fails, discard it.

        This may run in a thread: a file that is discarded meanwhile does not get its name.
        """
        file = self._take()
        if file < 0:
            raise self._discarded_error()
        try:
            with translate_disk_errors(self.path):
                os.fsync(file)
                if self._discarded:
                    raise self._discarded_error()
                self.part.replace(self.path)
                sync_folder(self.path.parent)
        finally:
            with suppress(OSError):  # after a success the part does not exist
                self.part.unlink()
            os.close(file)
        return StoredFile(self.path, self.sha256(), self.size)

    def discard(self) -> None:
        """Remove the file, unless it is committed or discarded already."""
        self._discarded = True
        file = self._take()
        if file >= 0:
            with suppress(OSError):
                self.part.unlink()
            os.close(file)

    def _take(self) -> int:
        """Return the descriptor once: a descriptor that is closed twice may be another file by then."""
        with self._lock:
            file, self._file = self._file, -1
        return file

    def _discarded_error(self) -> DiskUnusable:
        return DiskUnusable(f"{self.path} was discarded.")


class ChunkStore:
    """The chunk files of one component, by chunk id: `000123/000123456.warc.gz`."""

    def __init__(self, directory: Path, suffix: str = CONTENT_SUFFIX) -> None:
        self.directory = directory
        self.suffix = suffix
        self._sums: dict[int, tuple[int, int, str]] = {}  # size, modification time, sha256

    def path(self, chunk: int) -> Path:
        return self.directory / f"{chunk // CHUNKS_PER_FOLDER:06d}" / f"{chunk:09d}{self.suffix}"

    def chunks(self) -> list[int]:
        """Return the ids of all chunks, sorted."""
        ids = []
        for folder in self._folders():
            with translate_disk_errors(folder), suppress(FileNotFoundError):
                names = [FILE_NAME.fullmatch(path.name) for path in folder.iterdir()]
                ids += [int(name[1]) for name in names if name and name[2] == self.suffix]
        return sorted(ids)

    def find(self, chunk: int) -> StoredFile | None:
        """Return a chunk's file; the first call reads it for its checksum."""
        path = self.path(chunk)
        try:
            with path.open("rb") as file:
                state = os.fstat(file.fileno())
                size, time, sha256 = self._sums.get(chunk, (0, 0, ""))
                if not sha256 or (size, time) != (state.st_size, state.st_mtime_ns):
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                    self._sums[chunk] = (state.st_size, state.st_mtime_ns, sha256)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(path, error, "read") from error
        return StoredFile(path, sha256, state.st_size)

    def remember_checksum(self, chunk: int, file: StoredFile) -> None:
        """Remember the checksum of a chunk that was just written, so that `find` does not read it."""
        with suppress(OSError):
            state = file.path.stat()
            self._sums[chunk] = (state.st_size, state.st_mtime_ns, file.sha256)

    def drop(self, chunks: Iterable[int]) -> list[int]:
        """Remove chunks; return those that existed."""
        removed = []
        for chunk in chunks:
            self._sums.pop(chunk, None)
            with translate_disk_errors(self.path(chunk)), suppress(FileNotFoundError):
                self.path(chunk).unlink()
                removed.append(chunk)
        return removed

    def remove_leftovers(self) -> int:
        """Remove partial files of a crash, and empty folders; return how many files."""
        removed = sum(map(remove_unlocked, self.directory.glob(f"*/*{PARTIAL_SUFFIX}")))
        for folder in self._folders():
            with suppress(OSError):
                folder.rmdir()
        return removed

    def _folders(self) -> list[Path]:
        with translate_disk_errors(self.directory), suppress(FileNotFoundError):
            return [
                path
                for path in self.directory.iterdir()
                if FOLDER_NAME.fullmatch(path.name) and path.is_dir()
            ]
        return []


def directory_name(host: str) -> str:
    """Return the name of the folder with the files of a component."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", host)


def component_stores(data: Path) -> list[ChunkStore]:
    """Return the stores of all components whose files are in this data directory."""
    kinds = (
        (CONTENT_DIRECTORY, "", CONTENT_SUFFIX),
        (BUILT_DIRECTORY, "", INDEX_SUFFIX),
        (INDEX_DIRECTORY, CHUNKS_FOLDER, INDEX_SUFFIX),
    )
    return [
        ChunkStore(folder / below, suffix)
        for directory, below, suffix in kinds
        for folder in component_folders(data / directory)
    ]


def component_folders(directory: Path) -> list[Path]:
    """Return the folders of the components in a directory; none if it does not exist."""
    try:
        return sorted(folder for folder in directory.iterdir() if folder.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error(directory, error, "read") from error


@contextmanager
def translate_disk_errors(path: Path) -> Iterator[None]:
    """Raise DiskUnusable for an OSError."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error, "written") from error


def disk_error(path: Path, error: OSError, action: str) -> DiskUnusable:
    return DiskUnusable(
        f"{path} cannot be {action}: {error.strerror or error}.",
        hint="Check free space and permissions there; `usher doctor` checks both.",
    )


def keep_files_private(data: Path) -> None:
    """Prepare a process that stores pages: libraries such as Tantivy obey only the umask."""
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
    """Remove a partial file unless a running process has its lock; return whether it was removed."""
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
