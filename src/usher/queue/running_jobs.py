"""The manager's book of what it runs: leases kept alive, news written down, ends settled in batches.

Comes from claims and from processes that started, spoke and ended; goes to the database, and back to the manager as
word of runs that are to be stopped or were lost.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database
from usher.queue import jobs
from usher.queue.jobs import ClaimedJob, RunReport, SettledRun
from usher.queue.policy import Policy
from usher.telemetry import Log

log = Log("manager")
HEARTBEATS_PER_LEASE: Final = 3  # signs of life within a lease
REPORT_SECONDS: Final = 1.0
BATCH_SECONDS: Final = 0.005  # for further ends to come, so that they are written together
KILL_LEASE_SHARE: Final = (
    0.8  # of a lease after which, without an answer from the server, runs are ended
)


@dataclass(slots=True, eq=False)
class JobRun:
    """A job of ours from its claim to its end."""

    job: ClaimedJob
    policy: Policy
    good_until: float  # monotonic; past it somebody else may have the job
    since: float = 0.0  # monotonic; when it was claimed
    pid: int | None = None
    told_pid: bool = False
    told: str = ""
    lost: bool = False
    given_up: bool = False  # to be given back, not settled

    @property
    def fence(self) -> tuple[int, UUID]:
        return self.job.id, self.job.claim


class RunningJobs:
    """Every run of one manager."""

    def __init__(self, db: Database, host: str, clock: DatabaseClock, *, lease: timedelta) -> None:
        self.db = db
        self.host = host
        self.clock = clock
        self.lease = lease
        self.runs: dict[int, JobRun] = {}
        self._ended: list[SettledRun] = []
        self._starts: list[tuple[int, UUID, datetime]] = []
        self._news = asyncio.Event()
        self._settling = asyncio.Lock()

    def enter(self, job: ClaimedJob, policy: Policy, asked: float) -> JobRun:
        """A job claimed at that (monotonic) time or later."""
        run = JobRun(job, policy, asked + self.lease.total_seconds(), asked)
        self.runs[job.id] = run
        return run

    def note_start(self, run: JobRun, pid: int) -> None:
        """Its process started; if it uses a resource, the interval of the resource counts from now."""
        run.pid = pid
        if run.job.resource_id is not None:
            self._starts.append((*run.fence, self.clock.now()))
            self._news.set()

    def end(self, run: JobRun, settled: SettledRun) -> None:
        """It is over; the book is written as soon as the last page is dry."""
        self.runs.pop(run.job.id, None)
        self._ended.append(settled)
        self._news.set()

    # -- the loops, for the manager's task group

    async def settle(self) -> None:
        """Write ends down, together with those that follow in a moment or came while the last were written."""
        while True:
            await self._news.wait()
            await asyncio.sleep(BATCH_SECONDS)
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        async with self._settling:
            starts, self._starts = self._starts, []
            if starts:
                await self.db.run(lambda conn: jobs.report_starts(conn, starts), autocommit=True)
            ended, self._ended = self._ended, []
            if not ended:
                return
            done = await self.db.run(
                lambda conn: jobs.settle(conn, ended, now=self.clock.now()), autocommit=True
            )
            if gone := {end.id for end in ended} - done:
                log.warning("settled_too_late", jobs=sorted(gone)[:10])

    async def beat(self, stop: Callable[[JobRun], None], kill: Callable[[JobRun], None]) -> None:
        """Signs of life; runs whose lease is gone are killed, cancelled ones stopped."""
        pause = self.lease.total_seconds() / HEARTBEATS_PER_LEASE
        while True:
            await asyncio.sleep(pause)
            asked = time.monotonic()
            ours = [run for run in self.runs.values() if not run.lost]
            answer = await self.db.run(lambda conn, ours=ours: self.sign(conn, ours))  # type: ignore[misc]
            for run in ours:
                self.hear(run, answer, asked, stop, kill)

    async def sign(self, conn: Connection, ours: list[JobRun]) -> dict[int, bool]:
        if not ours:
            return {}
        fences = [run.fence for run in ours]
        return await jobs.extend(conn, fences, lease=self.lease, now=self.clock.now())

    def hear(
        self,
        run: JobRun,
        answer: dict[int, bool],
        asked: float,
        stop: Callable[[JobRun], None],
        kill: Callable[[JobRun], None],
    ) -> None:
        if run.job.id not in answer:
            if self.runs.get(run.job.id) is run:
                log.warning("lease_lost", job=run.job.id)
                run.lost = True
                kill(run)
            return
        run.good_until = asked + self.lease.total_seconds()
        if answer[run.job.id]:
            stop(run)

    async def watch(self, kill: Callable[[JobRun], None]) -> None:
        """While the server is away no lease is renewed: a run ends before another machine may begin it."""
        early = self.lease.total_seconds() * (1 - KILL_LEASE_SHARE)
        while True:
            await asyncio.sleep(min(1.0, early / 2))
            now = time.monotonic()
            for run in list(self.runs.values()):
                if not run.lost and now > run.good_until - early:
                    log.error("lease_not_renewed", job=run.job.id)
                    run.lost = True
                    kill(run)

    async def report(self, output: Callable[[int], str]) -> None:
        """Process numbers and output so far, of those that run long enough for anybody to look."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            news = [one for run in self.runs.values() if (one := self.new(run, output))]
            if news:
                await self.db.run(
                    lambda conn, news=news: jobs.report_progress(  # type: ignore[misc]
                        conn, self.host, news, now=self.clock.now()
                    )
                )

    def new(self, run: JobRun, output: Callable[[int], str]) -> RunReport | None:
        said = output(run.job.id)
        pid = run.pid if not run.told_pid else None
        if said == run.told and pid is None:
            return None
        changed = said if said != run.told else None
        run.told, run.told_pid = said, run.pid is not None
        return RunReport(*run.fence, pid, changed)

    async def cancelled(self) -> list[JobRun]:
        """Which runs an operator wants stopped."""
        ours = list(self.runs.values())
        if not ours:
            return []
        found = await self.db.run(lambda conn: jobs.cancelled(conn, [run.fence for run in ours]))
        return [run for run in ours if run.job.id in found]

    async def give_back(self, runs: list[JobRun]) -> None:
        """What is not going to be run here goes back as if nothing had been."""
        for run in runs:
            self.runs.pop(run.job.id, None)
        fences = [run.fence for run in runs if not run.lost]
        if fences:
            await self.db.run(lambda conn: jobs.give_back(conn, fences, now=self.clock.now()))
