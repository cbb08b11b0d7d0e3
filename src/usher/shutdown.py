"""Stop events of a process: the first TERM or INT stops it gracefully, the second one at once."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_events(stop: asyncio.Event | None = None) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Yield the events of the first and the second signal; with `stop`, the caller sets the first one itself."""
    if stop is not None:
        yield stop, asyncio.Event()
        return
    events = asyncio.Event(), asyncio.Event()

    def set_next() -> None:
        next((event for event in events if not event.is_set()), events[-1]).set()

    with on_signals(set_next):
        yield events


@contextmanager
def on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call a function at each TERM or INT within the block."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
