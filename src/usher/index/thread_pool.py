"""Threads that work for an event loop, with half as much around each piece of work as asyncio's own way has.

Comes from whoever may not hold up the loop; goes back into it, with what the work gave or raised.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadPool:
    """So many threads; `waiting` counts what they have to do, and what they do now."""

    def __init__(self, number: int, name: str) -> None:
        self.waiting = 0
        self._pool = ThreadPoolExecutor(number, name)

    async def do(self, work: Callable[[], T], seconds: float) -> T:
        """What the work gives; TimeoutError if it takes longer, but work that has begun cannot be stopped."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        self._pool.submit(self._do, work, loop, outcome)
        self.waiting += 1
        timer = loop.call_later(seconds, settle, outcome, None, TimeoutError())
        try:
            return await outcome
        finally:
            timer.cancel()

    def close(self) -> None:
        """Wait for the work that has begun; the rest is not done."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _do(
        self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, outcome: "asyncio.Future[T]"
    ) -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
            failure = error
        with suppress(RuntimeError):  # a loop that has been closed waits for nothing
            loop.call_soon_threadsafe(self._over, outcome, result, failure)

    def _over(
        self, outcome: "asyncio.Future[Any]", result: object, failure: BaseException | None
    ) -> None:
        self.waiting -= 1
        settle(outcome, result, failure)


def settle(outcome: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
    if outcome.done():
        return  # nobody waits any more
    if failure is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(failure)
