"""Two connections at work at once, one of which is held at the critical point."""

import asyncio
from collections.abc import Awaitable

from usher.db.pool import Connection


async def blocked(task: "asyncio.Task[object]", conn: Connection) -> bool:
    """Wait until the task ends, or until a statement of this database waits for a lock; whether one waits."""
    while not task.done():
        rows = await conn.execute(
            "select exists (select from pg_stat_activity "
            "where datname = current_database() and wait_event_type = 'Lock')"
        )
        if (await rows.fetchall())[0][0]:
            return True
        await asyncio.sleep(0.01)
    return False


async def in_transaction(conn: Connection, work: Awaitable[object]) -> object:
    async with conn.transaction():
        return await work
