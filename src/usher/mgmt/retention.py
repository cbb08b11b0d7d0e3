"""Retention: the watchdog deletes old events, and sums up old queries by day before it deletes them.

Each call does a bounded amount of work, so that a round of the watchdog stays short.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)
ROWS_PER_ROUND: Final = 5_000
TERMS_PER_DAY: Final = 100
QUERY_DAYS_KEPT: Final = timedelta(days=1_830)  # sums of a day: five years


@dataclass(frozen=True, slots=True)
class Retention:
    """How long events and single queries are kept."""

    events: timedelta = timedelta(days=90)
    queries: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class PrunedCounts:
    """How many rows were deleted."""

    events: int
    queries: int


async def prune(conn: Connection, *, now: datetime, retention: Retention) -> PrunedCounts:
    """Delete what is older than the retention, up to ROWS_PER_ROUND of each kind; whole days of queries only."""
    events = await store.prune_events.value(conn, before=now - retention.events, n=ROWS_PER_ROUND)
    midnight = datetime.combine((now - retention.queries).astimezone(UTC), time(), UTC)
    queries = await store.sum_up_queries.value(conn, before=midnight, n=ROWS_PER_ROUND)
    if queries and queries < ROWS_PER_ROUND:  # the days are complete
        await store.trim_terms.run(conn, n=TERMS_PER_DAY)
        await store.prune_days.run(conn, before=(now - QUERY_DAYS_KEPT).date())
    return PrunedCounts(events, queries)
