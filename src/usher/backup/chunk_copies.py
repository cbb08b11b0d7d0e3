"""Copies the chunk files of a data directory while components write and delete them.

A chunk file never changes: it is replaced or deleted as a whole. So a file with the size and time of its copy is the
same file, and each pass copies only what is new.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.backup.contents import FILES, Backup, checksum
from usher.backup.progress import OnProgress, run_in_thread
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


async def stored_chunks(conn: Connection) -> int:
    return int(await store.stored_chunks.value(conn))


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


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A chunk file in the data directory; `name` is its path there."""

    name: str
    path: Path
    chunk_id: int
    is_index: bool


class ChunkCopies(ABC):
    """The chunk files in a backup, by their path in the data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.copies: dict[str, CopiedFile] = {}
        self.copied_bytes = 0
        self._present: set[str] = set()  # in the data directory, at the last pass

    @abstractmethod
    async def copy_new(self, on_progress: OnProgress) -> int:
        """Copy the files that are new; return how many."""

    @abstractmethod
    async def remove_unneeded(self, needed: Iterable[NeededFile]) -> None:
        """Remove files that are neither in the data directory nor needed, and what an interrupted run left."""

    def missing(self, needed: Iterable[NeededFile]) -> list[NeededFile]:
        """Those of these files that the backup does not have."""
        keys = {copy.key for copy in self.copies.values()}
        return [file for file in needed if file.key not in keys]

    def _source_files(self) -> list[SourceFile]:
        self._present.clear()
        return [
            SourceFile(
                path.relative_to(self.data).as_posix(),
                *(path, chunk, component_store.suffix == INDEX_SUFFIX),
            )
            for component_store in component_stores(self.data)
            for chunk in component_store.chunks()
            for path in [component_store.path(chunk)]
        ]

    def _new_state(self, source: SourceFile) -> os.stat_result | None:
        """The state of a file unless the backup has it in this state; None if it was deleted."""
        try:
            state = source.path.stat()
        except FileNotFoundError:
            return None
        self._present.add(source.name)
        before = self.copies.get(source.name)
        is_known = before and (before.size, before.mtime_ns) == (state.st_size, state.st_mtime_ns)
        return None if is_known else state

    def _add(self, source: SourceFile, size: int, time: int, sha256: str) -> None:
        copy = CopiedFile(source.chunk_id, source.is_index, size, time, sha256)
        self.copies[source.name] = copy

    def _forget_unneeded(self, needed: Iterable[NeededFile]) -> None:
        keys = {file.key for file in needed}
        for name, copy in list(self.copies.items()):
            if name not in self._present and copy.key not in keys:
                del self.copies[name]


class DirectoryCopies(ChunkCopies):
    """Copies in a directory; unchanged files of `base`, an earlier backup, are hard links to it."""

    def __init__(self, data: Path, directory: Path, base: Backup | None = None) -> None:
        super().__init__(data)
        self.target = directory / FILES
        self._base = base.directory / FILES if base else None
        self._base_sums: Mapping[str, str] = base.data_files() if base else {}

    async def copy_new(self, on_progress: OnProgress) -> int:
        return await run_in_thread(self._copy_all, on_progress)

    def _copy_all(self, on_progress: OnProgress) -> int:
        files, new = self._source_files(), 0
        for number, file in enumerate(files, 1):
            new += self._copy(file)
            on_progress("Copying files", number, len(files))
        return new

    def _copy(self, source: SourceFile) -> bool:
        """Copy a file unless the backup has it; return whether it is new. Does nothing if it was deleted."""
        state = self._new_state(source)
        if state is None:
            return False
        size, time = state.st_size, state.st_mtime_ns
        sha256 = self._existing(source.name, size, time)
        if not sha256:
            file = copy_file(source.path, self.target / source.name)
            if file is None:
                return False
            sha256, size = file.sha256, file.size
            self.copied_bytes += size
        self._add(source, size, time, sha256)
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

    async def remove_unneeded(self, needed: Iterable[NeededFile]) -> None:
        self._forget_unneeded(needed)
        await asyncio.to_thread(self._remove_unknown)

    def _remove_unknown(self) -> None:
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
