"""What a run may do while its claim is valid, for workers that use the HTTP API instead of the database.

Each function changes nothing and returns False or None if the claim is no longer valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, NotAllowed
from usher.queue import jobs
from usher.queue.jobs import EnqueuedJob, JobRequest

store = load_statements(__file__)
Fence = tuple[int, UUID]  # a job and its claim


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run whose claim is valid."""

    id: int
    type: str
    program: str
    attempts: int
    max_attempts: int | None
    cancel: bool


async def set_message(conn: Connection, run: Fence, message: str) -> bool:
    """Set the message of a run."""
    return bool(await store.set_message.tuples(conn, id=run[0], claim=run[1], message=message))


async def set_output(conn: Connection, run: Fence, output: str) -> bool:
    """Set the output of a run so far."""
    return bool(await store.set_output.tuples(conn, id=run[0], claim=run[1], output=output))


async def set_result(conn: Connection, run: Fence, result: str, *, now: datetime) -> bool:
    """Set the result of a run, as JSON."""
    return bool(
        await store.set_result.tuples(conn, id=run[0], claim=run[1], result=result, now=now)
    )


async def record_written_rows(
    conn: Connection, run: Fence, table: str, rows: Sequence[str], *, now: datetime
) -> bool:
    """Record which rows a run wrote."""
    if not await lock_claim(conn, run):
        return False
    await store.record_written_rows.run(conn, id=run[0], table=table, rows=list(rows), now=now)
    return True


async def enqueue_children(
    conn: Connection, run: Fence, requests: Sequence[JobRequest], *, now: datetime
) -> list[EnqueuedJob] | None:
    """Add jobs as children of a run; NotAllowed if they need jobs of others."""
    if not await lock_claim(conn, run):
        return None
    needs = sorted({id_ for job in requests for id_ in job.needs} - {run[0]})
    if needs and (others := await store.other_jobs.tuples(conn, parent=run[0], needs=needs)):
        raise NotAllowed(
            f"Job {others[0][0]} is not a child of job {run[0]}.",
            hint="A job can make its children wait for itself and for its other children.",
        )
    return await enqueue_with_parents(
        conn, [(job, run[0]) for job in requests], now=now, by_run=True
    )


async def lock_claim(conn: Connection, run: Fence) -> bool:
    """Whether the claim is valid; if so, it stays valid until the transaction ends."""
    return bool(await store.lock_claim.tuples(conn, id=run[0], claim=run[1]))


async def enqueue_with_parents(
    conn: Connection,
    requests: Sequence[tuple[JobRequest, int | None]],
    *,
    now: datetime,
    by_run: bool = False,
) -> list[EnqueuedJob]:
    """Add jobs, each with or without a parent. Of jobs with the same key only the first is new.

    `by_run`: the parent itself adds them, so that its type decides which programs they may run.
    """
    parents = sorted({parent for _, parent in requests if parent is not None})
    if unknown := await store.unknown_jobs.tuples(conn, ids=parents):
        raise BadInput(f"There is no job {unknown[0][0]}, so it can be no parent.")
    parent_of: dict[int, int | None] = {}  # by the ids of new jobs
    answers = []
    enqueued = await jobs.enqueue(conn, [job for job, _ in requests], now=now)
    for job, (_, parent) in zip(enqueued, requests, strict=True):
        answers.append(EnqueuedJob(job.id, job.new and job.id not in parent_of))
        if job.new:
            parent_of.setdefault(job.id, parent)
    if children := {id_: parent for id_, parent in parent_of.items() if parent is not None}:
        parents = list(children.values())
        await store.record_children.tuples(
            conn, children=list(children), parents=parents, by_run=by_run
        )
    return answers


async def active_runs(conn: Connection, runs: Sequence[Fence]) -> dict[int, ActiveRun]:
    """Return, by job, the runs whose claims are valid."""
    active = await store.active_runs.rows(conn, ActiveRun, **jobs.claim_arrays(runs))
    return {run.id: run for run in active}
