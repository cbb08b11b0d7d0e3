"""Reports queries and their durations to MGMT in the background, for `usher stats queries`.

While MGMT is unavailable a limited number of reports waits; the oldest are dropped and counted.
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
MAX_WAITING: Final = 1_000
BATCH_SIZE: Final = 500
MAX_QUERY_CHARACTERS: Final = 1_000
BATCH_SECONDS: Final = 1.0  # between two batches
SHUTDOWN_SECONDS: Final = 1.0  # for the last batch


class QueryReports:
    """The queries that MGMT does not know yet."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, float, float, int]] = deque()
        self._singles = 0  # so many of them are sent one by one

    def add(self, query: str, seconds: float, results: int) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            UNREPORTED.inc()
        self._waiting.append((query[:MAX_QUERY_CHARACTERS], seconds, time.time(), results))

    async def run(self, mgmt: Client) -> None:
        """Send batches forever; when cancelled, try to send the rest."""
        try:
            while True:
                await asyncio.sleep(BATCH_SECONDS)
                await self.send(mgmt)
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_SECONDS):
                    await self.send(mgmt)
            UNREPORTED.inc(len(self._waiting))
            raise

    async def send(self, mgmt: Client) -> None:
        """Send the waiting reports; those that MGMT rejects are dropped."""
        while self._waiting:
            size = 1 if self._singles else min(BATCH_SIZE, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            self._singles = max(0, self._singles - 1)
            try:
                await (mgmt.send_queries(batch) if size > 1 else mgmt.send_query_stats(*batch[0]))
            except (Unreachable, asyncio.CancelledError) as error:
                self._waiting.extendleft(reversed(batch))
                if isinstance(error, Unreachable):
                    return
                raise
            except UsherError as error:
                if size > 1:  # MGMT knows no batches, or rejects one of the reports
                    self._waiting.extendleft(reversed(batch))
                    self._singles = size
                    continue
                UNREPORTED.inc()
                log.warning("query_not_reported", error=error.message)
