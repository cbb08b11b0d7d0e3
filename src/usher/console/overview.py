"""The first screen: problems, stages, components, rows, hosts with problems, and the latest events."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from usher.api.context import MgmtCall, MgmtContext
from usher.api.event_access import visible_event
from usher.console.actions.registry import link_of_command
from usher.console.charts import CHART_SIZE, ChartView, hour_charts
from usher.console.component_rows import component_row
from usher.console.event_rows import EVENT_HEADINGS, event_row
from usher.console.page import (
    REFRESH_SECONDS,
    ActionLink,
    ConsolePage,
    ConsoleTable,
    TableCell,
    TableRow,
)
from usher.db.pool import Connection, Database
from usher.mgmt import components, queries
from usher.mgmt.component_chunks import ComponentView, with_holdings
from usher.mgmt.components import RecordedEvent
from usher.mgmt.queries import BusyHost, QueryTermTimes
from usher.observe.blockers import is_running
from usher.observe.stage_table import (
    HEADINGS,
    capped,
    failure_notes,
    server_text,
    stage_rows,
)
from usher.observe.stages import HOUR, MAX_COUNTED, WorkStatus
from usher.observe.status_report import StatusReport, read_report, read_transaction, status_json
from usher.settings import Settings
from usher.ttl_cache import TtlCache
from usher.wording import relative_time

REPORT_SECONDS: Final = 2.0  # however many browsers are open, the status is read once in this time
SUMMARY_SECONDS: Final = 60.0
CHART_SECONDS: Final = 50.0  # differs, so that one request seldom reads both
MAX_COMPONENTS: Final = 12
MAX_EVENTS: Final = 10
MAX_BUSY_HOSTS: Final = 5
MAX_TERMS: Final = 5
STAGE_PATHS: Final = {
    "crawl": "/pages?state=pending",
    "build": "/chunks?stage=crawled",
    "load": "/chunks?stage=built",
    "retire": "/chunks",
    "search": "/components?type=front-end",
    "jobs": "/jobs",
}


@dataclass(frozen=True, slots=True)
class ProblemView:
    """A problem or a note in a sentence, its command, and the page or action that helps."""

    words: str
    command: str
    link: ActionLink | None


@dataclass(frozen=True, slots=True)
class HourSummary:
    """The busiest hosts and the most frequent queries of the last hour."""

    busiest: Sequence[BusyHost]
    terms: Sequence[QueryTermTimes]
    empty_terms: Sequence[QueryTermTimes]  # of queries without results


@dataclass(frozen=True, slots=True)
class OverviewData:
    """What the first screen shows, as it was read."""

    report: StatusReport
    components: Sequence[ComponentView]
    events: Sequence[RecordedEvent]
    hour: HourSummary
    charts: Sequence[ChartView]


class Overview:
    """Reads the first screen at most once in REPORT_SECONDS, and the summary of the last hour in SUMMARY_SECONDS."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = TtlCache[str, OverviewData](REPORT_SECONDS, 1)
        self._hours = TtlCache[str, HourSummary](SUMMARY_SECONDS, 1)
        self._charts = TtlCache[str, list[ChartView]](CHART_SECONDS, 1)

    async def status(self, call: MgmtCall[Any]) -> ConsolePage:
        """The data of the first screen, without the page."""
        data = await self._recent(call.context)
        return ConsolePage("overview.html", "Overview", {}, status_json(data.report))

    async def show(self, call: MgmtCall[Any]) -> ConsolePage:
        data = await self._recent(call.context)
        values = {**overview_values(data), "events": event_table(call, data)}
        status = {"at": data.report.at}  # /status.json has the rest
        return ConsolePage(
            "overview.html", "Overview", values, status, "usher status", REFRESH_SECONDS
        )

    async def _recent(self, context: MgmtContext) -> OverviewData:
        data = self._cache.get("overview")
        if data is None:
            data = await self._read(context)
            self._cache.put("overview", data)
        return data

    async def _read(self, context: MgmtContext) -> OverviewData:
        areas = {"work": context.mgmt_db, "control": context.control}
        report, details = await asyncio.gather(
            read_report(areas, self._settings.data), self._read_details(context.mgmt_db)
        )
        return OverviewData(report, *details)

    async def _read_details(
        self, db: Database
    ) -> tuple[Sequence[ComponentView], Sequence[RecordedEvent], HourSummary, Sequence[ChartView]]:
        """What the first screen shows besides the status, on a connection of its own, while that is read."""
        async with read_transaction(db) as conn:
            listed = await components.list_components(conn, n=MAX_COMPONENTS)
            views = await with_holdings(conn, listed)
            events = await components.events(conn, n=MAX_EVENTS)
            hour = self._hours.get("hour")
            if hour is None:
                hour = await read_hour(conn, db.clock.now() - HOUR)
                self._hours.put("hour", hour)
            charts = self._charts.get("charts")
            if charts is None:
                charts = await hour_charts(conn, db.clock.now())
                self._charts.put("charts", charts)
        return views, events, hour, charts


async def read_hour(conn: Connection, since: datetime) -> HourSummary:
    """The summary since a time: 7 ms for 10,000 pages and 10,000 queries."""
    busiest = await queries.busiest_hosts(conn, since=since, n=MAX_BUSY_HOSTS, most=MAX_COUNTED)
    terms, empty_terms = [
        await queries.terms(conn, since=since, n=MAX_TERMS, most=MAX_COUNTED, without_results=empty)
        for empty in (False, True)
    ]
    return HourSummary(busiest, terms, empty_terms)


def overview_values(data: OverviewData) -> dict[str, Any]:
    report = data.report
    problems = [
        ProblemView(each.words, each.command, link_of_command(each.command))
        for each in report.blockers
    ]
    notes = [
        ProblemView(note.words, note.command, link_of_command(note.command))
        for note in failure_notes(report)
    ]
    is_stopped = report.work is not None and not is_running(report.work, report.queue)
    return {
        "at": report.at,
        "problems": problems,
        "notes": notes,
        "is_stopped": is_stopped,
        "stages": stage_table(report),
        "components": component_table(data),
        "rows": row_table(report.work) if report.work else None,
        "hosts": host_table(report) if report.work else None,
        "charts": data.charts,
        "chart_size": CHART_SIZE,
        "busiest": busiest_table(data),
        "terms": term_table(data.hour.terms),
        "empty_terms": term_table(data.hour.empty_terms),
        "pages": report.work.pages if report.work else None,
    }


def stage_table(report: StatusReport) -> ConsoleTable:
    rows = []
    for name, *texts in stage_rows(report):
        cells = [TableCell(name, STAGE_PATHS.get(name, "")), *(TableCell(text) for text in texts)]
        rows.append(TableRow(cells))
    return ConsoleTable([heading.capitalize() for heading in HEADINGS], rows)


def component_table(data: OverviewData) -> ConsoleTable:
    headings = ("Component", "Type", "State", "Health", "Last contact", "Version", "Holds")
    rows = [component_row(view, data.report.at) for view in data.components]
    return ConsoleTable(headings, rows, empty="No component is registered.")


def row_table(work: WorkStatus) -> ConsoleTable:
    rows = []
    for row in work.rows:
        loaded = max(row.seats - row.wanted, 0)
        is_complete = not row.wanted and not row.unseated
        cells = (
            TableCell(f"Row {row.row}"),
            TableCell(server_text(work.answering(row.row), "server")),
            TableCell(f"{loaded:,} of {row.seats + row.unseated:,} chunks", kind="number"),
            TableCell(
                "complete" if is_complete else "incomplete", kind="good" if is_complete else "bad"
            ),
        )
        rows.append(TableRow(cells))
    return ConsoleTable(("Row", "Servers", "Loaded", "Coverage"), rows, empty="There is no row.")


def host_table(report: StatusReport) -> ConsoleTable:
    """Hosts that rest after an error, and hosts that the operator closed."""
    resting = report.work.hosts.longest if report.work else ()
    closed = report.work.hosts.shut if report.work else ()
    rows = [
        host_row(host.name, f"ready {relative_time(host.until, report.at)}", host.reason, "-")
        for host in resting
        if host.troubles
    ]
    rows += [host_row(host.name, host.policy, host.reason, capped(host.pages)) for host in closed]
    headings = ("Host", "State", "Reason", "Waiting pages")
    return ConsoleTable(headings, rows, empty="No host has a problem.")


def host_row(name: str, state: str, reason: str, pages: str) -> TableRow:
    return TableRow(
        (
            TableCell(name, f"/hosts/{name}"),
            TableCell(state, kind="bad"),
            TableCell(reason or "-"),
            TableCell(pages, kind="number"),
        )
    )


def busiest_table(data: OverviewData) -> ConsoleTable:
    """Hosts with the most pages fetched in the last hour."""
    rows = [
        TableRow(
            (
                TableCell(host.name, f"/hosts/{host.name}"),
                TableCell(f"{host.pages:,}", kind="number"),
            )
        )
        for host in data.hour.busiest
    ]
    return ConsoleTable(("Host", "Pages"), rows, empty="No page was fetched.")


def term_table(terms: Sequence[QueryTermTimes]) -> ConsoleTable:
    """Frequent queries of the last hour."""
    rows = [
        TableRow(
            (
                TableCell(term.term),
                TableCell(f"{term.number:,}", kind="number"),
                TableCell(f"{term.mean:.3f} s", kind="number"),
            )
        )
        for term in terms
    ]
    return ConsoleTable(("Query", "Times", "Mean time"), rows, empty="There are none.")


def event_table(call: MgmtCall[Any], data: OverviewData) -> ConsoleTable:
    rows = [event_row(visible_event(call, event), data.report.at) for event in data.events]
    return ConsoleTable(EVENT_HEADINGS, rows, empty="Nothing happened yet.")
