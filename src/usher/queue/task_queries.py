"""Tasks and resources looked at.

Comes from whoever operates or shows the queue; goes out as rows, always a bounded number of them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.queue.periods import TaskSchedule

store = load_statements(__file__)

MAX_COUNTED_JOBS: Final = 10_000  # jobs counted for each resource


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task with all that can be set for it, and its live job if there is one."""

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
    def clock(self) -> TaskSchedule:
        return TaskSchedule(
            self.periodicity, self.hour, self.minute, self.second, self.cron, self.timezone
        )


async def list_tasks(
    conn: Connection,
    *,
    state: str | None = None,
    type: str | None = None,  # noqa: A002 - the name of the column, as the callers have it
    resource: str | None = None,
    contains: str | None = None,
    after_id: int = 0,
    n: int = 100,
) -> list[StoredTask]:
    """Tasks in the order of their numbers."""
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
    """The task of that number or name."""
    number, name = (task, None) if isinstance(task, int) else (None, task)
    found = await store.show_task.row(conn, StoredTask, id=number, name=name)
    if found is None:
        raise NotFound(f"There is no task {task!r}.", hint="usher tasks list")
    return found


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """A resource, what runs on it now, and how many jobs wait for it (counted up to a limit)."""

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
    """The paused types, by name."""
    return await store.paused_types.rows(conn, PausedType)


async def list_resources(
    conn: Connection,
    *,
    contains: str | None = None,
    name: str | None = None,
    after: str = "",
    n: int = 100,
) -> list[ResourceStatus]:
    """Resources by name."""
    return await store.list_resources.rows(
        conn, ResourceStatus, contains=contains, name=name, after=after, n=n, most=MAX_COUNTED_JOBS
    )


async def log_retention(conn: Connection) -> timedelta:
    """How long the log is kept."""
    [(span,)] = await store.log_keep.tuples(conn)
    assert isinstance(span, timedelta)  # noqa: S101 - the column's type
    return span
