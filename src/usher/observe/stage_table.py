"""The table of the stages and the lines about failures, as texts for the command line and the console."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from usher.observe.stages import MAX_COUNTED, QueueStatus, WorkStatus
from usher.observe.status_report import StatusReport
from usher.wording import counted, duration_text, printable

HEADINGS = ("STAGE", "WAITING", "OLDEST", "IN PROGRESS", "FAILED", "LAST HOUR", "BY")
STAGE_TYPES = ("crawler", "index-builder", "index-server", "front-end")
SHORT_TYPES = {"index-builder": "builder", "index-server": "server", None: "unknown"}
MAX_PAUSED_NAMES = 3


@dataclass(frozen=True, slots=True)
class FailureNote:
    """Something that failed and blocks nothing, with the command that lists it."""

    words: str
    command: str


def stage_rows(report: StatusReport) -> list[Sequence[str]]:
    """The rows below HEADINGS, in the order of the path of a URL."""
    rows = [*(work_rows(report.work, report.at) if report.work else ())]
    return [*rows, job_row(report.queue, report.at)] if report.queue else rows


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


def failure_notes(report: StatusReport) -> Iterator[FailureNote]:
    """Pages and jobs that failed: they block nothing, but the user wants to see them."""
    if report.work and (pages := report.work.pages.failed):
        yield FailureNote(f"{number_text(pages, 'page')} failed.", "usher pages errors")
    if report.queue and (jobs := report.queue.failed):
        command = "usher jobs log --state permanent-error --since 1h"
        yield FailureNote(f"{number_text(jobs, 'job')} failed in the last hour.", command)


def number_text(number: int, noun: str, plural: str = "") -> str:
    return f"{capped(number)} {noun if number == 1 else plural or f'{noun}s'}"


def capped(number: int) -> str:
    return f"≥ {MAX_COUNTED:,}" if number >= MAX_COUNTED else f"{number:,}"
