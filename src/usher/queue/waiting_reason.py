"""Why a job does not run, in words.

Comes from what the database knows of the job, its resource and its type; goes to whoever asks, the strongest reason
first, each with the next thing to try where there is one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Final

from usher import durations
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.queue import queries
from usher.queue.job_states import JobState
from usher.queue.periods import may_run
from usher.queue.queries import Need

store = load_statements(__file__)

MAX_COUNTED_JOBS: Final = 1_000  # counted, of those that go before
MAX_LOG_ENTRIES: Final = 10_000  # entries of the log that are looked at
MAX_NAMED_JOBS: Final = 5
IDLE_WARNING: Final = timedelta(seconds=30)  # a manager asks far more often than this
SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """What decides when a live job runs."""

    id: int
    type: str
    state: str
    scheduled: datetime
    priority: int
    host_rule: str
    attempts: int
    max_attempts: int | None
    hostname: str | None
    process_id: int | None
    start: datetime | None
    lease_until: datetime | None
    cancel: bool
    held: bool
    task: str | None
    task_disabled: bool
    resource_id: int | None
    resource: str | None
    capacity: int | None
    interval: timedelta | None
    running: int | None
    latest_run: datetime | None
    resource_paused: bool
    type_paused: bool


@dataclass(frozen=True, slots=True)
class ResourceUser:
    """A job that runs on a resource."""

    id: int
    hostname: str | None
    start: datetime | None


@dataclass(frozen=True, slots=True)
class QueueSituation:
    """What else is known of a job that waits."""

    users: list[ResourceUser]  # of its resource
    in_line: int  # before it, at its resource
    before: int  # of its type, due before it
    running: int  # of its type
    started: datetime | None  # the last of its type


async def waiting_reasons(
    conn: Connection, id_: int, *, host: str | None = None, now: datetime
) -> list[str]:
    """Why the job does not run, or not on that machine; or that it does, or did."""
    facts = await store.facts.row(conn, WaitingJob, id=id_)
    if facts is None:
        shown = await queries.show_job(conn, id_)
        return [f"It has ended: {shown.job.state}, {time_text(shown.job.end)}."]
    if facts.state == JobState.WAITING:
        return list(dependency_reasons(await queries.list_needs(conn, id_)))
    around = await load_situation(conn, facts, host, now) if facts.state == "pending" else None
    return list(reasons(facts, around, host, now))


def dependency_reasons(needs: Sequence[Need]) -> Iterator[str]:
    """Which of the needed jobs have not completed."""
    unfinished = [need for need in needs if need.state != JobState.COMPLETED]
    named = ", ".join(
        f"{need.id} ({need.state or 'unknown'})" for need in unfinished[:MAX_NAMED_JOBS]
    )
    more = (
        f" and {len(unfinished) - MAX_NAMED_JOBS} more" if len(unfinished) > MAX_NAMED_JOBS else ""
    )
    yield f"It waits until other jobs have completed: {named}{more}."


async def load_situation(
    conn: Connection, facts: WaitingJob, host: str | None, now: datetime
) -> QueueSituation:
    place = {
        name: getattr(facts, name) for name in ("id", "type", "host_rule", "priority", "scheduled")
    }
    users, in_line = [], 0
    if facts.resource_id is not None:
        resource = facts.resource_id
        users = await store.users.rows(
            conn, ResourceUser, resource_id=resource, most=MAX_NAMED_JOBS
        )
        line = await store.line_before.tuples(
            conn, resource_id=resource, most=MAX_COUNTED_JOBS, **place
        )
        in_line = line[0][0] if facts.held else 0
    del place["host_rule"]
    [(before,)] = await store.turns_before.tuples(
        conn, host=host, now=now, most=MAX_COUNTED_JOBS, **place
    )
    since = facts.scheduled - IDLE_WARNING
    [(running, started)] = await store.seen.tuples(
        conn, type=facts.type, since=since, most=MAX_LOG_ENTRIES
    )
    return QueueSituation(users, in_line, before, running, started)


def reasons(
    facts: WaitingJob, around: QueueSituation | None, host: str | None, now: datetime
) -> Iterator[str]:
    """The words, from facts alone."""
    if around is not None:
        yield from pending_reasons(facts, around, host, now)
    elif facts.state == "running":
        yield from running_reasons(facts, now)
    else:
        yield from failed_reasons(facts, now)
    if facts.task_disabled:
        yield f"Its task is disabled, so this is its last job until usher tasks enable {facts.task}."


def running_reasons(facts: WaitingJob, now: datetime) -> Iterator[str]:
    process = "" if facts.process_id is None else f" as process {facts.process_id}"
    yield f"It runs on {facts.hostname}{process}, since {time_text(facts.start)}."
    if facts.cancel:
        yield "It is to be stopped by its manager."
    if facts.lease_until is not None and facts.lease_until < now:
        yield (
            f"Its manager gave no sign of life and its lease ended {ago_text(facts.lease_until, now)}; "
            "a scheduler takes it back: usher scheduler"
        )


def failed_reasons(facts: WaitingJob, now: datetime) -> Iterator[str]:
    most = "" if facts.max_attempts is None else f" of {facts.max_attempts}"
    yield f"Attempt {facts.attempts}{most} failed for now."
    if facts.scheduled > now:
        yield (
            f"It is tried again {time_text(facts.scheduled)}, in {duration_text(facts.scheduled - now)}; "
            f"sooner by usher jobs retry {facts.id}"
        )
    else:
        yield (
            f"Its time to be tried again came {ago_text(facts.scheduled, now)}, "
            "and nobody has put it back: does a scheduler run? usher scheduler"
        )


def pending_reasons(
    facts: WaitingJob, around: QueueSituation, host: str | None, now: datetime
) -> Iterator[str]:
    if facts.scheduled > now:
        yield f"Its time comes {time_text(facts.scheduled)}, in {duration_text(facts.scheduled - now)}."
        return
    if facts.type_paused:
        yield f"Its type {facts.type} is paused: usher jobs resume {facts.type}"
        return
    yield from host_reasons(facts.host_rule, host)
    held = list(resource_reasons(facts, around, now))
    yield from held
    if not held and around.before:
        yield (
            f"It waits its turn: {count_text(around.before)} of type {facts.type} go before it, "
            f"and {around.running} run."
        )
    if (
        not around.running
        and now - max(facts.scheduled, around.started or facts.scheduled) > IDLE_WARNING
    ):
        yield (
            f"No job of type {facts.type} has started for {duration_text(now - (around.started or facts.scheduled))}: "
            f"does a manager run that takes this type? usher manager --type {facts.type}"
        )
    elif not held and not around.before:
        yield "It is the next of its type."


def host_reasons(rule: str, host: str | None) -> Iterator[str]:
    kind, _, names = rule.partition(":")
    where = {"allow": f"on {names}", "deny": f"not on {names}"}.get(kind, f"on {rule}")
    if rule and host is None:
        yield (
            f"It runs only {where}."
            if kind != "deny"
            else f"It does {where.replace('not', 'not run', 1)}."
        )
    elif host is not None and not may_run(rule, host):
        yield f"It may not run on {host}: its rule is {rule}."


def resource_reasons(facts: WaitingJob, around: QueueSituation, now: datetime) -> Iterator[str]:
    """Held back by its resource: no seat, no pause since the last start, or others of its line."""
    if facts.running is None or facts.capacity is None or facts.interval is None:
        return
    if facts.resource_paused:
        yield f"Its resource {facts.resource} is paused: usher resources resume {quote(facts.resource or '')}"
        return
    free_at = None if facts.latest_run is None else facts.latest_run + facts.interval
    if facts.running >= facts.capacity:
        users = ", ".join(f"job {one.id} on {one.hostname}" for one in around.users)
        more = facts.running - len(around.users)
        users += f" and {more} more" if more > 0 else ""
        yield f"Its resource {facts.resource} is taken: {facts.running} of {facts.capacity} run ({users})."
    elif free_at is not None and free_at > now:
        yield (
            f"Its resource {facts.resource} rests for {durations.show(facts.interval)} after each start: "
            f"it is free {time_text(free_at)}, in {duration_text(free_at - now)}."
        )
    if around.in_line:
        yield f"{count_text(around.in_line).capitalize()} of its line go before it."


def count_text(count: int) -> str:
    return f"at least {count:,}" if count >= MAX_COUNTED_JOBS else f"{count:,}"


def time_text(when: datetime | None) -> str:
    return "at some time" if when is None else f"at {when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago_text(when: datetime, now: datetime) -> str:
    return f"{duration_text(now - when)} ago"


def duration_text(length: timedelta) -> str:
    """To the second."""
    return durations.show(length // SECOND * SECOND)
