"""Deletes the text of removed pages from the files of an index, not only from its results.

Tantivy marks a deleted document and keeps its text until it merges the segment. After a removal by the operator each
server merges its small segments that have deleted documents, whatever deleted them: an older copy of the page may be
among them. The number of the last removal that was purged is in a file, so a server that was down or is killed purges
when it is back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from usher.chunk_store import translate_disk_errors
from usher.index.engine import Engine
from usher.private_files import write_file
from usher.telemetry import Log

log = Log("index")
FILE: Final = "purged_removal"
FIRST_RETRY_SECONDS: Final = 5.0  # Tantivy merges in the background; doubled after each attempt
MAX_RETRY_SECONDS: Final = 600.0
Write = Callable[[Callable[[], bool]], Awaitable[bool]]


class RemovedTextPurge:
    """The purge of one server; `step` is called while the index is quiet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._path = engine.path.parent / FILE
        self._purged = self._read()
        self._next_attempt = 0.0
        self._pause = FIRST_RETRY_SECONDS

    def forget(self) -> None:
        """A removed page was deleted only now: purge again."""
        self._purged = 0
        with translate_disk_errors(self._path):
            self._path.unlink(missing_ok=True)

    async def step(self, removal: int, write: Write) -> None:
        """Purge if this removal, or one before it, was not purged; `write` runs a function in the writer's thread."""
        now = asyncio.get_running_loop().time()
        if removal <= self._purged or now < self._next_attempt:
            return
        if await write(self._engine.merge_deleted):
            self._next_attempt, self._pause = (
                now + self._pause,
                min(2 * self._pause, MAX_RETRY_SECONDS),
            )
            return
        if kept := self._engine.deleted_in_large_segments():
            hint = "docs/remove.md#what-is-not-purged"
            log.warning("deleted_text_kept", documents=kept, hint=hint)
        self._next_attempt, self._pause = 0.0, FIRST_RETRY_SECONDS
        await asyncio.to_thread(self._store, removal)
        log.info("removed_text_purged", removal=removal)

    def _read(self) -> int:
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    def _store(self, removal: int) -> None:
        with translate_disk_errors(self._path):
            write_file(self._path, str(removal).encode("ascii"))
        self._purged = removal
