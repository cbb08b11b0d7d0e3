"""Cancel all live jobs that match conditions, up to a limit that the operator confirmed."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from usher.db.pool import Connection
from usher.queue import jobs, queries
from usher.queue.job_states import JobState
from usher.queue.queries import JobFilter, ListedJob

LiveState = Literal["pending", "waiting", "running", "temporary-error"]
LIVE_STATES: Final[tuple[LiveState, ...]] = get_args(LiveState)
MAX_JOBS_PER_CANCEL: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJobConditions:
    """Which live jobs to cancel."""

    state: LiveState
    type: str | None = None
    resource: str | None = None
    contains: str | None = None


@dataclass(frozen=True, slots=True)
class BulkCancelResult:
    """How many jobs ended, and how many run and are being stopped."""

    cancelled: int
    stopping: int

    @property
    def text(self) -> str:
        return f"{self.cancelled:,} cancelled, {self.stopping:,} are being stopped"


async def count_live(conn: Connection, conditions: LiveJobConditions) -> int:
    """The number of live jobs that match, up to one more than can be cancelled at once."""
    return len(await matching_jobs(conn, conditions, n=MAX_JOBS_PER_CANCEL + 1))


async def cancel_live(
    conn: Connection, conditions: LiveJobConditions, *, limit: int, reason: str, now: datetime
) -> BulkCancelResult:
    """Cancel the latest live jobs that match, and no more than `limit`."""
    matching = await matching_jobs(conn, conditions, n=min(limit, MAX_JOBS_PER_CANCEL))
    states = await jobs.cancel(conn, [job.id for job in matching], reason=reason, now=now)
    counts = Counter(state is JobState.RUNNING for state in states.values())
    return BulkCancelResult(counts[False], counts[True])


async def matching_jobs(
    conn: Connection, conditions: LiveJobConditions, *, n: int
) -> list[ListedJob]:
    chosen = JobFilter(
        states=[conditions.state],
        type=conditions.type,
        resource=conditions.resource,
        contains=conditions.contains,
    )
    return await queries.list_jobs(conn, n=n, **chosen)
