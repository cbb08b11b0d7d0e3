"""How an actor is told to stop: once to end in order, twice to end now.

Comes from TERM and INT; goes to the loop that runs the actor, as two events.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_events(
    told_by: asyncio.Event | None = None,
) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events for the first and the second time that somebody says so; the first may be somebody's own."""
    if told_by is not None:
        yield told_by, asyncio.Event()
        return
    loop = asyncio.get_running_loop()
    events = asyncio.Event(), asyncio.Event()

    def told() -> None:
        next((event for event in events if not event.is_set()), events[-1]).set()

    for one in SIGNALS:
        loop.add_signal_handler(one, told)
    try:
        yield events
    finally:
        for one in SIGNALS:
            loop.remove_signal_handler(one)
