"""Tasks that are due, their jobs, and the upkeep of the queue that the scheduler does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import psycopg

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput
from usher.queue.host_rules import normalize_host_rule
from usher.queue.jobs import error_reason
from usher.queue.periods import TaskSchedule, first_run, next_run

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task to add: a program and when it runs."""

    type: str
    program: str
    schedule: TaskSchedule
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
    """A task that is due, with the columns of its schedule."""

    id: int
    slot: datetime
    periodicity: timedelta | None
    hour: int | None
    minute: int | None
    second: int | None
    cron: str | None
    timezone: str

    def next_run(self, now: datetime) -> datetime:
        """Return when the task is due after this run."""
        schedule = TaskSchedule(
            self.periodicity, self.hour, self.minute, self.second, self.cron, self.timezone
        )
        return next_run(schedule, self.slot, now)


async def add_task(conn: Connection, task: TaskSpec, *, now: datetime) -> int:
    """Add a task and return its id; BadInput if it cannot be stored or its name is taken."""
    columns = asdict(task)
    columns |= columns.pop("schedule")
    columns |= {"args": list(task.args), "host_rule": normalize_host_rule(task.host_rule)}
    try:
        rows = await store.add_task.tuples(conn, **columns, next_run=first_run(task.schedule, now))
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"The task cannot be added: {error_reason(error)}.") from error
    if not rows:
        raise BadInput(f"There is a task named {task.name!r} already.", hint="usher tasks list")
    [(id_,)] = rows
    return int(id_)


async def park_tasks(conn: Connection, *, n: int, now: datetime) -> int:
    """Park due tasks whose job is still live until that job ends; return how many."""
    [parked] = await store.park_tasks.column(conn, n=n, now=now)
    return int(parked)


async def due_tasks(conn: Connection, *, n: int, now: datetime) -> list[DueTask]:
    """Return tasks that are due, locked until the transaction ends."""
    return await store.due_tasks.rows(conn, DueTask, n=n, now=now)


async def enqueue_due_tasks(conn: Connection, tasks: Sequence[DueTask], *, now: datetime) -> int:
    """Add the jobs of due tasks and set the next runs; return how many."""
    next_runs = [task.next_run(now) for task in tasks]
    ids = [task.id for task in tasks]
    return await store.enqueue_due_tasks.run(conn, ids=ids, next_runs=next_runs)


async def requeue_failed_jobs(conn: Connection, *, n: int, now: datetime) -> int:
    """Return jobs whose retry delay is over to the queue; return how many."""
    [(requeued, _)] = await store.requeue_failed_jobs.tuples(conn, n=n, now=now)
    return int(requeued)


async def requeue_lost_jobs(conn: Connection, *, n: int, now: datetime) -> list[int]:
    """Take back jobs whose lease has expired; return their ids."""
    return await store.requeue_lost_jobs.column(conn, n=n, now=now)


async def repair_resources(conn: Connection, *, now: datetime) -> int:
    """Correct the counts of resources that were changed by hand; return how many were wrong."""
    [repaired] = await store.repair_resources.column(conn, now=now)
    return int(repaired)


async def create_log_partitions(conn: Connection, *, months: int, now: datetime) -> int:
    """Create the partitions of the log for this month and the next ones; return how many were missing."""
    [created] = await store.create_log_partitions.column(conn, months=months, now=now)
    return int(created)


async def count_due_jobs(
    conn: Connection, *, limit: int, now: datetime
) -> list[tuple[str, int, float]]:
    """Return, by type, how many jobs could run now (counted up to a limit) and the oldest one's wait in seconds."""
    return [
        (type_, count, oldest)
        for type_, count, oldest in await store.count_due_jobs.tuples(conn, limit=limit, now=now)
    ]


async def try_to_lead(conn: Connection, *, lock: int, silence: float) -> bool:
    """Try to become the leading scheduler until the connection ends or is silent for so many seconds."""
    milliseconds = f"{silence * 1000:.0f}ms"
    [(leading, *_)] = await store.try_to_lead.tuples(conn, lock=lock, silence=milliseconds)
    return bool(leading)
