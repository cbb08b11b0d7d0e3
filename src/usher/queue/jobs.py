"""Jobs in the queue: put in, claimed, settled, cancelled.

Comes from whoever wants a program run and from the managers that run it; goes to control.job, and what has ended to
control.job_log. The rules of claiming and settling are SQL functions of the schema, so that everyone keeps them.
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
from usher.queue.job_states import JobState
from usher.queue.periods import normalize_host_rule

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to put in: what to run, and under which conditions."""

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
    """Where a job stands: new, or the one that had its key already."""

    id: int
    new: bool


@dataclass(slots=True)
class ClaimedJob:
    """A job that is ours to run, until its lease ends. Not frozen: that would double the time of its creation."""

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
    origin_type: str | None = None  # of the run that put it in, if one did
    origin_program: str | None = None

    @property
    def origin(self) -> Origin | None:
        if self.origin_type is None or self.origin_program is None:
            return None
        return Origin(self.origin_type, self.origin_program)

    @property
    def turn(self) -> tuple[int, datetime, int]:
        return self.priority, self.scheduled, self.id


@dataclass(slots=True)
class SettledRun:
    """How a run ended, under the claim it had."""

    id: int
    claim: UUID
    state: JobState
    exit_code: int | None = None
    pid: int | None = None
    message: str | None = None
    last_words: str | None = None  # its message, if nobody gave one
    output: str | None = None
    retry_at: datetime | None = None
    result: str | None = None  # JSON


async def enqueue(
    conn: Connection, jobs: Sequence[JobRequest], *, now: datetime, parent: int | None = None
) -> list[EnqueuedJob]:
    """Put jobs in, one answer for each; a key that waits or runs already is answered with that job."""
    if not jobs:
        return []
    if any(job.needs for job in jobs):
        plain = [replace(job, needs=()) for job in jobs]
        async with conn.transaction():
            entered = await enqueue(conn, plain, now=now, parent=parent)
            await add_needs(conn, zip(jobs, entered, strict=True))
        return entered
    keys, values = array(job.key for job in jobs), job_columns(jobs)
    try:
        if keys is None:
            rows = await store.enqueue.tuples(conn, now=now, **values)
        else:
            rows = await store.enqueue_keyed.tuples(conn, now=now, keys=keys, **values)
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"A job cannot be put in: {error_reason(error)}.") from error
    if parent is not None and rows:
        await store.descend.tuples(conn, children=[row[0] for row in rows], parent=parent)
    if keys is None:
        return [EnqueuedJob(id_, new=True) for (id_,) in sorted(rows)]
    return await enqueued_jobs(conn, jobs, rows)


async def add_needs(conn: Connection, entered: Iterable[tuple[JobRequest, EnqueuedJob]]) -> None:
    """Make new jobs wait for those they need, in the transaction that inserted them."""
    pairs = [(added.id, needed) for job, added in entered if added.new for needed in job.needs]
    try:
        await store.wait_for.tuples(
            conn, jobs=[id_ for id_, _ in pairs], needs=[needed for _, needed in pairs]
        )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(
            f"A job cannot wait for another: {error_reason(error)}.", hint="usher jobs list"
        ) from error


def job_columns(jobs: Sequence[JobRequest]) -> dict[str, str | None]:
    """The columns as arrays; null for a column of defaults, which is then neither written nor read."""
    has_args = any(job.args for job in jobs)
    return {
        "types": array(job.type for job in jobs),
        "programs": array(job.program for job in jobs),
        # A list of lists of different lengths is no array, so that each is written on its own.
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
    return (error.diag.message_primary or str(error)).rstrip(".")


async def enqueued_jobs(
    conn: Connection, jobs: Sequence[JobRequest], made: Sequence[tuple[int, str | None]]
) -> list[EnqueuedJob]:
    """One answer for each job, of which some have keys."""
    plain = iter(sorted(id_ for id_, key in made if key is None))
    fresh = {key: id_ for id_, key in made if key is not None}
    known: dict[str, int] = {}
    if missing := [job.key for job in jobs if job.key is not None and job.key not in fresh]:
        known = dict(await store.keyed.tuples(conn, keys=missing))
    found, seen = [], set[str]()
    for job in jobs:
        if job.key is None:
            found.append(EnqueuedJob(next(plain), new=True))
        elif (id_ := fresh.get(job.key) or known.get(job.key)) is not None:
            found.append(EnqueuedJob(id_, new=job.key in fresh and job.key not in seen))
            seen.add(job.key)
        else:
            raise BadInput(f"The job with the key {job.key!r} ended just now; try again.")
    return found


async def claim(
    conn: Connection,
    type_: str,
    host: str,
    n: int,
    *,
    lease: timedelta,
    tries: int,
    now: datetime,
) -> list[ClaimedJob]:
    """Up to n jobs of a type that may run on this machine now, in the order of their turns."""
    claimed = await store.claim.rows(
        conn, ClaimedJob, type=type_, host=host, n=n, lease=lease, tries=tries, now=now
    )
    if claimed:
        origins = {
            id_: (type_, program)
            for id_, type_, program in await store.origins.tuples(
                conn, ids=[job.id for job in claimed]
            )
        }
        if origins:
            claimed = [with_origin(job, *origins.get(job.id, (None, None))) for job in claimed]
    return sorted(claimed, key=lambda job: job.turn)


def with_origin(job: ClaimedJob, type_: str | None, program: str | None) -> ClaimedJob:
    return replace(job, origin_type=type_, origin_program=program)


async def next_due(conn: Connection, type_: str, host: str) -> datetime | None:
    """When to ask again: the past if something waits now, None if nothing does."""
    [(when,)] = await store.next_due.tuples(conn, type=type_, host=host)
    return when if when is None or isinstance(when, datetime) else None


async def settle(conn: Connection, ends: Sequence[SettledRun], *, now: datetime) -> set[int]:
    """End runs; returns those that were still ours, the others had lost their lease."""
    if any(end.result is not None for end in ends):
        async with conn.transaction():
            stored = await store_results(conn, ends, now=now)
            return await settle(conn, stored, now=now)
    found = await store.settle.tuples(
        conn,
        ids=array(end.id for end in ends),
        claims=array(end.claim for end in ends),
        states=array(end.state for end in ends),
        exit_codes=array(end.exit_code for end in ends),
        pids=array(end.pid for end in ends),
        messages=array(end.message for end in ends),
        last_words=array(end.last_words for end in ends),
        outputs=array(end.output for end in ends),
        retries=array(end.retry_at for end in ends),
        now=now,
    )
    return {end.id for end in ends} - {id_ for (id_,) in found}


async def store_results(
    conn: Connection, ends: Sequence[SettledRun], *, now: datetime
) -> list[SettledRun]:
    """Store the results of runs; a run whose result cannot be stored has failed permanently."""
    given = [end for end in ends if end.result is not None]
    try:
        async with conn.transaction():
            await store.put_results.tuples(
                conn,
                ids=[end.id for end in given],
                claims=[end.claim for end in given],
                results=[end.result for end in given],
                now=now,
            )
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        if len(given) > 1:
            halves = given[: len(given) // 2], given[len(given) // 2 :]
            stored = [end for half in halves for end in await store_results(conn, half, now=now)]
        else:
            message = f"The result cannot be stored: {error_reason(error)}"
            stored = [
                replace(given[0], state=JobState.PERMANENT_ERROR, message=message, result=None)
            ]
        by_id = {end.id: end for end in stored}
        return [by_id.get(end.id, end) for end in ends]
    return [replace(end, result=None) for end in ends]


async def report_starts(conn: Connection, starts: Sequence[tuple[int, UUID, datetime]]) -> None:
    """Tell when processes started; the intervals of their resources count from then."""
    ids, claims, times = zip(*starts, strict=True)
    await store.report_starts.tuples(conn, ids=list(ids), claims=list(claims), starts=list(times))


async def give_back(
    conn: Connection, ours: Sequence[tuple[int, UUID]], *, now: datetime
) -> set[int]:
    """Return jobs that were claimed and not run, without charging an attempt."""
    found = await store.give_back.tuples(conn, **claim_arrays(ours), now=now)
    return {id_ for (id_,) in found}


async def extend(
    conn: Connection, ours: Sequence[tuple[int, UUID]], *, lease: timedelta, now: datetime
) -> dict[int, bool]:
    """New leases for those still ours, and whether each is to be stopped; who is missing is lost."""
    return dict(await store.extend.tuples(conn, **claim_arrays(ours), lease=lease, now=now))


async def cancelled(conn: Connection, ours: Sequence[tuple[int, UUID]]) -> set[int]:
    """Which of our runs are to be stopped."""
    return {id_ for (id_,) in await store.cancelled.tuples(conn, **claim_arrays(ours))}


def claim_arrays(ours: Sequence[tuple[int, UUID]]) -> dict[str, list[object]]:
    return {"ids": [id_ for id_, _ in ours], "claims": [claim for _, claim in ours]}


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run says of itself while it goes on."""

    id: int
    claim: UUID
    pid: int | None = None
    output: str | None = None


async def report_progress(
    conn: Connection, host: str, reports: Sequence[RunReport], *, now: datetime
) -> int:
    """Write down process numbers and the output so far."""
    if pids := [one.pid for one in reports if one.pid is not None]:
        await store.vacate.run(
            conn,
            host=host,
            ids=[entry.id for entry in reports],
            pids=pids,
            claims=[entry.claim for entry in reports],
        )
    return await store.report.run(
        conn,
        ids=[one.id for one in reports],
        claims=[one.claim for one in reports],
        pids=[one.pid for one in reports],
        outputs=[one.output for one in reports],
        now=now,
    )


async def waiting_types(conn: Connection) -> list[str]:
    """The types that have a job waiting."""
    return [name for (name,) in await store.waiting_types.tuples(conn)]


async def cancel(
    conn: Connection, ids: Sequence[int], *, why: str, now: datetime
) -> dict[int, JobState]:
    """End what waits (cancelled), have what runs stopped (running); who is missing is not in the queue."""
    found = await store.cancel.tuples(conn, ids=list(ids), why=why, now=now)
    return {id_: JobState(state) for id_, state in found}
