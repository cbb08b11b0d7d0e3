"""The key for tickets and the revoked tokens, read from the database at most twice a second."""

import asyncio
import time
from typing import Final

from usher.db.pool import Database
from usher.mgmt import tokens
from usher.mgmt.tokens import TicketState
from usher.tickets import LIFETIME_SECONDS

FRESH_SECONDS: Final = 0.5


class TicketIssuer:
    """One for each process."""

    def __init__(self, db: Database, *, offline_grace: float = 0.0) -> None:
        # A front-end that cannot reach MGMT continues to search for this long.
        self.query_lifetime_seconds = max(offline_grace, LIFETIME_SECONDS)
        self._db = db
        self._lock = asyncio.Lock()
        self._state: TicketState | None = None
        self._read_at = 0.0

    async def state(self) -> TicketState:
        """The key, the revoked tokens and the database's time, at most half a second old."""
        async with self._lock:
            if self._state is None or time.monotonic() - self._read_at > FRESH_SECONDS:
                async with self._db.connection() as conn:
                    self._state = await tokens.ticket_state(conn)
                self._read_at = time.monotonic()
            age = time.monotonic() - self._read_at
            state = self._state
        return TicketState(state.key, state.now + age, state.revoked)
