"""Counts the items of feeds on each of the last 14 days, and computes the bars of a sparkline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)

DAYS: Final = 14
WIDTH, HEIGHT, GAP = 140.0, 28.0, 2.0
MIN_BAR_HEIGHT: Final = 3.0  # of a day with items
EMPTY_BAR_HEIGHT: Final = 1.0


@dataclass(frozen=True, slots=True)
class SparklineBar:
    """The bar of one day."""

    day: date
    items: int
    x: float
    y: float
    width: float
    height: float


async def items_per_day(
    conn: Connection, feeds: Iterable[int], *, now: datetime
) -> dict[int, list[int]]:
    """The number of items of each feed on each of the last days, today last."""
    counts = {id_: [0] * DAYS for id_ in feeds}
    if counts:
        since = first_day(now)
        until = since + timedelta(days=DAYS)
        rows = await store.items_per_day.tuples(conn, feeds=list(counts), since=since, until=until)
        for id_, day, number in rows:
            counts[id_][day] = number
    return counts


def first_day(now: datetime) -> datetime:
    """The start of the first day, in UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=DAYS - 1)


def bars(counts: Sequence[int], *, now: datetime) -> list[SparklineBar]:
    """The bars of the days; the busiest day has the full height."""
    first, maximum = first_day(now).date(), max([1, *counts])
    step = WIDTH / max(1, len(counts))
    result = []
    for index, number in enumerate(counts):
        height = max(MIN_BAR_HEIGHT, HEIGHT * number / maximum) if number else EMPTY_BAR_HEIGHT
        day = first + timedelta(days=index)
        x, y = round(index * step, 2), round(HEIGHT - height, 2)
        result.append(SparklineBar(day, number, x, y, round(step - GAP, 2), round(height, 2)))
    return result


def describe(counts: Sequence[int]) -> str:
    """The sparkline as a text for screen readers."""
    total = sum(counts)
    if not total:
        return f"No items in the last {len(counts)} days"
    listed = ", ".join(map(str, counts))
    return f"{total:,} item{'s' * (total != 1)} in the last {len(counts)} days; by day: {listed}"
