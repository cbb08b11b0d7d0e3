"""The scheduler: makes jobs of due tasks, brings failed and lost jobs back, keeps the log's partitions.

Comes from the clock; goes to the queue. Several may run: one leads, by a lock that ends with its connection, and each
of its statements would be right even if two did.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from usher.db.clock import DatabaseClock
from usher.db.pool import CONFLICT_ERRORS, Connection, stay_connected
from usher.queue import tasks
from usher.telemetry import (
    EXPIRED_LEASES,
    OLDEST_JOB_SECONDS,
    RETRIED_JOBS,
    SCHEDULED_JOBS,
    WAITING_JOBS,
    Log,
)

log = Log("scheduler")
LEADER_LOCK: Final = 0x7573_6865_7211  # "usher", 17: one scheduler leads
TICK_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 120.0  # seconds after which a scheduler leads no more
BATCH_SIZE: Final = 10_000  # tasks or jobs in one transaction
MEND_SECONDS: Final = 60.0
DEPTH_SECONDS: Final = 15.0
MAX_COUNTED_JOBS: Final = 10_000
LOG_SECONDS: Final = 3600.0
LOG_MONTHS_AHEAD: Final = 2  # of the log made ahead


class Scheduler:
    """An actor: `await Scheduler(dsn).run(stop)`."""

    def __init__(
        self,
        dsn: str,
        *,
        role: str = "",
        tick: float = TICK_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.dsn = dsn
        self.role = role
        self.tick = tick
        self.silence = max(silence, 3 * tick)
        self.clock = DatabaseClock()
        self.leading = False
        self._last: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Work whenever it is this one's turn to lead, until told to stop; a lost server is waited for."""

        async def work(conn: Connection) -> None:
            try:
                await self.serve(conn, stop)
            finally:
                self.leading = False

        await stay_connected(self.dsn, work, stop, role=self.role, patience=self.tick)

    async def serve(self, conn: Connection, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self.leading or await self.lead(conn):
                await self.clock.sync(conn)
                try:
                    await self.round(conn)
                except CONFLICT_ERRORS as error:
                    log.warning("round_cut_short", reason=error.diag.message_primary)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self.tick)

    async def lead(self, conn: Connection) -> bool:
        """Try to be the one that works, for as long as the connection lives."""
        self.leading = await tasks.try_to_lead(conn, lock=LEADER_LOCK, silence=self.silence)
        if self.leading:
            log.info("leads")
        return self.leading

    async def round(self, conn: Connection) -> None:
        """Everything whose time has come, once."""
        await self.packs(conn, self.reap)
        await self.packs(conn, self.retry)
        await self.packs(conn, self.park)
        await self.packs(conn, self.spawn)
        if self.time_for("mend", MEND_SECONDS):
            mended = await tasks.repair_resources(conn, now=self.clock.now())
            if mended:
                log.warning("mended", resources=mended)
        if self.time_for("depth", DEPTH_SECONDS):
            await self.measure(conn)
        if self.time_for("log", LOG_SECONDS):
            await tasks.create_log_partitions(conn, months=LOG_MONTHS_AHEAD, now=self.clock.now())

    async def packs(self, conn: Connection, work: Callable[[Connection], Awaitable[int]]) -> None:
        """One transaction after the other until a pack is not full."""
        done = BATCH_SIZE
        while done >= BATCH_SIZE:
            async with conn.transaction():
                done = await work(conn)

    async def park(self, conn: Connection) -> int:
        return await tasks.park_tasks(conn, n=BATCH_SIZE, now=self.clock.now())

    async def spawn(self, conn: Connection) -> int:
        now = self.clock.now()
        due = await tasks.due_tasks(conn, n=BATCH_SIZE, now=now)
        if due:
            made = await tasks.enqueue_due_tasks(conn, due, now=now)
            SCHEDULED_JOBS.inc(made)
            log.info("scheduled", tasks=made)
        return len(due)

    async def retry(self, conn: Connection) -> int:
        back = await tasks.requeue_failed_jobs(conn, n=BATCH_SIZE, now=self.clock.now())
        if back:
            RETRIED_JOBS.inc(back)
            log.info("tried_again", jobs=back)
        return back

    async def reap(self, conn: Connection) -> int:
        lost = await tasks.requeue_lost_jobs(conn, n=BATCH_SIZE, now=self.clock.now())
        if lost:
            EXPIRED_LEASES.inc(len(lost))
            log.warning("leases_ended", jobs=len(lost), some=lost[:10])
        return len(lost)

    async def measure(self, conn: Connection) -> None:
        """What waits, for the metrics."""
        WAITING_JOBS.clear()
        OLDEST_JOB_SECONDS.clear()
        for type_, n, oldest in await tasks.count_due_jobs(
            conn, most=MAX_COUNTED_JOBS, now=self.clock.now()
        ):
            WAITING_JOBS.labels(type_).set(n)
            OLDEST_JOB_SECONDS.labels(type_).set(oldest)

    def time_for(self, what: str, seconds: float) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._last.get(what, -seconds) < seconds:
            return False
        self._last[what] = now
        return True
