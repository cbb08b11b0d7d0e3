"""Polls many feeds in one process: the feed of its own job, and others whose jobs are due.

Each job is claimed with a lease and settled under its claim, as a manager does. Tasks, resources and the job log are
the same as with one process per feed, but the polls share one process and its connections.
"""

import asyncio
import os
import time
import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.errors import NotFound, UsherError
from usher.feeds.items.digest import queue_digest_job
from usher.feeds.poll.feed_poll import poll
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.poll.shared_statements import SharedStatements
from usher.feeds.poll.tasks import PROGRAM
from usher.feeds.store.databases import FeedDatabases
from usher.queue import jobs
from usher.queue.job_states import ProcessEnd
from usher.queue.policy import Policy
from usher.queue.runners.process_runner import RunEnded
from usher.queue.running_jobs import JobRun, RunningJobs, settled_run
from usher.telemetry import Log, log_failure

store = load_statements(__file__)
log = Log("feeds")

MAX_CONCURRENT_POLLS: Final = 32
CLAIM_SECONDS: Final = 5.0  # how long it claims; meanwhile its own job keeps the host's resource
EXIT_DONE, EXIT_RETRY, EXIT_FAILED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """Under which manager's name jobs are claimed, of which type, and how."""

    host: str
    type: str
    lease: timedelta
    policy: Policy


async def manager_of(conn: Connection, job: int) -> str:
    """The host name of the manager that claimed a job; empty if the job is not claimed."""
    rows = await store.manager_of.tuples(conn, id=job)
    return str(rows[0][0] or "") if rows else ""


async def save_job_result(
    conn: Connection, outcome: PollOutcome, *, job: int, claim: str, now: datetime
) -> None:
    """Store the message of a job that succeeded, and which items it wrote.

    A job that failed ends with an exception, whose text becomes its message.
    """
    if outcome.good:
        words = job_message(outcome)
        await store.set_message.run(conn, words=words, id=job, claim=claim, now=now)
    if outcome.new:
        await store.add_written_items.run(conn, job=job, rows=list(map(str, outcome.new)))


def job_message(outcome: PollOutcome) -> str:
    following = "" if outcome.next_at is None else f" Next {outcome.next_at:%H:%M:%S}."
    return f"{outcome.words}{following}"


def ending_of_error(error: Exception) -> ProcessEnd:
    """How a job ends whose poll raised an error."""
    if isinstance(error, NotFound):
        return ProcessEnd(EXIT_FAILED, detail=error.message)
    if isinstance(error, UsherError):
        return ProcessEnd(EXIT_RETRY, detail=error.message)
    log.error("poll_failed", trace=traceback.format_exception(error))
    return ProcessEnd(EXIT_RETRY, detail=f"{type(error).__name__}: {error}"[:500])


class BatchPoller:
    """Runs polls concurrently in one process: `await BatchPoller(…).run(feed)`."""

    def __init__(
        self, databases: FeedDatabases, fetcher: Fetcher, queue: Database, options: ClaimOptions
    ) -> None:
        self.databases, self.fetcher, self.queue, self.options = databases, fetcher, queue, options
        self.shared = SharedStatements(databases, defer_digest=True)
        self.clock = queue.clock
        self.ledger = RunningJobs(queue, options.host, self.clock, lease=options.lease)
        self._polls: dict[int, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self, feed: int) -> PollOutcome:
        """Poll the feed of this job, and meanwhile others that are due."""
        own = asyncio.create_task(poll(self.databases, self.fetcher, feed, shared=self.shared))
        background = [
            log_failure(asyncio.create_task(work), log)
            for work in (
                self.ledger.settle(),
                self.ledger.send_heartbeats(self.cancel, self.cancel),
                self.ledger.watch_leases(self.cancel),
            )
        ]
        try:
            await self.poll_due(own)
            return await own
        finally:
            await self.stop(own)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def poll_due(self, own: asyncio.Task[PollOutcome]) -> None:
        """Claim jobs for some seconds while the queue has enough, and wait for all polls."""
        deadline, exhausted = time.monotonic() + CLAIM_SECONDS, False
        while True:
            free = MAX_CONCURRENT_POLLS - len(self._polls)
            enough = free >= MAX_CONCURRENT_POLLS // 2
            if enough and not exhausted and time.monotonic() < deadline:
                exhausted = await self.claim(free) < free
            running: list[asyncio.Task[Any]] = [*self._polls.values()]
            if not own.done():
                running.append(own)
            if not running:
                return
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    async def claim(self, n: int) -> int:
        """Claim up to `n` jobs and start their polls; returns the number, or 0 if some were no polls."""
        asked_at = time.monotonic()
        claimed = await self.queue.run(
            lambda conn: jobs.claim(
                conn,
                self.options.type,
                self.options.host,
                n,
                lease=self.options.lease,
                max_attempts=self.options.policy.max_attempts,
                now=self.clock.now(),
            ),
            autocommit=True,
        )
        runs = [self.ledger.add(job, self.options.policy, asked_at) for job in claimed]
        others = [run for run in runs if run.job.program != PROGRAM or not is_feed_id(run.job.args)]
        if others:
            await self.ledger.give_back(others)  # a manager runs them
        for run in runs:
            if run not in others:
                self._polls[run.job.id] = asyncio.create_task(self.run_job(run))
        return 0 if others else len(runs)

    async def run_job(self, run: JobRun) -> None:
        """Poll the feed of a claimed job and settle the job."""
        try:
            feed = int(run.job.args[0])
            outcome = await poll(self.databases, self.fetcher, feed, shared=self.shared)
            if outcome.new:
                rows = list(map(str, outcome.new))
                await self.queue.run(
                    lambda conn: store.add_written_items.run(conn, job=run.job.id, rows=rows),
                    autocommit=True,
                )
            code = EXIT_DONE if outcome.good else EXIT_FAILED
            ending = ProcessEnd(code, detail=job_message(outcome))
        except asyncio.CancelledError:
            if self._stopping or run.lost:
                raise  # the job goes back to the queue, or another process has it
            ending = ProcessEnd(None, "cancelled")
        except Exception as error:  # noqa: BLE001 - one poll must not end the others
            ending = ending_of_error(error)
        finally:
            self._polls.pop(run.job.id, None)
        event = RunEnded(run.job.id, os.getpid(), ending.code, ending.why, ending.detail, "", 0.0)
        self.ledger.end(run, settled_run(run, event, self.clock))

    def cancel(self, run: JobRun) -> None:
        """Cancel a poll whose job was cancelled or lost."""
        if task := self._polls.get(run.job.id):
            task.cancel()

    async def stop(self, own: asyncio.Task[PollOutcome]) -> None:
        """Return unfinished jobs to the queue and settle the finished ones."""
        self._stopping = True
        running: list[asyncio.Task[Any]] = [own, *self._polls.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.ledger.give_back(list(self.ledger.runs.values()))
        await self.ledger.flush()  # after a flush that may be under way
        if self.shared.digest_pending:
            await self.queue.run(queue_digest_job, autocommit=True)


def is_feed_id(args: list[str]) -> bool:
    return len(args) == 1 and args[0].isdecimal() and args[0].isascii()
