"""Deletes the text of removed pages from the files of an index, not only from its results.

Tantivy marks a deleted document and keeps its text until it merges the segment. After a removal by the operator each
server merges its small segments that have deleted documents, whatever deleted them: an older copy of the page may be
among them. The engine stores the number of the last removal that was purged, so a server that was down or is killed
purges when it is back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from usher.index.engine import PURGED_REMOVAL, Engine
from usher.telemetry import Log

log = Log("index")
FIRST_RETRY_SECONDS: Final = 5.0  # Tantivy merges in the background; doubled after each attempt
MAX_RETRY_SECONDS: Final = 600.0
Write = Callable[[Callable[[], bool]], Awaitable[bool]]


class RemovedTextPurge:
    """The purge of one server; `step` is called while the index is quiet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._purged: int | None = None  # the number of the removal; None until it is read
        self._next_attempt = 0.0
        self._pause = FIRST_RETRY_SECONDS

    def forget(self) -> None:
        """A removed page was deleted only now: purge again. Called in the writer's thread."""
        self._engine.write_state(PURGED_REMOVAL, "")
        self._purged = 0

    async def step(self, removal: int, write: Write) -> None:
        """Purge if this removal, or one before it, was not purged; `write` runs a function in the writer's thread."""
        now = asyncio.get_running_loop().time()
        if now < self._next_attempt or (self._purged is not None and removal <= self._purged):
            return
        if not await write(partial(self._needs_purge, removal)):
            return
        if await write(self._engine.merge_deleted):
            self._next_attempt, self._pause = (
                now + self._pause,
                min(2 * self._pause, MAX_RETRY_SECONDS),
            )
            return
        await write(partial(self._finish, removal))
        self._next_attempt, self._pause = 0.0, FIRST_RETRY_SECONDS

    def _needs_purge(self, removal: int) -> bool:
        if self._purged is None:
            state = self._engine.read_state(PURGED_REMOVAL)
            self._purged = int(state) if state.isdecimal() else 0
        return removal > self._purged

    def _finish(self, removal: int) -> bool:
        """Store that this removal is purged, and log what is left of it."""
        if kept := self._engine.deleted_documents():
            hint = "docs/remove.md#what-is-not-purged"
            log.warning("deleted_text_kept", documents=kept, hint=hint)
        self._engine.write_state(PURGED_REMOVAL, str(removal))
        self._purged = removal
        log.info("removed_text_purged", removal=removal)
        return True
