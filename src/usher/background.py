"""Tasks that run beside a block and end with it, and a wait with a time limit."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from usher.telemetry import Log, log_failure


@asynccontextmanager
async def background_tasks(log: Log, *works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines beside the block and cancel them at its end; a failure is logged at once."""
    tasks = [log_failure(asyncio.create_task(work), log) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_up_to(seconds: float, event: asyncio.Event) -> bool:
    """Wait until the event is set, but no longer than that; return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
