"""What was searched for and how long it took, told to MGMT when there is time for it.

Comes from the search page and the API; goes to `usher stats queries`. Nobody who searches waits for it: while MGMT is
away a bounded number of queries is kept, and the rest counted as lost.
"""

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Final

from usher.errors import Unreachable, UsherError
from usher.http.client.mgmt_client import Client
from usher.search.metrics import UNREPORTED
from usher.telemetry import Log

log = Log("search")
MOST: Final = 1_000  # that wait
PACK: Final = 500
LONGEST: Final = 1_000  # characters
PAUSE: Final = 1.0  # seconds between two batches, and while MGMT is away
LAST_SECONDS: Final = 1.0  # for those that wait when we stop


class QueryReports:
    """Queries that MGMT has not heard of yet."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, float, float]] = deque()
        self._singly = 0  # so many that are told one by one

    def note(self, term: str, seconds: float) -> None:
        if len(self._waiting) >= MOST:
            self._waiting.popleft()
            UNREPORTED.inc()
        self._waiting.append((term[:LONGEST], seconds, time.time()))

    async def run(self, mgmt: Client) -> None:
        """Batch after batch, for ever; when cancelled, what waits is told if that is quick."""
        try:
            while True:
                await asyncio.sleep(PAUSE)
                await self.tell(mgmt)
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self.tell(mgmt)
            UNREPORTED.inc(len(self._waiting))
            raise

    async def tell(self, mgmt: Client) -> None:
        """Those that wait now; what MGMT does not want is not told again."""
        while self._waiting:
            size = 1 if self._singly else min(PACK, len(self._waiting))
            pack = [self._waiting.popleft() for _ in range(size)]
            self._singly = max(0, self._singly - 1)
            try:
                await (mgmt.send_queries(pack) if size > 1 else mgmt.send_query_stats(*pack[0]))
            except (Unreachable, asyncio.CancelledError) as error:
                self._waiting.extendleft(reversed(pack))
                if isinstance(error, Unreachable):
                    return
                raise
            except UsherError as error:
                if size > 1:  # it is an older MGMT, or does not want one of them
                    self._waiting.extendleft(reversed(pack))
                    self._singly = size
                    continue
                UNREPORTED.inc()
                log.warning("query_not_reported", error=error.message)
