"""`usher status`: read the state of both areas, and show the stages and what blocks them, as text or JSON."""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from usher.cli.app import App, show_json, table_lines
from usher.cli.area_access import POOL_SIZE, READER, prepare_schema, say_demo_runs
from usher.cli.output import CLEAR_SCREEN, echo, style
from usher.cli.wording import (
    counted,
    duration_text,
    json_value,
    printable,
    record_json,
    records_json,
    time_text,
)
from usher.db.areas import AreaDatabases, open_areas
from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database, connect
from usher.errors import ServerUnusable, Unreachable
from usher.observe.blockers import Blocker, SystemState, find_blockers, is_running
from usher.observe.causes import database_cause, free_bytes
from usher.observe.stages import (
    MAX_COUNTED,
    CrashedProcess,
    FailingComponent,
    QueueStatus,
    WorkStatus,
    read_queue,
    read_work,
)
from usher.schema.state import schema_state
from usher.settings import Settings

REFRESH_SECONDS = 2.0
HEADINGS = ("STAGE", "WAITING", "OLDEST", "IN PROGRESS", "FAILED", "LAST HOUR", "BY")
STAGE_TYPES = ("crawler", "index-builder", "index-server", "front-end")
SHORT_TYPES = {"index-builder": "builder", "index-server": "server", None: "unknown"}
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
MAX_PAUSED_NAMES = 3
AREAS = ("work", "control")


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The state at one moment; None for an area whose schema is out of date."""

    at: datetime
    work: WorkStatus | None
    queue: QueueStatus | None
    blockers: Sequence[Blocker]


@dataclass(slots=True)
class StatusReader:
    """The databases that can be read, and the schemas that are behind or ahead of this program."""

    settings: Settings
    areas: dict[str, Database]
    behind: dict[str, int]
    ahead: list[str]

    async def read(self) -> StatusReport:
        """Read each database in one read-only transaction."""
        clock = next((db.clock for db in self.areas.values()), DatabaseClock())
        now, work, queue = clock.now(), None, None
        if "work" in self.areas:
            async with read_transaction(self.areas["work"]) as conn:
                work = await read_work(conn, now=now)
        if "control" in self.areas:
            async with read_transaction(self.areas["control"]) as conn:
                queue = await read_queue(conn, now=now)
        data = self.settings.data
        free = free_bytes(data) if data.exists() else None
        system = SystemState(self.behind, self.ahead, free, data, clock.skew.total_seconds())
        return StatusReport(now, work, queue, find_blockers(system, work, queue, now))


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
    if version.unknown:
        reader.ahead.append(schema)
    elif version.pending and not areas.is_embedded(schema):
        reader.behind[schema] = len(version.pending)
    else:
        return True
    return False


@asynccontextmanager
async def read_transaction(db: Database) -> AsyncIterator[Connection]:
    async with db.transaction() as conn:
        await conn.execute("set transaction isolation level repeatable read, read only")
        yield conn


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
    rows = [*(work_rows(report.work, report.at) if report.work else ())]
    if report.queue:
        rows.append(job_row(report.queue, report.at))
    if rows:
        lines += ["", *table_lines(HEADINGS, rows)]
    if report.work:
        fields = summary_fields(report.work, report.at)
        lines += ["", *(f"{name:<12}{text}" for name, text in fields)]
    lines += ["", *blocker_lines(report)]
    if report.work and not report.work.pages.known:
        lines.append("The guestbook is empty.\n    → usher add URL")
    return lines


def work_rows(work: WorkStatus, now: datetime) -> Iterator[Sequence[str]]:
    """One table row for each stage, in the order of the path of a URL."""
    pages, chunks, copies, last = work.pages, work.chunks, work.copies, work.last_hour
    rate = f", {last.pace(now):.1f}/s" if last.pace(now) >= 1 else ""
    wanted = sum(row.wanted for row in work.rows)
    outdated, held = copies.to_retire + copies.unjudged, f"{capped(copies.held)} held back"
    crawlers, builders, servers, fronts = (component_count(work, type_) for type_ in STAGE_TYPES)
    yield (
        "crawl", capped(pages.waiting), age(pages.oldest, now), number_text(pages.crawling, "page"),
        capped(pages.failed), number_text(last.pages, "page") + rate, crawlers,
    )  # fmt: skip
    yield (
        "build", capped(chunks.to_build), age(chunks.to_build_since, now), number_text(chunks.building, "chunk"),
        f"{capped(chunks.parked)} parked" if chunks.parked else "0", number_text(last.chunks, "chunk"), builders,
    )  # fmt: skip
    yield (
        "load", capped(chunks.to_load), age(chunks.to_load_since, now), number_text(wanted, "copy", "copies"),
        "-", "-", servers,
    )  # fmt: skip
    yield "retire", capped(outdated), "-", "-", held if copies.held else "-", "-", servers
    yield "search", "-", "-", "-", "-", number_text(last.searches, "search", "searches"), fronts


def job_row(queue: QueueStatus, now: datetime) -> Sequence[str]:
    oldest = min((counts.since for counts in queue.types if counts.since), default=None)
    waiting = sum(counts.waiting + counts.again for counts in queue.types)
    running = sum(counts.running for counts in queue.types)
    by = "scheduler active" if queue.scheduled else "no scheduler"
    if queue.paused:
        names = ", ".join(f"{entry.kind} {entry.name}" for entry in queue.paused[:MAX_PAUSED_NAMES])
        more = len(queue.paused) - MAX_PAUSED_NAMES
        by += f"; paused: {printable(names)}" + (f" and {more} more" if more > 0 else "")
    return (
        "jobs", capped(waiting), age(oldest, now), number_text(running, "job"), capped(queue.failed),
        f"{capped(queue.done)} done", by,
    )  # fmt: skip


def age(since: datetime | None, now: datetime) -> str:
    return "-" if since is None else duration_text(max(now - since, timedelta(0)))


def component_count(work: WorkStatus, type_: str) -> str:
    """`2 crawlers, 1 paused`."""
    number, noun = work.working(type_), SHORT_TYPES.get(type_, type_)
    groups = (group for group in work.crews if group.type == type_)
    paused = sum(group.number for group in groups if group.well and not group.works)
    return server_text(number, noun) + (f", {paused} paused" if paused else "")


def server_text(number: int, noun: str) -> str:
    return counted(number, noun) if number else f"no {noun}s"


def summary_fields(work: WorkStatus, now: datetime) -> Iterator[tuple[str, str]]:
    pages, hosts = work.pages, work.hosts
    yield "pages", f"{'' if pages.exact else '≈ '}{pages.known:,} known"
    if pages.oldest_url:
        yield "", f"ready and waiting longest: {printable(pages.oldest_url)}"
    counts = [(getattr(hosts, name), label) for name, label in HOST_STATES.items()]
    yield "hosts", ", ".join(f"{capped(n)} {label}" for n, label in counts if n) or "none waiting"
    for host in (host for host in hosts.longest if host.troubles):
        yield "", f"{host.name} rests until {time_text(host.until, now)}: {printable(host.reason)}"
    for number, line in enumerate(row_lines(work)):
        yield "" if number else "rows", line
    yield "components", component_text(work)
    for component in work.failing:
        yield "", failing_text(component, now)
    yield "watchdog", watchdog_text(work, now)
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
    """`crawler crashed 2 times, last at … (signal 9), see LOG`."""
    when = time_text(crash.last, now)
    how, _, log = crash.reason.partition("; ")
    often = f"once, at {when}" if crash.number == 1 else f"{crash.number} times, last at {when}"
    return f"{crash.process} crashed {often}: {printable(how)}, {printable(log, MAX_REASON_CHARACTERS)}"


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
    counts: Counter[str] = Counter()
    for group in work.crews:
        health = "silent" if group.silent and group.health == "healthy" else group.health
        health = "stopped" if group.stopped else health
        counts[f"{SHORT_TYPES.get(group.type, group.type)} {health}"] += group.number
    return ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "none"


def failing_text(component: FailingComponent, now: datetime) -> str:
    state = "silent" if component.health == "healthy" else f"in {component.health}"
    state = "in error" if component.state == "error" else state
    since = time_text(component.since, now)
    reason = printable(component.reason, MAX_REASON_CHARACTERS)
    empty = "" if component.held else "; it holds no chunks"
    return f"{component.host} is {state} since {since}: {reason}{empty}"


def blocker_lines(report: StatusReport) -> Iterator[str]:
    if not report.blockers:
        if report.work and not is_running(report.work, report.queue):
            yield "Usher is not running.\n    → usher up"
        else:
            healthy = "No stage is blocked." if has_failures(report) else "All stages are healthy."
            yield style(healthy, fg="green")
        yield from failure_lines(report)
        return
    yield style("Problems", fg="red", bold=True)
    for number, blocker in enumerate(report.blockers, 1):
        yield f"{number:>2}. {printable(blocker.words, MAX_REASON_CHARACTERS)}"
        yield f"    → {printable(blocker.command, MAX_REASON_CHARACTERS)}"
    yield from failure_lines(report)


def failure_lines(report: StatusReport) -> Iterator[str]:
    """Pages and jobs that failed: they block nothing, but the user wants to see them."""
    if report.work and (pages := report.work.pages.failed):
        yield f"{number_text(pages, 'page')} failed.\n    → usher pages errors"
    if report.queue and (jobs := report.queue.failed):
        yield f"{number_text(jobs, 'job')} failed in the last hour."
        yield "    → usher jobs log --state permanent-error --since 1h"


def has_failures(report: StatusReport) -> bool:
    return any(failure_lines(report))


def number_text(number: int, noun: str, plural: str = "") -> str:
    return f"{capped(number)} {noun if number == 1 else plural or f'{noun}s'}"


def capped(number: int) -> str:
    return f"≥ {MAX_COUNTED:,}" if number >= MAX_COUNTED else f"{number:,}"


def status_json(report: StatusReport) -> dict[str, Any]:
    return {
        "at": json_value(report.at),
        "well": not report.blockers,
        "running": is_running(report.work, report.queue) if report.work else None,
        "work": record_json(report.work) if report.work else None,
        "queue": record_json(report.queue) if report.queue else None,
        "holdups": records_json(report.blockers),
    }
