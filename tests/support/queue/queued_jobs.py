"""Jobs and tasks for tests: put in, started, ended."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from usher.db.pool import Connection
from usher.queue import jobs, tasks
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob, JobRequest, SettledRun
from usher.queue.periods import TaskSchedule
from usher.queue.tasks import TaskSpec

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(minutes=1)


def new(type_: str = "t", program: str = "true", **more: Any) -> JobRequest:  # noqa: ANN401 - as New has them
    return JobRequest(type_, program, **more)


async def put(conn: Connection, *given: JobRequest, parent: int | None = None) -> list[int]:
    return [one.id for one in await jobs.enqueue(conn, given, now=NOW, parent=parent)]


async def started(
    conn: Connection, type_: str = "t", n: int = 100, *, now: datetime = NOW
) -> list[ClaimedJob]:
    return await jobs.claim(conn, type_, "here", n, lease=LEASE, max_attempts=4, now=now)


async def end(
    conn: Connection,
    runs: Sequence[ClaimedJob],
    state: JobState,
    *,
    now: datetime = NOW,
    **more: Any,  # noqa: ANN401 - as Settled has them
) -> None:
    retry = now + HOUR if state is JobState.TEMPORARY_ERROR else None
    ends = [SettledRun(run.id, run.claim, state, retry_at=retry, **more) for run in runs]
    assert len(await jobs.settle(conn, ends, now=now)) == len(runs)


async def finished(
    conn: Connection, *given: JobRequest, state: JobState = JobState.COMPLETED
) -> list[int]:
    """Jobs that came and went."""
    ids = await put(conn, *given)
    await end(conn, await started(conn), state)
    return ids


async def add_task(conn: Connection, clock: TaskSchedule | None = None, **more: Any) -> int:  # noqa: ANN401 - as NewTask has them
    wanted = TaskSpec("t", "true", clock or TaskSchedule.read(periodicity="1h"), **more)
    return await tasks.add_task(conn, wanted, now=NOW)


async def prune_log(conn: Connection, *, now: datetime) -> int:
    """Drop the partitions of the log that are too old; return how many."""
    cursor = await conn.execute("select control.prune_log(%s)", [now])
    [(dropped,)] = await cursor.fetchall()
    return int(dropped)
