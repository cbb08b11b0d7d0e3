"""The way from `usher status` to the databases: both areas looked at, and what is around them.

Commands import this when they run, because it brings the driver along.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from usher.cli.app import App
from usher.cli.area_access import CONNECTIONS, made_ready
from usher.db.areas import AreaDatabases, open_areas
from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database, connect
from usher.observe.blockers import Around, Holdup, holdups
from usher.observe.stages import Queue, Work, look_at_queue, look_at_work
from usher.schema.state import schema_state
from usher.settings import Settings

READER = "usher_reader"
AREAS = ("work", "control")


@dataclass(frozen=True, slots=True)
class Status:
    """All that was seen at a moment; an area whose schema is out of date was not looked at."""

    at: datetime
    work: Work | None
    queue: Queue | None
    holdups: Sequence[Holdup]


@dataclass(slots=True)
class Window:
    """The databases that can be looked at, and what is around them."""

    settings: Settings
    areas: dict[str, Database]
    behind: dict[str, int]
    ahead: list[str]

    async def look(self) -> Status:
        """One look, for each database in one transaction that only reads."""
        clock = next((db.clock for db in self.areas.values()), DatabaseClock())
        now, work, queue = clock.now(), None, None
        if "work" in self.areas:
            async with reading(self.areas["work"]) as conn:
                work = await look_at_work(conn, now=now)
        if "control" in self.areas:
            async with reading(self.areas["control"]) as conn:
                queue = await look_at_queue(conn, now=now)
        skew = clock.skew.total_seconds()
        around = Around(self.behind, self.ahead, free_space(self.settings), skew)
        return Status(now, work, queue, holdups(around, work, queue, now))


@asynccontextmanager
async def window(app: App) -> AsyncIterator[Window]:
    """A window on both areas; starts the embedded server if one lives there."""
    settings = app.settings
    with open_areas(settings) as found:
        async with AsyncExitStack() as stack:
            view = Window(settings, {}, {}, [])
            for schema in AREAS:
                if await current(found, schema, view):
                    db = await opened(found, schema, settings)
                    view.areas[schema] = await stack.enter_async_context(db)
            yield view


async def current(found: AreaDatabases, schema: str, view: Window) -> bool:
    """Whether a schema can be looked at; one in the embedded server will be brought up to date."""
    patience = view.settings.connect_timeout
    async with await connect(found.dsn(schema), patience=patience) as conn:
        known = await schema_state(conn, schema)
    if known.unknown:
        view.ahead.append(schema)
    elif known.pending and not found.is_embedded(schema):
        view.behind[schema] = len(known.pending)
    else:
        return True
    return False


async def opened(found: AreaDatabases, schema: str, settings: Settings) -> Database:
    role = await made_ready(found, schema, READER, settings.connect_timeout)
    patience = settings.connect_timeout
    return Database(found.dsn(schema), size=CONNECTIONS, patience=patience, role=role)


@asynccontextmanager
async def reading(db: Database) -> AsyncIterator[Connection]:
    async with db.transaction() as conn:
        await conn.execute("set transaction isolation level repeatable read, read only")
        yield conn


def free_space(settings: Settings) -> int | None:
    """Bytes left where our files are; None if none are."""
    return shutil.disk_usage(settings.data).free if settings.data.exists() else None
