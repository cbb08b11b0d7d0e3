"""Uploads the chunk files of a data directory to a backup in object storage.

A journal in the data directory states which files were uploaded, so that an interrupted run continues. It is needed
because object storage does not keep the time of a file.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Final, TypeVar

from usher.backup.chunk_copies import ChunkCopies, NeededFile, SourceFile
from usher.backup.contents import FILES, checksum
from usher.backup.progress import OnProgress
from usher.errors import DiskUnusable
from usher.object_store.store import ObjectStore

T = TypeVar("T")
MAX_FILES_AT_ONCE: Final = 4
MAX_LISTED_KEYS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BaseObjects:
    """An earlier backup in the same bucket: its prefix, and the checksums of its chunk files."""

    prefix: str
    sums: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """An upload in the journal."""

    size: int
    mtime_ns: int
    sha256: str


class BucketCopies(ChunkCopies):
    """Copies in object storage; unchanged files of `base` are copied by the server."""

    def __init__(
        self,
        data: Path,
        store: ObjectStore,
        journal: Path,
        *,
        stored: Mapping[str, int],
        base: BaseObjects | None,
    ) -> None:
        """`stored` has the sizes of the objects that an interrupted run left, by their key."""
        super().__init__(data)
        self.store, self._base = store, base
        self._uploaded = {
            name: file
            for name, file in read_journal(journal).items()
            if stored.get(f"{FILES}/{name}") == file.size
        }
        self._left = {key for key in stored if key.startswith(f"{FILES}/")}
        self._journal_path = journal

    async def copy_new(self, on_progress: OnProgress) -> int:
        files = await asyncio.to_thread(self._source_files)
        done, new = count(1), 0
        with self._journal_path.open("a", encoding="utf-8") as journal:

            async def copy(source: SourceFile) -> None:
                nonlocal new
                new += await self._copy(source, journal)
                on_progress("Uploading files", next(done), len(files))

            await for_each(files, copy)
        return new

    async def _copy(self, source: SourceFile, journal: IO[str]) -> bool:
        """Upload a file unless the backup has it; return whether it is new. Does nothing if it was deleted."""
        state = self._new_state(source)
        if state is None:
            return False
        size, time = state.st_size, state.st_mtime_ns
        uploaded = self._uploaded.get(source.name)
        if uploaded is None or (uploaded.size, uploaded.mtime_ns) != (size, time):
            try:
                uploaded = await self._store_file(source, time)
            except DiskUnusable:
                if source.path.exists():
                    raise
                return False
            fields = [source.name, uploaded.size, uploaded.mtime_ns, uploaded.sha256]
            journal.write(json.dumps(fields) + "\n")
            journal.flush()
        self._add(source, uploaded.size, uploaded.mtime_ns, uploaded.sha256)
        return True

    async def _store_file(self, source: SourceFile, time: int) -> UploadedFile:
        key = f"{FILES}/{source.name}"
        self._left.add(key)
        if self._base and source.name in self._base.sums:
            sha256 = await asyncio.to_thread(checksum, source.path)
            if sha256 == self._base.sums[source.name]:
                await self.store.copy_from(f"{self._base.prefix}/{key}".lstrip("/"), key)
                return UploadedFile(source.path.stat().st_size, time, sha256)
        file = await self.store.put_file(key, source.path)
        self.copied_bytes += file.size
        return UploadedFile(file.size, time, file.sha256)

    async def remove_unneeded(self, needed: Iterable[NeededFile]) -> None:
        self._forget_unneeded(needed)
        keep = {f"{FILES}/{name}" for name in self.copies}
        await self.store.delete(sorted(self._left - keep))


def read_journal(path: Path) -> dict[str, UploadedFile]:
    """The uploads of an interrupted run; its last line may be incomplete."""
    uploads = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            name, *fields = json.loads(line)
            uploads[name] = UploadedFile(*fields)
        except (ValueError, TypeError):
            continue
    return uploads


async def list_sizes(store: ObjectStore) -> dict[str, int]:
    """The size of every object below the prefix, by its key."""
    sizes: dict[str, int] = {}
    after = ""
    while part := await store.list_objects(after=after, limit=MAX_LISTED_KEYS):
        sizes |= {item.key: item.size for item in part}
        after = part[-1].key
    return sizes


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Run `work` on every item, on several at once; the first failure stops all."""
    rest = iter(items)

    async def worker() -> None:
        for item in rest:
            await work(item)

    tasks = [asyncio.create_task(worker()) for _ in range(MAX_FILES_AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
