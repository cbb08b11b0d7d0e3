"""The queue looked at: jobs, their log, their kin and their works.

Comes from whoever operates or shows the queue; goes out as rows, always a bounded number of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.queue.job_states import FINAL_STATES

store = load_statements(__file__)

MAX_COUNTED_JOBS: Final = 10_000  # counted, of what may be millions
MAX_COUNTED_RUNS: Final = 1_000_000
MAX_SHOWN_ATTEMPTS: Final = 1_000
MAX_TREE_JOBS: Final = 1_000
MAX_SHOWN_NEEDS: Final = 1_000
MAX_TREE_DEPTH: Final = 100
DAY: Final = timedelta(days=1)
JOBS_HINT: Final = "usher jobs list, or usher jobs log for those that ended."


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list: as it is in the queue, or how one run of it ended."""

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


@dataclass(frozen=True, slots=True)
class StoredJob(ListedJob):
    """A job with all there is of it."""

    output: str | None
    data: str | None


class JobFilter(TypedDict, total=False):
    """Which jobs to list; what is None or not given does not matter."""

    states: Sequence[str] | None
    type: str | None
    task: int | None
    resource: str | None
    host: str | None
    contains: str | None  # in program, arguments, message or key
    since: datetime | None  # scheduled since then, in the log: ended
    after_id: int | None  # the last one of the page before
    after_end: datetime | None  # and its end, where the log may have a job several times


async def list_jobs(
    conn: Connection, *, n: int = 100, log: bool = False, **wanted: Unpack[JobFilter]
) -> list[ListedJob]:
    """The queue, newest first; or the log, the latest end first.

    The log gives each job once, as it ended; states that are not final ask for failed attempts too.
    """
    given: dict[str, Any] = {**dict.fromkeys(JobFilter.__annotations__), **wanted, "n": n}
    states = list(given["states"] or ())
    if not log:
        del given["after_end"]
        return await store.list_jobs.rows(conn, ListedJob, **{**given, "states": states or None})
    if given["after_id"] is not None and given["after_end"] is None:
        given["after_end"] = await end_time(conn, given["after_id"])
    given["states"] = states or [state.value for state in FINAL_STATES]
    return await store.list_log.rows(conn, ListedJob, **given)


async def end_time(conn: Connection, id_: int) -> datetime:
    """When a job ended."""
    [(when,)] = await store.ended.tuples(conn, id=id_)
    if not isinstance(when, datetime):
        raise NotFound(f"No job {id_} is in the log.", hint="usher jobs log")
    return when


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A row that a job wrote."""

    table: str
    row_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The JSON value that a run set last, and which attempt did."""

    value: Any
    attempt: int
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Need:
    """A job that another waits for; without a state if the log has dropped it."""

    id: int
    state: str | None


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job, its attempts, its kin and its works."""

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
    """The job as it is in the queue, or as it ended; or as one attempt ended."""
    live = await store.live_job.row(conn, StoredJob, id=id_) if attempt is None else None
    job = live or await store.logged_job.row(conn, StoredJob, id=id_, attempt=attempt)
    if job is None:
        which = f"attempt {attempt} of a job {id_}" if attempt is not None else f"job {id_}"
        raise NotFound(f"There is no {which}.", hint=JOBS_HINT)
    [(parent, task, children)] = await store.kin.tuples(conn, id=id_, most=MAX_COUNTED_JOBS)
    return JobDetails(
        job,
        live is not None,
        await store.attempts.rows(conn, ListedJob, id=id_, most=MAX_SHOWN_ATTEMPTS),
        parent,
        job.task_id if job.task_id is not None else task,
        children,
        await store.wrote.rows(conn, WrittenRow, id=id_, most=MAX_SHOWN_ATTEMPTS),
        await show_result(conn, id_),
        await list_needs(conn, id_),
        [job_id for (job_id,) in await store.needed_by.tuples(conn, id=id_, most=MAX_SHOWN_NEEDS)],
    )


async def show_result(conn: Connection, id_: int) -> StoredResult | None:
    """The result of a job, whatever its state."""
    return await store.show_result.row(conn, StoredResult, id=id_)


async def list_needs(conn: Connection, id_: int) -> list[Need]:
    """The jobs that a job waits or waited for."""
    return await store.list_needs.rows(conn, Need, id=id_, most=MAX_SHOWN_NEEDS)


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs of a type are in a state; `more` if only so many were counted."""

    type: str
    state: str
    number: int
    more: bool


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The queue now, and what ended in the last 24 hours."""

    live: list[JobCount]
    log: list[JobCount]


async def count_jobs(conn: Connection, *, now: datetime) -> QueueCounts:
    return QueueCounts(
        await store.count_live.rows(conn, JobCount, most=MAX_COUNTED_JOBS),
        await store.count_log.rows(conn, JobCount, since=now - DAY, most=MAX_COUNTED_RUNS),
    )


@dataclass(frozen=True, slots=True)
class JobTreeNode:
    """A job among its kin; without a state if nothing is known of it any more."""

    id: int
    depth: int  # from the job asked for: ancestors are below 0
    parent: int | None
    task_id: int | None
    type: str | None
    program: str | None
    args: list[str] | None
    state: str | None
    message: str | None


async def job_tree(conn: Connection, id_: int) -> list[JobTreeNode]:
    """The job with its ancestors to the root and its descendants, the root first."""
    found = await store.tree.rows(
        conn, JobTreeNode, id=id_, deep=MAX_TREE_DEPTH, most=MAX_TREE_JOBS
    )
    if all(node.state is None and node.parent is None for node in found):
        raise NotFound(f"There is no job {id_}.", hint=JOBS_HINT)
    return found


@dataclass(frozen=True, slots=True)
class RowWriter:
    """A job that wrote a row, and when; without a state if the log has forgotten it."""

    id: int
    at: datetime
    type: str | None
    program: str | None
    args: list[str] | None
    state: str | None
    message: str | None


async def row_writers(conn: Connection, table: str, row_id: str) -> list[RowWriter]:
    """Which jobs wrote this row, the last first."""
    return await store.made_by.rows(
        conn, RowWriter, table=table, row_id=row_id, most=MAX_SHOWN_ATTEMPTS
    )
