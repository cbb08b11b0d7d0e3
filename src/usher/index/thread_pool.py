"""A thread pool for an event loop with half the overhead per call of asyncio's `run_in_executor`."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadPool:
    """Runs functions in threads; `waiting` counts those that wait or run."""

    def __init__(self, threads: int, name: str) -> None:
        self.waiting = 0
        self._pool = ThreadPoolExecutor(threads, name)

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """The result of `work`; TimeoutError if it takes longer, although a running function is not stopped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._pool.submit(self._run, work, loop, future)
        self.waiting += 1
        timer = loop.call_later(seconds, resolve, future, None, TimeoutError())
        try:
            return await future
        finally:
            timer.cancel()

    def close(self) -> None:
        """Wait for running functions; those that wait are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]"
    ) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - the caller gets it
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._done, future, result, error)

    def _done(
        self, future: "asyncio.Future[Any]", result: object, error: BaseException | None
    ) -> None:
        self.waiting -= 1
        resolve(future, result, error)


def resolve(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return  # it timed out or was cancelled
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
