"""What a run may do while its claim holds, for workers and managers that have no database of their own.

Comes from the HTTP API, with the claim that the job was given; goes to control.job, control.job_table_item and
control.job_hierarchy. False or None is the answer to a claim that holds no longer, and then nothing has changed.
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
    """A run whose claim holds."""

    id: int
    type: str
    program: str
    attempts: int
    max_attempts: int | None
    cancel: bool


async def set_message(conn: Connection, run: Fence, message: str) -> bool:
    """Set the message of a run."""
    return bool(await store.say.tuples(conn, id=run[0], claim=run[1], message=message))


async def set_output(conn: Connection, run: Fence, output: str) -> bool:
    """Set the output of a run so far."""
    return bool(await store.put_output.tuples(conn, id=run[0], claim=run[1], output=output))


async def set_result(conn: Connection, run: Fence, result: str, *, now: datetime) -> bool:
    """Set the result of a run, as JSON."""
    return bool(
        await store.put_result.tuples(conn, id=run[0], claim=run[1], result=result, now=now)
    )


async def record_written_rows(
    conn: Connection, run: Fence, table: str, rows: Sequence[str], *, now: datetime
) -> bool:
    """Write down which rows a run wrote."""
    if not await lock_claim(conn, run):
        return False
    await store.wrote.run(conn, id=run[0], table=table, rows=list(rows), now=now)
    return True


async def enqueue_children(
    conn: Connection, run: Fence, new: Sequence[JobRequest], *, now: datetime
) -> list[EnqueuedJob] | None:
    """Put jobs in as children of a run."""
    if not await lock_claim(conn, run):
        return None
    needs = sorted({id_ for job in new for id_ in job.needs} - {run[0]})
    if needs and (foreign := await store.foreign.tuples(conn, parent=run[0], needs=needs)):
        raise NotAllowed(
            f"Job {foreign[0][0]} is not a child of job {run[0]}.",
            hint="A job can make its children wait for itself and for its other children.",
        )
    return await enqueue_with_parents(conn, [(job, run[0]) for job in new], now=now, by_run=True)


async def lock_claim(conn: Connection, run: Fence) -> bool:
    """Whether the claim holds; if so, until the transaction ends."""
    return bool(await store.hold.tuples(conn, id=run[0], claim=run[1]))


async def enqueue_with_parents(
    conn: Connection,
    new: Sequence[tuple[JobRequest, int | None]],
    *,
    now: datetime,
    by_run: bool = False,
) -> list[EnqueuedJob]:
    """Put jobs in, each under a parent or none; a key that is there twice is new once.

    `by_run`: the parent itself puts them in, so that its type decides which programs they may run.
    """
    parents = sorted({parent for _, parent in new if parent is not None})
    if unknown := await store.strangers.tuples(conn, ids=parents):
        raise BadInput(f"There is no job {unknown[0][0]}, so it can be no parent.")
    made: dict[int, int | None] = {}
    answers = []
    entered = await jobs.enqueue(conn, [job for job, _ in new], now=now)
    for one, (_, parent) in zip(entered, new, strict=True):
        answers.append(EnqueuedJob(one.id, one.new and one.id not in made))
        if one.new:
            made.setdefault(one.id, parent)
    if below := {child: parent for child, parent in made.items() if parent is not None}:
        parents = list(below.values())
        await store.descend.tuples(conn, children=list(below), parents=parents, by_run=by_run)
    return answers


async def active_runs(conn: Connection, runs: Sequence[Fence]) -> dict[int, ActiveRun]:
    """Those whose claims hold."""
    found = await store.held.rows(
        conn, ActiveRun, ids=[id_ for id_, _ in runs], claims=[claim for _, claim in runs]
    )
    return {one.id: one for one in found}
