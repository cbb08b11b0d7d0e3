"""Opens the feeds' databases at the first request, so that MGMT starts without them."""

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
    """The databases, and a pool of read-only connections."""

    databases: FeedDatabases
    reader: Database


class LazyDatabases:
    """Opens the databases once; requests that waited for a failed attempt share its error."""

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._lock = asyncio.Lock()
        self._opened: OpenDatabases | None = None
        self._failed: tuple[float, UsherError] | None = None

    async def databases(self) -> FeedDatabases:
        return (await self._open()).databases

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """A read-only transaction that sees one state of the database."""
        opened = await self._open()
        async with opened.reader.transaction() as conn:
            await conn.execute("set transaction isolation level repeatable read, read only")
            yield conn

    async def _open(self) -> OpenDatabases:
        requested_at = time.monotonic()
        async with self._lock:
            if self._opened is None:
                self._opened = await self._try(requested_at)
            return self._opened

    async def _try(self, requested_at: float) -> OpenDatabases:
        """Open the databases, unless an attempt failed after the request came in."""
        if self._failed is not None and requested_at < self._failed[0]:
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
        reader = Database(dsn, size=size, patience=patience, role=role)
        return OpenDatabases(databases, await stack.enter_async_context(reader))
