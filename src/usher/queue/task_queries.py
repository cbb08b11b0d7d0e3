"""Queries of tasks, resources and paused types; each returns a bounded number of rows."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.queue.periods import TaskSchedule

store = load_statements(__file__)

MAX_COUNTED_JOBS: Final = 10_000  # for each resource


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task with all its fields, and its live job if there is one."""

    id: int
    name: str | None
    type: str
    program: str
    args: list[str]
    state: str
    host_rule: str
    periodicity: timedelta | None
    hour: int | None
    minute: int | None
    second: int | None
    cron: str | None
    timezone: str
    jitter: timedelta
    autoperiodicity: bool
    next_run: datetime
    latest_run: datetime | None
    resource: str | None
    priority: int
    data: str | None
    job_id: int | None
    job_state: str | None

    @property
    def schedule(self) -> TaskSchedule:
        return TaskSchedule(
            self.periodicity, self.hour, self.minute, self.second, self.cron, self.timezone
        )


async def list_tasks(
    conn: Connection,
    *,
    state: str | None = None,
    type: str | None = None,  # noqa: A002 - the name of the column, as callers pass it
    resource: str | None = None,
    contains: str | None = None,
    after_id: int = 0,
    n: int = 100,
) -> list[StoredTask]:
    """Return tasks by id."""
    return await store.list_tasks.rows(
        conn,
        StoredTask,
        state=state,
        type=type,
        resource=resource,
        contains=contains,
        after_id=after_id,
        n=n,
    )


async def show_task(conn: Connection, task: int | str) -> StoredTask:
    """Return the task with this id or name; NotFound if there is none."""
    id_, name = (task, None) if isinstance(task, int) else (None, task)
    stored = await store.show_task.row(conn, StoredTask, id=id_, name=name)
    if stored is None:
        raise NotFound(f"There is no task {task!r}.", hint="usher tasks list")
    return stored


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """A resource, how many of its jobs run, and how many wait (counted up to a limit)."""

    id: int
    name: str
    capacity: int
    interval: timedelta
    running: int
    latest_run: datetime | None
    waiting: int
    paused: bool


@dataclass(frozen=True, slots=True)
class PausedType:
    """A type of job that no manager may claim."""

    type: str
    reason: str
    since: datetime


async def paused_types(conn: Connection) -> list[PausedType]:
    """Return the paused types, by name."""
    return await store.paused_types.rows(conn, PausedType)


async def list_resources(
    conn: Connection,
    *,
    contains: str | None = None,
    name: str | None = None,
    after: str = "",
    n: int = 100,
) -> list[ResourceStatus]:
    """Return resources by name."""
    return await store.list_resources.rows(
        conn, ResourceStatus, contains=contains, name=name, after=after, n=n, limit=MAX_COUNTED_JOBS
    )


async def log_retention(conn: Connection) -> timedelta:
    """Return how long the log is kept."""
    [retention] = await store.log_retention.column(conn)
    assert isinstance(retention, timedelta)  # noqa: S101 - the column's type
    return retention
