"""Crawlers that ask for pages at the same time: one statement claims for all who wait, each a chunk of its own.

Comes from handlers; goes to `chunks.claim_all`. Nobody waits for company: whoever asks first is served at once, and
those who come meanwhile are served together next. They share a commit, a round trip and the fixed cost of three writes.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import psycopg

from usher.db import Database
from usher.mgmt import chunks
from usher.mgmt.chunks import Ask, Pack

MOST: Final = 16  # crawlers served by one statement
FEW: Final = 50  # pages; whoever wants more is served alone, and nobody waits for that
THEIR_OWN: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
)  # faults of one that others need not share


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Somebody who waits for pages."""

    crawler: int
    ask: Ask
    pack: "asyncio.Future[Pack | None]"


class Claims:
    """One for each process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._line: list[Turn] = []
        self._at_work: asyncio.Task[None] | None = None

    async def take(self, crawler: int, ask: Ask) -> Pack | None:
        """A new chunk for a crawler; None while too few pages wait and none for too long."""
        if ask.n > FEW:
            async with self._db.connection() as conn:
                return await chunks.claim_links(conn, crawler, ask, now=datetime.now(UTC))
        turn = Turn(crawler, ask, asyncio.get_running_loop().create_future())
        self._line.append(turn)
        if self._at_work is None or self._at_work.done():
            # One statement at a time: a second would find the hosts locked that the first looks at.
            self._at_work = asyncio.create_task(self._work())
        return await turn.pack

    async def _work(self) -> None:
        while self._line:
            turns, self._line = self._line[:MOST], self._line[MOST:]
            if here := [turn for turn in turns if not turn.pack.cancelled()]:
                await self._serve(here)

    async def _serve(self, turns: list[Turn]) -> None:
        try:
            async with self._db.connection() as conn:
                asked = [(turn.crawler, turn.ask) for turn in turns]
                packs = await chunks.claim_all(conn, asked, now=datetime.now(UTC))
        except THEIR_OWN as error:
            if len(turns) > 1:
                for turn in turns:
                    await self._serve([turn])
            else:
                fail(turns, error)
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
            fail(turns, error)
        else:
            self._hand_over(turns, packs)

    def _hand_over(self, turns: list[Turn], packs: list[Pack | None]) -> None:
        """Who got nothing after another was served has its turn again: there may be something that both cannot have."""
        again, served = [], False
        for turn, pack in zip(turns, packs, strict=True):
            if pack is None and served:
                again.append(turn)
            elif not turn.pack.done():
                turn.pack.set_result(pack)
            served = served or pack is not None
        self._line = [*again, *self._line]


def fail(turns: list[Turn], error: Exception) -> None:
    for turn in turns:
        if not turn.pack.done():
            turn.pack.set_exception(error)
