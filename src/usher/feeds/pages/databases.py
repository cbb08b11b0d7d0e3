"""The feeds' databases as MGMT has them: opened when somebody first asks, so that MGMT needs none of them to start.

Comes from settings; goes to the pages, which may only look, and to the callback of hubs.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from usher.db.pool import Connection, Database
from usher.errors import UsherError
from usher.feeds.store import databases as feed_databases
from usher.feeds.store.databases import FeedDatabases
from usher.settings import Settings

READER_ROLE: Final = "usher_reader"
CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class OpenDatabases:
    """The databases, and a pool of those who only look."""

    databases: FeedDatabases
    reader: Database


class LazyDatabases:
    """The databases; what cannot be opened is tried again, though not by each of many who wait for it."""

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._turn = asyncio.Lock()
        self._opened: OpenDatabases | None = None
        self._failed: tuple[float, UsherError] | None = None

    async def databases(self) -> FeedDatabases:
        return (await self._open()).databases

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Connection]:
        """A connection on which everything is seen as it was at one moment."""
        opened = await self._open()
        async with opened.reader.transaction() as conn:
            await conn.execute("set transaction isolation level repeatable read, read only")
            yield conn

    async def _open(self) -> OpenDatabases:
        came = time.monotonic()
        async with self._turn:
            if self._opened is None:
                self._opened = await self._try(came)
            return self._opened

    async def _try(self, came: float) -> OpenDatabases:
        """Open them, for one who came then; whoever came while another tried in vain hears what that one heard."""
        if self._failed is not None and came < self._failed[0]:
            raise self._failed[1]
        try:
            async with AsyncExitStack() as stack:
                opened = await self._opened_in(stack)
                self._stack.push_async_exit(stack.pop_all())
                return opened
        except UsherError as error:
            self._failed = time.monotonic(), error
            raise

    async def _opened_in(self, stack: AsyncExitStack) -> OpenDatabases:
        databases = await stack.enter_async_context(
            feed_databases.open_databases(self._settings, ready=False)
        )
        dsn, patience = databases.search.dsn, databases.connect_timeout
        role = await feed_databases.available_role(dsn, READER_ROLE, patience)
        size = min(CONNECTIONS, self._settings.pool_size)
        made = Database(dsn, size=size, patience=patience, role=role)
        return OpenDatabases(databases, await stack.enter_async_context(made))
