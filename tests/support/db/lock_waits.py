"""Calls that wait for a lock: start one, and continue only when PostgreSQL says that it waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from usher.db.pool import Connection

T = TypeVar("T")
WAIT_SECONDS = 30.0
BLOCKED = """
    select count(*) from pg_stat_activity
    where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0
"""


async def until_blocked(watcher: Connection, sessions: int = 1) -> None:
    """Return when so many sessions of this database wait for locks of others."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            rows = await watcher.execute(BLOCKED)
            if (await rows.fetchone() or (0,))[0] >= sessions:
                return
            await asyncio.sleep(0.01)


async def start_blocked(watcher: Connection, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a call and return when it waits for a lock; fails if it ends without waiting."""
    task = asyncio.create_task(call)
    blocked = asyncio.create_task(until_blocked(watcher))
    await asyncio.wait({task, blocked}, return_when=asyncio.FIRST_COMPLETED)
    if not blocked.done():
        blocked.cancel()
        raise AssertionError(f"the call did not wait for a lock: {task.result()!r}")
    await blocked
    return task
