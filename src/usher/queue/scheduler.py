"""The scheduler: adds jobs of due tasks, requeues failed and lost jobs, and creates partitions of the log.

Several schedulers may run. One leads, by a lock that ends with its connection; each statement is correct even if two
lead.
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
LEADER_LOCK: Final = 0x7573_6865_7211  # "usher", 17
TICK_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 120.0  # after which the server ends the connection of the leader
BATCH_SIZE: Final = 10_000  # tasks or jobs in one transaction
REPAIR_SECONDS: Final = 60.0
MEASURE_SECONDS: Final = 15.0
MAX_COUNTED_JOBS: Final = 10_000
PARTITION_SECONDS: Final = 3600.0
LOG_MONTHS_AHEAD: Final = 2


class Scheduler:
    """`await Scheduler(dsn).run(stop)` works until the event `stop` is set."""

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
        """Work while this scheduler leads; reconnect when the server is away."""

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
                    await self.run_once(conn)
                except CONFLICT_ERRORS as error:
                    log.warning("round_cut_short", reason=error.diag.message_primary)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self.tick)

    async def lead(self, conn: Connection) -> bool:
        """Try to become the leader until the connection ends."""
        self.leading = await tasks.try_to_lead(conn, lock=LEADER_LOCK, silence=self.silence)
        if self.leading:
            log.info("leads")
        return self.leading

    async def run_once(self, conn: Connection) -> None:
        """Do everything that is due, once."""
        for work in (self.requeue_lost, self.requeue_failed, self.park, self.enqueue_due):
            await self.run_batches(conn, work)
        if self.is_time_for("repair", REPAIR_SECONDS):
            repaired = await tasks.repair_resources(conn, now=self.clock.now())
            if repaired:
                log.warning("mended", resources=repaired)
        if self.is_time_for("measure", MEASURE_SECONDS):
            await self.measure(conn)
        if self.is_time_for("partitions", PARTITION_SECONDS):
            now = self.clock.now()
            await tasks.create_log_partitions(conn, months=LOG_MONTHS_AHEAD, now=now)

    async def run_batches(
        self, conn: Connection, work: Callable[[Connection], Awaitable[int]]
    ) -> None:
        """Run transactions until a batch is not full."""
        done = BATCH_SIZE
        while done >= BATCH_SIZE:
            async with conn.transaction():
                done = await work(conn)

    async def park(self, conn: Connection) -> int:
        return await tasks.park_tasks(conn, n=BATCH_SIZE, now=self.clock.now())

    async def enqueue_due(self, conn: Connection) -> int:
        now = self.clock.now()
        due = await tasks.due_tasks(conn, n=BATCH_SIZE, now=now)
        if due:
            added = await tasks.enqueue_due_tasks(conn, due, now=now)
            SCHEDULED_JOBS.inc(added)
            log.info("scheduled", tasks=added)
        return len(due)

    async def requeue_failed(self, conn: Connection) -> int:
        requeued = await tasks.requeue_failed_jobs(conn, n=BATCH_SIZE, now=self.clock.now())
        if requeued:
            RETRIED_JOBS.inc(requeued)
            log.info("tried_again", jobs=requeued)
        return requeued

    async def requeue_lost(self, conn: Connection) -> int:
        lost = await tasks.requeue_lost_jobs(conn, n=BATCH_SIZE, now=self.clock.now())
        if lost:
            EXPIRED_LEASES.inc(len(lost))
            log.warning("leases_ended", jobs=len(lost), some=lost[:10])
        return len(lost)

    async def measure(self, conn: Connection) -> None:
        """Set the metrics of waiting jobs."""
        WAITING_JOBS.clear()
        OLDEST_JOB_SECONDS.clear()
        counts = await tasks.count_due_jobs(conn, limit=MAX_COUNTED_JOBS, now=self.clock.now())
        for type_, count, oldest in counts:
            WAITING_JOBS.labels(type_).set(count)
            OLDEST_JOB_SECONDS.labels(type_).set(oldest)

    def is_time_for(self, work: str, seconds: float) -> bool:
        """Whether the work was last done so many seconds ago; if so, it counts as done now."""
        now = asyncio.get_running_loop().time()
        if now - self._last.get(work, -seconds) < seconds:
            return False
        self._last[work] = now
        return True
