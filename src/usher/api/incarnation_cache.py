"""The incarnation of the database, read at most once a second."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import psycopg

from usher.db.pool import Database
from usher.errors import UsherError
from usher.mgmt import incarnation
from usher.mgmt.incarnation import Incarnation
from usher.telemetry import Log

log = Log("web")
FRESH_SECONDS: Final = 1.0
REWOUND_REASON: Final = "MGMT saw that the database went back in time"


class IncarnationCache:
    """One for each process. It calls `changed` when the database has a new incarnation."""

    def __init__(
        self, db: Database, changed: Callable[[], None], *, fresh_seconds: float = FRESH_SECONDS
    ) -> None:
        self._db, self._changed, self._fresh_seconds = db, changed, fresh_seconds
        self._lock = asyncio.Lock()
        self._read_at = -fresh_seconds
        self._latest: Incarnation | None = None

    async def id(self) -> str:
        """The id, at most a second old; the latest one while the database does not answer."""
        if time.monotonic() - self._read_at >= self._fresh_seconds and not self._lock.locked():
            async with self._lock:
                self._read_at = time.monotonic()
                try:
                    await self._read()
                except (psycopg.Error, UsherError) as error:
                    log.warning("incarnation_unknown", error=str(error).strip())
        return self._latest.id if self._latest else ""

    async def _read(self) -> None:
        before = self._latest
        async with self._db.connection() as conn:
            present = await incarnation.current(conn)
            if before and before.id == present.id and present.last_chunk < before.last_chunk:
                # Chunk ids only grow: the operator restored the database without `usher db incarnate`.
                await incarnation.begin(conn, REWOUND_REASON)
                log.error("database_rewound", chunk=present.last_chunk, before=before.last_chunk)
                present = await incarnation.current(conn)
        if before and before.id != present.id:
            log.warning("new_incarnation", incarnation=present.id)
            self._changed()
        self._latest = present
