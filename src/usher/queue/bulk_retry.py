"""Retry all failed jobs that match conditions, up to a limit that the operator confirmed."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from usher.db.pool import Connection
from usher.queue import admin, queries
from usher.queue.queries import JobFilter, ListedJob

FailedState = Literal["permanent-error", "temporary-error"]
FAILED_STATES: Final[tuple[FailedState, ...]] = get_args(FailedState)
MAX_JOBS_PER_RETRY: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJobConditions:
    """Which failed jobs to retry: `permanent-error` if they ended, `temporary-error` if they wait for an attempt."""

    state: FailedState = "permanent-error"
    type: str | None = None
    resource: str | None = None
    contains: str | None = None


@dataclass(frozen=True, slots=True)
class BulkRetryResult:
    """How many jobs wait to run now, and how many did before."""

    retried: int
    live: int

    @property
    def text(self) -> str:
        return f"{self.retried:,} retried, {self.live:,} wait or run already"


async def count_failed(conn: Connection, conditions: FailedJobConditions) -> int:
    """The number of failed jobs that match, up to one more than can be retried at once."""
    return len(await matching_jobs(conn, conditions, n=MAX_JOBS_PER_RETRY + 1))


async def retry_failed(
    conn: Connection, conditions: FailedJobConditions, *, limit: int, now: datetime
) -> BulkRetryResult:
    """Retry the latest failed jobs that match, and no more than `limit`."""
    jobs = await matching_jobs(conn, conditions, n=min(limit, MAX_JOBS_PER_RETRY))
    results = await admin.retry_jobs(conn, [job.id for job in jobs], now=now)
    counts = Counter(result.what for result in results)
    return BulkRetryResult(counts["pending"] + counts["new"], counts["live"])


async def matching_jobs(
    conn: Connection, conditions: FailedJobConditions, *, n: int
) -> list[ListedJob]:
    chosen = JobFilter(
        states=[conditions.state],
        type=conditions.type,
        resource=conditions.resource,
        contains=conditions.contains,
    )
    return await queries.list_jobs(conn, n=n, log=conditions.state == "permanent-error", **chosen)


def failed_text(number: int) -> str:
    """`12 jobs`, or `more than 1,000 jobs`; also for jobs to cancel, whose limit is the same."""
    more = number > MAX_JOBS_PER_RETRY
    return (
        f"{'more than ' * more}{min(number, MAX_JOBS_PER_RETRY):,} job{'' if number == 1 else 's'}"
    )
