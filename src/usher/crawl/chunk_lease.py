"""How long a chunk belongs to this crawler.

No request may reach a host after the lease: MGMT gives the host to another crawler then.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class ChunkLease:
    """Valid until a time on the monotonic clock, or until the crawler stops."""

    __slots__ = ("_over", "_requests", "_until")

    def __init__(self, until: float) -> None:
        self._until = until
        self._over = asyncio.Event()
        self._requests: set[asyncio.Timeout] = set()

    @property
    def good(self) -> bool:
        # uvloop updates the loop's clock once per iteration, so it is behind in a process that was suspended.
        return not self._over.is_set() and time.monotonic() < self._until

    def renew(self, until: float) -> None:
        """Extend the lease, also for requests in flight."""
        self._until = until
        for timeout in self._requests:
            if not timeout.expired():
                timeout.reschedule(until)

    def end(self) -> None:
        """Allow no further request. Requests in flight continue."""
        self._over.set()

    async def sleep(self, seconds: float) -> bool:
        """Wait that long, or until the lease is over; return whether it is still valid."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._over.wait()
        return self.good

    @asynccontextmanager
    async def cancel_on_expiry(self) -> AsyncIterator[None]:
        """Cancel a request in flight when the lease expires, and raise TimeoutError.

        A request that was sent while the network was down would reach the host later.
        """
        timeout = asyncio.timeout_at(self._until)
        try:
            async with timeout:
                self._requests.add(timeout)
                yield
        finally:
            self._requests.discard(timeout)
