"""Read the state of both areas for `usher status`, with the schemas, the disk and the clock around them."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from usher.cli.app import App
from usher.cli.area_access import POOL_SIZE, READER, prepare_schema
from usher.db.areas import AreaDatabases, open_areas
from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database, connect
from usher.observe.blockers import Blocker, SystemState, find_blockers
from usher.observe.stages import QueueStatus, WorkStatus, read_queue, read_work
from usher.schema.state import schema_state
from usher.settings import Settings

AREAS = ("work", "control")


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The state at one moment; None for an area whose schema is out of date."""

    at: datetime
    work: WorkStatus | None
    queue: QueueStatus | None
    blockers: Sequence[Blocker]


@dataclass(slots=True)
class StatusReader:
    """The databases that can be read, and the schemas that are behind or ahead of this program."""

    settings: Settings
    areas: dict[str, Database]
    behind: dict[str, int]
    ahead: list[str]

    async def read(self) -> StatusReport:
        """Read each database in one read-only transaction."""
        clock = next((db.clock for db in self.areas.values()), DatabaseClock())
        now, work, queue = clock.now(), None, None
        if "work" in self.areas:
            async with read_transaction(self.areas["work"]) as conn:
                work = await read_work(conn, now=now)
        if "control" in self.areas:
            async with read_transaction(self.areas["control"]) as conn:
                queue = await read_queue(conn, now=now)
        data = self.settings.data
        free = shutil.disk_usage(data).free if data.exists() else None
        system = SystemState(self.behind, self.ahead, free, clock.skew.total_seconds())
        return StatusReport(now, work, queue, find_blockers(system, work, queue, now))


@asynccontextmanager
async def open_reader(app: App) -> AsyncIterator[StatusReader]:
    settings = app.settings
    with open_areas(settings) as areas:
        async with AsyncExitStack() as stack:
            reader = StatusReader(settings, {}, {}, [])
            for schema in AREAS:
                if await is_current(areas, schema, reader):
                    seconds = settings.connect_timeout
                    role = await prepare_schema(areas, schema, READER, seconds)
                    dsn = areas.dsn(schema)
                    db = Database(dsn, size=POOL_SIZE, patience=seconds, role=role)
                    reader.areas[schema] = await stack.enter_async_context(db)
            yield reader


async def is_current(areas: AreaDatabases, schema: str, reader: StatusReader) -> bool:
    """Whether a schema can be read; one of the embedded server is migrated before it is read."""
    seconds = reader.settings.connect_timeout
    async with await connect(areas.dsn(schema), patience=seconds) as conn:
        version = await schema_state(conn, schema)
    if version.unknown:
        reader.ahead.append(schema)
    elif version.pending and not areas.is_embedded(schema):
        reader.behind[schema] = len(version.pending)
    else:
        return True
    return False


@asynccontextmanager
async def read_transaction(db: Database) -> AsyncIterator[Connection]:
    async with db.transaction() as conn:
        await conn.execute("set transaction isolation level repeatable read, read only")
        yield conn
