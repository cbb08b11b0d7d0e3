"""The server's clock, read here: leases are given on one machine and ended on another."""

from datetime import UTC, datetime, timedelta

from usher.db import Connection
from usher.queue import tasks


class ServerClock:
    """The clock of this machine, put right by the server's as often as `sync` is called."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    async def sync(self, conn: Connection) -> None:
        """The server's answer was true somewhere between asking and hearing."""
        before = datetime.now(UTC)
        theirs = await tasks.server_time(conn)
        self.ahead = theirs - (before + (datetime.now(UTC) - before) / 2)
