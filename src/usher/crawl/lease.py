"""A lease: until when a chunk is ours, and the word to leave it before that.

Comes from MGMT with the chunk, and is moved on by every sign of life; goes to whoever is about to send a request, and
must not if the pages may be another's by now.
"""

import asyncio
from contextlib import suppress


class Lease:
    """Good until a moment on the loop's clock, or until somebody ends it."""

    __slots__ = ("_over", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self._over = asyncio.Event()

    @property
    def good(self) -> bool:
        # The clock goes on while a process is stopped or a machine sleeps: asked late, it says so.
        return not self._over.is_set() and asyncio.get_running_loop().time() < self.until

    def end(self) -> None:
        self._over.set()

    async def rest(self, seconds: float) -> bool:
        """Wait that long, or until it is over; whether it is still good then."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._over.wait()
        return self.good
