"""What holds things up, in words: worst first, each with the command to try.

Comes from what `stages` read and what is around the databases; goes to whoever asks. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from shlex import quote
from typing import Final

from usher import durations
from usher.db.clock import SKEW_LIMIT, describe_skew
from usher.mgmt.placements import RowShortage
from usher.observe.stages import (
    MAX_COUNTED,
    FailingComponent,
    FullDiskComponent,
    JobTypeCounts,
    QueueStatus,
    WorkStatus,
)

MAX_WAIT: Final = timedelta(minutes=5)  # that something may wait although there is somebody for it
MAX_POLITE_REST: Final = timedelta(minutes=1)  # more than politeness asks for
MAX_JOB_DELAY: Final = timedelta(minutes=1)  # after which a job that could run, or be made, is late
MAX_ROUND_AGE: Final = timedelta(minutes=2)
MAX_NAMED_ROWS: Final = 3  # of many
GIGABYTE: Final = 1024**3
LOW_DISK_BYTES: Final = GIGABYTE // 2
WORKER_COMMANDS: Final = {
    "crawler": ("crawler", "usher crawler"),
    "index-builder": ("builder", "usher builder"),
}


@dataclass(frozen=True, slots=True)
class SystemState:
    """What is around the stages: schemas that are not as this program knows them, and the free space for data."""

    behind: Mapping[str, int] = field(default_factory=dict)  # schema → steps that are missing
    ahead: Sequence[str] = ()
    free: int | None = None  # bytes
    clock_skew_seconds: float = 0.0  # how far this machine's clock is ahead of the database's


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that holds things up: a word for programs, words for people, and what to try."""

    kind: str
    words: str
    command: str


def find_blockers(
    around: SystemState, work: WorkStatus | None, queue: QueueStatus | None, now: datetime
) -> list[Blocker]:
    """All of them; what could not be read holds nothing up but itself."""
    return [
        *system_blockers(around),
        *(work_blockers(work, now) if work else ()),
        *(queue_blockers(queue, now) if queue else ()),
    ]


def system_blockers(around: SystemState) -> Iterator[Blocker]:
    for schema, steps in around.behind.items():
        words = f"The database is {steps} migration{plural(steps)} behind (schema {schema})."
        yield Blocker("schema_behind", words, "usher db migrate")
    for schema in around.ahead:
        words = f"Another version of Usher made the schema {schema}."
        yield Blocker("schema_ahead", words, "usher db status")
    if around.free is not None and around.free < LOW_DISK_BYTES:
        left = f"{around.free / GIGABYTE:.2f} GB are left for data."
        yield Blocker("disk", f"The disk is nearly full: {left}", "usher doctor")
    yield from clock_blockers("this machine", around.clock_skew_seconds)


def clock_blockers(machine: str, seconds: float) -> Iterator[Blocker]:
    if abs(seconds) > SKEW_LIMIT.total_seconds():
        words = f"The clock of {machine} is {describe_skew(seconds)} the database's: run NTP there."
        yield Blocker("clock_skew", words, "usher doctor")


def work_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    yield from chain(
        watchdog_blockers(work, now),
        restore_blockers(work, now),
        disk_blockers(work.full_disks),
        crawl_blockers(work, now),
        build_blockers(work, now),
        load_blockers(work, now),
        held_back_blockers(work),
        foreign_page_blockers(work, now),
        component_blockers(work.failing, now),
    )


def watchdog_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    if not work.watched and work.crews:
        words = "No watchdog runs: what fails is not noticed, and what it held does not come back."
        yield Blocker("no_watchdog", words, "usher watchdog")
    if not work.watched or work.last_round is None:
        return
    last = work.last_round
    if now - last.ended_at > MAX_ROUND_AGE:
        words = f"The watchdog's last round ended {elapsed(last.ended_at, now)} ago: see its log on {last.machine}."
        yield Blocker("watchdog_late", words, "usher doctor")
    if last.silent_since is not None:
        words = (
            f"None of {last.silent_components} components has answered or called since "
            f"{time_text(last.silent_since, now)}: perhaps the network of {last.machine}, where the watchdog runs, "
            "is down. Nothing is done about them."
        )
        yield Blocker("all_silent", words, "usher components list")
    yield from clock_blockers(f"the watchdog's machine {last.machine}", last.clock_skew_seconds)


def disk_blockers(stopped: Sequence[FullDiskComponent]) -> Iterator[Blocker]:
    for component in stopped:
        words = f"The {component.type} {component.host} takes no more work. {component.reason}"
        yield Blocker("disk_full", words, f"usher components show {quote(component.host)}")


def restore_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    restored = work.unrestored
    if restored and restored.chunks:
        chunks = f"{capped_count(restored.chunks)} chunk{plural(restored.chunks)}"
        words = (
            f"The database was restored at {time_text(restored.since, now)} ({restored.reason}). "
            f"Index servers have not confirmed {chunks} yet, and searches are marked partial."
        )
        yield Blocker("restoring", words, "usher components rows")


def crawl_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    pages, hosts = work.pages, work.hosts
    if pages.waiting:
        if not work.working("crawler"):
            yield missing_worker(
                work, "crawler", f"{capped_count(pages.waiting)} page{plural_wait(pages.waiting)}"
            )
        elif pages.oldest is not None and now - pages.oldest > MAX_WAIT and hosts.ready:
            words = f"Pages could be fetched for {rounded_duration(now - pages.oldest)}, and no crawler takes them."
            yield Blocker("crawlers_behind", words, "usher components list --type crawler")
        yield from resting_blockers(work, now)
    for host in hosts.shut:
        why = f" ({host.reason})" if host.reason else ""
        count = "1,000 or more" if host.pages >= 1_000 else f"{host.pages:,}"  # noqa: PLR2004 - as counted
        words = f"{host.name} is {host.policy}{why}, and {count} of its pages wait."
        yield Blocker("host_shut", words, f"usher hosts open {quote(host.name)}")


def resting_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    """Every host of which pages wait rests, and not only out of politeness."""
    hosts = work.hosts
    if hosts.ready or hosts.held or not hosts.longest:
        return
    first = min(hosts.longest, key=lambda one: one.until)
    if hosts.resting > len(hosts.longest) or first.until - now < MAX_POLITE_REST:
        return
    why = f" ({first.reason})" if first.troubles and first.reason else ""
    which = f"host {first.name}" if hosts.resting == 1 else f"{hosts.resting} hosts"
    next_ = "" if hosts.resting == 1 else f", the first of them {first.name},"
    words = f"Everything waits for {which}{next_} until {time_text(first.until, now)}{why}."
    yield Blocker("hosts_rest", words, f"usher hosts show {quote(first.name)}")


def missing_worker(work: WorkStatus, type_: str, what: str) -> Blocker:
    """Nobody does the work of a type: because none is there, all are paused, or all fail."""
    word, command = WORKER_COMMANDS[type_]
    known = [crew for crew in work.crews if crew.type == type_]
    paused = sum(crew.number for crew in known if crew.well and crew.state == "paused")
    failing = sum(crew.number for crew in known if not crew.well)
    look = f"usher components list --type {type_}"
    if paused:
        every = f"the only {word} is" if paused == 1 else f"all {paused} {word}s are"
        return Blocker(f"{word}s_paused", f"{what}, and {every} paused.", look)
    gone = f" ({failing} fail or have stopped)" if failing else ""
    return Blocker(f"no_{word}", f"No {word} is online{gone} although {what}.", command)


def build_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    chunks = work.chunks
    if chunks.to_build and not work.working("index-builder"):
        what = f"{capped_count(chunks.to_build)} chunk{plural_wait(chunks.to_build)} to be built"
        yield missing_worker(work, "index-builder", what)
    elif is_late(chunks.to_build_since, now):
        words = f"Chunks have waited for a builder for {elapsed(chunks.to_build_since, now)}: one more would help."
        yield Blocker("builders_behind", words, "usher builder")
    if chunks.parked:
        words = f"{capped_count(chunks.parked)} chunk{plural(chunks.parked)} could not be built."
        yield Blocker("chunks_parked", words, "usher chunks list --state parked")


def load_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    empty = [row for row in work.rows if not work.answering(row.row)]
    for row in empty[:MAX_NAMED_ROWS]:
        if waits := row.unseated + row.seats:
            chunks = f"{capped_count(waits)} chunk{plural(waits)}"
            words = f"Row {row.row} has no server that answers: {chunks} cannot be found there."
            yield Blocker("row_empty", words, f"usher index-server --row {row.row}")
    lacking = [row for row in work.rows if row not in empty and is_incomplete(row)]
    if lacking and is_late(work.chunks.to_load_since, now):
        age = elapsed(work.chunks.to_load_since, now)
        words = f"Built chunks have waited for {age} to be loaded: {incomplete_rows_text(lacking)}."
        yield Blocker("rows_behind", words, "usher components rows")


def is_incomplete(row: RowShortage) -> bool:
    return bool(row.wanted or row.unseated)


def incomplete_rows_text(rows: Sequence[RowShortage]) -> str:
    found = [
        f"row {row.row} lacks {capped_count(row.wanted + row.unseated)}"
        for row in rows[:MAX_NAMED_ROWS]
    ]
    return ", ".join(found)


def held_back_blockers(work: WorkStatus) -> Iterator[Blocker]:
    for host in work.copies.hosts:
        pages = f"{capped_count(host.pages)} page{plural(host.pages)} of {host.name}"
        words = f"{pages} would disappear, so much of the host that they are held back."
        yield Blocker("held_back", words, f"usher hosts release {quote(host.name)}")


def foreign_page_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    for suspect in work.poisoned:
        kind = suspect.type or "component"
        chunks = f"{capped_count(suspect.chunks)} chunk{plural(suspect.chunks)}"
        words = (
            f"The {kind} {suspect.host} put pages into {chunks} that it was not given. "
            f"Last report, {time_text(suspect.at, now)}: {suspect.reason}."
        )
        yield Blocker("foreign_pages", words, f"usher components show {quote(suspect.host)}")


def component_blockers(failing: Sequence[FailingComponent], now: datetime) -> Iterator[Blocker]:
    for one in (one for one in failing if one.held):
        kind = one.type or "component"
        words = f"The {kind} {one.host} has what is wanted and fails since {time_text(one.since, now)}: {one.reason}."
        yield Blocker("component_fails", words, f"usher components show {quote(one.host)}")


def queue_blockers(queue: QueueStatus, now: datetime) -> Iterator[Blocker]:
    paused = {entry.name for entry in queue.paused if entry.kind == "type"}
    for one in queue.types:
        if one.type in paused and one.waiting:
            words = f"{capped_count(one.waiting)} job{plural(one.waiting)} of the paused type {one.type} wait."
            yield Blocker("type_paused", words, f"usher jobs resume {one.type}")
        elif one.since is not None and not one.running and now - one.since > MAX_JOB_DELAY:
            yield Blocker(
                "jobs_wait", waiting_jobs_text(one, now), f"usher manager --type {one.type}"
            )
    overdue = queue.next_run is not None and now - queue.next_run > MAX_JOB_DELAY
    again = sum(one.again for one in queue.types)
    if not queue.scheduled and (overdue or again):
        what = "tasks are due" if overdue else f"{capped_count(again)} jobs are to be tried again"
        yield Blocker("no_scheduler", f"No scheduler runs although {what}.", "usher scheduler")


def waiting_jobs_text(one: JobTypeCounts, now: datetime) -> str:
    jobs = f"{capped_count(one.waiting)} job{plural(one.waiting)} of type {one.type}"
    have = "has" if one.waiting == 1 else "have"
    return f"{jobs} {have} waited for {elapsed(one.since, now)}, and none runs."


def is_late(moment_: datetime | None, now: datetime) -> bool:
    return moment_ is not None and now - moment_ > MAX_WAIT


def capped_count(count: int) -> str:
    return f"at least {count:,}" if count >= MAX_COUNTED else f"{count:,}"


def plural(count: int) -> str:
    return "" if count == 1 else "s"


def plural_wait(count: int) -> str:
    return " waits" if count == 1 else "s wait"


def time_text(when: datetime, now: datetime) -> str:
    day = "" if abs(when - now) < timedelta(hours=12) else f"{when.astimezone(UTC):%Y-%m-%d} "
    return f"{day}{when.astimezone(UTC):%H:%M} UTC"


def elapsed(when: datetime | None, now: datetime) -> str:
    return rounded_duration(now - (when or now))


def rounded_duration(length: timedelta) -> str:
    """A span without what does not matter: `40s`, `12m`, `3h`, `5d`."""
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if length >= 2 * unit:
            return durations.show(length // unit * unit)
    return durations.show(length // timedelta(seconds=1) * timedelta(seconds=1))
