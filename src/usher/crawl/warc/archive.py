"""The archive of WARC files: a directory or a bucket to which a crawler copies each file before it deletes its own.

Nothing deletes files of the archive. Their names have the start of the checksum, so that no file replaces another:
`CRAWLER/000123/000123456-5f2b….warc.gz`.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from usher.chunk_store import (
    CHUNKS_PER_FOLDER,
    CONTENT_SUFFIX,
    PartialFile,
    StoredFile,
    disk_error,
    make_folder,
    sync_folder,
    translate_disk_errors,
)
from usher.errors import BadContent, DiskUnusable, Unreachable
from usher.object_store.address import StoreAddress
from usher.object_store.store import ObjectStore, open_store
from usher.private_files import write_file
from usher.settings import Settings
from usher.telemetry import Log

log = Log("crawl")
READ_BYTES: Final = 1 << 20
CHECKSUM_LETTERS: Final = 16  # of the checksum, in the name of a file
README_NAME: Final = "README-usher-archive.txt"
README: Final = b"WARC files that crawlers of Usher keep. Usher does not read or delete them.\n"


class WarcArchive(Protocol):
    """Where WARC files are kept."""

    async def check(self) -> None:
        """Raise an error if files cannot be written there."""

    async def add(self, name: str, file: StoredFile) -> None:
        """Keep a copy of a file under this name; nothing happens if it is there."""


class ArchiveDirectory:
    """An archive in a directory: hard links on the same disk, copies on another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def check(self) -> None:
        await asyncio.to_thread(self._write_readme)

    def _write_readme(self) -> None:
        with translate_disk_errors(self.directory):
            make_folder(self.directory)
            write_file(self.directory / README_NAME, README)

    async def add(self, name: str, file: StoredFile) -> None:
        await asyncio.to_thread(self._add, self.directory / name, file)

    def _add(self, target: Path, file: StoredFile) -> None:
        if not (self.directory / README_NAME).exists():
            hint = "Mount its disk, or restart the crawler to begin a new archive there."
            raise DiskUnusable(f"{self.directory} has no {README_NAME} any more.", hint=hint)
        if target.exists():
            return
        with translate_disk_errors(target):
            make_folder(target.parent)
        with suppress(OSError):  # for example on another file system
            target.hardlink_to(file.path)
            sync_folder(target.parent)
            return
        copy = PartialFile(target)
        try:
            copy_into(copy, file)
            copy.commit()
        finally:
            copy.discard()


class ArchiveBucket:
    """An archive in object storage; it needs only the permission to write."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def check(self) -> None:
        await self._store.put_bytes(README_NAME, README)

    async def add(self, name: str, file: StoredFile) -> None:
        await self._store.put_file(name, file.path, file.sha256)


async def checked_archive(place: Path | StoreAddress, settings: Settings) -> WarcArchive:
    """Return the archive; fail if it cannot be written, but not if it does not answer now."""
    archive: WarcArchive = (
        ArchiveDirectory(place.absolute())
        if isinstance(place, Path)
        else (ArchiveBucket(open_store(str(place), settings)))
    )
    try:
        await archive.check()
    except Unreachable as error:
        log.warning("not_archived", error=error.message)
    return archive


def archive_name(folder: str, chunk: int, file: StoredFile) -> str:
    """Return the name of a chunk's file in the archive; `folder` is that of the crawler."""
    number, mark = f"{chunk:09d}", file.sha256[:CHECKSUM_LETTERS]
    return f"{folder}/{chunk // CHUNKS_PER_FOLDER:06d}/{number}-{mark}{CONTENT_SUFFIX}"


def copy_into(copy: PartialFile, file: StoredFile) -> None:
    """Copy a file; BadContent if it is not what it was when its checksum was computed."""
    try:
        with file.path.open("rb") as source:
            while data := source.read(READ_BYTES):
                copy.write(data)
    except OSError as error:
        raise disk_error(file.path, error, "read") from error
    if copy.sha256() != file.sha256:
        raise BadContent(f"{file.path} is damaged: its checksum is not {file.sha256}.")
