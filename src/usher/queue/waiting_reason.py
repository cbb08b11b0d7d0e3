"""Explains why a job does not run: the strongest reason first, each with the next command to try, if there is one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Final

from usher import durations
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.queue import queries
from usher.queue.host_rules import may_run
from usher.queue.job_states import JobState
from usher.queue.queries import Need

store = load_statements(__file__)

MAX_COUNTED_JOBS: Final = 1_000
MAX_LOG_ENTRIES: Final = 10_000
MAX_NAMED_JOBS: Final = 5
IDLE_WARNING: Final = timedelta(seconds=30)  # a manager polls far more often
SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A live job with what decides when it runs."""

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
    """A running job of a resource."""

    id: int
    hostname: str | None
    start: datetime | None


@dataclass(frozen=True, slots=True)
class QueueSituation:
    """The jobs that a waiting job competes with."""

    users: list[ResourceUser]  # of its resource
    before_at_resource: int
    before_in_type: int
    running: int  # of its type
    started: datetime | None  # when the last of its type started


async def waiting_reasons(
    conn: Connection, id_: int, *, host: str | None = None, now: datetime
) -> list[str]:
    """Return why the job does not run, or not on that machine; or that it runs or has ended."""
    job = await store.waiting_job.row(conn, WaitingJob, id=id_)
    if job is None:
        ended = (await queries.show_job(conn, id_)).job
        return [f"It has ended: {ended.state}, at {time_text(ended.end)}."]
    if job.state == JobState.WAITING:
        return list(dependency_reasons(await queries.list_needs(conn, id_)))
    situation = await load_situation(conn, job, host, now) if job.state == "pending" else None
    return list(reasons(job, situation, host, now))


def dependency_reasons(needs: Sequence[Need]) -> Iterator[str]:
    """Name the needed jobs that have not completed."""
    unfinished = [need for need in needs if need.state != JobState.COMPLETED]
    names = ", ".join(
        f"{need.id} ({need.state or 'unknown'})" for need in unfinished[:MAX_NAMED_JOBS]
    )
    more = (
        f" and {len(unfinished) - MAX_NAMED_JOBS} more" if len(unfinished) > MAX_NAMED_JOBS else ""
    )
    yield f"It waits until other jobs have completed: {names}{more}."


async def load_situation(
    conn: Connection, job: WaitingJob, host: str | None, now: datetime
) -> QueueSituation:
    turn = {name: getattr(job, name) for name in ("id", "type", "priority", "scheduled")}
    users, before_at_resource = [], 0
    if job.resource_id is not None:
        resource = {"resource_id": job.resource_id}
        users = await store.resource_users.rows(
            conn, ResourceUser, **resource, limit=MAX_NAMED_JOBS
        )
        [count] = await store.count_before_at_resource.column(
            conn, **resource, **turn, host_rule=job.host_rule, limit=MAX_COUNTED_JOBS
        )
        before_at_resource = count if job.held else 0
    [before_in_type] = await store.count_before_in_type.column(
        conn, host=host, now=now, **turn, limit=MAX_COUNTED_JOBS
    )
    since = job.scheduled - IDLE_WARNING
    [(running, started)] = await store.type_activity.tuples(
        conn, type=job.type, since=since, limit=MAX_LOG_ENTRIES
    )
    return QueueSituation(users, before_at_resource, before_in_type, running, started)


def reasons(
    job: WaitingJob, situation: QueueSituation | None, host: str | None, now: datetime
) -> Iterator[str]:
    """Yield the reasons from what was loaded."""
    if situation is not None:
        yield from pending_reasons(job, situation, host, now)
    elif job.state == "running":
        yield from running_reasons(job, now)
    else:
        yield from failed_reasons(job, now)
    if job.task_disabled:
        yield f"Its task is disabled, so this is its last job: usher tasks enable {job.task}."


def running_reasons(job: WaitingJob, now: datetime) -> Iterator[str]:
    process = "" if job.process_id is None else f" as process {job.process_id}"
    yield f"It runs on {job.hostname}{process}, since {time_text(job.start)}."
    if job.cancel:
        yield "It is cancelled, and its manager is stopping it."
    if job.lease_until is not None and job.lease_until < now:
        yield (
            f"Its manager sent no heartbeat and its lease expired {ago_text(job.lease_until, now)}; "
            "a scheduler requeues it: usher scheduler"
        )


def failed_reasons(job: WaitingJob, now: datetime) -> Iterator[str]:
    limit = "" if job.max_attempts is None else f" of {job.max_attempts}"
    yield f"Attempt {job.attempts}{limit} ended with a temporary error."
    if job.scheduled > now:
        yield (
            f"It is retried at {time_text(job.scheduled)}, in {duration_text(job.scheduled - now)}; "
            f"now with usher jobs retry {job.id}"
        )
    else:
        yield (
            f"Its retry was due {ago_text(job.scheduled, now)}, "
            "but it was not requeued: does a scheduler run? usher scheduler"
        )


def pending_reasons(
    job: WaitingJob, situation: QueueSituation, host: str | None, now: datetime
) -> Iterator[str]:
    if job.scheduled > now:
        yield f"It is due at {time_text(job.scheduled)}, in {duration_text(job.scheduled - now)}."
        return
    if job.type_paused:
        yield f"Its type {job.type} is paused: usher jobs resume {job.type}"
        return
    yield from host_reasons(job.host_rule, host)
    at_resource = list(resource_reasons(job, situation, now))
    yield from at_resource
    if not at_resource and situation.before_in_type:
        yield (
            f"It waits its turn: {count_text(situation.before_in_type)} of type {job.type} go before it, "
            f"and {situation.running} run."
        )
    if (
        not situation.running
        and now - max(job.scheduled, situation.started or job.scheduled) > IDLE_WARNING
    ):
        yield (
            f"No job of type {job.type} has started for {duration_text(now - (situation.started or job.scheduled))}: "
            f"does a manager run that takes this type? usher manager --type {job.type}"
        )
    elif not at_resource and not situation.before_in_type:
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


def resource_reasons(job: WaitingJob, situation: QueueSituation, now: datetime) -> Iterator[str]:
    """Explain a wait for the resource: it has no room, its interval has not passed, or other jobs go first."""
    if job.running is None or job.capacity is None or job.interval is None:
        return
    if job.resource_paused:
        yield f"Its resource {job.resource} is paused: usher resources resume {quote(job.resource or '')}"
        return
    free_at = None if job.latest_run is None else job.latest_run + job.interval
    if job.running >= job.capacity:
        users = ", ".join(f"job {user.id} on {user.hostname}" for user in situation.users)
        more = job.running - len(situation.users)
        users += f" and {more} more" if more > 0 else ""
        yield f"Its resource {job.resource} is busy: {job.running} of {job.capacity} run ({users})."
    elif free_at is not None and free_at > now:
        yield (
            f"Its resource {job.resource} pauses for {durations.show(job.interval)} after each start: "
            f"it is free at {time_text(free_at)}, in {duration_text(free_at - now)}."
        )
    if situation.before_at_resource:
        yield f"Jobs before it at its resource: {count_text(situation.before_at_resource)}."


def count_text(count: int) -> str:
    return f"at least {count:,}" if count >= MAX_COUNTED_JOBS else f"{count:,}"


def time_text(when: datetime | None) -> str:
    return "an unknown time" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago_text(when: datetime, now: datetime) -> str:
    return f"{duration_text(now - when)} ago"


def duration_text(length: timedelta) -> str:
    """Return a duration in whole seconds."""
    return durations.show(length // SECOND * SECOND)
