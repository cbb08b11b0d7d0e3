"""How busy feeds were lately: items of each of the last fourteen days, and the bars that show it.

Comes from the dates of items, counted for all feeds of a page at once; goes to pages as numbers and rectangles.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)

DAYS: Final = 14
WIDTH, HEIGHT, GAP = 140.0, 28.0, 2.0  # of a drawing, in its own units
MIN_BAR_HEIGHT: Final = 3.0  # of a bar that stands for something
EMPTY_BAR_HEIGHT: Final = 1.0  # and of one that stands for nothing


@dataclass(frozen=True, slots=True)
class SparklineBar:
    """One day as drawn."""

    day: date
    items: int
    x: float
    y: float
    width: float
    height: float


async def items_per_day(
    conn: Connection, feeds: Iterable[int], *, now: datetime
) -> dict[int, list[int]]:
    """Items of each of the last days, today's last, by the numbers of feeds; every one of them is there."""
    found = {id_: [0] * DAYS for id_ in feeds}
    if found:
        since = first_day(now)
        until = since + timedelta(days=DAYS)
        rows = await store.days.tuples(conn, feeds=list(found), since=since, until=until)
        for id_, day, number in rows:
            found[id_][day] = number
    return found


def first_day(now: datetime) -> datetime:
    """When the first of the days begins; days are of UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=DAYS - 1)


def bars(counts: Sequence[int], *, now: datetime) -> list[SparklineBar]:
    """The days as rectangles, the busiest as high as there is room."""
    first, most = first_day(now).date(), max([1, *counts])
    step = WIDTH / max(1, len(counts))
    found = []
    for place, number in enumerate(counts):
        height = max(MIN_BAR_HEIGHT, HEIGHT * number / most) if number else EMPTY_BAR_HEIGHT
        day = first + timedelta(days=place)
        x, y = round(place * step, 2), round(HEIGHT - height, 2)
        found.append(SparklineBar(day, number, x, y, round(step - GAP, 2), round(height, 2)))
    return found


def describe(counts: Sequence[int]) -> str:
    """What is drawn, for those who do not see it."""
    total = sum(counts)
    if not total:
        return f"No items in the last {len(counts)} days"
    listed = ", ".join(map(str, counts))
    return f"{total:,} item{'s' * (total != 1)} in the last {len(counts)} days; by day: {listed}"
