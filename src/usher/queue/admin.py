"""The operator's desk: what is changed by hand in the queue.

Comes from the command line and the HTTP API; goes to control.job, control.task, control.resource and control.house.
What only looks is in `look` (jobs) and `plan` (tasks, resources); why a job waits, in `why`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, Unpack

import psycopg

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, NotFound
from usher.queue import run_api, task_queries
from usher.queue.jobs import EnqueuedJob, JobRequest, error_reason
from usher.queue.periods import TaskSchedule, first_run, next_run, normalize_host_rule
from usher.queue.policy import JOB_TYPE
from usher.queue.task_queries import PausedType, ResourceStatus, StoredTask

store = load_statements(__file__)

TaskState = Literal["enabled", "disabled"]
PERIOD_FIELDS: Final = ("periodicity", "hour", "minute", "second")
SCHEDULE_FIELDS: Final = (*PERIOD_FIELDS, "cron", "timezone")
MAX_LOG_RETENTION: Final = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended, with what is needed to put it in again."""

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
    def mark(self) -> int:
        """The same for jobs that cannot live at once: those of one task."""
        return -self.id if self.task_id is None else self.task_id

    def anew(self) -> JobRequest:
        return JobRequest(
            self.type,
            self.program,
            tuple(self.args),
            resource=self.resource,
            priority=self.priority,
            host_rule=self.host_rule,
            key=self.key,
            data=self.data,
        )


@dataclass(frozen=True, slots=True)
class RetryResult:
    """What became of the wish to try a job again.

    `pending`: it had failed for now and waits for its turn at once. `new`: it had ended and is in again, as `job`.
    `live`: it waits or runs already, or `job` does, which is of the same task or key. `missing`: there is none.
    """

    id: int
    what: Literal["pending", "new", "live", "missing"]
    job: int | None = None


async def retry_jobs(conn: Connection, ids: Sequence[int], *, now: datetime) -> list[RetryResult]:
    """Try jobs again at once: those that failed for now as they are, those that ended as new ones below them."""
    wanted = list(dict.fromkeys(ids))
    found = {
        id_: RetryResult(id_, "pending", id_)
        for (id_,) in await store.back.tuples(conn, ids=wanted, now=now)
    }
    for (id_,) in await store.live.tuples(conn, ids=wanted):
        found.setdefault(id_, RetryResult(id_, "live", id_))
    over = await load_ended_jobs(conn, [id_ for id_ in wanted if id_ not in found])
    for id_, entered in (await enqueue_again(conn, over, now=now)).items():
        found[id_] = RetryResult(id_, "new" if entered.new else "live", entered.id)
    return [found.get(id_) or RetryResult(id_, "missing") for id_ in wanted]


async def load_ended_jobs(conn: Connection, ids: Sequence[int]) -> list[EndedJob]:
    """Those of these jobs that have ended."""
    return await store.ended.rows(conn, EndedJob, ids=list(ids))


async def enqueue_again(
    conn: Connection, over: Sequence[EndedJob], *, now: datetime
) -> dict[int, EnqueuedJob]:
    """New jobs below those that ended, or the live one of the same task or key; by the ids of the old ones."""
    tasks = [one.task_id for one in over if one.task_id is not None]
    busy: dict[int, int] = dict(await store.busy_tasks.tuples(conn, tasks=tasks)) if tasks else {}
    firsts: dict[int, EndedJob] = {}  # of those that cannot live at once
    for one in over:
        if one.mark not in busy:
            firsts.setdefault(one.mark, one)
    news = [(one.anew(), one.id) for one in firsts.values()]
    made = await run_api.enqueue_with_parents(conn, news, now=now)
    answers = {one.id: answer for one, answer in zip(firsts.values(), made, strict=True)}
    adopted = [one for one in firsts.values() if answers[one.id].new and one.task_id is not None]
    await store.adopt.run(
        conn,
        jobs=[answers[one.id].id for one in adopted],
        tasks=[one.task_id for one in adopted],
    )
    for one in over:
        if one.id not in answers:
            live = busy.get(one.mark) or answers[firsts[one.mark].id].id
            answers[one.id] = EnqueuedJob(live, new=False)
    return answers


class TaskUpdate(TypedDict, total=False):
    """What can be set for a task; None empties what may be empty."""

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
    conn: Connection, id_: int, *, now: datetime, **change: Unpack[TaskUpdate]
) -> StoredTask:
    """Set what is given and keep the rest; another clock sets the next run anew, a live job stays as it is."""
    old = await lock_task(conn, id_)
    clock = updated_schedule(old.clock, change)
    next_run = old.next_run if clock == old.clock else run_after_change(clock, old.latest_run, now)
    given: dict[str, Any] = {**asdict(old), **change, **asdict(clock), "next_run": next_run}
    given |= {"args": list(given["args"]), "host_rule": normalize_host_rule(given["host_rule"])}
    try:
        await store.change_task.run(conn, **given)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise BadInput(f"The task cannot be changed: {error_reason(error)}.") from error
    return await task_queries.show_task(conn, id_)


async def lock_task(conn: Connection, id_: int) -> StoredTask:
    """The task, which nobody else can change until the transaction ends."""
    await store.hold_task.run(conn, id=id_)
    return await task_queries.show_task(conn, id_)


def updated_schedule(old: TaskSchedule, change: TaskUpdate) -> TaskSchedule:
    """What is given, over what of the old clock goes with it: a cron expression and a period replace each other."""
    given: dict[str, Any] = {name: change[name] for name in SCHEDULE_FIELDS if name in change}
    if not given:
        return old
    kept: dict[str, Any] = asdict(old)
    if given.get("cron") is not None:
        kept |= dict.fromkeys(PERIOD_FIELDS)
    elif any(given.get(name) is not None for name in PERIOD_FIELDS):
        kept["cron"] = None
    return TaskSchedule.read(**(kept | given))


def run_after_change(clock: TaskSchedule, latest: datetime | None, now: datetime) -> datetime:
    """When a task goes on: what is overdue does not count from the last run, and nothing is made up for."""
    if latest is None or clock.cron is not None or latest + clock.period <= now:
        return first_run(clock, now)
    return next_run(clock, latest, now)


async def set_task_state(
    conn: Connection, id_: int, state: TaskState, *, now: datetime
) -> StoredTask:
    """Enable or disable a task; what it missed while it was disabled is not made up for."""
    old = await lock_task(conn, id_)
    missed = state == "enabled" and old.state == "disabled" and old.next_run <= now
    next_run = run_after_change(old.clock, old.latest_run, now) if missed else old.next_run
    await store.set_task_state.run(conn, id=id_, state=state, next_run=next_run)
    return await task_queries.show_task(conn, id_)


async def run_task(conn: Connection, id_: int, *, now: datetime) -> EnqueuedJob:
    """A job of the task now, whatever its clock and state say; or the one that lives already."""
    made = await store.run_task.tuples(conn, id=id_, now=now)
    if made:
        return EnqueuedJob(made[0][0], new=True)
    live = (await task_queries.show_task(conn, id_)).job_id
    if live is None:
        raise BadInput(f"The job of the task {id_} ended just now; try again.")
    return EnqueuedJob(live, new=False)


async def delete_task(conn: Connection, id_: int) -> StoredTask:
    """Forget a task, returned as it was; its jobs stay, also one that lives."""
    await store.hold_jobs.run(conn, id=id_)
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
    """Set what is given, and let in whoever now has room; the resource, and whether it is new."""
    try:
        made = await store.set_resource.tuples(
            conn, name=name, capacity=capacity, interval=interval
        )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"The resource cannot be set: {error_reason(error)}.") from error
    [(id_, new)] = made
    await store.wake.tuples(conn, ids=[id_], now=now)
    [found] = await task_queries.list_resources(conn, name=name)
    return found, new


async def pause_resource(conn: Connection, name: str) -> ResourceStatus:
    """Let no further job of a resource start; those that run finish."""
    if not await store.pause_resource.tuples(conn, name=name):
        raise NotFound(f"There is no resource {name!r}.", hint="usher resources list")
    [resource] = await task_queries.list_resources(conn, name=name)
    return resource


async def resume_resource(conn: Connection, name: str, *, now: datetime) -> ResourceStatus:
    """Let jobs of a resource start again."""
    resumed = await store.resume_resource.tuples(conn, name=name)
    if not resumed:
        raise NotFound(f"There is no resource {name!r}.", hint="usher resources list")
    await store.wake.tuples(conn, ids=[resumed[0][0]], now=now)
    [resource] = await task_queries.list_resources(conn, name=name)
    return resource


async def pause_type(conn: Connection, type_: str, *, reason: str, now: datetime) -> PausedType:
    """Let no manager claim jobs of a type; those that run finish."""
    if not JOB_TYPE.fullmatch(type_):
        raise BadInput(f"{type_[:80]!a} names no type of job.", hint="usher jobs list --summary")
    [(since,)] = await store.pause_type.tuples(conn, type=type_, reason=reason, now=now)
    return PausedType(type_, reason, since)


async def resume_type(conn: Connection, type_: str) -> bool:
    """Let managers claim jobs of a type again; False if it was not paused."""
    return bool(await store.resume_type.tuples(conn, type=type_))


async def set_log_retention(conn: Connection, span: timedelta) -> None:
    """How long the log is kept, from a day on."""
    if span > MAX_LOG_RETENTION:
        raise BadInput("The log is kept for 100 years at most.")
    try:
        await store.keep_log.run(conn, span=span)
    except psycopg.errors.CheckViolation as error:
        raise BadInput(
            "The log is kept for a day at least.", hint="usher jobs log --keep 90d"
        ) from error
