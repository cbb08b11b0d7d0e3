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
from usher.mgmt.placements import Missing
from usher.observe.stages import MOST, Failing, FullDisk, Jobs, Queue, Work

LATE: Final = timedelta(minutes=5)  # that something may wait although there is somebody for it
LONG_REST: Final = timedelta(minutes=1)  # more than politeness asks for
SLACK: Final = timedelta(minutes=1)  # after which a job that could run, or be made, is late
ROUND_LATE: Final = timedelta(minutes=2)
NAMED: Final = 3  # of many
GIGABYTE: Final = 1024**3
LOW_DISK: Final = GIGABYTE // 2
WORKERS: Final = {
    "crawler": ("crawler", "usher crawler"),
    "index-builder": ("builder", "usher builder"),
}


@dataclass(frozen=True, slots=True)
class Around:
    """What is around the stages: schemas that are not as this program knows them, and the free space for data."""

    behind: Mapping[str, int] = field(default_factory=dict)  # schema → steps that are missing
    ahead: Sequence[str] = ()
    free: int | None = None  # bytes
    clock_skew_seconds: float = 0.0  # how far this machine's clock is ahead of the database's


@dataclass(frozen=True, slots=True)
class Holdup:
    """One thing that holds things up: a word for programs, words for people, and what to try."""

    kind: str
    words: str
    command: str


def holdups(around: Around, work: Work | None, queue: Queue | None, now: datetime) -> list[Holdup]:
    """All of them; what could not be read holds nothing up but itself."""
    return [
        *of_surroundings(around),
        *(of_work(work, now) if work else ()),
        *(of_queue(queue, now) if queue else ()),
    ]


def of_surroundings(around: Around) -> Iterator[Holdup]:
    for schema, steps in around.behind.items():
        words = f"The database is {steps} migration{plural(steps)} behind (schema {schema})."
        yield Holdup("schema_behind", words, "usher db migrate")
    for schema in around.ahead:
        words = f"Another version of Usher made the schema {schema}."
        yield Holdup("schema_ahead", words, "usher db status")
    if around.free is not None and around.free < LOW_DISK:
        left = f"{around.free / GIGABYTE:.2f} GB are left for data."
        yield Holdup("disk", f"The disk is nearly full: {left}", "usher doctor")
    yield from skewed("this machine", around.clock_skew_seconds)


def skewed(machine: str, seconds: float) -> Iterator[Holdup]:
    if abs(seconds) > SKEW_LIMIT.total_seconds():
        words = f"The clock of {machine} is {describe_skew(seconds)} the database's: run NTP there."
        yield Holdup("clock_skew", words, "usher doctor")


def of_work(work: Work, now: datetime) -> Iterator[Holdup]:
    yield from chain(
        watch(work, now),
        restoring(work, now),
        full_disks(work.full_disks),
        crawling(work, now),
        building(work, now),
        loading(work, now),
        disappearing(work),
        poisoning(work, now),
        components(work.failing, now),
    )


def watch(work: Work, now: datetime) -> Iterator[Holdup]:
    if not work.watched and work.crews:
        words = "No watchdog runs: what fails is not noticed, and what it held does not come back."
        yield Holdup("no_watchdog", words, "usher watchdog")
    if not work.watched or work.last_round is None:
        return
    last = work.last_round
    if now - last.ended_at > ROUND_LATE:
        words = f"The watchdog's last round ended {since(last.ended_at, now)} ago: see its log on {last.machine}."
        yield Holdup("watchdog_late", words, "usher doctor")
    if last.silent_since is not None:
        words = (
            f"None of {last.silent_components} components has answered or called since "
            f"{moment(last.silent_since, now)}: perhaps the network of {last.machine}, where the watchdog runs, "
            "is down. Nothing is done about them."
        )
        yield Holdup("all_silent", words, "usher components list")
    yield from skewed(f"the watchdog's machine {last.machine}", last.clock_skew_seconds)


def full_disks(stopped: Sequence[FullDisk]) -> Iterator[Holdup]:
    for component in stopped:
        words = f"The {component.type} {component.host} takes no more work. {component.reason}"
        yield Holdup("disk_full", words, f"usher components show {quote(component.host)}")


def restoring(work: Work, now: datetime) -> Iterator[Holdup]:
    restored = work.unrestored
    if restored and restored.chunks:
        chunks = f"{number(restored.chunks)} chunk{plural(restored.chunks)}"
        words = (
            f"The database was restored at {moment(restored.since, now)} ({restored.reason}). "
            f"Index servers have not confirmed {chunks} yet, and searches are marked partial."
        )
        yield Holdup("restoring", words, "usher components rows")


def crawling(work: Work, now: datetime) -> Iterator[Holdup]:
    pages, hosts = work.pages, work.hosts
    if pages.waiting:
        if not work.working("crawler"):
            yield nobody(work, "crawler", f"{number(pages.waiting)} page{wait(pages.waiting)}")
        elif pages.oldest is not None and now - pages.oldest > LATE and hosts.ready:
            words = f"Pages could be fetched for {about(now - pages.oldest)}, and no crawler takes them."
            yield Holdup("crawlers_behind", words, "usher components list --type crawler")
        yield from resting(work, now)
    for host in hosts.shut:
        why = f" ({host.reason})" if host.reason else ""
        count = "1,000 or more" if host.pages >= 1_000 else f"{host.pages:,}"  # noqa: PLR2004 - as counted
        words = f"{host.name} is {host.policy}{why}, and {count} of its pages wait."
        yield Holdup("host_shut", words, f"usher hosts open {quote(host.name)}")


def resting(work: Work, now: datetime) -> Iterator[Holdup]:
    """Every host of which pages wait rests, and not only out of politeness."""
    hosts = work.hosts
    if hosts.ready or hosts.held or not hosts.longest:
        return
    first = min(hosts.longest, key=lambda one: one.until)
    if hosts.resting > len(hosts.longest) or first.until - now < LONG_REST:
        return
    why = f" ({first.reason})" if first.troubles and first.reason else ""
    which = f"host {first.name}" if hosts.resting == 1 else f"{hosts.resting} hosts"
    next_ = "" if hosts.resting == 1 else f", the first of them {first.name},"
    words = f"Everything waits for {which}{next_} until {moment(first.until, now)}{why}."
    yield Holdup("hosts_rest", words, f"usher hosts show {quote(first.name)}")


def nobody(work: Work, type_: str, what: str) -> Holdup:
    """Nobody does the work of a type: because none is there, all are paused, or all fail."""
    word, command = WORKERS[type_]
    known = [crew for crew in work.crews if crew.type == type_]
    paused = sum(crew.number for crew in known if crew.well and crew.state == "paused")
    failing = sum(crew.number for crew in known if not crew.well)
    look = f"usher components list --type {type_}"
    if paused:
        every = f"the only {word} is" if paused == 1 else f"all {paused} {word}s are"
        return Holdup(f"{word}s_paused", f"{what}, and {every} paused.", look)
    gone = f" ({failing} fail or have stopped)" if failing else ""
    return Holdup(f"no_{word}", f"No {word} is online{gone} although {what}.", command)


def building(work: Work, now: datetime) -> Iterator[Holdup]:
    chunks = work.chunks
    if chunks.to_build and not work.working("index-builder"):
        what = f"{number(chunks.to_build)} chunk{wait(chunks.to_build)} to be built"
        yield nobody(work, "index-builder", what)
    elif late(chunks.to_build_since, now):
        words = f"Chunks have waited for a builder for {since(chunks.to_build_since, now)}: one more would help."
        yield Holdup("builders_behind", words, "usher builder")
    if chunks.parked:
        words = f"{number(chunks.parked)} chunk{plural(chunks.parked)} could not be built and will not be tried again."
        yield Holdup("chunks_parked", words, "usher chunks list --state parked")


def loading(work: Work, now: datetime) -> Iterator[Holdup]:
    empty = [row for row in work.rows if not work.answering(row.row)]
    for row in empty[:NAMED]:
        if waits := row.unseated + row.seats:
            chunks = f"{number(waits)} chunk{plural(waits)}"
            words = f"Row {row.row} has no server that answers: {chunks} cannot be found there."
            yield Holdup("row_empty", words, f"usher index-server --row {row.row}")
    lacking = [row for row in work.rows if row not in empty and lacks(row)]
    if lacking and late(work.chunks.to_load_since, now):
        age = since(work.chunks.to_load_since, now)
        words = f"Built chunks have waited for {age} to be loaded: {lacking_words(lacking)}."
        yield Holdup("rows_behind", words, "usher components rows")


def lacks(row: Missing) -> bool:
    return bool(row.wanted or row.unseated)


def lacking_words(rows: Sequence[Missing]) -> str:
    found = [f"row {row.row} lacks {number(row.wanted + row.unseated)}" for row in rows[:NAMED]]
    return ", ".join(found)


def disappearing(work: Work) -> Iterator[Holdup]:
    for host in work.copies.hosts:
        pages = f"{number(host.pages)} page{plural(host.pages)} of {host.name}"
        words = f"{pages} would disappear, so much of the host that they are held back."
        yield Holdup("held_back", words, f"usher hosts release {quote(host.name)}")


def poisoning(work: Work, now: datetime) -> Iterator[Holdup]:
    for suspect in work.poisoned:
        kind = suspect.type or "component"
        chunks = f"{number(suspect.chunks)} chunk{plural(suspect.chunks)}"
        words = (
            f"The {kind} {suspect.host} put pages into {chunks} that it was not given. "
            f"Last report, {moment(suspect.at, now)}: {suspect.reason}."
        )
        yield Holdup("foreign_pages", words, f"usher components show {quote(suspect.host)}")


def components(failing: Sequence[Failing], now: datetime) -> Iterator[Holdup]:
    for one in (one for one in failing if one.held):
        kind = one.type or "component"
        words = f"The {kind} {one.host} has what is wanted and fails since {moment(one.since, now)}: {one.reason}."
        yield Holdup("component_fails", words, f"usher components show {quote(one.host)}")


def of_queue(queue: Queue, now: datetime) -> Iterator[Holdup]:
    paused = {entry.name for entry in queue.paused if entry.kind == "type"}
    for one in queue.types:
        if one.type in paused and one.waiting:
            words = f"{number(one.waiting)} job{plural(one.waiting)} of the paused type {one.type} wait."
            yield Holdup("type_paused", words, f"usher jobs resume {one.type}")
        elif one.since is not None and not one.running and now - one.since > SLACK:
            yield Holdup("jobs_wait", job_words(one, now), f"usher manager --type {one.type}")
    overdue = queue.next_run is not None and now - queue.next_run > SLACK
    again = sum(one.again for one in queue.types)
    if not queue.scheduled and (overdue or again):
        what = "tasks are due" if overdue else f"{number(again)} jobs are to be tried again"
        yield Holdup("no_scheduler", f"No scheduler runs although {what}.", "usher scheduler")


def job_words(one: Jobs, now: datetime) -> str:
    jobs = f"{number(one.waiting)} job{plural(one.waiting)} of type {one.type}"
    have = "has" if one.waiting == 1 else "have"
    return f"{jobs} {have} waited for {since(one.since, now)}, and none runs."


def late(moment_: datetime | None, now: datetime) -> bool:
    return moment_ is not None and now - moment_ > LATE


def number(count: int) -> str:
    return f"at least {count:,}" if count >= MOST else f"{count:,}"


def plural(count: int) -> str:
    return "" if count == 1 else "s"


def wait(count: int) -> str:
    return " waits" if count == 1 else "s wait"


def moment(when: datetime, now: datetime) -> str:
    day = "" if abs(when - now) < timedelta(hours=12) else f"{when.astimezone(UTC):%Y-%m-%d} "
    return f"{day}{when.astimezone(UTC):%H:%M} UTC"


def since(when: datetime | None, now: datetime) -> str:
    return about(now - (when or now))


def about(length: timedelta) -> str:
    """A span without what does not matter: `40s`, `12m`, `3h`, `5d`."""
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if length >= 2 * unit:
            return durations.show(length // unit * unit)
    return durations.show(length // timedelta(seconds=1) * timedelta(seconds=1))
