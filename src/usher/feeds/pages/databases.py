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
from usher.feeds.store import databases as houses
from usher.feeds.store.databases import House
from usher.settings import Settings

LOOKS: Final = "usher_reader"
CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Opened:
    """The house, and a pool of those who only look."""

    house: House
    reader: Database


class Reach:
    """The databases; what cannot be opened is tried again, though not by each of many who wait for it."""

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._turn = asyncio.Lock()
        self._opened: Opened | None = None
        self._failed: tuple[float, UsherError] | None = None

    async def house(self) -> House:
        return (await self._open()).house

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Connection]:
        """A connection on which everything is seen as it was at one moment."""
        opened = await self._open()
        async with opened.reader.transaction() as conn:
            await conn.execute("set transaction isolation level repeatable read, read only")
            yield conn

    async def _open(self) -> Opened:
        came = time.monotonic()
        async with self._turn:
            if self._opened is None:
                self._opened = await self._try(came)
            return self._opened

    async def _try(self, came: float) -> Opened:
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

    async def _opened_in(self, stack: AsyncExitStack) -> Opened:
        house = await stack.enter_async_context(houses.opened(self._settings, ready=False))
        dsn, patience = house.search.dsn, house.patience
        role = await houses.taken(dsn, LOOKS, patience)
        size = min(CONNECTIONS, self._settings.pool_size)
        made = Database(dsn, size=size, patience=patience, role=role)
        return Opened(house, await stack.enter_async_context(made))
