"""Copies the chunk files of a data directory while components write and delete them.

A chunk file never changes: it is replaced or deleted as a whole. So a file with the size and time of its copy is the
same file, and each pass copies only what is new.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.backup.contents import FILES, Backup, checksum
from usher.backup.progress import OnProgress
from usher.chunk_store import (
    BUILT_DIRECTORY,
    CONTENT_DIRECTORY,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    PartialFile,
    StoredFile,
    component_stores,
    directory_name,
    disk_error,
    make_folder,
)
from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)
COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that the database needs: the index or the content of a chunk, and the components that may have it."""

    chunk_id: int
    is_index: bool
    sha256: str
    hosts: list[str]

    @property
    def key(self) -> tuple[int, bool, str]:
        return self.chunk_id, self.is_index, self.sha256

    def is_local(self, data: Path) -> bool:
        """Whether a component of this data directory may have it."""
        parents = (INDEX_DIRECTORY, BUILT_DIRECTORY) if self.is_index else (CONTENT_DIRECTORY,)
        folders = (
            data / parent / directory_name(host) for parent in parents for host in self.hosts
        )
        return any(folder.is_dir() for folder in folders)


async def needed_files(conn: Connection) -> list[NeededFile]:
    return await store.needed_files.rows(conn, NeededFile)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A chunk file in the backup, with the size and time of the original."""

    chunk_id: int
    is_index: bool
    size: int
    mtime_ns: int
    sha256: str

    @property
    def key(self) -> tuple[int, bool, str]:
        return self.chunk_id, self.is_index, self.sha256


class ChunkCopies:
    """The chunk files in a backup, by their path in the data directory.

    Unchanged files of `base`, an earlier backup, are hard links to it.
    """

    def __init__(self, data: Path, directory: Path, base: Backup | None = None) -> None:
        self.data, self.target = data, directory / FILES
        self.copies: dict[str, CopiedFile] = {}
        self.copied_bytes = 0
        self._present: set[str] = set()  # in the data directory, at the last pass
        self._base = base.directory / FILES if base else None
        self._base_sums: Mapping[str, str] = base.data_files() if base else {}

    def copy_new(self, on_progress: OnProgress) -> int:
        """Copy the files that are new; return how many."""
        files = [
            (path, chunk, component_store.suffix == INDEX_SUFFIX)
            for component_store in component_stores(self.data)
            for chunk in component_store.chunks()
            for path in [component_store.path(chunk)]
        ]
        self._present.clear()
        new = 0
        for number, (path, chunk, is_index) in enumerate(files, 1):
            new += self._copy(path, chunk, is_index=is_index)
            on_progress("Copying files", number, len(files))
        return new

    def _copy(self, path: Path, chunk: int, *, is_index: bool) -> bool:
        """Copy a file unless the backup has it; return whether it is new. Does nothing if it was deleted."""
        name = path.relative_to(self.data).as_posix()
        try:
            state = path.stat()
        except FileNotFoundError:
            return False
        self._present.add(name)
        size, time = state.st_size, state.st_mtime_ns
        before = self.copies.get(name)
        if before and (before.size, before.mtime_ns) == (size, time):
            return False
        sha256 = self._existing(name, size, time)
        if not sha256:
            file = copy_file(path, self.target / name)
            if file is None:
                return False
            sha256, size = file.sha256, file.size
            self.copied_bytes += size
        self.copies[name] = CopiedFile(chunk, is_index, size, time, sha256)
        return True

    def _existing(self, name: str, size: int, time: int) -> str:
        """The checksum of the copy of an interrupted run or of the base; empty if there is none."""
        target = self.target / name
        if is_same(target, size, time):
            return checksum(target)
        if self._base and name in self._base_sums and is_same(self._base / name, size, time):
            make_folder(target.parent)
            target.unlink(missing_ok=True)
            try:
                target.hardlink_to(self._base / name)
            except OSError:  # for example on another file system
                return ""
            return self._base_sums[name]
        return ""

    def missing(self, needed: Iterable[NeededFile]) -> list[NeededFile]:
        """Those of these files that the backup does not have."""
        keys = {copy.key for copy in self.copies.values()}
        return [file for file in needed if file.key not in keys]

    def remove_unneeded(self, needed: Iterable[NeededFile]) -> None:
        """Remove files that are neither in the data directory nor needed, and what an interrupted run left."""
        keys = {file.key for file in needed}
        for name, copy in list(self.copies.items()):
            if name not in self._present and copy.key not in keys:
                del self.copies[name]
        for path in [*self.target.rglob("*")]:
            if path.is_file() and path.relative_to(self.target).as_posix() not in self.copies:
                path.unlink()


def is_same(path: Path, size: int, time: int) -> bool:
    try:
        state = path.lstat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (size, time)


def copy_file(source: Path, target: Path) -> StoredFile | None:
    """Copy a file with its time; None if it was deleted. A copy is complete or absent."""
    try:
        file = source.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(source, error, "read") from error
    part = None
    with file:
        try:
            part = PartialFile(target)
            while data := read_part(source, file.fileno()):
                part.write(data)
            time = os.fstat(file.fileno()).st_mtime_ns
            os.utime(part.part, ns=(time, time))
            return part.commit()
        finally:
            if part:
                part.discard()


def read_part(source: Path, handle: int) -> bytes:
    try:
        return os.read(handle, COPY_BYTES)
    except OSError as error:
        raise disk_error(source, error, "read") from error
