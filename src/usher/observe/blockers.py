"""Find what blocks the stages: worst first, each as a sentence with the command to try. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Final

from usher import durations
from usher.component_health import DISK_FULL, STORE_PROBLEM
from usher.observe.causes import THIS_MACHINE, SystemCause, clock_cause, disk_cause_of
from usher.observe.stages import (
    MAX_COUNTED,
    ClusterServer,
    JobTypeCounts,
    QueueStatus,
    WaitingComponent,
    WorkStatus,
)
from usher.versions import version_problems

MAX_WAIT: Final = timedelta(minutes=5)  # before a stage with workers counts as slow
MAX_POLITE_REST: Final = timedelta(minutes=1)
MAX_JOB_DELAY: Final = timedelta(minutes=1)  # before a job or task that is due counts as late
MAX_ROUND_AGE: Final = timedelta(minutes=2)
MAX_NAMED_ROWS: Final = 3
MAX_CLOSED_PAGES: Final = 1_000  # counted per closed host
DISK_STEP: Final = "Free some space there, or move its data directory to a larger disk."
# Problems that follow from the fact that nothing runs.
NOT_RUNNING_KINDS: Final = frozenset(
    {
        "no_watchdog",
        "restoring",
        "no_crawler",
        "no_builder",
        "crawlers_behind",
        "builders_behind",
        "hosts_rest",
        "row_empty",
        "rows_behind",
        "component_fails",
        "jobs_wait",
        "no_scheduler",
    }
)
WORKER_COMMANDS: Final = {
    "crawler": ("crawler", "usher crawler"),
    "index-builder": ("builder", "usher builder"),
}


@dataclass(frozen=True, slots=True)
class SystemState:
    """Schemas that differ from this program's, free disk space, and clock skew."""

    behind: Mapping[str, int] = field(default_factory=dict)  # schema → missing migrations
    ahead: Sequence[str] = ()
    free: int | None = None  # bytes on the disk of `data`
    data: Path = Path()
    clock_skew_seconds: float = 0.0  # positive: this machine is ahead of the database


@dataclass(frozen=True, slots=True)
class Blocker:
    """One problem: its kind for programs, a sentence for people, and the command to try."""

    kind: str
    words: str
    command: str


def find_blockers(
    system: SystemState, work: WorkStatus | None, queue: QueueStatus | None, now: datetime
) -> list[Blocker]:
    """All problems; an area that could not be read is None. If nothing runs, that is the cause of many of them."""
    of_work = list(work_blockers(work, now)) if work else []
    of_queue = list(queue_blockers(queue, now)) if queue else []
    if not work or is_running(work, queue):
        return [*system_blockers(system), *of_work, *of_queue]
    jobs_wait = any(blocker.kind in NOT_RUNNING_KINDS for blocker in of_queue)
    rest = [blocker for blocker in of_work + of_queue if blocker.kind not in NOT_RUNNING_KINDS]
    return [*system_blockers(system), *not_running_blockers(work, jobs_wait=jobs_wait), *rest]


def is_running(work: WorkStatus, queue: QueueStatus | None) -> bool:
    """Whether any part of Usher runs that leaves a sign in the database; MGMT alone does not."""
    return work.running or (
        queue is not None and (queue.scheduled or any(jobs.running for jobs in queue.types))
    )


def not_running_blockers(work: WorkStatus, *, jobs_wait: bool) -> Iterator[Blocker]:
    """Nothing runs: a problem if work waits, or if the components did not stop in order."""
    waiting = [
        counted(number, noun)
        for number, noun in (
            (work.pages.waiting, "page"),
            (work.chunks.to_build + work.chunks.to_load, "chunk"),
        )
        if number
    ]
    waiting += ["jobs"] if jobs_wait else []
    if work.unrestored and work.unrestored.chunks:
        waiting.append(f"{counted(work.unrestored.chunks, 'chunk')} to load after the restore")
    if waiting:
        words = f"Usher is not running. Waiting: {', '.join(waiting)}."
        yield Blocker("not_running", words, "usher up")
    elif not work.stopped:
        words = "Usher is not running. Its components did not stop in order."
        yield Blocker("not_running", words, "usher up")


def system_blockers(system: SystemState) -> Iterator[Blocker]:
    for schema, steps in system.behind.items():
        words = f"The database is {counted(steps, 'migration')} behind (schema {schema})."
        yield Blocker("schema_behind", words, "usher db migrate")
    for schema in system.ahead:
        words = f"Another version of Usher created the schema {schema}."
        yield Blocker("schema_ahead", words, "usher db status")
    if system.free is not None:
        yield from cause_blockers(disk_cause_of(system.free, system.data))
    yield from cause_blockers(clock_cause(THIS_MACHINE, system.clock_skew_seconds))


def cause_blockers(cause: SystemCause | None) -> Iterator[Blocker]:
    if cause is not None:
        yield Blocker(cause.kind, cause.words, cause.next_step)


def work_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    return chain(
        watchdog_blockers(work, now),
        store_blockers(work),
        restore_blockers(work, now),
        disk_blockers(work),
        crawl_blockers(work, now),
        build_blockers(work, now),
        load_blockers(work, now),
        held_back_blockers(work),
        foreign_page_blockers(work, now),
        component_blockers(work, now),
        version_blockers(work),
    )


def store_blockers(work: WorkStatus) -> Iterator[Blocker]:
    """The watchdog's problem with the object store, or that of a component, which notices it earlier."""
    if work.watched and work.last_round and work.last_round.store_problem:
        words = f"The object store cannot be used: {work.last_round.store_problem}"
        yield Blocker("chunk_store", f"{words.rstrip('.')}.", "usher doctor")
        return
    for component in waiting_for(work, STORE_PROBLEM)[:1]:
        words = f"The {component.type} {component.host} waits. {component.reason}"
        yield Blocker("chunk_store", words, "usher doctor")


def waiting_for(work: WorkStatus, reason: str) -> list[WaitingComponent]:
    return [each for each in work.waiting_components if each.reason.startswith(reason)]


def version_blockers(work: WorkStatus) -> Iterator[Blocker]:
    for words in version_problems(work.versions):
        yield Blocker("versions", words, "usher components list")


def watchdog_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    if not work.watched and work.crews:
        words = "No watchdog is running: failed components are not detected or replaced."
        yield Blocker("no_watchdog", words, "usher watchdog")
    if not work.watched or work.last_round is None:
        return
    last = work.last_round
    if now - last.ended_at > MAX_ROUND_AGE:
        ago = rounded_duration(now - last.ended_at)
        words = f"The watchdog's last round ended {ago} ago: see its log on {last.machine}."
        yield Blocker("watchdog_late", words, "usher doctor")
    if last.silent_since is not None:
        words = (
            f"None of {last.silent_components} components has answered or called since "
            f"{time_text(last.silent_since, now)}. The network of {last.machine}, where the watchdog runs, "
            "may be down. The watchdog takes no action."
        )
        yield Blocker("all_silent", words, "usher components list")
    machine = f"the watchdog's machine {last.machine}"
    yield from cause_blockers(clock_cause(machine, last.clock_skew_seconds))


def disk_blockers(work: WorkStatus) -> Iterator[Blocker]:
    for component in waiting_for(work, DISK_FULL):
        words = f"The {component.type} {component.host} accepts no more work. {component.reason} {DISK_STEP}"
        yield Blocker("disk_full", words, f"usher components show {quote(component.host)}")


def restore_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    restored = work.unrestored
    if restored and restored.chunks:
        words = (
            f"The database was restored at {time_text(restored.since, now)} ({restored.reason}). "
            f"Index servers have not confirmed {counted(restored.chunks, 'chunk')} yet, "
            "and searches are marked partial."
        )
        yield Blocker("restoring", words, "usher components rows")


def crawl_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    pages, hosts = work.pages, work.hosts
    if pages.waiting:
        if not work.working("crawler"):
            yield missing_worker(work, "crawler", counted(pages.waiting, "page"))
        elif is_late(pages.oldest, now) and hosts.ready:
            words = f"Pages have been ready for {elapsed(pages.oldest, now)}, but no crawler claims them."
            yield Blocker("crawlers_behind", words, "usher components list --type crawler")
        yield from resting_blockers(work, now)
    for host in hosts.shut:
        reason = f" ({host.reason})" if host.reason else ""
        more = " or more" if host.pages >= MAX_CLOSED_PAGES else ""
        words = f"{host.name} is {host.policy}{reason}, and {host.pages:,}{more} of its pages wait."
        yield Blocker("host_shut", words, f"usher hosts open {quote(host.name)}")


def resting_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    """Every host with waiting pages rests for longer than its politeness delay."""
    hosts = work.hosts
    if hosts.ready or hosts.held or not hosts.longest:
        return
    first = min(hosts.longest, key=lambda host: host.until)
    if hosts.resting > len(hosts.longest) or first.until - now < MAX_POLITE_REST:
        return
    reason = f" ({first.reason})" if first.troubles and first.reason else ""
    if hosts.resting == 1:
        which = f"host {first.name}, which rests"
    else:
        which = f"{hosts.resting} hosts, which rest; {first.name} rests"
    words = f"All waiting pages belong to {which} until {time_text(first.until, now)}{reason}."
    yield Blocker("hosts_rest", words, f"usher hosts show {quote(first.name)}")


def missing_worker(work: WorkStatus, type_: str, waiting: str) -> Blocker:
    """No component of a type works: there is none, all are paused, or all fail."""
    noun, command = WORKER_COMMANDS[type_]
    groups = [group for group in work.crews if group.type == type_]
    paused = sum(group.number for group in groups if group.well and group.state == "paused")
    failing = sum(group.number for group in groups if not group.well)
    if paused:
        every = f"the only {noun} is" if paused == 1 else f"all {paused} {noun}s are"
        words = f"Waiting: {waiting}, but {every} paused."
        return Blocker(f"{noun}s_paused", words, f"usher components list --type {type_}")
    failed = f" ({failing} failed or stopped)" if failing else ""
    return Blocker(f"no_{noun}", f"Waiting: {waiting}, but no {noun} is online{failed}.", command)


def build_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    chunks = work.chunks
    if chunks.to_build and not work.working("index-builder"):
        yield missing_worker(work, "index-builder", counted(chunks.to_build, "chunk"))
    elif is_late(chunks.to_build_since, now):
        age = elapsed(chunks.to_build_since, now)
        words = f"Chunks have waited for a builder for {age}: start another builder."
        yield Blocker("builders_behind", words, "usher builder")
    if chunks.parked:
        words = f"{counted(chunks.parked, 'chunk')} could not be built and will not be retried."
        yield Blocker("chunks_parked", words, "usher chunks list --state parked")


def load_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    empty = [row for row in work.rows if not work.answering(row.row)]
    for row in empty[:MAX_NAMED_ROWS]:
        if lost := row.unseated + row.seats:
            are = "is" if lost == 1 else "are"
            words = f"Row {row.row} has no healthy server: {counted(lost, 'chunk')} {are} not searchable there."
            yield empty_row_blocker(row.row, words, work.cluster_server(row.row))
    lacking = [row for row in work.rows if row not in empty and (row.wanted or row.unseated)]
    if lacking and is_late(work.chunks.to_load_since, now):
        missing = ", ".join(
            f"row {row.row} lacks {capped(row.wanted + row.unseated)}"
            for row in lacking[:MAX_NAMED_ROWS]
        )
        age = elapsed(work.chunks.to_load_since, now)
        words = f"Built chunks have waited for {age} to be loaded: {missing}."
        yield Blocker("rows_behind", words, "usher components rows")


def empty_row_blocker(row: int, words: str, server: ClusterServer | None) -> Blocker:
    """Nothing of a row is searchable; one on OpenSearch takes no server on Tantivy."""
    if server is None:
        return Blocker("row_empty", words, f"usher index-server --row {row}")
    own = f"Its index server {server.host} is on OpenSearch"
    show = f"usher components show {quote(server.host)}"
    if server.problem:
        problem = f"{server.problem.rstrip('.')}."
        words = f"{words} {own} and reports: {problem} Repair the cluster; the index server then continues."
        return Blocker("row_empty", words, show)
    if server.runs:
        return Blocker("row_empty", f"{words} {own} and runs, but is not healthy yet.", show)
    words = f"{words} {own} and does not run. Start it again, with the engine that it had."
    command = f"usher index-server --row {row} --engine opensearch --engine-url URL,..."
    return Blocker("row_empty", words, command)


def held_back_blockers(work: WorkStatus) -> Iterator[Blocker]:
    for host in work.copies.hosts:
        pages = f"{counted(host.pages, 'page')} of {host.name}"
        words = f"{pages} would be removed. They are held back because they are a large part of the host."
        yield Blocker("held_back", words, f"usher hosts release {quote(host.name)}")


def foreign_page_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    for suspect in work.poisoned:
        words = (
            f"The {suspect.type or 'component'} {suspect.host} put pages into {counted(suspect.chunks, 'chunk')} "
            f"that were not assigned to it. Last report, {time_text(suspect.at, now)}: {suspect.reason.rstrip('.')}."
        )
        yield Blocker("foreign_pages", words, f"usher components show {quote(suspect.host)}")


def component_blockers(work: WorkStatus, now: datetime) -> Iterator[Blocker]:
    for component in work.failing:
        if component.held:
            name = f"{component.type or 'component'} {component.host}"
            since = time_text(component.since, now)
            words = f"The {name} holds needed chunks and fails since {since}: {component.reason.rstrip('.')}."
            yield Blocker(
                "component_fails", words, f"usher components show {quote(component.host)}"
            )


def queue_blockers(queue: QueueStatus, now: datetime) -> Iterator[Blocker]:
    paused = {entry.name for entry in queue.paused if entry.kind == "type"}
    for jobs in queue.types:
        if jobs.type in paused and jobs.waiting:
            words = f"{counted(jobs.waiting, 'job')} of the paused type {jobs.type} wait."
            yield Blocker("type_paused", words, f"usher jobs resume {jobs.type}")
        elif jobs.since is not None and not jobs.running and now - jobs.since > MAX_JOB_DELAY:
            yield waiting_jobs(jobs, now)
    yield from paused_resource_blockers(queue)
    for failing in queue.failing:
        if failing.type not in paused:
            words = f"All {failing.failed:,} jobs of type {failing.type} that ended in the last hour failed."
            yield Blocker("type_fails", words, f"usher jobs pause {failing.type}")
    overdue = queue.next_run is not None and now - queue.next_run > MAX_JOB_DELAY
    retries = sum(jobs.again for jobs in queue.types)
    if not queue.scheduled and (overdue or retries):
        due = "tasks are due" if overdue else f"{counted(retries, 'job')} must be retried"
        yield Blocker("no_scheduler", f"No scheduler is running, but {due}.", "usher scheduler")


def paused_resource_blockers(queue: QueueStatus) -> Iterator[Blocker]:
    for entry in queue.paused:
        if entry.kind == "resource" and entry.waiting:
            waiting = f"{counted(entry.waiting, 'job')} {'waits' if entry.waiting == 1 else 'wait'}"
            words = f"The resource {entry.name} is paused, and {waiting} for it."
            yield Blocker("resource_paused", words, f"usher resources resume {quote(entry.name)}")


def waiting_jobs(jobs: JobTypeCounts, now: datetime) -> Blocker:
    have = "has" if jobs.waiting == 1 else "have"
    waiting = f"{counted(jobs.waiting, 'job')} of type {jobs.type} {have} waited"
    words = f"{waiting} for {elapsed(jobs.since, now)}, and none is running."
    return Blocker("jobs_wait", words, f"usher manager --type {jobs.type}")


def is_late(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since > MAX_WAIT


def capped(number: int) -> str:
    return f"at least {number:,}" if number >= MAX_COUNTED else f"{number:,}"


def counted(number: int, noun: str) -> str:
    return f"{capped(number)} {noun}{'' if number == 1 else 's'}"


def time_text(time: datetime, now: datetime) -> str:
    day = "" if abs(time - now) < timedelta(hours=12) else f"{time.astimezone(UTC):%Y-%m-%d} "
    return f"{day}{time.astimezone(UTC):%H:%M} UTC"


def elapsed(since: datetime | None, now: datetime) -> str:
    return rounded_duration(now - (since or now))


def rounded_duration(length: timedelta) -> str:
    """A duration in one unit: `40s`, `12m`, `3h`, `5d`."""
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if length >= 2 * unit:
            return durations.show(length // unit * unit)
    return durations.show(length // timedelta(seconds=1) * timedelta(seconds=1))
