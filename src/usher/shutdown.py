"""Stop events of a process: the first TERM or INT stops it gracefully, the second one at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_events(stop: asyncio.Event | None = None) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Yield the events of the first and the second signal; with `stop`, the caller sets the first one itself."""
    if stop is not None:
        yield stop, asyncio.Event()
        return
    loop = asyncio.get_running_loop()
    events = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        next((event for event in events if not event.is_set()), events[-1]).set()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield events
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
