"""The way from `usher status` to the databases: both areas looked at, and what is around them.

Commands import this when they run, because it brings the driver along.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from usher.cli.app import App
from usher.cli.area_access import POOL_SIZE, prepare_schema
from usher.db.areas import Places, places
from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database, connect
from usher.observe.blockers import Blocker, SystemState, find_blockers
from usher.observe.stages import QueueStatus, WorkStatus, read_queue, read_work
from usher.schema.state import state
from usher.settings import Settings

READER = "usher_reader"
AREAS = ("work", "control")


@dataclass(frozen=True, slots=True)
class StatusReport:
    """All that was seen at a moment; an area whose schema is out of date was not looked at."""

    at: datetime
    work: WorkStatus | None
    queue: QueueStatus | None
    blockers: Sequence[Blocker]


@dataclass(slots=True)
class StatusReader:
    """The databases that can be looked at, and what is around them."""

    settings: Settings
    areas: dict[str, Database]
    behind: dict[str, int]
    ahead: list[str]

    async def look(self) -> StatusReport:
        """One look, for each database in one transaction that only reads."""
        clock = next((db.clock for db in self.areas.values()), DatabaseClock())
        now, work, queue = clock.now(), None, None
        if "work" in self.areas:
            async with read_transaction(self.areas["work"]) as conn:
                work = await read_work(conn, now=now)
        if "control" in self.areas:
            async with read_transaction(self.areas["control"]) as conn:
                queue = await read_queue(conn, now=now)
        skew = clock.skew.total_seconds()
        around = SystemState(self.behind, self.ahead, free_space(self.settings), skew)
        return StatusReport(now, work, queue, find_blockers(around, work, queue, now))


@asynccontextmanager
async def open_reader(app: App) -> AsyncIterator[StatusReader]:
    """A window on both areas; starts the embedded server if one lives there."""
    settings = app.settings
    with places(settings) as found:
        async with AsyncExitStack() as stack:
            view = StatusReader(settings, {}, {}, [])
            for schema in AREAS:
                if await is_current(found, schema, view):
                    db = await open_area(found, schema, settings)
                    view.areas[schema] = await stack.enter_async_context(db)
            yield view


async def is_current(found: Places, schema: str, view: StatusReader) -> bool:
    """Whether a schema can be looked at; one in the embedded server will be brought up to date."""
    patience = view.settings.connect_timeout
    async with await connect(found.dsn(schema), patience=patience) as conn:
        known = await state(conn, schema)
    if known.unknown:
        view.ahead.append(schema)
    elif known.pending and not found.owned(schema):
        view.behind[schema] = len(known.pending)
    else:
        return True
    return False


async def open_area(found: Places, schema: str, settings: Settings) -> Database:
    role = await prepare_schema(found, schema, READER, settings.connect_timeout)
    patience = settings.connect_timeout
    return Database(found.dsn(schema), size=POOL_SIZE, patience=patience, role=role)


@asynccontextmanager
async def read_transaction(db: Database) -> AsyncIterator[Connection]:
    async with db.transaction() as conn:
        await conn.execute("set transaction isolation level repeatable read, read only")
        yield conn


def free_space(settings: Settings) -> int | None:
    """Bytes left where our files are; None if none are."""
    return shutil.disk_usage(settings.data).free if settings.data.exists() else None
