"""Record crashes of role processes as events, so that `usher status` and `usher components events` show them."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import psycopg

from usher.db.pool import Database
from usher.db.statements import load_statements
from usher.errors import UsherError
from usher.local.ports import LOOPBACK, Ports
from usher.mgmt import components
from usher.mgmt.components import NewEvent
from usher.telemetry import Log

store = load_statements(__file__)
log = Log("stage")
CRASHED: Final = "crashed"  # the kind of the event; `usher status` looks for it
RETRY_SECONDS: Final = 1.0
LAST_SECONDS: Final = 2.0  # for the records that are left when the stack stops
# Process → roles and types of its components.
PROCESS_COMPONENTS: Final = {
    "crawler": (("crawler", "crawler"),),
    "builder": (("builder", "index-builder"),),
    "search": (("server", "index-server"), ("front", "front-end")),
    "mgmt": (),
}


@dataclass(frozen=True, slots=True)
class ProcessCrash:
    """A process that crashed, how, when by the clock of the database, and its log."""

    process: str
    how: str
    at: datetime
    log: Path


class CrashRecorder:
    """Stores crashes; repeats it while the database is down, which may be why a process crashed."""

    def __init__(self, db: Database) -> None:
        self.ports = Ports()
        self._db = db
        self._crashes: asyncio.Queue[ProcessCrash] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="crash recorder")
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._crashes.join()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add(self, process: str, how: str, file: Path) -> None:
        self._crashes.put_nowait(ProcessCrash(process, how, self._db.clock.now(), file))

    async def _run(self) -> None:
        while True:
            crash = await self._crashes.get()
            while not await self._is_stored(crash):  # noqa: ASYNC110 - a retry, not a condition
                await asyncio.sleep(RETRY_SECONDS)
            self._crashes.task_done()

    async def _is_stored(self, crash: ProcessCrash) -> bool:
        hosts, types = self._addresses(crash.process)
        try:
            async with self._db.transaction() as conn:
                ids = await store.component_of_process.column(conn, hosts=hosts, types=types)
                component = ids[0] if ids else None
                reason = f"{crash.how}; see {crash.log}"
                event = NewEvent(crash.at, CRASHED, component, crash.process, reason=reason)
                await components.add_events(conn, event)
        except (UsherError, psycopg.Error, OSError) as error:
            log.warning("crash_not_recorded", part=crash.process, error=str(error))
            return False
        return True

    def _addresses(self, process: str) -> tuple[Sequence[str], Sequence[str]]:
        parts = PROCESS_COMPONENTS[process]
        hosts = [f"{LOOPBACK}:{getattr(self.ports, role)}" for role, _ in parts]
        return hosts, [type_ for _, type_ in parts]
