"""Changes that an operator makes to jobs, tasks, resources and paused types, by the command line or the HTTP API."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, Unpack

import psycopg

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, NotFound
from usher.queue import run_api, task_queries
from usher.queue.host_rules import normalize_host_rule
from usher.queue.jobs import EnqueuedJob, JobRequest, error_reason
from usher.queue.periods import TaskSchedule, first_run, next_run
from usher.queue.policy import JOB_TYPE
from usher.queue.task_queries import PausedType, ResourceStatus, StoredTask

store = load_statements(__file__)

TaskState = Literal["enabled", "disabled"]
PERIOD_FIELDS: Final = ("periodicity", "hour", "minute", "second")
SCHEDULE_FIELDS: Final = (*PERIOD_FIELDS, "cron", "timezone")
MAX_LOG_RETENTION: Final = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended, with what is needed to run it again."""

    id: int
    type: str
    program: str
    args: list[str]
    resource: str | None
    priority: int
    host_rule: str
    key: str | None
    data: str | None
    task_id: int | None

    @property
    def exclusive_id(self) -> int:
        """The same for jobs of one task, of which only one may be live."""
        return -self.id if self.task_id is None else self.task_id

    def request(self) -> JobRequest:
        """Return the request for a job like this one."""
        fields = asdict(self)
        del fields["id"], fields["task_id"]
        return JobRequest(**fields | {"args": tuple(self.args)})


@dataclass(frozen=True, slots=True)
class RetryResult:
    """What a retry did.

    `pending`: the job had a temporary error and is due now. `new`: it had ended; `job` is its repetition.
    `live`: it waits or runs already, or `job`, of the same task or key, does. `missing`: there is no such job.
    """

    id: int
    what: Literal["pending", "new", "live", "missing"]
    job: int | None = None


async def retry_jobs(conn: Connection, ids: Sequence[int], *, now: datetime) -> list[RetryResult]:
    """Retry jobs now: those with a temporary error as they are, those that ended as new child jobs."""
    unique_ids = list(dict.fromkeys(ids))
    results = {
        id_: RetryResult(id_, "pending", id_)
        for id_ in await store.retry_jobs.column(conn, ids=unique_ids, now=now)
    }
    for id_ in await store.live_jobs.column(conn, ids=unique_ids):
        results.setdefault(id_, RetryResult(id_, "live", id_))
    ended_jobs = await load_ended_jobs(conn, [id_ for id_ in unique_ids if id_ not in results])
    for id_, repeat in (await enqueue_again(conn, ended_jobs, now=now)).items():
        results[id_] = RetryResult(id_, "new" if repeat.new else "live", repeat.id)
    return [results.get(id_) or RetryResult(id_, "missing") for id_ in unique_ids]


async def load_ended_jobs(conn: Connection, ids: Sequence[int]) -> list[EndedJob]:
    """Return those of these jobs that have ended."""
    return await store.load_ended_jobs.rows(conn, EndedJob, ids=list(ids))


async def enqueue_again(
    conn: Connection, ended_jobs: Sequence[EndedJob], *, now: datetime
) -> dict[int, EnqueuedJob]:
    """Add children that repeat ended jobs. Return, by old id, the new job or the live one of the same task or key."""
    tasks = [job.task_id for job in ended_jobs if job.task_id is not None]
    busy: dict[int, int] = dict(await store.busy_tasks.tuples(conn, tasks=tasks)) if tasks else {}
    chosen: dict[int, EndedJob] = {}  # one of each task
    for job in ended_jobs:
        if job.exclusive_id not in busy:
            chosen.setdefault(job.exclusive_id, job)
    requests = [(job.request(), job.id) for job in chosen.values()]
    repeats = await run_api.enqueue_with_parents(conn, requests, now=now)
    answers = {job.id: repeat for job, repeat in zip(chosen.values(), repeats, strict=True)}
    of_tasks = [job for job in chosen.values() if answers[job.id].new and job.task_id is not None]
    await store.set_tasks.run(
        conn,
        jobs=[answers[job.id].id for job in of_tasks],
        tasks=[job.task_id for job in of_tasks],
    )
    for job in ended_jobs:
        if job.id not in answers:
            live = busy.get(job.exclusive_id) or answers[chosen[job.exclusive_id].id].id
            answers[job.id] = EnqueuedJob(live, new=False)
    return answers


class TaskUpdate(TypedDict, total=False):
    """Fields of a task to set; None clears an optional field."""

    name: str | None
    type: str
    program: str
    args: Sequence[str]
    host_rule: str
    periodicity: timedelta | str | None
    hour: int | None
    minute: int | None
    second: int | None
    cron: str | None
    timezone: str
    jitter: timedelta
    autoperiodicity: bool
    resource: str | None
    priority: int
    data: str | None


async def update_task(
    conn: Connection, id_: int, *, now: datetime, **update: Unpack[TaskUpdate]
) -> StoredTask:
    """Set the given fields. A changed schedule sets the next run; a live job stays as it is."""
    old = await lock_task(conn, id_)
    schedule = updated_schedule(old.schedule, update)
    due = old.next_run
    if schedule != old.schedule:
        due = run_after_change(schedule, old.latest_run, now)
    columns: dict[str, Any] = {**asdict(old), **update, **asdict(schedule), "next_run": due}
    columns["args"] = list(columns["args"])
    columns["host_rule"] = normalize_host_rule(columns["host_rule"])
    try:
        await store.update_task.run(conn, **columns)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise BadInput(f"The task cannot be changed: {error_reason(error)}.") from error
    return await task_queries.show_task(conn, id_)


async def lock_task(conn: Connection, id_: int) -> StoredTask:
    """Return the task, locked until the transaction ends."""
    await store.lock_task.run(conn, id=id_)
    return await task_queries.show_task(conn, id_)


def updated_schedule(old: TaskSchedule, update: TaskUpdate) -> TaskSchedule:
    """Apply the given fields to a schedule. A cron expression and a period replace each other."""
    changes: dict[str, Any] = {name: update[name] for name in SCHEDULE_FIELDS if name in update}
    if not changes:
        return old
    fields: dict[str, Any] = asdict(old)
    if changes.get("cron") is not None:
        fields |= dict.fromkeys(PERIOD_FIELDS)
    elif any(changes.get(name) is not None for name in PERIOD_FIELDS):
        fields["cron"] = None
    return TaskSchedule.read(**(fields | changes))


def run_after_change(schedule: TaskSchedule, latest: datetime | None, now: datetime) -> datetime:
    """Return the next run of a changed or resumed task. It does not make up for missed runs."""
    if latest is None or schedule.cron is not None or latest + schedule.period <= now:
        return first_run(schedule, now)
    return next_run(schedule, latest, now)


async def set_task_state(
    conn: Connection, id_: int, state: TaskState, *, now: datetime
) -> StoredTask:
    """Enable or disable a task. An enabled task does not make up for runs that it missed."""
    old = await lock_task(conn, id_)
    due = old.next_run
    if state == "enabled" and old.state == "disabled" and due <= now:
        due = run_after_change(old.schedule, old.latest_run, now)
    await store.set_task_state.run(conn, id=id_, state=state, next_run=due)
    return await task_queries.show_task(conn, id_)


async def run_task(conn: Connection, id_: int, *, now: datetime) -> EnqueuedJob:
    """Add a job of the task now, whatever its schedule and state; or return the live one."""
    rows = await store.run_task.tuples(conn, id=id_, now=now)
    if rows:
        return EnqueuedJob(rows[0][0], new=True)
    live = (await task_queries.show_task(conn, id_)).job_id
    if live is None:
        raise BadInput(f"The job of the task {id_} ended just now; try again.")
    return EnqueuedJob(live, new=False)


async def delete_task(conn: Connection, id_: int) -> StoredTask:
    """Delete a task and return it. Its jobs stay, also a live one."""
    await store.lock_jobs.run(conn, id=id_)
    old = await lock_task(conn, id_)
    await store.delete_task.run(conn, id=id_)
    return old


async def set_resource(
    conn: Connection,
    name: str,
    *,
    capacity: int | None = None,
    interval: timedelta | None = None,
    now: datetime,
) -> tuple[ResourceStatus, bool]:
    """Set what is given and wake jobs that now have room. Return the resource and whether it is new."""
    try:
        rows = await store.set_resource.tuples(
            conn, name=name, capacity=capacity, interval=interval
        )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"The resource cannot be set: {error_reason(error)}.") from error
    [(id_, is_new)] = rows
    await store.wake.tuples(conn, ids=[id_], now=now)
    return await show_resource(conn, name), is_new


async def pause_resource(conn: Connection, name: str) -> ResourceStatus:
    """Stop starting jobs of a resource; running jobs finish."""
    await store.pause_resource.tuples(conn, name=name)
    return await show_resource(conn, name)


async def resume_resource(conn: Connection, name: str, *, now: datetime) -> ResourceStatus:
    """Start jobs of a resource again."""
    ids = await store.resume_resource.column(conn, name=name)
    await store.wake.tuples(conn, ids=ids, now=now)
    return await show_resource(conn, name)


async def show_resource(conn: Connection, name: str) -> ResourceStatus:
    """Return the resource of that name; NotFound if there is none."""
    for resource in await task_queries.list_resources(conn, name=name):
        return resource
    raise NotFound(f"There is no resource {name!r}.", hint="usher resources list")


async def pause_type(conn: Connection, type_: str, *, reason: str, now: datetime) -> PausedType:
    """Let no manager claim jobs of a type; running jobs finish."""
    if not JOB_TYPE.fullmatch(type_):
        raise BadInput(f"{type_[:80]!a} names no type of job.", hint="usher jobs list --summary")
    [since] = await store.pause_type.column(conn, type=type_, reason=reason, now=now)
    return PausedType(type_, reason, since)


async def resume_type(conn: Connection, type_: str) -> bool:
    """Let managers claim jobs of a type again; return False if it was not paused."""
    return bool(await store.resume_type.tuples(conn, type=type_))


async def set_log_retention(conn: Connection, retention: timedelta) -> None:
    """Set how long the log is kept; BadInput unless it is from a day to 100 years."""
    if retention > MAX_LOG_RETENTION:
        raise BadInput("The log is kept for 100 years at most.", hint="usher jobs log --keep 90d")
    try:
        await store.set_log_retention.run(conn, retention=retention)
    except psycopg.errors.CheckViolation as error:
        raise BadInput(
            "The log is kept for a day at least.", hint="usher jobs log --keep 90d"
        ) from error
