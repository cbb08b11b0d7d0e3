"""`usher status`: read the state of both areas, and show the stages and what blocks them, as text or JSON."""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from usher.cli.app import App, show_json, table_lines
from usher.cli.area_access import POOL_SIZE, READER, prepare_schema, say_demo_runs
from usher.cli.output import CLEAR_SCREEN, echo, style
from usher.db.areas import AreaDatabases, open_areas
from usher.db.pool import Database, connect
from usher.errors import ServerUnusable, Unreachable
from usher.local.ports import ended_components
from usher.observe.blockers import is_running
from usher.observe.causes import database_cause
from usher.observe.stage_table import (
    HEADINGS,
    SHORT_TYPES,
    FailureNote,
    age,
    capped,
    failure_notes,
    number_text,
    server_text,
    stage_rows,
)
from usher.observe.stages import CrashedProcess, FailingComponent, WorkStatus
from usher.observe.status_report import StatusReport, read_report, status_json
from usher.schema.state import schema_state
from usher.settings import Settings
from usher.versions import version_counts
from usher.wording import (
    printable,
    time_text,
)

REFRESH_SECONDS = 2.0
HOST_STATES = {
    "ready": "ready",
    "held": "being crawled",
    "resting": "resting",
    "troubled": "failing",
    "paused": "paused",
    "blocked": "blocked",
    "due": "due",
}
MAX_REASON_CHARACTERS = 1_000
STOPPED_STATES = {"held": "of a crawl that stopped"}  # after a restore, or until a lease ends
AREAS = ("work", "control")


@dataclass(slots=True)
class StatusReader:
    """The databases that can be read, and the schemas that are behind or ahead of this program."""

    settings: Settings
    areas: dict[str, Database]
    behind: dict[str, int]
    ahead: list[str]

    async def read(self) -> StatusReport:
        """Read the areas that can be read."""
        return await read_report(
            self.areas,
            self.settings.data,
            behind=self.behind,
            ahead=self.ahead,
            ended=ended_components(self.settings.data),
        )


@asynccontextmanager
async def open_reader(app: App) -> AsyncIterator[StatusReader]:
    """Open the databases; if one cannot be used, the error names the cause as `usher doctor` does."""
    settings = app.settings
    try:
        async with open_areas_to_read(settings) as reader:
            yield reader
    except (Unreachable, ServerUnusable) as error:
        cause = database_cause(error, settings)
        raise type(error)(cause.words, hint=cause.next_step) from error


@asynccontextmanager
async def open_areas_to_read(settings: Settings) -> AsyncIterator[StatusReader]:
    with open_areas(settings) as areas:
        async with AsyncExitStack() as stack:
            reader = StatusReader(settings, {}, {}, [])
            for schema in AREAS:
                if await is_current(areas, schema, reader):
                    seconds = settings.connect_timeout
                    role = await prepare_schema(areas, schema, READER, seconds)
                    dsn = areas.dsn(schema)
                    db = Database(dsn, size=POOL_SIZE, patience=seconds, role=role)
                    reader.areas[schema] = await stack.enter_async_context(db)
            yield reader


async def is_current(areas: AreaDatabases, schema: str, reader: StatusReader) -> bool:
    """Whether a schema can be read; one of the embedded server is migrated before it is read."""
    seconds = reader.settings.connect_timeout
    async with await connect(areas.dsn(schema), patience=seconds) as conn:
        version = await schema_state(conn, schema)
    if version.refused:
        reader.ahead.append(schema)
    elif version.pending and not areas.is_embedded(schema):
        reader.behind[schema] = len(version.pending)
    else:
        return True
    return False


async def show_once(app: App, *, as_json: bool) -> bool:
    """Show the status; whether nothing is blocked."""
    async with open_reader(app) as reader:
        report = await reader.read()
    if report.work and not is_running(report.work, report.queue):
        say_demo_runs(app, "status")
    if as_json:
        show_json(status_json(report))
    else:
        echo(app.hint("\n".join(render(report))))
    return not report.blockers


async def watch_status(app: App) -> bool:
    """Redraw the status on a terminal until interrupted; whether nothing was blocked at the end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with open_reader(app) as reader:
        while True:
            report = await reader.read()
            height = shutil.get_terminal_size().lines - 1
            echo(CLEAR_SCREEN + app.hint("\n".join(render(report)[:height])))
            try:
                await asyncio.wait_for(stop.wait(), REFRESH_SECONDS)
            except TimeoutError:
                continue
            return not report.blockers


def render(report: StatusReport) -> list[str]:
    lines = [style(f"{report.at:%Y-%m-%d %H:%M:%S} UTC", dim=True)]
    if rows := stage_rows(report):
        lines += ["", *table_lines(HEADINGS, rows)]
    if report.work:
        fields = summary_fields(report.work, report.at)
        lines += ["", *(f"{name:<12}{text}" for name, text in fields)]
    lines += ["", *blocker_lines(report)]
    if report.work and not report.work.pages.known:
        command = "add" if is_running(report.work, report.queue) else "crawl"
        lines.append(f"No page is known yet.\n    → usher {command} URL")
    return lines


def summary_fields(work: WorkStatus, now: datetime) -> Iterator[tuple[str, str]]:
    pages, hosts = work.pages, work.hosts
    yield "pages", f"{'' if pages.exact else '≈ '}{pages.known:,} known"
    if pages.oldest_url:
        yield "", f"ready and waiting longest: {printable(pages.oldest_url)}"
    labels = HOST_STATES if work.running else {**HOST_STATES, **STOPPED_STATES}
    counts = [(getattr(hosts, name), label) for name, label in labels.items()]
    yield "hosts", ", ".join(f"{capped(n)} {label}" for n, label in counts if n) or "none waiting"
    for host in (host for host in hosts.longest if host.troubles):
        yield "", f"{host.name} rests until {time_text(host.until, now)}: {printable(host.reason)}"
    for number, line in enumerate(row_lines(work)):
        yield "" if number else "rows", line
    yield "components", component_text(work)
    for component in work.failing:
        yield "", failing_text(component, now)
    yield "watchdog", watchdog_text(work, now)
    if not work.versions.is_uniform:
        yield "versions", printable(version_counts(work.versions), MAX_REASON_CHARACTERS)
    for number, crash in enumerate(work.crashes):
        yield "" if number else "crashes", crash_text(crash, now)


def watchdog_text(work: WorkStatus, now: datetime) -> str:
    """Whether a watchdog is active, and its last round."""
    active, last = "active" if work.watched else "none runs", work.last_round
    if last is None:
        return active
    ago = f"{age(last.ended_at, now)} ago"
    return f"{active}; last round {ago}, took {last.seconds:.2f} s, on {printable(last.machine)}"


def crash_text(crash: CrashedProcess, now: datetime) -> str:
    """`crawler crashed 2 times, last at …, signal 9; see LOG`."""
    when = time_text(crash.last, now)
    how, _, log = crash.reason.removeprefix("crashed ").partition("; ")
    often = f"once, at {when}" if crash.number == 1 else f"{crash.number} times, last at {when}"
    return f"{crash.process} crashed {often}, {printable(how.strip('()'))}; {printable(log, MAX_REASON_CHARACTERS)}"


def row_lines(work: WorkStatus) -> Iterator[str]:
    for row in work.rows:
        servers = server_text(work.answering(row.row), "server")
        parts = [
            f"{row.row}: {servers}",
            number_text(row.seats, "copy", "copies"),
            f"{capped(row.wanted)} not loaded" if row.wanted else "",
            f"{capped(row.unseated)} unplaced" if row.unseated else "",
        ]
        yield ", ".join(filter(None, parts))


def component_text(work: WorkStatus) -> str:
    counts: Counter[tuple[str | None, str]] = Counter()
    for group in work.crews:
        health = "silent" if group.silent and group.health == "healthy" else group.health
        health = "stopped" if group.stopped else health
        counts[group.type, health] += group.number
    return (
        ", ".join(
            f"{number_text(number, SHORT_TYPES.get(type_) or str(type_), '' if type_ else 'unknown')} {health}"
            for (type_, health), number in counts.items()
        )
        or "none"
    )


def failing_text(component: FailingComponent, now: datetime) -> str:
    state = "silent" if component.health == "healthy" else f"in {component.health}"
    state = "in error" if component.state == "error" else state
    since = time_text(component.since, now)
    reason = printable(component.reason.rstrip("."), MAX_REASON_CHARACTERS)
    empty = "" if component.held else "; it holds no chunks"
    return f"{component.host} is {state} since {since}: {reason}{empty}"


def blocker_lines(report: StatusReport) -> Iterator[str]:
    failures = list(failure_notes(report))
    if not report.blockers:
        if report.work and not is_running(report.work, report.queue):
            yield "Usher is not running.\n    → usher up"
        else:
            healthy = "No stage is blocked." if failures else "All stages are healthy."
            yield style(healthy, fg="green")
        yield from failure_lines(failures)
        return
    yield style("Problems", fg="red", bold=True)
    for number, blocker in enumerate(report.blockers, 1):
        yield f"{number:>2}. {printable(blocker.words, MAX_REASON_CHARACTERS)}"
        yield f"    → {printable(blocker.command, MAX_REASON_CHARACTERS)}"
    yield from failure_lines(failures)


def failure_lines(failures: Iterable[FailureNote]) -> Iterator[str]:
    return (f"{note.words}\n    → {note.command}" for note in failures)
