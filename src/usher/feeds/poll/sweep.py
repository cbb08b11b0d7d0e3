"""A process that polls many feeds: besides its own, it takes the jobs of others that are due.

Comes from the job of one feed; goes to the queue for more, as a manager does: each is claimed with a lease and settled
under its claim, so that a feed's task, its host's resource and the log are as if each had a process of its own. What
costs most, a process and its connections, is shared by all that are due at once.
"""

import asyncio
import os
import random
import time
import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.errors import NotFound, UsherError
from usher.feeds.items.digest import digest_soon
from usher.feeds.poll.feed_poll import Told, poll
from usher.feeds.poll.shared_statements import Desk
from usher.feeds.poll.tasks import PROGRAM
from usher.feeds.store.databases import House
from usher.queue import jobs
from usher.queue.job_states import ProcessEnd, job_outcome
from usher.queue.jobs import SettledRun
from usher.queue.policy import Policy
from usher.queue.running_jobs import JobRun, RunningJobs
from usher.telemetry import Log, observed

store = load_statements(__file__)
log = Log("feeds")

TOGETHER: Final = 32  # polls at once
LONGEST: Final = (
    5.0  # seconds in which further ones are taken: its own job, and its host's seat, wait so long
)
DONE, AGAIN, NEVER = 0, 1, 2  # exit codes, as of every job


@dataclass(frozen=True, slots=True)
class Post:
    """Whose jobs are taken: the machine, the type, and how it is run."""

    host: str
    type: str
    lease: timedelta
    policy: Policy


async def host_of(conn: Connection, job: int) -> str:
    """The name that the manager of a job goes by; nothing if the job is nobody's."""
    found = await store.host_of.tuples(conn, id=job)
    return str(found[0][0] or "") if found else ""


async def report(conn: Connection, told: Told, *, job: int, claim: str, now: datetime) -> None:
    """Store the message of a job that succeeded, and which items it wrote.

    A job that failed ends with an exception, whose text becomes its message.
    """
    if told.good:
        await store.say.run(conn, words=words(told), id=job, claim=claim, now=now)
    if told.new:
        await store.wrote.run(conn, job=job, rows=[str(id_) for id_ in told.new])


def words(told: Told) -> str:
    return told.words if told.next_at is None else f"{told.words} Next {told.next_at:%H:%M:%S}."


def failure(error: Exception) -> ProcessEnd:
    """What a poll that could not be made means for its job."""
    if isinstance(error, NotFound):
        return ProcessEnd(NEVER, detail=error.message)
    if isinstance(error, UsherError):
        return ProcessEnd(AGAIN, detail=error.message)
    log.error("poll_failed", trace=traceback.format_exception(error))
    return ProcessEnd(AGAIN, detail=f"{type(error).__name__}: {error}"[:500])


class Sweep:
    """Polls at once in one process; `await Sweep(…).run(feed)`."""

    def __init__(self, house: House, fetcher: Fetcher, queue: Database, post: Post) -> None:
        self.house, self.fetcher, self.queue, self.post = house, fetcher, queue, post
        self.desk = Desk(house, later=True)
        self.clock = queue.clock
        self.ledger = RunningJobs(queue, post.host, self.clock, lease=post.lease)
        self._polls: dict[int, asyncio.Task[None]] = {}
        self._leaving = False

    async def run(self, feed: int) -> Told:
        """Poll the feed whose job this is, and meanwhile and for a while afterwards all others that are due."""
        own = asyncio.create_task(poll(self.house, self.fetcher, feed, desk=self.desk))
        keeping = [
            observed(asyncio.create_task(work), log)
            for work in (
                self.ledger.settle(),
                self.ledger.send_heartbeats(self.stop, self.stop),
                self.ledger.watch_leases(self.stop),
            )
        ]
        try:
            await self.take(own)
            return await own
        finally:
            await self.leave(own)
            for one in keeping:
                one.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)

    async def take(self, own: asyncio.Task[Told]) -> None:
        """Take jobs as long as there are enough and it is not too late, and see all to their end."""
        until, dry = time.monotonic() + LONGEST, False
        while True:
            free = TOGETHER - len(self._polls)
            if not dry and free >= TOGETHER // 2 and time.monotonic() < until:
                dry = await self.claim(free) < free
            going: list[asyncio.Task[Any]] = [*self._polls.values()]
            if not own.done():
                going.append(own)
            if not going:
                return
            await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)

    async def claim(self, n: int) -> int:
        """Begin up to so many polls; how many there were."""
        asked = time.monotonic()
        claimed = await self.queue.run(
            lambda conn: jobs.claim(
                conn,
                self.post.type,
                self.post.host,
                n,
                lease=self.post.lease,
                max_attempts=self.post.policy.max_attempts,
                now=self.clock.now(),
            ),
            autocommit=True,
        )
        runs = [self.ledger.add(job, self.post.policy, asked) for job in claimed]
        others = [run for run in runs if run.job.program != PROGRAM or not is_feed(run.job.args)]
        if others:
            await self.ledger.give_back(others)  # a manager will run them, as it runs any job
        for run in runs:
            if run not in others:
                self._polls[run.job.id] = asyncio.create_task(self.one(run))
        return 0 if others else len(runs)

    async def one(self, run: JobRun) -> None:
        """A poll under its claim, from its beginning to its settling."""
        try:
            told = await poll(self.house, self.fetcher, int(run.job.args[0]), desk=self.desk)
            if told.new:
                await self.wrote(run, told)
            ending = ProcessEnd(DONE if told.good else NEVER, detail=words(told))
        except asyncio.CancelledError:
            if self._leaving or run.lost:
                raise  # it goes back, or is no longer ours
            ending = ProcessEnd(None, "cancelled")
        except Exception as error:  # noqa: BLE001 - whatever one poll meets is not the others' trouble
            ending = failure(error)
        finally:
            self._polls.pop(run.job.id, None)
        self.ledger.end(run, self.settled(run, ending))

    async def wrote(self, run: JobRun, told: Told) -> None:
        rows = [str(id_) for id_ in told.new]
        await self.queue.run(
            lambda conn: store.wrote.run(conn, job=run.job.id, rows=rows), autocommit=True
        )

    def settled(self, run: JobRun, ending: ProcessEnd) -> SettledRun:
        luck = random.random()  # noqa: S311 - spreads retries
        found = job_outcome(ending, attempts=run.job.attempts, policy=run.policy, random_share=luck)
        again = None if found.retry_in is None else self.clock.now() + found.retry_in
        return SettledRun(
            *run.fence,
            state=found.state,
            exit_code=found.exit_code,
            pid=os.getpid(),
            message=found.message,
            retry_at=again,
        )

    def stop(self, run: JobRun) -> None:
        """Somebody cancelled it, or it is no longer ours."""
        if going := self._polls.get(run.job.id):
            going.cancel()

    async def leave(self, own: asyncio.Task[Told]) -> None:
        """Give back what has not ended, and see that what has is settled."""
        self._leaving = True
        going: list[asyncio.Task[Any]] = [own, *self._polls.values()]
        for one in going:
            one.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await self.ledger.give_back(list(self.ledger.runs.values()))
        await self.ledger.flush()  # after the one that may be under way
        if self.desk.undone:
            await self.queue.run(digest_soon, autocommit=True)


def is_feed(args: list[str]) -> bool:
    return len(args) == 1 and args[0].isdecimal() and args[0].isascii()
