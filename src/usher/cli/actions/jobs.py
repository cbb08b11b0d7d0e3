"""`usher jobs`: list, count, add, retry and cancel jobs; pause, resume and list types of jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal

import msgspec

from usher import durations
from usher.api.jobs import new_job
from usher.api.queue_messages import NewJob
from usher.cli.app import App, confirm, show_json, show_list, show_table
from usher.cli.area_access import call_in, call_now, checked_transaction
from usher.cli.output import display_time, echo
from usher.cli.queue_access import (
    command_line,
    find_task,
    open_queue,
    parse_command,
    parse_duration,
    parse_since,
    parse_start,
    parse_time,
    parse_type,
    queue_transaction,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.observe.stages import has_leader
from usher.queue import (
    admin,
    bulk_cancel,
    bulk_retry,
    jobs,
    queries,
    run_api,
    scheduler,
    task_queries,
)
from usher.queue.admin import RetryResult
from usher.queue.bulk_cancel import LiveJobConditions
from usher.queue.bulk_retry import FailedJobConditions, failed_text
from usher.queue.host_rules import normalize_host_rule
from usher.queue.job_states import JobState
from usher.queue.jobs import EnqueuedJob, JobRequest
from usher.queue.queries import JobCount, ListedJob, RowWriter
from usher.wording import duration_text, printable, records_json, relative_time

BATCH_SIZE = 5_000
MAX_LINE_BYTES = 1 << 24  # bytes
MESSAGE_CHARACTERS = 60
JSON_HINT = """Example: {"type": "fetch", "program": "curl", "args": ["https://example.com/"]}"""
HEADINGS = ("ID", "TYPE", "STATE", "TIME", "ON", "COMMAND", "MESSAGE")
LOG_HEADINGS = ("ID", "TYPE", "STATE", "EXIT", "ENDED", "TOOK", "ON", "COMMAND", "MESSAGE")
REFUSED_RESULTS = ("live", "ended", "missing")
RESULT_TEXTS: Mapping[str, str] = {
    "pending": "waits to run",
    "new": "added again as job {}",
    "live": "not retried: job {} already waits or runs",
    "cancelled": "cancelled",
    "stopping": "running; it is being stopped",
    "ended": "already ended",
    "missing": "not found: see usher jobs list",
}


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What became of a request to cancel a job."""

    id: int
    what: Literal["cancelled", "stopping", "ended", "missing"]
    job: int | None = None


async def find_jobs(
    conn: Connection,
    /,
    *,
    task: str | None,
    since: str | None,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> list[ListedJob]:
    return await queries.list_jobs(
        conn,
        task=(await find_task(conn, task)).id if task else None,
        since=parse_since(since, await server_time(conn)) if since else None,
        **conditions,
    )


def parse_cursor(text: str | None) -> dict[str, Any]:
    """The last job of a page (`12`); in the log with its end (`12@2026-11-16T08:00:00`)."""
    if text is None:
        return {}
    number, _, end = text.partition("@")
    if not number.isdecimal() or len(number) > 18:  # noqa: PLR2004 - what a bigint holds
        raise BadInput(f"{text[:40]!a} is not a job number.", hint="usher jobs list")
    time = parse_time(end, "Example: 12@2026-11-16T08:00:00") if end else None
    return {"after_id": int(number), "after_end": time}


def list_jobs(
    app: App,
    *,
    log: bool = False,
    limit: int,
    after: str | None,
    only_ids: bool,
    as_json: bool,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> None:
    """List the jobs in the queue, or the log of those that ended."""
    conditions |= {"log": log, "n": limit, **parse_cursor(after)}
    listed = call_in(queue_transaction(app), find_jobs, **conditions)
    if show_ids(listed, only_ids=only_ids and not as_json):
        return
    now = display_time()
    headings, row = (LOG_HEADINGS, log_row) if log else (HEADINGS, job_row)
    # The log has a job once, and once more for each attempt that failed.
    position = "run_position" if log and "temporary-error" in conditions["states"] else "id"
    rows = [row(job, now) for job in listed]
    show_list(app, listed, headings, rows, as_json=as_json, limit=limit, after=position)


def job_row(job: ListedJob, now: datetime) -> Sequence[object]:
    return (job.id, job.type, state_text(job), time_text(job, now), *place_and_command(job))


def log_row(job: ListedJob, now: datetime) -> Sequence[object]:
    return (
        job.id,
        job.type,
        job.state,
        "-" if job.exit_code is None else job.exit_code,
        relative_time(job.end, now),
        run_time(job),
        *place_and_command(job),
    )


def place_and_command(job: ListedJob) -> Sequence[str]:
    message = printable(job.message or "", MESSAGE_CHARACTERS)
    return job.hostname or "-", command_line(job.program, job.args), message


def show_ids(jobs: Sequence[ListedJob | RowWriter], *, only_ids: bool) -> bool:
    """Print the numbers of jobs if only these are wanted; whether they are."""
    if only_ids:
        echo("".join(f"{job.id}\n" for job in jobs), nl=False)
    return only_ids


def state_text(job: ListedJob) -> str:
    if job.cancel and job.state == "running":
        return "running, being stopped"
    if job.held:
        return f"held by {printable(job.resource or '?', MESSAGE_CHARACTERS)}"
    limit = f" of {job.max_attempts}" if job.max_attempts else ""
    return f"{job.state} ({job.attempts}{limit})" if job.attempts > 1 or job.end else job.state


def time_text(job: ListedJob, now: datetime) -> str:
    if job.state == "running":
        return f"for {duration_text(now - job.start)}" if job.start else "-"
    return relative_time(job.scheduled, now)


def run_time(job: ListedJob) -> str:
    return "-" if job.start is None or job.end is None else duration_text(job.end - job.start)


def show_counts(app: App, *, as_json: bool) -> None:
    counts = call_now(queue_transaction(app), queries.count_jobs)
    if as_json:
        show_json(asdict(counts))
        return
    rows = [("now", *count_row(count)) for count in counts.live]
    rows += [("last day", *count_row(count)) for count in counts.log]
    show_table(("WHEN", "TYPE", "STATE", "JOBS"), rows)


def count_row(count: JobCount) -> tuple[str, str, str]:
    return count.type, count.state, f"{'≥ ' if count.more else ''}{count.number:,}"


def list_writers(app: App, table: str, row: str, *, only_ids: bool, as_json: bool) -> None:
    writers = call_in(queue_transaction(app), queries.row_writers, table, row)
    if show_ids(writers, only_ids=only_ids and not as_json):
        return
    rows = [
        (
            job.id,
            f"{job.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            job.type or "-",
            job.state or "deleted",
            command_line(job.program, job.args or ()) if job.program else "-",
        )
        for job in writers
    ]
    headings = ("ID", "WRITTEN", "TYPE", "STATE", "COMMAND")
    show_list(app, writers, headings, rows, as_json=as_json)


def set_log_retention(app: App, text: str) -> None:
    retention = parse_duration(text)
    call_in(queue_transaction(app), admin.set_log_retention, retention)
    app.say(f"The log is kept for {durations.show(retention)}.")


async def enqueue_job(
    conn: Connection,
    /,
    program: str,
    args: tuple[str, ...],
    *,
    type_: str,
    at: str | None,
    now: datetime,
    **options: Any,  # noqa: ANN401 - as click read them
) -> EnqueuedJob:
    scheduled = parse_start(at, now) if at else None
    given = {name: value for name, value in options.items() if value is not None}
    job = JobRequest(parse_type(type_), program, args, scheduled=scheduled, **given)
    [enqueued] = await jobs.enqueue(conn, [job], now=now)
    return enqueued


def add_job(app: App, words: Sequence[str], *, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    enqueued = call_now(queue_transaction(app), enqueue_job, *parse_command(words), **options)
    if as_json:
        show_json(asdict(enqueued))
        return
    echo(enqueued.id)
    if not enqueued.new:
        app.say("A job with this key already waits or runs.")
    app.say(f"  → usher jobs show {enqueued.id}")
    if not call_in(queue_transaction(app), has_leader, scheduler.LEADER_LOCK):
        app.say("No scheduler is running. `usher up` runs jobs.")


async def add_from_file(app: App, file: BinaryIO, *, as_json: bool) -> None:
    """Add jobs from lines of JSON in batches; the lines before a bad one are added."""
    total = {"new": 0, "known": 0}
    async with open_queue(app) as db:
        try:
            for batch in batches(file):
                async with checked_transaction(db) as conn:
                    added = await run_api.enqueue_with_parents(
                        conn, batch, now=await server_time(conn)
                    )
                new = sum(job.new for job in added)
                total["new"] += new
                total["known"] += len(added) - new
        except BadInput as error:
            done = sum(total.values())
            before = f" The {done:,} jobs before it were added." if done else ""
            raise BadInput(f"{error.message}{before}", hint=error.hint) from error
    if as_json:
        show_json(total)
    else:
        live = f", {total['known']:,} already wait or run" if total["known"] else ""
        app.say(f"{total['new']:,} new{live}")


def batches(file: BinaryIO) -> Iterator[list[tuple[JobRequest, int | None]]]:
    batch: list[tuple[JobRequest, int | None]] = []
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
        if not line.strip():
            continue
        try:
            batch.append(parse_job(line))
        except (ValueError, BadInput) as error:
            if batch:
                yield batch
            raise BadInput(f"Line {number} is not a job: {error}.", hint=JSON_HINT) from error
        if len(batch) == BATCH_SIZE:
            yield batch
            batch = []
    if batch:
        yield batch


def parse_job(line: bytes) -> tuple[JobRequest, int | None]:
    fields = msgspec.json.decode(line, type=NewJob)
    job = new_job(fields)
    normalize_host_rule(job.host_rule)
    if any("\0" in word for word in (job.program, *job.args, job.key or "", job.data or "")):
        raise ValueError("a text cannot contain a NUL byte")
    return job, fields.parent


def retry_jobs(app: App, ids: Sequence[int], *, as_json: bool) -> bool:
    """Retry jobs and show the results; whether no request was refused."""
    return show_results(call_now(queue_transaction(app), admin.retry_jobs, ids), as_json=as_json)


def retry_failed(app: App, limit: int, *, yes: bool, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    """State how many failed jobs match, ask, and retry them."""
    chosen = FailedJobConditions(**conditions)
    matching = failed_text(call_in(queue_transaction(app), bulk_retry.count_failed, chosen))
    confirm(f"Retry {matching} now?", yes=yes)
    result = call_now(queue_transaction(app), bulk_retry.retry_failed, chosen, limit=limit)
    if as_json:
        show_json(asdict(result))
    else:
        app.say(f"{matching} matched: {result.text}")


async def cancel(
    conn: Connection, ids: Sequence[int], reason: str, now: datetime
) -> list[CancelResult]:
    unique = list(dict.fromkeys(ids))
    states = await jobs.cancel(conn, unique, reason=reason, now=now)
    ended = {job.id for job in await admin.load_ended_jobs(conn, unique)}

    def result(id_: int) -> CancelResult:
        if id_ in states:
            running = states[id_] is JobState.RUNNING
            return CancelResult(id_, "stopping" if running else "cancelled", id_)
        return CancelResult(id_, "ended" if id_ in ended else "missing")

    return [result(id_) for id_ in unique]


def cancel_jobs(app: App, ids: Sequence[int], reason: str, *, as_json: bool) -> bool:
    """Cancel jobs and show the results; whether no request was refused."""
    return show_results(call_now(queue_transaction(app), cancel, ids, reason), as_json=as_json)


def cancel_live(
    app: App,
    limit: int,
    reason: str,
    *,
    yes: bool,
    as_json: bool,
    **conditions: Any,  # noqa: ANN401
) -> None:
    """State how many live jobs match, ask, and cancel them."""
    chosen = LiveJobConditions(**conditions)
    matching = failed_text(call_in(queue_transaction(app), bulk_cancel.count_live, chosen))
    confirm(f"Cancel {matching} now?", yes=yes)
    options = {"limit": limit, "reason": reason}
    result = call_now(queue_transaction(app), bulk_cancel.cancel_live, chosen, **options)
    if as_json:
        show_json(asdict(result))
    else:
        app.say(f"{matching} matched: {result.text}")


def show_results(results: Sequence[RetryResult | CancelResult], *, as_json: bool) -> bool:
    """Show each result; whether no request was refused."""
    if as_json:
        show_json(records_json(results))
    else:
        for result in results:
            echo(f"{result.id}  {RESULT_TEXTS[result.what].format(result.job)}")
    return not any(result.what in REFUSED_RESULTS for result in results)


async def pause(conn: Connection, types: Sequence[str], reason: str, now: datetime) -> None:
    for type_ in types:
        await admin.pause_type(conn, parse_type(type_), reason=reason, now=now)


def pause_types(app: App, types: Sequence[str], reason: str) -> None:
    call_now(queue_transaction(app), pause, types, reason)
    app.say(f"paused: {', '.join(types)}")


async def resume(conn: Connection, types: Sequence[str]) -> list[str]:
    """Resume types of job; returns those that were paused."""
    return [type_ for type_ in types if await admin.resume_type(conn, parse_type(type_))]


def resume_types(app: App, types: Sequence[str]) -> bool:
    """Resume types of job; whether all were paused."""
    resumed = call_in(queue_transaction(app), resume, types)
    for type_ in types:
        app.say(f"{type_}: {'resumed' if type_ in resumed else 'was not paused'}")
    return len(resumed) == len(types)


def list_paused(app: App, *, as_json: bool) -> None:
    pauses, now = call_in(queue_transaction(app), task_queries.paused_types), display_time()
    rows = [
        (pause.type, relative_time(pause.since, now), printable(pause.reason)) for pause in pauses
    ]
    show_list(app, pauses, ("TYPE", "PAUSED", "REASON"), rows, as_json=as_json)
