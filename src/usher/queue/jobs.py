"""Jobs in the queue: put in, claimed, settled, cancelled.

Comes from whoever wants a program run and from the managers that run it; goes to control.job, and what has ended to
control.job_log. The rules of claiming and settling are SQL functions of the schema, so that everyone keeps them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import psycopg

from usher.db import Connection
from usher.errors import BadInput
from usher.queue.children import Origin
from usher.queue.periods import host_rule
from usher.queue.states import State
from usher.statements import array, beside

store = beside(__file__)


@dataclass(frozen=True, slots=True)
class New:
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


@dataclass(frozen=True, slots=True)
class Entered:
    """Where a job stands: new, or the one that had its key already."""

    id: int
    new: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that is ours to run, until its lease ends."""

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


@dataclass(frozen=True, slots=True)
class Settled:
    """How a run ended, under the claim it had."""

    id: int
    claim: UUID
    state: State
    exit_code: int | None = None
    pid: int | None = None
    message: str | None = None
    last_words: str | None = None  # its message, if nobody gave one
    output: str | None = None
    retry_at: datetime | None = None


async def enqueue(
    conn: Connection, jobs: Sequence[New], *, now: datetime, parent: int | None = None
) -> list[Entered]:
    """Put jobs in, one answer for each; a key that waits or runs already is answered with that job."""
    if not jobs:
        return []
    try:
        made = await store.enqueue.tuples(conn, now=now, **columns(jobs))
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"A job cannot be put in: {reason(error)}.") from error
    if parent is not None and made:
        await store.descend.tuples(conn, children=[id_ for id_, _ in made], parent=parent)
    return await answers(conn, jobs, made)


def columns(jobs: Sequence[New]) -> dict[str, str | None]:
    return {
        "types": array(job.type for job in jobs),
        "programs": array(job.program for job in jobs),
        # A list of lists of different lengths is no array, so that each is written on its own.
        "args": array(array(job.args) or "{}" for job in jobs),
        "scheduled": array(job.scheduled for job in jobs),
        "resources": array(job.resource for job in jobs),
        "priorities": array(job.priority for job in jobs),
        "host_rules": array(host_rule(job.host_rule) for job in jobs),
        "keys": array(job.key for job in jobs),
        "data": array(job.data for job in jobs),
    }


def reason(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).rstrip(".")


async def answers(
    conn: Connection, jobs: Sequence[New], made: Sequence[tuple[int, str | None]]
) -> list[Entered]:
    plain = iter(sorted(id_ for id_, key in made if key is None))
    fresh = {key: id_ for id_, key in made if key is not None}
    known: dict[str, int] = {}
    if missing := [job.key for job in jobs if job.key is not None and job.key not in fresh]:
        known = dict(await store.keyed.tuples(conn, keys=missing))
    found, seen = [], set[str]()
    for job in jobs:
        if job.key is None:
            found.append(Entered(next(plain), new=True))
        elif (id_ := fresh.get(job.key) or known.get(job.key)) is not None:
            found.append(Entered(id_, new=job.key in fresh and job.key not in seen))
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
) -> list[Claimed]:
    """Up to n jobs of a type that may run on this machine now, in the order of their turns."""
    found = await store.claim.rows(
        conn, Claimed, type=type_, host=host, n=n, lease=lease, tries=tries, now=now
    )
    return sorted(found, key=lambda job: job.turn)


async def next_due(conn: Connection, type_: str, host: str) -> datetime | None:
    """When to ask again: the past if something waits now, None if nothing does."""
    [(when,)] = await store.next_due.tuples(conn, type=type_, host=host)
    return when if when is None or isinstance(when, datetime) else None


async def settle(conn: Connection, ends: Sequence[Settled], *, now: datetime) -> set[int]:
    """End runs; returns those that were still ours, the others had lost their lease."""
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


async def give_back(
    conn: Connection, ours: Sequence[tuple[int, UUID]], *, now: datetime
) -> set[int]:
    """Return jobs that were claimed and not run, without charging an attempt."""
    found = await store.give_back.tuples(conn, **split(ours), now=now)
    return {id_ for (id_,) in found}


async def extend(
    conn: Connection, ours: Sequence[tuple[int, UUID]], *, lease: timedelta, now: datetime
) -> dict[int, bool]:
    """New leases for those still ours, and whether each is to be stopped; who is missing is lost."""
    return dict(await store.extend.tuples(conn, **split(ours), lease=lease, now=now))


async def cancelled(conn: Connection, ours: Sequence[tuple[int, UUID]]) -> set[int]:
    """Which of our runs are to be stopped."""
    return {id_ for (id_,) in await store.cancelled.tuples(conn, **split(ours))}


def split(ours: Sequence[tuple[int, UUID]]) -> dict[str, list[object]]:
    return {"ids": [id_ for id_, _ in ours], "claims": [claim for _, claim in ours]}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run says of itself while it goes on."""

    id: int
    claim: UUID
    pid: int | None = None
    output: str | None = None


async def report(conn: Connection, host: str, reports: Sequence[Report], *, now: datetime) -> int:
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
) -> dict[int, State]:
    """End what waits (cancelled), have what runs stopped (running); who is missing is not in the queue."""
    found = await store.cancel.tuples(conn, ids=list(ids), why=why, now=now)
    return {id_: State(state) for id_, state in found}
