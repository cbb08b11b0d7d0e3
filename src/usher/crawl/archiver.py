"""Copies the crawler's WARC files to the archive, and tells which files may be deleted.

While the archive cannot be reached, the crawler continues and its files wait on its disk. A crawler that is killed
archives its files when it starts again.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from usher.chunk_store import ChunkStore
from usher.crawl.warc.archive import WarcArchive, archive_name
from usher.errors import StoreUnusable, Unreachable, UsherError
from usher.telemetry import ARCHIVE_WAITING, ARCHIVED_FILES, Log

log = Log("crawl")
ARCHIVE_SECONDS: Final = 2.0  # between two looks for new files
MAX_PAUSE_SECONDS: Final = 60.0  # after failures
LAST_PASS_SECONDS: Final = 5.0  # when the crawler stops


class Archiver:
    """Archives the files of chunks that the crawler has finished."""

    def __init__(
        self, archive: WarcArchive, store: ChunkStore, busy: Callable[[], Collection[int]]
    ) -> None:
        self._archive, self._store, self._busy = archive, store, busy
        self._archived: set[int] = set()  # of this run: after a restart, files are archived again

    def is_archived(self, chunk: int) -> bool:
        return chunk in self._archived

    async def run(self) -> None:
        """Archive new files until cancelled."""
        pause = ARCHIVE_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                await self.archive_new()
            except UsherError as error:
                log.warning("not_archived", error=error.message)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            else:
                pause = ARCHIVE_SECONDS

    async def finish(self) -> None:
        """Archive what is left, within a few seconds; the rest waits for the next start."""
        try:
            async with asyncio.timeout(LAST_PASS_SECONDS):
                await self.archive_new()
        except (UsherError, TimeoutError) as error:
            log.warning("not_archived", error=str(error) or "the crawler stops")

    async def archive_new(self) -> None:
        """Archive every finished file; a file that cannot be archived waits, and its error is raised at the end."""
        busy = set(self._busy())
        stored = await asyncio.to_thread(self._store.chunks)
        self._archived.intersection_update(stored)
        waiting = {chunk for chunk in stored if chunk not in busy} - self._archived
        problem: UsherError | None = None
        for chunk in sorted(waiting):
            ARCHIVE_WAITING.set(len(waiting - self._archived))
            try:
                await self._archive_chunk(chunk)
            except (Unreachable, StoreUnusable):
                raise
            except UsherError as error:
                problem = problem or error
        ARCHIVE_WAITING.set(len(waiting - self._archived))
        if problem:
            raise problem

    async def _archive_chunk(self, chunk: int) -> None:
        file = await asyncio.to_thread(self._store.find, chunk)
        if file:
            name = archive_name(self._store.directory.name, chunk, file)
            await self._archive.add(name, file)
            ARCHIVED_FILES.inc()
        self._archived.add(chunk)
