"""Jobs and tasks for tests: put in, started, ended."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from usher.db.pool import Connection
from usher.queue import jobs, tasks
from usher.queue.job_states import State
from usher.queue.jobs import Claimed, New, Settled
from usher.queue.periods import Clock
from usher.queue.tasks import NewTask

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(minutes=1)


def new(type_: str = "t", program: str = "true", **more: Any) -> New:  # noqa: ANN401 - as New has them
    return New(type_, program, **more)


async def put(conn: Connection, *given: New, parent: int | None = None) -> list[int]:
    return [one.id for one in await jobs.enqueue(conn, given, now=NOW, parent=parent)]


async def started(
    conn: Connection, type_: str = "t", n: int = 100, *, now: datetime = NOW
) -> list[Claimed]:
    return await jobs.claim(conn, type_, "here", n, lease=LEASE, tries=4, now=now)


async def end(
    conn: Connection,
    runs: Sequence[Claimed],
    state: State,
    *,
    now: datetime = NOW,
    **more: Any,  # noqa: ANN401 - as Settled has them
) -> None:
    retry = now + HOUR if state is State.TEMPORARY_ERROR else None
    ends = [Settled(run.id, run.claim, state, retry_at=retry, **more) for run in runs]
    assert len(await jobs.settle(conn, ends, now=now)) == len(runs)


async def finished(conn: Connection, *given: New, state: State = State.COMPLETED) -> list[int]:
    """Jobs that came and went."""
    ids = await put(conn, *given)
    await end(conn, await started(conn), state)
    return ids


async def add_task(conn: Connection, clock: Clock | None = None, **more: Any) -> int:  # noqa: ANN401 - as NewTask has them
    wanted = NewTask("t", "true", clock or Clock.read(periodicity="1h"), **more)
    return await tasks.add(conn, wanted, now=NOW)
