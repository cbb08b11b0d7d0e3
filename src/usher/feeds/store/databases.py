"""The databases that feeds are in: their own area, the queue's, and the door's.

Comes from settings; goes to whoever subscribes or polls. Where feeds and queue share a database, both are written in
one transaction. Where they do not, the queue is written first and in full: whoever is killed in between does the same
again, for the feed still says what it said before.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from usher.db.areas import Area, AreaDatabases, open_areas
from usher.db.pool import Connection, Database, connect
from usher.db.statements import load_statements
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadSetting
from usher.feeds.websub.rules import usable
from usher.private_hosts import Allowed, parse
from usher.schema import migrate
from usher.schema.roles import may_set_role
from usher.schema.state import schema_state
from usher.settings import Settings

store = load_statements(__file__)

FEEDS, QUEUE, DOOR = "usher_feeds", "usher_manager", "usher_door"
NEEDED: Final = ("feeds", "control", "work")
CONNECTIONS: Final = 2  # a poll does one thing after the other


@dataclass(slots=True)
class Way:
    """The way to the door, kept open once somebody went it, as long as the house is."""

    kept: AsyncExitStack
    keeper: Doorkeeper | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class House:
    """The feeds' database, and the ways to the others."""

    search: Database
    control: Database | None  # None where it is the same
    roles: tuple[str, str]
    work: str
    patience: float
    callback: str = ""  # where hubs reach us, if they are to
    way: Way | None = None  # without it the door is opened anew each time
    allowed: Allowed = Allowed()  # noqa: RUF009 - frozen

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
        way = self.way
        if way is None:
            async with AsyncExitStack() as here:
                yield await self._open(here)
            return
        async with way.opening:
            way.keeper = way.keeper or await self._open(way.kept)
        yield way.keeper

    async def _open(self, ends: AsyncExitStack) -> Doorkeeper:
        role = await taken(self.work, DOOR, self.patience)
        db = Database(self.work, size=CONNECTIONS, patience=self.patience, role=role)
        return Doorkeeper(await ends.enter_async_context(db), self.allowed)

    @asynccontextmanager
    async def jobs(self) -> AsyncIterator[Database]:
        """The queue by itself, for whoever takes jobs of it."""
        if self.control is not None:
            yield self.control
            return
        dsn, role = self.search.dsn, self.roles[1]
        async with Database(dsn, size=1, patience=self.patience, role=role) as db:
            yield db


@asynccontextmanager
async def opened(settings: Settings, *, ready: bool = True) -> AsyncIterator[House]:
    """The house while it is needed; unless it is `ready` its tables are brought up to date where they are ours."""
    patience, callback = settings.connect_timeout, callback_of(settings)
    with open_areas(settings) as found:
        if not ready:
            await make_ready(found, NEEDED, patience)
        search, control = found.dsns[Area.SEARCH], found.dsns[Area.CONTROL]
        ours, theirs = await roles_at(search, control, patience)
        async with AsyncExitStack() as ends:
            db = Database(search, size=CONNECTIONS, patience=patience, role=ours)
            queue = Database(control, size=CONNECTIONS, patience=patience, role=theirs)
            await ends.enter_async_context(db)
            apart = None if search == control else await ends.enter_async_context(queue)
            work, way = found.dsns[Area.WORK], Way(ends)
            allowed = parse(settings.allow_private)
            yield House(db, apart, (ours, theirs), work, patience, callback, way, allowed)


def callback_of(settings: Settings) -> str:
    """The address at which hubs reach us; none if nobody said so."""
    text = settings.websub_url
    if text and not usable(text):
        hint = "As in https://feeds.example.com; /websub/… there must lead to MGMT."
        raise BadSetting(f"websub_url cannot be {text[:100]!a}: it is no URL.", hint=hint)
    return text.rstrip("/")


async def roles_at(search: str, control: str, patience: float) -> tuple[str, str]:
    """The roles to work under, asked for with one connection where that is enough: each costs as much as a poll."""
    if search != control:
        return await taken(search, FEEDS, patience), await taken(control, QUEUE, patience)
    async with await connect(search, patience=patience) as conn:
        ours, theirs = [role if await may_set_role(conn, role) else "" for role in (FEEDS, QUEUE)]
        return ours, theirs


async def taken(dsn: str, role: str, patience: float) -> str:
    """The role to work under, if we may."""
    async with await connect(dsn, patience=patience) as conn:
        return role if await may_set_role(conn, role) else ""


async def make_ready(found: AreaDatabases, schemas: Sequence[str], patience: float) -> None:
    """Bring schemas up to date where they are behind."""
    for schema in schemas:
        async with await connect(found.dsn(schema), patience=patience) as conn:
            current = (await schema_state(conn, schema)).current
        if not current:
            await migrate.ensure(
                found, migrate.ALL_SCHEMAS if found.is_embedded(schema) else (schema,)
            )
