"""Crawlers that ask for pages at the same time: one statement claims for all who wait, each a chunk of its own.

Comes from handlers; goes to `chunks.claim_rows`. Nobody waits for company: whoever asks first is served at once, and
those who come meanwhile are served together next. They share a commit, a round trip and the fixed cost of three writes.
The next statement goes out before anybody reads what the last one brought: the database is what all wait for.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import psycopg

from usher.db.pool import Connection, Database
from usher.mgmt import chunks
from usher.mgmt.chunks import ClaimedChunk, ClaimRows, PageClaim

MAX_CLAIMS_PER_STATEMENT: Final = 16  # crawlers served by one statement
MAX_BATCHED_PAGES: Final = (
    50  # pages; whoever wants more is served alone, and nobody waits for that
)
CALLER_FAULTS: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
)  # faults of one that others need not share


@dataclass(frozen=True, slots=True, eq=False)
class WaitingClaim:
    """Somebody who waits for pages."""

    crawler: int
    ask: PageClaim
    rows: "asyncio.Future[ClaimRows]"


class ClaimBatcher:
    """One for each process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._line: list[WaitingClaim] = []
        self._at_work: asyncio.Task[None] | None = None

    async def take(self, crawler: int, ask: PageClaim) -> ClaimedChunk | None:
        """A new chunk for a crawler; None while too few pages wait and none for too long."""
        if ask.n > MAX_BATCHED_PAGES:
            async with self._db.connection() as conn:
                return await chunks.claim_links(conn, crawler, ask, now=self._db.clock.now())
        turn = WaitingClaim(crawler, ask, asyncio.get_running_loop().create_future())
        self._line.append(turn)
        if self._at_work is None or self._at_work.done():
            # One statement at a time: a second would find the hosts locked that the first looks at.
            self._at_work = asyncio.create_task(self._work())
        return chunks.claimed_chunk(await turn.rows)

    async def _work(self) -> None:
        while self._line:
            turns: list[WaitingClaim] = []
            try:
                async with self._db.connection() as conn:
                    while turns := self._next():
                        await self._serve(conn, turns)
            except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
                fail(turns or self._next(), error)

    def _next(self) -> list[WaitingClaim]:
        """Those who are served together, without any that gave up."""
        here = [turn for turn in self._line if not turn.rows.done()]
        self._line = here[MAX_CLAIMS_PER_STATEMENT:]
        return here[:MAX_CLAIMS_PER_STATEMENT]

    async def _serve(self, conn: Connection, turns: list[WaitingClaim]) -> None:
        asked = [(turn.crawler, turn.ask) for turn in turns]
        try:
            found = await chunks.claim_rows(conn, asked, now=self._db.clock.now())
        except CALLER_FAULTS as error:
            if len(turns) == 1:
                fail(turns, error)
            for turn in turns if len(turns) > 1 else ():
                await self._serve(conn, [turn])
        else:
            self._hand_over(turns, found)

    def _hand_over(self, turns: list[WaitingClaim], found: list[ClaimRows]) -> None:
        """Who got nothing after another was served has its turn again: there may be something that both cannot have."""
        again, served = [], False
        for turn, rows in zip(turns, found, strict=True):
            if served and not rows:
                again.append(turn)
            elif not turn.rows.done():
                turn.rows.set_result(rows)
            served = served or bool(rows)
        self._line = [*again, *self._line]


def fail(turns: list[WaitingClaim], error: Exception) -> None:
    for turn in turns:
        if not turn.rows.done():
            turn.rows.set_exception(error)
