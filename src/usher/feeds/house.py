"""The databases that feeds are in: their own area, the queue's, and the door's.

Comes from settings; goes to whoever subscribes or polls. Where feeds and queue share a database, both are written in
one transaction. Where they do not, the queue is written first and in full: whoever is killed in between does the same
again, for the feed still says what it said before.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from usher.areas import Area, Places, places
from usher.db import Connection, Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.schema import migrate
from usher.schema.roles import may_take
from usher.schema.state import state
from usher.settings import Settings
from usher.statements import beside

store = beside(__file__)

FEEDS, QUEUE, DOOR = "usher_feeds", "usher_manager", "usher_door"
NEEDED: Final = ("feeds", "control", "work")
CONNECTIONS: Final = 2  # a poll does one thing after the other


@dataclass(frozen=True, slots=True)
class House:
    """The feeds' database, and the ways to the others."""

    search: Database
    control: Database | None  # None where it is the same
    roles: tuple[str, str]
    work: str
    patience: float

    @asynccontextmanager
    async def queue(self, conn: Connection) -> AsyncIterator[Connection]:
        """The queue, within the transaction of this connection if that can be."""
        if self.control is not None:
            async with self.control.transaction() as other:
                yield other
            return
        ours, theirs = self.roles
        await store.act_as.tuples(conn, role=theirs or "none")
        yield conn
        await store.act_as.tuples(conn, role=ours or "none")

    @asynccontextmanager
    async def door(self) -> AsyncIterator[Doorkeeper]:
        role = await taken(self.work, DOOR, self.patience)
        async with Database(self.work, size=CONNECTIONS, patience=self.patience, role=role) as db:
            yield Doorkeeper(db)


@asynccontextmanager
async def opened(settings: Settings, *, ready: bool = True) -> AsyncIterator[House]:
    """The house while it is needed; unless it is `ready` its tables are brought up to date where they are ours."""
    patience = settings.connect_timeout
    with places(settings) as found:
        if not ready:
            await make_ready(found, NEEDED, patience)
        search, control = found.dsns[Area.SEARCH], found.dsns[Area.CONTROL]
        ours = await taken(search, FEEDS, patience)
        theirs = await taken(control, QUEUE, patience)
        async with Database(search, size=CONNECTIONS, patience=patience, role=ours) as db:
            work = found.dsns[Area.WORK]
            if search == control:
                yield House(db, None, (ours, theirs), work, patience)
                return
            queue = Database(control, size=CONNECTIONS, patience=patience, role=theirs)
            async with queue:
                yield House(db, queue, (ours, theirs), work, patience)


async def taken(dsn: str, role: str, patience: float) -> str:
    """The role to work under, if we may."""
    async with await connect(dsn, patience=patience) as conn:
        return role if await may_take(conn, role) else ""


async def make_ready(found: Places, schemas: Sequence[str], patience: float) -> None:
    """Bring schemas up to date where they are behind."""
    for schema in schemas:
        async with await connect(found.dsn(schema), patience=patience) as conn:
            current = (await state(conn, schema)).current
        if not current:
            await migrate.ensure(found, migrate.ALL if found.owned(schema) else (schema,))
