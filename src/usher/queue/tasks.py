"""Tasks and their clocks: which are due, their jobs, and what brings jobs back into the queue.

Comes from the operator and the scheduler; goes to control.task and, as jobs, to control.job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput
from usher.queue.jobs import error_reason
from usher.queue.periods import TaskSchedule, first_run, next_run, normalize_host_rule

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A program that is to run again and again."""

    type: str
    program: str
    clock: TaskSchedule
    args: tuple[str, ...] = ()
    name: str | None = None
    host_rule: str = ""
    jitter: timedelta = timedelta()
    autoperiodicity: bool = False
    resource: str | None = None
    priority: int = 0
    data: str | None = None


@dataclass(frozen=True, slots=True)
class DueTask:
    """A task whose time has come."""

    id: int
    slot: datetime
    periodicity: timedelta | None
    hour: int | None
    minute: int | None
    second: int | None
    cron: str | None
    timezone: str

    def next_run(self, now: datetime) -> datetime:
        clock = TaskSchedule(
            self.periodicity, self.hour, self.minute, self.second, self.cron, self.timezone
        )
        return next_run(clock, self.slot, now)


async def add_task(conn: Connection, task: TaskSpec, *, now: datetime) -> int:
    """A new task; its first job comes at once, or when its time of day or cron expression says."""
    clock = task.clock
    try:
        made = await store.add.tuples(
            conn,
            name=task.name,
            type=task.type,
            program=task.program,
            args=list(task.args),
            host_rule=normalize_host_rule(task.host_rule),
            periodicity=clock.periodicity,
            hour=clock.hour,
            minute=clock.minute,
            second=clock.second,
            cron=clock.cron,
            timezone=clock.timezone,
            jitter=task.jitter,
            autoperiodicity=task.autoperiodicity,
            next_run=first_run(clock, now),
            resource=task.resource,
            priority=task.priority,
            data=task.data,
        )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"The task cannot be added: {error_reason(error)}.") from error
    if not made:
        raise BadInput(f"There is a task named {task.name!r} already.", hint="usher tasks list")
    [(id_,)] = made
    return int(id_)


async def park_tasks(conn: Connection, *, n: int, now: datetime) -> int:
    """Set aside due tasks whose job still lives, until it ends; returns how many."""
    [(parked,)] = await store.park.tuples(conn, n=n, now=now)
    return int(parked)


async def due_tasks(conn: Connection, *, n: int, now: datetime) -> list[DueTask]:
    """Tasks whose time has come, locked until the transaction ends."""
    return await store.due.rows(conn, DueTask, n=n, now=now)


async def enqueue_due_tasks(conn: Connection, tasks: Sequence[DueTask], *, now: datetime) -> int:
    """Make the jobs of due tasks and set their clocks; returns how many."""
    nexts = [task.next_run(now) for task in tasks]
    return await store.spawn.run(conn, ids=[task.id for task in tasks], nexts=nexts)


async def requeue_failed_jobs(conn: Connection, *, n: int, now: datetime) -> int:
    """Put jobs whose wait is over back into the queue; returns how many."""
    [(back, _)] = await store.retry.tuples(conn, n=n, now=now)
    return int(back)


async def requeue_lost_jobs(conn: Connection, *, n: int, now: datetime) -> list[int]:
    """Take back runs whose lease has ended."""
    return [id_ for (id_,) in await store.reap.tuples(conn, n=n, now=now)]


async def repair_resources(conn: Connection, *, now: datetime) -> int:
    """Put right what somebody changed by hand; returns how many resources were wrong."""
    [(mended,)] = await store.mend.tuples(conn, now=now)
    return int(mended)


async def create_log_partitions(conn: Connection, *, months: int, now: datetime) -> int:
    """Make the log's partitions ahead of time; returns how many were missing."""
    [(made,)] = await store.make_log.tuples(conn, months=months, now=now)
    return int(made)


async def prune_log(conn: Connection, *, now: datetime) -> int:
    """Forget what ended too long ago; returns how many partitions went."""
    [(pruned,)] = await store.prune_log.tuples(conn, now=now)
    return int(pruned)


async def count_due_jobs(
    conn: Connection, *, most: int, now: datetime
) -> list[tuple[str, int, float]]:
    """What could run now, by type: how many (counted up to so many), and the seconds the oldest waits."""
    return [
        (type_, n, oldest)
        for type_, n, oldest in await store.depth.tuples(conn, most=most, now=now)
    ]


async def try_to_lead(conn: Connection, *, lock: int, silence: float) -> bool:
    """Try to be the one scheduler that works, for as long as the connection lives and is not silent for so long."""
    [(leading, *_)] = await store.lead.tuples(conn, lock=lock, silence=f"{silence * 1000:.0f}ms")
    return bool(leading)
