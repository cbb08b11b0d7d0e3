"""Queries of jobs, their log, their relatives and the rows they wrote; each returns a bounded number of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.queue.job_states import FINAL_STATES

store = load_statements(__file__)

MAX_COUNTED_JOBS: Final = 10_000
MAX_COUNTED_RUNS: Final = 1_000_000
MAX_FIGURE: Final = 100_000  # of one figure of the history
MAX_SHOWN_ATTEMPTS: Final = 1_000
MAX_TREE_JOBS: Final = 1_000
MAX_SHOWN_NEEDS: Final = 1_000
MAX_TREE_DEPTH: Final = 100
DAY: Final = timedelta(days=1)
JOBS_HINT: Final = "usher jobs list, or usher jobs log for those that ended."


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list: as it is in the queue, or as one of its runs ended."""

    id: int
    type: str
    program: str
    args: list[str]
    state: str
    message: str | None
    hostname: str | None
    process_id: int | None
    exit_code: int | None
    scheduled: datetime
    start: datetime | None
    end: datetime | None
    last_update: datetime
    task_id: int | None
    resource: str | None
    attempts: int
    max_attempts: int | None
    priority: int
    host_rule: str
    key: str | None
    held: bool
    cancel: bool
    completed: bool

    @property
    def run_position(self) -> str:
        """The position of a run in the log, which may contain a job several times."""
        return f"{self.id}@{self.end:%Y-%m-%dT%H:%M:%S.%f}"


@dataclass(frozen=True, slots=True)
class StoredJob(ListedJob):
    """A job with all its columns."""

    output: str | None
    data: str | None


class JobFilter(TypedDict, total=False):
    """Which jobs to list; a condition that is None or missing does not apply."""

    states: Sequence[str] | None
    type: str | None
    task: int | None
    resource: str | None
    host: str | None
    contains: str | None  # in program, arguments, message or key
    since: datetime | None  # scheduled since then; in the log, ended since then
    after_id: int | None  # the last job of the previous page
    after_end: datetime | None  # its end, because the log may contain a job several times


async def list_jobs(
    conn: Connection, *, n: int = 100, log: bool = False, **conditions: Unpack[JobFilter]
) -> list[ListedJob]:
    """List the queue, newest first, or the log, latest end first.

    The log lists each job once, as it ended. With states that are not final it lists failed attempts too.
    """
    filters: dict[str, Any] = {**dict.fromkeys(JobFilter.__annotations__), **conditions, "n": n}
    states = list(filters["states"] or ())
    if not log:
        del filters["after_end"]
        return await store.list_jobs.rows(conn, ListedJob, **filters | {"states": states or None})
    if filters["after_id"] is not None and filters["after_end"] is None:
        filters["after_end"] = await end_time(conn, filters["after_id"])
    filters["states"] = states or [state.value for state in FINAL_STATES]
    return await store.list_log.rows(conn, ListedJob, **filters)


async def end_time(conn: Connection, id_: int) -> datetime:
    """Return when a job ended; NotFound if it is not in the log."""
    [end] = await store.end_time.column(conn, id=id_)
    if not isinstance(end, datetime):
        raise NotFound(f"No job {id_} is in the log.", hint="usher jobs log")
    return end


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A row that a job wrote."""

    table: str
    row_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The JSON value that a run set last, and the attempt that set it."""

    value: Any
    attempt: int
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Need:
    """A job that another one waits for; its state is None once the log has dropped it."""

    id: int
    state: str | None


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job with its attempts, its relatives, and the rows that it wrote."""

    job: StoredJob
    live: bool
    attempts: list[ListedJob]
    parent: int | None
    root_task: int | None
    children: int
    wrote: list[WrittenRow]
    result: StoredResult | None
    needs: list[Need]
    needed_by: list[int]  # jobs that wait for it


async def show_job(conn: Connection, id_: int, *, attempt: int | None = None) -> JobDetails:
    """Return the job as it is in the queue or as it ended, or one attempt of it; NotFound if there is none."""
    live = await store.live_job.row(conn, StoredJob, id=id_) if attempt is None else None
    job = live or await store.logged_job.row(conn, StoredJob, id=id_, attempt=attempt)
    if job is None:
        which = f"attempt {attempt} of a job {id_}" if attempt is not None else f"job {id_}"
        raise NotFound(f"There is no {which}.", hint=JOBS_HINT)
    [(parent, task, children)] = await store.relatives.tuples(conn, id=id_, limit=MAX_COUNTED_JOBS)
    return JobDetails(
        job,
        live is not None,
        await store.attempts.rows(conn, ListedJob, id=id_, limit=MAX_SHOWN_ATTEMPTS),
        parent,
        job.task_id if job.task_id is not None else task,
        children,
        await store.wrote.rows(conn, WrittenRow, id=id_, limit=MAX_SHOWN_ATTEMPTS),
        await show_result(conn, id_),
        await list_needs(conn, id_),
        await store.needed_by.column(conn, id=id_, limit=MAX_SHOWN_NEEDS),
    )


async def show_result(conn: Connection, id_: int) -> StoredResult | None:
    """Return the result of a job, whatever its state."""
    return await store.show_result.row(conn, StoredResult, id=id_)


async def list_needs(conn: Connection, id_: int) -> list[Need]:
    """Return the jobs that a job waits or waited for."""
    return await store.list_needs.rows(conn, Need, id=id_, limit=MAX_SHOWN_NEEDS)


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs of a type are in a state; `more` if the count stopped at its limit."""

    type: str
    state: str
    number: int
    more: bool


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The jobs in the queue, and those that ended in the last 24 hours."""

    live: list[JobCount]
    log: list[JobCount]


async def count_jobs(conn: Connection, *, now: datetime, most: int = MAX_FIGURE) -> QueueCounts:
    """Count jobs by type and state; at most this many that ended."""
    return QueueCounts(
        await store.count_live.rows(conn, JobCount, limit=MAX_COUNTED_JOBS),
        await store.count_log.rows(conn, JobCount, since=now - DAY, limit=most),
    )


@dataclass(frozen=True, slots=True)
class JobTreeNode:
    """A job in its tree; its state is None once the log has dropped it."""

    id: int
    depth: int  # relative to the requested job; negative for ancestors
    parent: int | None
    task_id: int | None
    type: str | None
    program: str | None
    args: list[str] | None
    state: str | None
    message: str | None


async def job_tree(conn: Connection, id_: int) -> list[JobTreeNode]:
    """Return the job with its ancestors and descendants, the root first; NotFound if there is no such job."""
    nodes = await store.job_tree.rows(
        conn, JobTreeNode, id=id_, depth=MAX_TREE_DEPTH, limit=MAX_TREE_JOBS
    )
    if all(node.state is None and node.parent is None for node in nodes):
        raise NotFound(f"There is no job {id_}.", hint=JOBS_HINT)
    return nodes


@dataclass(frozen=True, slots=True)
class RowWriter:
    """A job that wrote a row, and when; its state is None once the log has dropped it."""

    id: int
    at: datetime
    type: str | None
    program: str | None
    args: list[str] | None
    state: str | None
    message: str | None


async def row_writers(conn: Connection, table: str, row_id: str) -> list[RowWriter]:
    """Return the jobs that wrote this row, the last first."""
    return await store.row_writers.rows(
        conn, RowWriter, table=table, row_id=row_id, limit=MAX_SHOWN_ATTEMPTS
    )


async def job_figures(
    conn: Connection, *, since: datetime, until: datetime
) -> tuple[int, int, int, int]:
    """How many jobs wait, run, and completed and failed in this time, each up to a limit."""
    [row] = await store.job_figures.tuples(conn, since=since, until=until, most=MAX_COUNTED_RUNS)
    waiting, running, completed, failed = row
    return waiting, running, completed, failed
