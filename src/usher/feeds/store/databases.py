"""Opens the databases that feeds use: their own, the queue's and the door's.

Where feeds and the queue share a database, one transaction writes both. Otherwise the queue is written first and
committed; a process that is killed in between repeats the work, because the feed's row is unchanged.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from usher.db.areas import Area, AreaDatabases, open_areas
from usher.db.pool import Connection, Database, connect
from usher.db.statements import load_statements
from usher.door import private_access
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadSetting, Unreachable
from usher.feeds.websub.rules import is_usable_url
from usher.private_hosts import AllowList, HostPermission, name_and_port, parse_allow_list
from usher.schema import migrate
from usher.schema.roles import may_set_role
from usher.schema.state import schema_state
from usher.settings import Settings
from usher.urls import Url

store = load_statements(__file__)

FEEDS_ROLE, QUEUE_ROLE, DOOR_ROLE = "usher_feeds", "usher_manager", "usher_door"
SCHEMAS: Final = ("feeds", "control", "work")
CONNECTIONS: Final = 2  # a poll runs its statements one after the other


@dataclass(slots=True)
class DoorConnection:
    """The door, opened at the first knock and kept open until the stack closes."""

    stack: AsyncExitStack
    doorkeeper: Doorkeeper | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class FeedDatabases:
    """The feeds' database and how to connect to the others."""

    search: Database
    control: Database | None  # None if it is the same database
    roles: tuple[str, str]  # for feeds and for the queue
    work_dsn: str
    connect_timeout: float
    callback_url: str = ""  # where hubs reach MGMT; empty disables WebSub
    door_connection: DoorConnection | None = None  # None opens the door for each use
    allowed_hosts: AllowList = AllowList()  # noqa: RUF009 - frozen

    @asynccontextmanager
    async def queue(self, conn: Connection) -> AsyncIterator[Connection]:
        """A connection to the queue, in the transaction of `conn` if both share a database."""
        if self.control is not None:
            async with self.control.transaction() as queue:
                yield queue
            return
        feeds_role, queue_role = self.roles
        await store.act_as.tuples(conn, role=queue_role or "none")
        yield conn
        await store.act_as.tuples(conn, role=feeds_role or "none")

    @asynccontextmanager
    async def door(self) -> AsyncIterator[Doorkeeper]:
        """The door; fails with Unreachable if its database does not answer."""
        shared = self.door_connection
        if shared is None:
            async with AsyncExitStack() as stack:
                yield await self._open_door(stack)
            return
        async with shared.lock:
            shared.doorkeeper = shared.doorkeeper or await self._open_door(shared.stack)
        yield shared.doorkeeper

    async def _open_door(self, stack: AsyncExitStack) -> Doorkeeper:
        timeout = self.connect_timeout
        role = await available_role(self.work_dsn, DOOR_ROLE, timeout)
        db = Database(self.work_dsn, size=CONNECTIONS, patience=timeout, role=role)
        return Doorkeeper(await stack.enter_async_context(db), self.allowed_hosts)

    async def host_permission(self, url: Url) -> HostPermission | None:
        """The operator's stored permission to connect to the host and port of a URL; None without a door."""
        name, port = name_and_port(url)
        try:
            async with self.door() as door, door.db.transaction() as conn:
                granted = await private_access.of_host(conn, url.host)
        except Unreachable:
            return None
        for access in granted:
            if access.port == port:
                return HostPermission(name, port, tuple(map(str, access.addresses)))
        return None

    @asynccontextmanager
    async def jobs(self) -> AsyncIterator[Database]:
        """The queue with its own connection, for claiming jobs."""
        if self.control is not None:
            yield self.control
            return
        dsn, role = self.search.dsn, self.roles[1]
        async with Database(dsn, size=1, patience=self.connect_timeout, role=role) as db:
            yield db


@asynccontextmanager
async def open_databases(settings: Settings, *, ready: bool = True) -> AsyncIterator[FeedDatabases]:
    """Open the databases; unless they are `ready`, migrate outdated schemas of ours first."""
    timeout, callback = settings.connect_timeout, callback_url(settings)
    with open_areas(settings) as areas:
        if not ready:
            await migrate_outdated(areas, SCHEMAS, timeout)
        search, control = areas.dsns[Area.SEARCH], areas.dsns[Area.CONTROL]
        feeds_role, queue_role = await available_roles(search, control, timeout)
        async with AsyncExitStack() as stack:
            db = Database(search, size=CONNECTIONS, patience=timeout, role=feeds_role)
            await stack.enter_async_context(db)
            queue = None
            if search != control:
                queue = Database(control, size=CONNECTIONS, patience=timeout, role=queue_role)
                await stack.enter_async_context(queue)
            yield FeedDatabases(
                db,
                queue,
                (feeds_role, queue_role),
                areas.dsns[Area.WORK],
                timeout,
                callback,
                DoorConnection(stack),
                parse_allow_list(settings.allow_private),
            )


def callback_url(settings: Settings) -> str:
    """The address at which hubs reach MGMT; empty if the operator set none."""
    url = settings.websub_url
    if url and not is_usable_url(url):
        hint = "As in https://feeds.example.com; /websub/… there must lead to MGMT."
        raise BadSetting(f"websub_url is not a URL: {url[:100]!a}.", hint=hint)
    return url.rstrip("/")


async def available_roles(search: str, control: str, connect_timeout: float) -> tuple[str, str]:
    """The roles for feeds and queue; one connection checks both if they share a database."""
    if search != control:
        feeds_role = await available_role(search, FEEDS_ROLE, connect_timeout)
        return feeds_role, await available_role(control, QUEUE_ROLE, connect_timeout)
    async with await connect(search, patience=connect_timeout) as conn:
        feeds_role = FEEDS_ROLE if await may_set_role(conn, FEEDS_ROLE) else ""
        return feeds_role, QUEUE_ROLE if await may_set_role(conn, QUEUE_ROLE) else ""


async def available_role(dsn: str, role: str, connect_timeout: float) -> str:
    """The role if this user may take it, else an empty string."""
    async with await connect(dsn, patience=connect_timeout) as conn:
        return role if await may_set_role(conn, role) else ""


async def migrate_outdated(
    areas: AreaDatabases, schemas: Sequence[str], connect_timeout: float
) -> None:
    """Migrate those of the schemas with which this program does not work."""
    for schema in schemas:
        async with await connect(areas.dsn(schema), patience=connect_timeout) as conn:
            current = (await schema_state(conn, schema)).usable
        if not current:
            await migrate.ensure(
                areas, migrate.ALL_SCHEMAS if areas.is_embedded(schema) else (schema,)
            )
