"""Deletes chunk files from the object store that no component needs any more; the leading watchdog runs it.

An object is first reserved in the database, so that no component uploads it again, then deleted, then forgotten. A
watchdog that is killed in between repeats the deletion, which is idempotent. Each round reads a bounded part of
`work.chunk_object` and lists nothing: MGMT stores a row before each upload, so every object has one.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from usher.background import wait_up_to
from usher.db.clock import DatabaseClock
from usher.db.pool import CONFLICT_ERRORS, Connection, stay_connected
from usher.errors import UsherError
from usher.mgmt import chunk_objects
from usher.mgmt.chunk_objects import FIRST_OBJECT, ChunkObject
from usher.mgmt.store_owner import check_owner
from usher.object_store.store import ObjectStore
from usher.telemetry import DELETED_OBJECTS, Log

log = Log("store")
SWEEP_SECONDS: Final = 10.0
OBJECTS_PER_PAGE: Final = 1_000
MAX_PAGES_PER_SWEEP: Final = 50
# An attempt to upload ends after half of this time; the component that repeats it asks for another URL.
UPLOAD_GRACE: Final = timedelta(hours=1)


class ObjectSweep:
    """Sweeps while `is_leading`; `problem` says why the store cannot be used, and is empty while it can."""

    def __init__(
        self,
        store: ObjectStore,
        clock: DatabaseClock,
        *,
        is_leading: Callable[[], bool],
        seconds: float = SWEEP_SECONDS,
        grace: timedelta = UPLOAD_GRACE,
    ) -> None:
        self.problem = ""
        self._store, self._clock = store, clock
        self._is_leading, self._seconds, self._grace = is_leading, seconds, grace
        self._last = FIRST_OBJECT

    async def run(self, dsn: str, stop: asyncio.Event, *, role: str = "") -> None:
        """Sweep until `stop` is set; reconnects when the database is lost."""

        async def work(conn: Connection) -> None:
            while not await wait_up_to(self._seconds, stop):
                if self._is_leading():
                    await self.sweep(conn)

        await stay_connected(dsn, work, stop, role=role, patience=self._seconds)

    async def sweep(self, conn: Connection) -> int:
        """Check the store, and that it is ours, and delete unneeded objects; returns how many."""
        deleted, problem = 0, ""
        try:
            await check_owner(conn, self._store)
            deleted = await self._delete_unneeded(conn)
        except UsherError as error:
            problem = error.message
        except CONFLICT_ERRORS as error:
            log.warning("sweep_cut_short", reason=error.diag.message_primary)
        if problem and not self.problem:
            log.error("store_unusable", reason=problem)
        if deleted:
            log.info("objects_deleted", objects=deleted)
        self.problem = problem
        return deleted

    async def _delete_unneeded(self, conn: Connection) -> int:
        """Continue with the next objects; after a page with deletions, with further pages."""
        deleted = 0
        for _ in range(MAX_PAGES_PER_SWEEP):
            latest = self._clock.now() - self._grace
            page = await chunk_objects.page_of_objects(
                conn, self._last, latest_request=latest, n=OBJECTS_PER_PAGE
            )
            if page.unneeded:
                deleted += await self._delete(conn, page.unneeded, latest)
            self._last = page.last or FIRST_OBJECT
            if page.last is None or not page.unneeded:
                break
        return deleted

    async def _delete(self, conn: Connection, unneeded: list[ChunkObject], latest: datetime) -> int:
        async with conn.transaction():
            marked = await chunk_objects.mark_unneeded(conn, unneeded, latest_request=latest)
        if not marked:
            return 0
        await self._store.delete([file.key for file in marked])
        async with conn.transaction():
            await chunk_objects.forget_deleted(conn, marked)
        DELETED_OBJECTS.inc(len(marked))
        return len(marked)
