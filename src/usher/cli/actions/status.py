"""The work behind `usher status`: what was seen through the window, drawn as lines or told as JSON.

Commands import this when they run, because it brings the driver along.
"""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from usher.cli.actions.status_data import StatusReport, open_reader
from usher.cli.app import App, show_json
from usher.cli.output import CLEAR_SCREEN, echo, style
from usher.cli.wording import duration_text, json_value, printable, time_text
from usher.observe.blockers import Blocker
from usher.observe.stages import MAX_COUNTED, FailingComponent, QueueStatus, WorkStatus

REFRESH_SECONDS = 2.0  # seconds between two drawings
NO_TIME = timedelta(0)
HEADINGS = ("STAGE", "WAITING", "OLDEST", "UNDER WAY", "FAILED", "LAST HOUR", "BY")
STAGE_TYPES = ("crawler", "index-builder", "index-server", "front-end")
SHORT_TYPES = {"index-builder": "builder", "index-server": "server", None: "unknown"}
MAX_REASON_CHARACTERS = 1_000  # characters of a reason
MAX_PAUSED_NAMES = 3


async def show_once(app: App, *, as_json: bool) -> bool:
    """Show it; whether all is well."""
    async with open_reader(app) as view:
        seen = await view.look()
    if as_json:
        show_json(status_json(seen))
    else:
        echo("\n".join(render(seen)))
    return not seen.blockers


async def watch_status(app: App) -> bool:
    """Draw it again and again on a terminal until interrupted; whether all was well at last."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with open_reader(app) as view:
        while True:
            seen = await view.look()
            height = shutil.get_terminal_size().lines - 1
            echo(CLEAR_SCREEN + "\n".join(render(seen)[:height]))
            try:
                await asyncio.wait_for(stop.wait(), REFRESH_SECONDS)
            except TimeoutError:
                continue
            return not seen.blockers


def render(seen: StatusReport) -> list[str]:
    lines = [style(f"{seen.at:%Y-%m-%d %H:%M:%S} UTC", dim=True)]
    rows = [*(work_rows(seen.work, seen.at) if seen.work else ())]
    if seen.queue:
        rows.append(job_row(seen.queue, seen.at))
    if rows:
        lines += ["", *table(HEADINGS, rows)]
    if seen.work:
        lines += ["", *field_lines(list(summary_fields(seen.work, seen.at)))]
    lines += ["", *blocker_lines(seen.blockers)]
    if seen.work and not seen.work.pages.known:
        lines.append("No page is known yet.\n    → usher add URL")
    return lines


def work_rows(work: WorkStatus, now: datetime) -> Iterator[Sequence[str]]:
    """A line for each stage, in the order of the way."""
    pages, chunks, copies, last = work.pages, work.chunks, work.copies, work.last_hour
    pace = f", {last.pace(now):.1f}/s" if last.pace(now) >= 1 else ""
    wanted = sum(one.wanted for one in work.rows)
    gone, held = copies.to_retire + copies.unjudged, f"{shown(copies.held)} held back"
    crawlers, builders, servers, fronts = (component_count(work, type_) for type_ in STAGE_TYPES)
    yield (
        "crawl", shown(pages.waiting), age(pages.oldest, now), f"{shown(pages.crawling)} pages",
        shown(pages.failed), f"{shown(last.pages)} pages{pace}", crawlers,
    )  # fmt: skip
    yield (
        "build", shown(chunks.to_build), age(chunks.to_build_since, now), f"{shown(chunks.building)} chunks",
        f"{shown(chunks.parked)} parked" if chunks.parked else "0", f"{shown(last.chunks)} chunks", builders,
    )  # fmt: skip
    yield (
        "load", shown(chunks.to_load), age(chunks.to_load_since, now), f"{shown(wanted)} copies", "-", "-", servers,
    )  # fmt: skip
    yield "retire", shown(gone), "-", "-", held if copies.held else "-", "-", servers
    yield "search", "-", "-", "-", "-", f"{shown(last.searches)} searches", fronts


def job_row(queue: QueueStatus, now: datetime) -> Sequence[str]:
    oldest = min((one.since for one in queue.types if one.since), default=None)
    waiting = sum(one.waiting + one.again for one in queue.types)
    running = sum(one.running for one in queue.types)
    leads = "a scheduler leads" if queue.scheduled else "no scheduler"
    if queue.paused:
        names = ", ".join(f"{entry.kind} {entry.name}" for entry in queue.paused[:MAX_PAUSED_NAMES])
        more = len(queue.paused) - MAX_PAUSED_NAMES
        leads += f"; paused: {printable(names)}" + (f" and {more} more" if more > 0 else "")
    return (
        "jobs", shown(waiting), age(oldest, now), f"{running:,} jobs", shown(queue.failed),
        f"{shown(queue.done)} done", leads,
    )  # fmt: skip


def age(since: datetime | None, now: datetime) -> str:
    return "-" if since is None else duration_text(max(now - since, NO_TIME))


def component_count(work: WorkStatus, type_: str) -> str:
    """`2 crawlers`, and how many there are beside them that are told to pause."""
    number, word = work.working(type_), SHORT_TYPES.get(type_, type_)
    paused = sum(
        crew.number for crew in work.crews if crew.type == type_ and crew.well and not crew.works
    )
    aside = f", {paused} paused" if paused else ""
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}{aside}"


def summary_fields(work: WorkStatus, now: datetime) -> Iterator[tuple[str, str]]:
    pages, hosts = work.pages, work.hosts
    yield "pages", f"{'' if pages.exact else '≈ '}{pages.known:,} known"
    if pages.oldest_url:
        yield "", f"waits longest, and could be fetched: {printable(pages.oldest_url)}"
    states = ("ready", "held", "resting", "troubled", "paused", "blocked", "due")
    words = ("ready", "being crawled", "resting", "in trouble", "paused", "blocked", "due")
    counts = [(getattr(hosts, name), word) for name, word in zip(states, words, strict=True)]
    yield "hosts", ", ".join(f"{shown(n)} {word}" for n, word in counts if n) or "none waits"
    for host in (host for host in hosts.longest if host.troubles):
        yield "", f"{host.name} rests until {time_text(host.until, now)}: {printable(host.reason)}"
    for number, line in enumerate(row_lines(work)):
        yield "" if number else "rows", line
    yield "components", component_text(work)
    for one in work.failing:
        yield "", failing_text(one, now)
    yield "watchdog", watchdog_text(work, now)


def watchdog_text(work: WorkStatus, now: datetime) -> str:
    """Whether one leads, and the age and duration of its last round."""
    leads, last = "leads" if work.watched else "none runs", work.last_round
    if last is None:
        return leads
    return f"{leads}; last round {age(last.ended_at, now)} ago, took {last.seconds:.2f} s, on {printable(last.machine)}"


def row_lines(work: WorkStatus) -> Iterator[str]:
    for one in work.rows:
        servers = work.answering(one.row)
        who = f"{servers or 'no'} server{'' if servers == 1 else 's'}"
        lacks = [
            f"{shown(one.wanted)} not loaded" if one.wanted else "",
            f"{shown(one.unseated)} without a seat" if one.unseated else "",
        ]
        yield ", ".join(filter(None, [f"{one.row}: {who}", f"{one.seats:,} seats", *lacks]))


def component_text(work: WorkStatus) -> str:
    counted: Counter[str] = Counter()
    for crew in work.crews:
        how = "silent" if crew.silent and crew.health == "healthy" else crew.health
        counted[f"{SHORT_TYPES.get(crew.type, crew.type)} {how}"] += crew.number
    return ", ".join(f"{number} {kind}" for kind, number in counted.items()) or "none"


def failing_text(one: FailingComponent, now: datetime) -> str:
    how = "is silent" if one.health == "healthy" else f"is in {one.health}"
    how = "declares an error" if one.state == "error" else how
    has = "" if one.held else "; it holds nothing"
    return f"{one.host} {how} since {time_text(one.since, now)}: {printable(one.reason, MAX_REASON_CHARACTERS)}{has}"


def blocker_lines(found: Sequence[Blocker]) -> Iterator[str]:
    if not found:
        yield style("Nothing holds things up.", fg="green")
        return
    yield style("What holds things up", fg="red", bold=True)
    for number, one in enumerate(found, 1):
        yield f"{number:>2}. {printable(one.words, MAX_REASON_CHARACTERS)}"
        yield f"    → {printable(one.command, MAX_REASON_CHARACTERS)}"


def shown(number: int) -> str:
    return f"≥ {MAX_COUNTED:,}" if number >= MAX_COUNTED else f"{number:,}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(line[at]) for line in (headings, *rows)) for at in range(len(headings))]
    for number, line in enumerate((headings, *rows)):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        drawn_line = "  ".join(cells).rstrip()
        yield style(drawn_line, bold=True) if number == 0 else drawn_line


def field_lines(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, words in lines:
        yield f"{name:<12}{words}"


def status_json(seen: StatusReport) -> dict[str, Any]:
    return {
        "at": json_value(seen.at),
        "well": not seen.blockers,
        "work": json_values(asdict(seen.work)) if seen.work else None,
        "queue": json_values(asdict(seen.queue)) if seen.queue else None,
        "holdups": [asdict(one) for one in seen.blockers],
    }


def json_values(value: object) -> Any:  # noqa: ANN401 - any JSON
    match value:
        case dict():
            return {name: json_values(one) for name, one in value.items()}
        case list() | tuple():
            return [json_values(one) for one in value]
        case _:
            return json_value(value)
