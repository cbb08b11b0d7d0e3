"""Claims, settles, returns, cancels and reaps at random and at once: each job ends once, and no cancel is lost."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from support.queue.queued_jobs import new, put
from usher.db.pool import Connection, connect
from usher.queue import jobs, tasks
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob, SettledRun

JOBS = 400
CANCELS = 150
MANAGERS = 4
LIMIT_SECONDS = 180
LEASE = timedelta(seconds=0.2)
TRIES = 10_000  # no attempt is the last
ENDS = (JobState.COMPLETED, JobState.COMPLETED, JobState.TEMPORARY_ERROR, JobState.PERMANENT_ERROR)
NOT_ONCE = """
    select id, count(*) filter (where completed) from control.job_log
    group by id having count(*) filter (where completed) <> 1
"""
WRONG_COUNTS = """
    select r.id, r.running from control.resource r
    where r.running <> (select count(*) from control.job j where j.resource_id = r.id and j.state = 'running')
"""
FINAL = "select id, state, cancel from control.job_log where completed"
RUN_AFTER_CANCEL = """
    select l.id from control.job_log l join control.job_log later on later.id = l.id and later.attempts > l.attempts
    where l.cancel
"""


@dataclass
class Queue:
    """What the actors share: where the queue is, when to stop, and what the operator was told."""

    database: str
    random: random.Random
    done: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[int, JobState] = field(default_factory=dict)


async def all_rows(conn: Connection, query: str) -> list[tuple[object, ...]]:
    return await (await conn.execute(query.encode())).fetchall()


async def manage(queue: Queue) -> None:
    """Claim jobs and end them, return them, keep them for a while, or forget them."""
    async with await connect(queue.database) as conn:
        while not queue.done.is_set():
            now = datetime.now(UTC)
            batch = queue.random.choice([1, 3, 20])
            runs = await jobs.claim(
                conn, "t", "here", batch, lease=LEASE, max_attempts=TRIES, now=now
            )
            queue.random.shuffle(runs)
            await handle(conn, queue, runs)
            await asyncio.sleep(0.001 if runs else 0.02)


async def handle(conn: Connection, queue: Queue, runs: list[ClaimedJob]) -> None:
    now = datetime.now(UTC)
    ours = [(run.id, run.claim) for run in runs]
    match queue.random.randrange(8):
        case 0:
            await jobs.give_back(conn, ours, now=now)
        case 1:
            return  # the reaper takes them back
        case 2:
            await jobs.extend(conn, ours, lease=LEASE, now=now)
            reports = [jobs.RunReport(*run, pid=None, output="so far") for run in ours]
            await jobs.report_progress(conn, "here", reports, now=now)
    ends = [SettledRun(*run, state=queue.random.choice(ENDS), retry_at=now) for run in ours]
    if ends:
        await jobs.settle(conn, ends, now=now)


async def cancel(queue: Queue, ids: list[int]) -> None:
    async with await connect(queue.database) as conn:
        for _ in range(CANCELS):
            chosen = queue.random.sample(ids, 3)
            found = await jobs.cancel(conn, chosen, reason="stress", now=datetime.now(UTC))
            queue.answers |= found
            await asyncio.sleep(0.002)


async def schedule(queue: Queue) -> None:
    """Do a scheduler's work until no job is left."""
    async with await connect(queue.database) as conn:
        while await all_rows(conn, "select from control.job limit 1"):
            await tasks.requeue_lost_jobs(conn, n=100, now=datetime.now(UTC))
            await tasks.requeue_failed_jobs(conn, n=100, now=datetime.now(UTC))
            assert await tasks.repair_resources(conn, now=datetime.now(UTC)) == 0
            await asyncio.sleep(0.01)
        queue.done.set()


async def test_every_job_ends_once_and_no_cancel_is_lost(database: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - shown if the test fails
    queue = Queue(database, random.Random(seed))  # noqa: S311 - repeatable
    async with await connect(database) as conn:
        await conn.execute("alter table control.resource add check (running <= capacity)")
        await conn.execute(
            "insert into control.resource (name, capacity, interval) "
            "select 'r' || i, 1 + i %% 3, '0' from generate_series(1, %s) i",
            [6],
        )
        names = [None, *(f"r{number}" for number in range(1, 7))]
        ids = await put(conn, *(new(resource=queue.random.choice(names)) for _ in range(JOBS)))
        async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(schedule(queue))
            group.create_task(cancel(queue, ids))
            for _ in range(MANAGERS):
                group.create_task(manage(queue))

        final = {id_: (state, cancelled) for id_, state, cancelled in await all_rows(conn, FINAL)}
        assert set(final) == set(ids)
        assert await all_rows(conn, NOT_ONCE) == []
        assert await all_rows(conn, WRONG_COUNTS) == []
        assert await all_rows(conn, RUN_AFTER_CANCEL) == []
        waited = {id_ for id_, state in queue.answers.items() if state is JobState.CANCELLED}
        assert {final[id_] for id_ in waited} == {("cancelled", True)}
        assert {final[id_][1] for id_ in queue.answers} == {True}
