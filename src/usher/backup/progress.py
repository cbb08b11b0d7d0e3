"""Reports the progress of long work in a thread, and stops that work when the command is interrupted."""

import asyncio
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# Called with what is done, how many files, and of how many.
OnProgress = Callable[[str, int, int], None]


class WorkStopped(Exception):
    """The command was interrupted."""


async def run_in_thread(
    work: Callable[Concatenate[OnProgress, P], T],
    on_progress: OnProgress,
    *args: P.args,
    **values: P.kwargs,
) -> T:
    """Run work that reports after each file; it ends at its next report if the caller is cancelled."""
    is_cancelled = threading.Event()

    def report(phase: str, done: int, total: int) -> None:
        if is_cancelled.is_set():
            raise WorkStopped
        on_progress(phase, done, total)

    try:
        return await asyncio.to_thread(work, report, *args, **values)
    except asyncio.CancelledError:
        is_cancelled.set()
        raise
