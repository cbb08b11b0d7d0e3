"""Batches the claims of crawlers that ask for pages at the same time: one statement claims a chunk for each of them.

A claim never waits for others: the first runs at once, and those that arrive meanwhile form the next batch. They share
a commit, a round trip and the fixed cost of three writes. The next statement starts before the crawlers read the result
of the last one, because the database is the bottleneck.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import psycopg

from usher.db.pool import Connection, Database
from usher.mgmt import chunks
from usher.mgmt.chunks import ClaimedChunk, ClaimRows, PageClaim

MAX_CLAIMS_PER_STATEMENT: Final = 16
MAX_BATCHED_PAGES: Final = 50  # of one claim; larger ones bypass batching
# Errors of one claim that must not fail the others of its batch.
CALLER_FAULTS: Final = (psycopg.DataError, psycopg.IntegrityError)


@dataclass(frozen=True, slots=True, eq=False)
class WaitingClaim:
    crawler: int
    request: PageClaim
    rows: "asyncio.Future[ClaimRows]"


class ClaimBatcher:
    """One for each process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._queue: list[WaitingClaim] = []
        self._worker: asyncio.Task[None] | None = None

    async def claim(self, crawler: int, request: PageClaim) -> ClaimedChunk | None:
        """A new chunk for a crawler; None while there are too few pages and none has waited for too long."""
        if request.n > MAX_BATCHED_PAGES:
            async with self._db.connection() as conn:
                return await chunks.claim_links(conn, crawler, request, now=self._db.clock.now())
        waiting = WaitingClaim(crawler, request, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._worker is None or self._worker.done():
            # One statement at a time: a second would find the hosts locked that the first one considers.
            self._worker = asyncio.create_task(self._work())
        return chunks.claimed_chunk(await waiting.rows)

    async def _work(self) -> None:
        while self._queue:
            batch: list[WaitingClaim] = []
            try:
                async with self._db.connection() as conn:
                    while batch := self._next_batch():
                        await self._run(conn, batch)
            except Exception as error:  # noqa: BLE001 - the waiting callers get it
                fail(batch or self._next_batch(), error)

    def _next_batch(self) -> list[WaitingClaim]:
        """The next claims, without cancelled ones."""
        waiting = [claim for claim in self._queue if not claim.rows.done()]
        self._queue = waiting[MAX_CLAIMS_PER_STATEMENT:]
        return waiting[:MAX_CLAIMS_PER_STATEMENT]

    async def _run(self, conn: Connection, batch: list[WaitingClaim]) -> None:
        requests = [(claim.crawler, claim.request) for claim in batch]
        try:
            results = await chunks.claim_rows(conn, requests, now=self._db.clock.now())
        except CALLER_FAULTS as error:
            if len(batch) == 1:
                fail(batch, error)
                return
            for claim in batch:
                await self._run(conn, [claim])
        else:
            self._deliver(batch, results)

    def _deliver(self, batch: list[WaitingClaim], results: list[ClaimRows]) -> None:
        """Set the results. A claim that got nothing after another got something is repeated.

        Both may have considered the same hosts, and there may be others.
        """
        repeated, is_served = [], False
        for claim, rows in zip(batch, results, strict=True):
            if is_served and not rows:
                repeated.append(claim)
            elif not claim.rows.done():
                claim.rows.set_result(rows)
            is_served = is_served or bool(rows)
        self._queue = [*repeated, *self._queue]


def fail(batch: list[WaitingClaim], error: Exception) -> None:
    for claim in batch:
        if not claim.rows.done():
            claim.rows.set_exception(error)
