"""The jobs that one manager runs: it extends their leases, reports progress and settles ends in batches."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database
from usher.queue import jobs
from usher.queue.job_states import JobState, ProcessEnd, job_outcome
from usher.queue.jobs import ClaimedJob, RunReport, SettledRun
from usher.queue.policy import Policy
from usher.queue.runners.process_runner import RunEnded
from usher.telemetry import Log

log = Log("manager")
HEARTBEATS_PER_LEASE: Final = 3
REPORT_SECONDS: Final = 1.0
BATCH_SECONDS: Final = 0.005  # how long an end waits for others to settle with
MAX_SUMMARY_CHARS: Final = 200
KILL_LEASE_SHARE: Final = 0.8  # of a lease; a run whose lease was not extended by then is killed


@dataclass(slots=True, eq=False)
class JobRun:
    """A claimed job until its end is settled."""

    job: ClaimedJob
    policy: Policy
    lease_end: float  # monotonic; afterwards another machine may run the job
    claimed_at: float = 0.0  # monotonic
    pid: int | None = None
    is_pid_reported: bool = False
    reported_output: str = ""
    lost: bool = False
    given_back: bool = False  # instead of settled

    @property
    def fence(self) -> tuple[int, UUID]:
        return self.job.id, self.job.claim


StopRun = Callable[[JobRun], None]


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
        self._has_news = asyncio.Event()
        self._settling = asyncio.Lock()

    def add(self, job: ClaimedJob, policy: Policy, claimed_at: float) -> JobRun:
        """Add a job that was claimed at that (monotonic) time or later."""
        run = JobRun(job, policy, claimed_at + self.lease.total_seconds(), claimed_at)
        self.runs[job.id] = run
        return run

    def note_start(self, run: JobRun, pid: int) -> None:
        """Note that its process started; the interval of its resource counts from now."""
        run.pid = pid
        if run.job.resource_id is not None:
            self._starts.append((*run.fence, self.clock.now()))
            self._has_news.set()

    def end(self, run: JobRun, settled: SettledRun) -> None:
        """Remove a run, to be settled with the next batch."""
        self.runs.pop(run.job.id, None)
        self._ended.append(settled)
        self._has_news.set()

    # -- the loops, for the manager's task group

    async def settle(self) -> None:
        """Settle ends, in batches of all that came since the last."""
        while True:
            await self._has_news.wait()
            await asyncio.sleep(BATCH_SECONDS)
            self._has_news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write all starts and ends to the database."""
        async with self._settling:
            starts, self._starts = self._starts, []
            if starts:
                await self.db.run(lambda conn: jobs.report_starts(conn, starts), autocommit=True)
            ended, self._ended = self._ended, []
            if not ended:
                return
            settled = await self.db.run(
                lambda conn: jobs.settle(conn, ended, now=self.clock.now()), autocommit=True
            )
            if lost := {end.id for end in ended} - settled:
                log.warning("settled_too_late", jobs=sorted(lost)[:10])

    async def send_heartbeats(self, stop: StopRun, kill: StopRun) -> None:
        """Extend leases; kill runs whose lease is lost, and stop those that were cancelled."""
        pause = self.lease.total_seconds() / HEARTBEATS_PER_LEASE
        while True:
            await asyncio.sleep(pause)
            asked_at = time.monotonic()
            runs = [run for run in self.runs.values() if not run.lost]
            extended = await self.db.run(lambda conn, runs=runs: self._extend(conn, runs))  # type: ignore[misc]
            for run in runs:
                if run.job.id in extended:
                    run.lease_end = asked_at + self.lease.total_seconds()
                    if extended[run.job.id]:
                        stop(run)
                elif self.runs.get(run.job.id) is run:
                    log.warning("lease_lost", job=run.job.id)
                    run.lost = True
                    kill(run)

    async def _extend(self, conn: Connection, runs: list[JobRun]) -> dict[int, bool]:
        if not runs:
            return {}
        fences = [run.fence for run in runs]
        return await jobs.extend(conn, fences, lease=self.lease, now=self.clock.now())

    async def watch_leases(self, kill: StopRun) -> None:
        """Kill runs whose lease was not extended, before another machine may start them."""
        margin = self.lease.total_seconds() * (1 - KILL_LEASE_SHARE)
        while True:
            await asyncio.sleep(min(1.0, margin / 2))
            now = time.monotonic()
            for run in list(self.runs.values()):
                if not run.lost and now > run.lease_end - margin:
                    log.error("lease_not_renewed", job=run.job.id)
                    run.lost = True
                    kill(run)

    async def report(self, output: Callable[[int], str]) -> None:
        """Report process ids and the output so far of jobs that run longer than a second."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            changes = [change for run in self.runs.values() if (change := changed(run, output))]
            if changes:
                await self.db.run(
                    lambda conn, changes=changes: jobs.report_progress(  # type: ignore[misc]
                        conn, self.host, changes, now=self.clock.now()
                    )
                )

    async def cancelled(self) -> list[JobRun]:
        """Return the runs that an operator cancelled."""
        runs = list(self.runs.values())
        if not runs:
            return []
        ids = await self.db.run(lambda conn: jobs.cancelled(conn, [run.fence for run in runs]))
        return [run for run in runs if run.job.id in ids]

    async def give_back(self, runs: list[JobRun]) -> None:
        """Return runs to the queue that will not run here, without counting an attempt."""
        for run in runs:
            self.runs.pop(run.job.id, None)
        fences = [run.fence for run in runs if not run.lost]
        if fences:
            await self.db.run(lambda conn: jobs.give_back(conn, fences, now=self.clock.now()))


def changed(run: JobRun, output: Callable[[int], str]) -> RunReport | None:
    """Return what of a run has changed since the last report; None if nothing has."""
    text = output(run.job.id)
    pid = run.pid if not run.is_pid_reported else None
    if text == run.reported_output and pid is None:
        return None
    new_text = text if text != run.reported_output else None
    run.reported_output, run.is_pid_reported = text, run.pid is not None
    return RunReport(*run.fence, pid, new_text)


def settled_run(run: JobRun, event: RunEnded, clock: DatabaseClock) -> SettledRun:
    """Return how the queue settles a run that ended."""
    end = ProcessEnd(event.code, event.why, event.detail)
    share = random.random()  # noqa: S311 - spreads retries
    outcome = job_outcome(end, attempts=run.job.attempts, policy=run.policy, random_share=share)
    failed = outcome.state in {JobState.TEMPORARY_ERROR, JobState.PERMANENT_ERROR}
    return SettledRun(
        *run.fence,
        state=outcome.state,
        exit_code=outcome.exit_code,
        pid=event.pid,
        message=outcome.message,
        default_message=failure_summary(event.output, outcome.note) if failed else None,
        output=event.output or None,
        result=event.result or None,
        retry_at=None if outcome.retry_in is None else clock.now() + outcome.retry_in,
    )


def failure_summary(output: str, note: str) -> str | None:
    """Return the last line of a failed program's output, and why it is not retried."""
    line = output.rstrip().rpartition("\n")[2].strip()[:MAX_SUMMARY_CHARS]
    return "; ".join(filter(None, (line, note))) or None
