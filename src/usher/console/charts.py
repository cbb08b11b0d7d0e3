"""Charts of the history as SVG: lines that differ in their dashes, with a legend and a text for screen readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.lists.list_query import choice
from usher.console.page import ConsolePage
from usher.db.pool import Connection
from usher.mgmt import history
from usher.mgmt.history import HistoryPoint, Metric, Period
from usher.observe.status_report import read_transaction

Span = Literal["hour", "day", "month"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)
# Of each span: the figures that it shows, how many, and how far they are apart.
SPAN_PERIODS: Final[Mapping[Span, tuple[Period, int, timedelta]]] = {
    "hour": ("minute", 60, timedelta(minutes=1)),
    "day": ("hour", 24, timedelta(hours=1)),
    "month": ("day", 30, timedelta(days=1)),
}
WIDTH, HEIGHT = CHART_SIZE = (480.0, 120.0)
CHART_REFRESH_SECONDS: Final = 30
TIME_FORMATS: Final[Mapping[Span, str]] = {"hour": "%H:%M", "day": "%d %b %H:%M", "month": "%d %b"}
DASHES: Final = ("solid", "dashed", "dotted", "mixed", "sparse")


@dataclass(frozen=True, slots=True)
class ChartDefinition:
    """A chart: its title, its metrics with their labels, and the unit of its numbers."""

    title: str
    metrics: Mapping[Metric, str]
    unit: str


CHARTS: Final = (
    ChartDefinition(
        "Pages fetched",
        {"pages_indexed": "indexed", "pages_failed": "failed", "pages_other": "other"},
        "",
    ),
    ChartDefinition("Pages waiting", {"pages_waiting": "waiting"}, ""),
    ChartDefinition(
        "Time from fetch to searchable",
        {"seconds_to_search_p50": "p50", "seconds_to_search_p95": "p95"},
        " s",
    ),
    ChartDefinition(
        "Errors by kind",
        {
            "errors_4xx": "HTTP 4xx",
            "errors_5xx": "HTTP 5xx",
            "errors_timeout": "timeout",
            "errors_connection": "no connection",
            "errors_other": "other",
        },
        "",
    ),
    ChartDefinition(
        "Jobs by state",
        {
            "jobs_waiting": "waiting",
            "jobs_running": "running",
            "jobs_completed": "completed",
            "jobs_failed": "failed",
        },
        "",
    ),
    ChartDefinition("Queries", {"queries": "queries"}, ""),
    ChartDefinition("Time of queries", {"query_seconds_p95": "p95"}, " s"),
)


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line: its label, its dashes, its path, and its last and highest number as texts."""

    label: str
    dash: str
    path: str
    last: str
    highest: str


@dataclass(frozen=True, slots=True)
class ChartView:
    """A chart as the template draws it; without lines it has no figures."""

    title: str
    lines: Sequence[ChartLine]
    top: str
    start: str
    end: str

    @property
    def description(self) -> str:
        """The chart as a text."""
        if not self.lines:
            return f"{self.title}: no figures yet"
        texts = (f"{line.label}: last {line.last}, highest {line.highest}" for line in self.lines)
        return f"{self.title} from {self.start} to {self.end}; {'; '.join(texts)}"


async def charts_page(call: MgmtCall[Any]) -> ConsolePage:
    """The charts of the last hour, day or 30 days."""
    span, now = choice(call, "span", SPANS) or "hour", database_time(call)
    async with read_transaction(call.context.mgmt_db) as conn:
        points, start = await read_points(conn, span, now)
    views = [chart_view(definition, points, span, start) for definition in CHARTS]
    values = {"charts": views, "span": span, "spans": SPANS, "size": CHART_SIZE}
    data = {"span": span, "points": points}
    return ConsolePage("charts.html", "Charts", values, data, live_seconds=CHART_REFRESH_SECONDS)


async def hour_charts(conn: Connection, now: datetime) -> list[ChartView]:
    """The charts of the last hour."""
    points, start = await read_points(conn, "hour", now)
    return [chart_view(definition, points, "hour", start) for definition in CHARTS]


async def read_points(
    conn: Connection, span: Span, now: datetime
) -> tuple[list[HistoryPoint], datetime]:
    """The figures of a span, and its start."""
    period, number, step = SPAN_PERIODS[span]
    first = history.period_starts(now.astimezone(UTC).replace(second=0, microsecond=0))[period]
    start = first - number * step
    return await history.points(conn, period, since=start), start


def chart_view(
    definition: ChartDefinition, points: Sequence[HistoryPoint], span: Span, start: datetime
) -> ChartView:
    _, number, step = SPAN_PERIODS[span]
    by_metric = {
        metric: [point for point in points if point.metric == metric]
        for metric in definition.metrics
    }
    highest = max((point.number for point in points if point.metric in by_metric), default=0.0)
    lines = [
        ChartLine(
            definition.metrics[metric],
            dash,
            line_path(own, start, step, number, highest),
            number_text(own[-1].number, definition.unit),
            number_text(max(point.number for point in own), definition.unit),
        )
        for (metric, own), dash in zip(by_metric.items(), DASHES, strict=False)
        if own
    ]
    end = start + number * step
    times = (f"{time:{TIME_FORMATS[span]}}" for time in (start, end))
    return ChartView(definition.title, lines, number_text(highest, definition.unit), *times)


def line_path(
    points: Sequence[HistoryPoint], start: datetime, step: timedelta, number: int, highest: float
) -> str:
    """The path of a line; where a figure is missing, it is interrupted."""
    parts, previous = [], None
    for point in points:
        position = round((point.at - start) / step)
        x = WIDTH * position / max(1, number)
        y = HEIGHT - (HEIGHT - 4) * (point.number / highest if highest else 0)
        is_next = previous is not None and position == previous + 1
        # A line to the same place shows a single point.
        parts.append(f"L{x:.1f} {y:.1f}" if is_next else f"M{x:.1f} {y:.1f}L{x:.1f} {y:.1f}")
        previous = position
    return "".join(parts)


def number_text(number: float, unit: str) -> str:
    return f"{number:,.3g}{unit}" if unit else f"{number:,.0f}"
