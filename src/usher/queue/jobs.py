"""Jobs in the queue: adding, claiming, settling and cancelling them.

The rules of claiming and settling are SQL functions in schema/control/functions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import psycopg

from usher.db.pool import Connection
from usher.db.statements import array, load_statements
from usher.errors import BadInput
from usher.queue.child_programs import Origin
from usher.queue.host_rules import normalize_host_rule
from usher.queue.job_states import JobState

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to add: what to run, and under which conditions."""

    type: str
    program: str
    args: tuple[str, ...] = ()
    scheduled: datetime | None = None
    resource: str | None = None
    priority: int = 0
    host_rule: str = ""
    key: str | None = None
    data: str | None = None
    needs: tuple[int, ...] = ()  # jobs that must complete first


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """The id of an added job; `new` is False for a live job that already had the key."""

    id: int
    new: bool


@dataclass(slots=True)
class ClaimedJob:
    """A job that this manager may run until its lease ends. Not frozen: that would double the time of its creation."""

    id: int
    type: str
    program: str
    args: list[str]
    claim: UUID
    attempts: int
    task_id: int | None
    resource_id: int | None
    priority: int
    scheduled: datetime
    data: str | None
    origin_type: str | None = None  # of the run that added it, if one did
    origin_program: str | None = None

    @property
    def origin(self) -> Origin | None:
        """The run that added the job; None for an operator, a task or a producer."""
        if self.origin_type is None or self.origin_program is None:
            return None
        return Origin(self.origin_type, self.origin_program)

    @property
    def turn(self) -> tuple[int, datetime, int]:
        """The sort key of jobs: lower runs first."""
        return self.priority, self.scheduled, self.id


@dataclass(slots=True)
class SettledRun:
    """How a run ended, with the claim it had."""

    id: int
    claim: UUID
    state: JobState
    exit_code: int | None = None
    pid: int | None = None
    message: str | None = None
    default_message: str | None = None  # used if neither the manager nor the worker set a message
    output: str | None = None
    retry_at: datetime | None = None
    result: str | None = None  # JSON


async def enqueue(
    conn: Connection, jobs: Sequence[JobRequest], *, now: datetime, parent: int | None = None
) -> list[EnqueuedJob]:
    """Add jobs and return one answer for each: a new job, or the live one with the same key."""
    if not jobs:
        return []
    if any(job.needs for job in jobs):
        plain = [replace(job, needs=()) for job in jobs]
        async with conn.transaction():
            enqueued = await enqueue(conn, plain, now=now, parent=parent)
            await add_needs(conn, zip(jobs, enqueued, strict=True))
        return enqueued
    keys, values = array(job.key for job in jobs), job_columns(jobs)
    try:
        if keys is None:
            rows = await store.enqueue.tuples(conn, now=now, **values)
        else:
            rows = await store.enqueue_keyed.tuples(conn, now=now, keys=keys, **values)
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"The job cannot be added: {error_reason(error)}.") from error
    if parent is not None and rows:
        await store.record_children.tuples(conn, children=[row[0] for row in rows], parent=parent)
    if keys is None:
        return [EnqueuedJob(id_, new=True) for (id_,) in sorted(rows)]
    return await enqueued_jobs(conn, jobs, rows)


async def add_needs(conn: Connection, enqueued: Iterable[tuple[JobRequest, EnqueuedJob]]) -> None:
    """Make new jobs wait for those they need, in the transaction that inserted them."""
    pairs = [(added.id, needed) for job, added in enqueued if added.new for needed in job.needs]
    try:
        await store.add_needs.tuples(
            conn, jobs=[id_ for id_, _ in pairs], needs=[needed for _, needed in pairs]
        )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(
            f"A job cannot wait for another: {error_reason(error)}.", hint="usher jobs list"
        ) from error


def job_columns(jobs: Sequence[JobRequest]) -> dict[str, str | None]:
    """Return the columns as arrays; None for a column of defaults, which the statement then skips."""
    has_args = any(job.args for job in jobs)
    return {
        "types": array(job.type for job in jobs),
        "programs": array(job.program for job in jobs),
        # PostgreSQL has no array of arrays of different lengths, so each is an array literal of its own.
        "args": array(array(job.args) or "{}" for job in jobs) if has_args else None,
        "scheduled": array(job.scheduled for job in jobs),
        "resources": array(job.resource for job in jobs),
        "priorities": array(job.priority or None for job in jobs),
        "host_rules": array(
            normalize_host_rule(job.host_rule) if job.host_rule else None for job in jobs
        ),
        "data": array(job.data for job in jobs),
    }


def error_reason(error: psycopg.Error) -> str:
    """Return the server's message without its full stop."""
    return (error.diag.message_primary or str(error)).rstrip(".")


async def enqueued_jobs(
    conn: Connection, jobs: Sequence[JobRequest], rows: Sequence[tuple[int, str | None]]
) -> list[EnqueuedJob]:
    """Return one answer for each job, of which some have keys."""
    without_key = iter(sorted(id_ for id_, key in rows if key is None))
    added = {key: id_ for id_, key in rows if key is not None}
    live: dict[str, int] = {}
    if missing := [job.key for job in jobs if job.key is not None and job.key not in added]:
        live = dict(await store.keyed.tuples(conn, keys=missing))
    answers, answered_keys = [], set[str]()
    for job in jobs:
        if job.key is None:
            answers.append(EnqueuedJob(next(without_key), new=True))
        elif (id_ := added.get(job.key) or live.get(job.key)) is not None:
            is_new = job.key in added and job.key not in answered_keys
            answers.append(EnqueuedJob(id_, new=is_new))
            answered_keys.add(job.key)
        else:
            raise BadInput(f"The job with the key {job.key!r} ended just now; try again.")
    return answers


async def claim(
    conn: Connection,
    type_: str,
    host: str,
    n: int,
    *,
    lease: timedelta,
    max_attempts: int,
    now: datetime,
) -> list[ClaimedJob]:
    """Claim up to n jobs of a type that may run on this machine now; the first to run come first."""
    claimed = await store.claim.rows(
        conn,
        ClaimedJob,
        type=type_,
        host=host,
        n=n,
        lease=lease,
        max_attempts=max_attempts,
        now=now,
    )
    if claimed:
        by_id = {job.id: job for job in claimed}
        for id_, *origin in await store.origins.tuples(conn, ids=list(by_id)):
            by_id[id_].origin_type, by_id[id_].origin_program = origin
    return sorted(claimed, key=lambda job: job.turn)


async def next_due(conn: Connection, type_: str, host: str) -> datetime | None:
    """Return when the next job of the type is due here, which may be in the past; None if there is none."""
    [due] = await store.next_due.column(conn, type=type_, host=host)
    return due if isinstance(due, datetime) else None


async def settle(conn: Connection, ends: Sequence[SettledRun], *, now: datetime) -> set[int]:
    """End runs; return the ids of those whose claim was valid, the others had lost their lease."""
    if any(end.result is not None for end in ends):
        async with conn.transaction():
            stored = await store_results(conn, ends, now=now)
            return await settle(conn, stored, now=now)
    lost = await store.settle.column(
        conn,
        ids=array(end.id for end in ends),
        claims=array(end.claim for end in ends),
        states=array(end.state for end in ends),
        exit_codes=array(end.exit_code for end in ends),
        pids=array(end.pid for end in ends),
        messages=array(end.message for end in ends),
        default_messages=array(end.default_message for end in ends),
        outputs=array(end.output for end in ends),
        retries=array(end.retry_at for end in ends),
        now=now,
    )
    return {end.id for end in ends}.difference(lost)


async def store_results(
    conn: Connection, ends: Sequence[SettledRun], *, now: datetime
) -> list[SettledRun]:
    """Store the results of runs. A run whose result cannot be stored fails permanently."""
    with_result = [end for end in ends if end.result is not None]
    try:
        async with conn.transaction():
            await store.store_results.tuples(
                conn,
                ids=[end.id for end in with_result],
                claims=[end.claim for end in with_result],
                results=[end.result for end in with_result],
                now=now,
            )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        if len(with_result) > 1:
            middle = len(with_result) // 2
            halves = with_result[:middle], with_result[middle:]
            stored = [end for half in halves for end in await store_results(conn, half, now=now)]
        else:
            message = f"The result cannot be stored: {error_reason(error)}"
            failed = replace(with_result[0], state=JobState.PERMANENT_ERROR, message=message)
            stored = [replace(failed, result=None)]
        by_id = {end.id: end for end in stored}
        return [by_id.get(end.id, end) for end in ends]
    return [replace(end, result=None) for end in ends]


async def report_starts(conn: Connection, starts: Sequence[tuple[int, UUID, datetime]]) -> None:
    """Record when processes started; the intervals of their resources count from then."""
    ids, claims, times = zip(*starts, strict=True)
    await store.report_starts.tuples(conn, ids=list(ids), claims=list(claims), starts=list(times))


async def give_back(
    conn: Connection, runs: Sequence[tuple[int, UUID]], *, now: datetime
) -> set[int]:
    """Return jobs that were claimed and not run, without counting an attempt; return their ids."""
    return set(await store.give_back.column(conn, **claim_arrays(runs), now=now))


async def extend(
    conn: Connection, runs: Sequence[tuple[int, UUID]], *, lease: timedelta, now: datetime
) -> dict[int, bool]:
    """Extend leases. Return whether each run is to be stopped; a lost run is not in the answer."""
    return dict(await store.extend.tuples(conn, **claim_arrays(runs), lease=lease, now=now))


async def cancelled(conn: Connection, runs: Sequence[tuple[int, UUID]]) -> set[int]:
    """Return those of these runs that are to be stopped."""
    return set(await store.cancelled.column(conn, **claim_arrays(runs)))


def claim_arrays(runs: Sequence[tuple[int, UUID]]) -> dict[str, list[object]]:
    """Return the parameters `ids` and `claims` of a statement."""
    return {"ids": [id_ for id_, _ in runs], "claims": [claim for _, claim in runs]}


@dataclass(frozen=True, slots=True)
class RunReport:
    """The process id and output of a run that goes on; None for what has not changed."""

    id: int
    claim: UUID
    pid: int | None = None
    output: str | None = None


async def report_progress(
    conn: Connection, host: str, reports: Sequence[RunReport], *, now: datetime
) -> int:
    """Store process ids and the output so far; return how many runs changed."""
    if pids := [entry.pid for entry in reports if entry.pid is not None]:
        await store.clear_reused_pids.run(
            conn,
            host=host,
            ids=[entry.id for entry in reports],
            pids=pids,
            claims=[entry.claim for entry in reports],
        )
    return await store.report_progress.run(
        conn,
        ids=[entry.id for entry in reports],
        claims=[entry.claim for entry in reports],
        pids=[entry.pid for entry in reports],
        outputs=[entry.output for entry in reports],
        now=now,
    )


async def waiting_types(conn: Connection) -> list[str]:
    """Return the types that have a pending job."""
    return await store.waiting_types.column(conn)


async def cancel(
    conn: Connection, ids: Sequence[int], *, reason: str, now: datetime
) -> dict[int, JobState]:
    """Cancel waiting jobs and ask managers to stop running ones. Return the states of those in the queue."""
    rows = await store.cancel.tuples(conn, ids=list(ids), reason=reason, now=now)
    return {id_: JobState(state) for id_, state in rows}
