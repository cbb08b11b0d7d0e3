"""The rolling history: figures of each minute, hour and day for charts of the console; the watchdog records them."""

from collections.abc import Mapping, Sequence
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
    "errors_4xx",
    "errors_5xx",
    "errors_timeout",
    "errors_connection",
    "errors_other",
    "jobs_waiting",
    "jobs_running",
    "jobs_completed",
    "jobs_failed",
]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
JOB_METRICS: Final[tuple[Metric, ...]] = METRICS[-4:]
# Counts are added up; of other figures the highest of an hour or day is kept.
COUNTED_METRICS: Final = (
    "pages_indexed",
    "pages_failed",
    "pages_other",
    "queries",
    *(metric for metric in METRICS if metric.startswith("errors_")),
    "jobs_completed",
    "jobs_failed",
)
RETENTION: Final[Mapping[Period, timedelta]] = MappingProxyType(
    {"minute": timedelta(days=1), "hour": timedelta(days=31), "day": timedelta(days=730)}
)
# Of work.error_kind: the host did not answer at all.
CONNECTION_KINDS: Final = (
    "DNS",
    "TLS",
    "connection refused",
    "connection lost",
    "unreachable",
    "no response",
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
    minute = last_minute(now)
    if await store.is_recorded.value(conn, metric="pages_waiting", at=minute):
        return False
    [row] = await store.figures.tuples(
        conn,
        since=minute,
        until=minute + MINUTE,
        most=MAX_COUNTED,
        chunks=MAX_CHUNKS,
        connection_kinds=list(CONNECTION_KINDS),
    )
    metrics = [metric for metric in METRICS if metric not in JOB_METRICS]
    await add_figures(conn, minute, dict(zip(metrics, row, strict=True)))
    for period, kept in RETENTION.items():
        await store.prune.run(conn, period=period, metrics=list(METRICS), before=now - kept)
    return True


async def record_jobs(conn: Connection, figures: Sequence[float], *, minute: datetime) -> bool:
    """Record the figures of jobs for a minute, in the order of JOB_METRICS, once, however many MGMTs run."""
    await store.lock_jobs.tuples(conn)
    if await has_jobs(conn, minute=minute):
        return False
    await add_figures(conn, minute, dict(zip(JOB_METRICS, figures, strict=True)))
    return True


async def has_jobs(conn: Connection, *, minute: datetime) -> bool:
    """Whether the figures of jobs are recorded for a minute."""
    return bool(await store.is_recorded.value(conn, metric=JOB_METRICS[0], at=minute))


def last_minute(now: datetime) -> datetime:
    """The start of the last full minute."""
    return now.astimezone(UTC).replace(second=0, microsecond=0) - MINUTE


async def add_figures(
    conn: Connection, minute: datetime, figures: Mapping[Metric, float | None]
) -> None:
    """Store the figures of a minute, and add them to its hour and its day."""
    numbers = {metric: value for metric, value in figures.items() if value is not None}
    for period, start in period_starts(minute).items():
        await store.add_figures.run(
            conn,
            period=period,
            at=start,
            metrics=list(numbers),
            numbers=[float(number) for number in numbers.values()],
            counted=list(COUNTED_METRICS),
        )


def period_starts(minute: datetime) -> dict[Period, datetime]:
    """The starts of the minute, the hour and the day (UTC) that contain a minute."""
    hour = minute.replace(minute=0)
    return {"minute": minute, "hour": hour, "day": hour.replace(hour=0)}


async def points(conn: Connection, period: Period, *, since: datetime) -> list[HistoryPoint]:
    """The figures since then, by metric and time."""
    return await store.points.rows(
        conn, HistoryPoint, period=period, metrics=list(METRICS), since=since
    )
