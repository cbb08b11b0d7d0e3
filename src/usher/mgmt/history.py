"""The rolling history: figures of each minute, hour and day for charts of the console; the watchdog records them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, get_args

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)
Period = Literal["minute", "hour", "day"]
Metric = Literal[
    "pages_indexed",
    "pages_failed",
    "pages_other",
    "pages_waiting",
    "seconds_to_search_p50",
    "seconds_to_search_p95",
    "queries",
    "query_seconds_p95",
]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
# Counts are added up; of other figures the highest of an hour or day is kept.
COUNTED_METRICS: Final = ("pages_indexed", "pages_failed", "pages_other", "queries")
RETENTION: Final[Mapping[Period, timedelta]] = MappingProxyType(
    {"minute": timedelta(days=1), "hour": timedelta(days=31), "day": timedelta(days=730)}
)
MINUTE: Final = timedelta(minutes=1)
MAX_COUNTED: Final = 100_000  # pages of a minute, and waiting pages
MAX_CHUNKS: Final = 10_000  # the newest ones, in which the pages of a minute are


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A figure of one metric for the minute, hour or day that starts at this time."""

    metric: Metric
    at: datetime
    number: float


async def record(conn: Connection, *, now: datetime) -> bool:
    """Record the last full minute, once; add it to its hour and its day. False if it is recorded already."""
    minute = now.astimezone(UTC).replace(second=0, microsecond=0) - MINUTE
    if await store.is_recorded.value(conn, at=minute):
        return False
    [row] = await store.figures.tuples(
        conn, since=minute, until=minute + MINUTE, most=MAX_COUNTED, chunks=MAX_CHUNKS
    )
    numbers = {
        metric: value for metric, value in zip(METRICS, row, strict=True) if value is not None
    }
    for period, start in period_starts(minute).items():
        await store.add_figures.run(
            conn,
            period=period,
            at=start,
            metrics=list(numbers),
            numbers=[float(number) for number in numbers.values()],
            counted=list(COUNTED_METRICS),
        )
    for period, kept in RETENTION.items():
        await store.prune.run(conn, period=period, metrics=list(METRICS), before=now - kept)
    return True


def period_starts(minute: datetime) -> dict[Period, datetime]:
    """The starts of the minute, the hour and the day (UTC) that contain a minute."""
    hour = minute.replace(minute=0)
    return {"minute": minute, "hour": hour, "day": hour.replace(hour=0)}


async def points(conn: Connection, period: Period, *, since: datetime) -> list[HistoryPoint]:
    """The figures since then, by metric and time."""
    return await store.points.rows(
        conn, HistoryPoint, period=period, metrics=list(METRICS), since=since
    )
