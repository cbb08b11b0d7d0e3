"""`usher jobs`: list, count, add, retry and cancel jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from usher import durations
from usher.api.jobs import new_job
from usher.api.queue_messages import NewJob
from usher.cli.app import App, show_json, show_more, show_table
from usher.cli.area_access import checked_transaction
from usher.cli.output import echo
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
    relative_time,
)
from usher.cli.wording import display_time, duration_text, printable, records_json
from usher.db.clock import server_time
from usher.errors import BadInput
from usher.queue import admin, jobs, queries, run_api, waiting_reason
from usher.queue.host_rules import normalize_host_rule
from usher.queue.job_states import JobState
from usher.queue.jobs import EnqueuedJob, JobRequest
from usher.queue.queries import JobCount, JobDetails, JobTreeNode, ListedJob, QueueCounts, RowWriter

BATCH_SIZE = 5_000
MAX_LINE_BYTES = 1 << 24  # bytes
MESSAGE_CHARACTERS = 60
JSON_HINT = """Example: {"type": "fetch", "program": "curl", "args": ["https://example.com/"]}"""
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
class JobRequestResult:
    """The result of a retry or cancel request, and the job it applies to."""

    id: int
    what: str
    job: int | None = None


async def find_jobs(
    app: App,
    *,
    log: bool,
    states: Sequence[str],
    task: str | None,
    since: str | None,
    after: str | None,
    limit: int,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> list[ListedJob]:
    after_id, after_end = parse_cursor(after)
    async with queue_transaction(app) as conn:
        return await queries.list_jobs(
            conn,
            log=log,
            n=limit,
            states=states,
            task=(await find_task(conn, task)).id if task else None,
            since=parse_since(since, await server_time(conn)) if since else None,
            after_id=after_id,
            after_end=after_end,
            **conditions,
        )


def parse_cursor(text: str | None) -> tuple[int | None, datetime | None]:
    """The last job of a page (`12`); in the log with its end (`12@2026-11-16T08:00:00`)."""
    if text is None:
        return None, None
    number, _, end = text.partition("@")
    if not number.isdecimal() or len(number) > 18:  # noqa: PLR2004 - what a bigint holds
        raise BadInput(f"{text[:40]!a} is not a job number.", hint="usher jobs list")
    return int(number), parse_time(end, "Example: 12@2026-11-16T08:00:00") if end else None


def show_jobs(
    app: App, listed: list[ListedJob], options: Mapping[str, Any], *, only_ids: bool, as_json: bool
) -> None:
    if show_for_programs(listed, only_ids=only_ids, as_json=as_json):
        return
    now = display_time()
    rows = [
        (
            job.id,
            job.type,
            state_text(job),
            time_text(job, now),
            job.hostname or "-",
            command_line(job.program, job.args),
            printable(job.message or "", MESSAGE_CHARACTERS),
        )
        for job in listed
    ]
    show_table(("ID", "TYPE", "STATE", "TIME", "ON", "COMMAND", "MESSAGE"), rows)
    show_more(app, listed, options["limit"], listed and listed[-1].id)


def show_for_programs(rows: Sequence[Any], *, only_ids: bool, as_json: bool) -> bool:
    """Print JSON or numbers if one was asked for; whether it was."""
    if as_json:
        show_json(records_json(rows))
    elif only_ids:
        echo("".join(f"{row.id}\n" for row in rows), nl=False)
    return as_json or only_ids


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


def show_log(
    app: App, listed: list[ListedJob], options: Mapping[str, Any], *, only_ids: bool, as_json: bool
) -> None:
    if show_for_programs(listed, only_ids=only_ids, as_json=as_json):
        return
    now = display_time()
    rows = [
        (
            job.id,
            job.type,
            job.state,
            "-" if job.exit_code is None else job.exit_code,
            relative_time(job.end, now),
            run_time(job),
            job.hostname or "-",
            command_line(job.program, job.args),
            printable(job.message or "", MESSAGE_CHARACTERS),
        )
        for job in listed
    ]
    show_table(
        ("ID", "TYPE", "STATE", "EXIT", "ENDED", "TOOK", "ON", "COMMAND", "MESSAGE"),
        rows,
    )
    if listed:
        # The log has a job once, and once more for each attempt that failed.
        attempts = "temporary-error" in options["states"]
        end = f"@{listed[-1].end:%Y-%m-%dT%H:%M:%S.%f}" if attempts else ""
        show_more(app, listed, options["limit"], f"{listed[-1].id}{end}")


def run_time(job: ListedJob) -> str:
    return "-" if job.start is None or job.end is None else duration_text(job.end - job.start)


async def count_jobs(app: App) -> QueueCounts:
    async with queue_transaction(app) as conn:
        return await queries.count_jobs(conn, now=await server_time(conn))


def show_counts(counts: QueueCounts, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(counts))
        return
    rows = [("now", *count_row(count)) for count in counts.live]
    rows += [("last day", *count_row(count)) for count in counts.log]
    show_table(("WHEN", "TYPE", "STATE", "JOBS"), rows)


def count_row(count: JobCount) -> tuple[str, str, str]:
    return count.type, count.state, f"{'≥ ' if count.more else ''}{count.number:,}"


async def find_writers(app: App, table: str, row: str) -> list[RowWriter]:
    async with queue_transaction(app) as conn:
        return await queries.row_writers(conn, table, row)


def show_writers(writers: list[RowWriter], *, only_ids: bool, as_json: bool) -> None:
    if show_for_programs(writers, only_ids=only_ids, as_json=as_json):
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
    show_table(("ID", "WRITTEN", "TYPE", "STATE", "COMMAND"), rows)


async def set_log_retention(app: App, text: str) -> str:
    retention = parse_duration(text)
    async with queue_transaction(app) as conn:
        await admin.set_log_retention(conn, retention)
    return durations.show(retention)


async def read_job(
    app: App, id_: int, attempt: int | None, host: str | None
) -> tuple[JobDetails, list[str]]:
    """The job and, while it waits, the reasons."""
    async with queue_transaction(app) as conn:
        details = await queries.show_job(conn, id_, attempt=attempt)
        if not details.live:
            return details, []
        name, now = host.lower() if host else None, await server_time(conn)
        return details, await waiting_reason.waiting_reasons(conn, id_, host=name, now=now)


async def read_tree(app: App, id_: int) -> list[JobTreeNode]:
    async with queue_transaction(app) as conn:
        return await queries.job_tree(conn, id_)


async def add_job(
    app: App,
    words: Sequence[str],
    *,
    type_: str,
    at: str | None,
    **options: Any,  # noqa: ANN401 - as click read them
) -> EnqueuedJob:
    program, args = parse_command(words)
    async with queue_transaction(app) as conn:
        now = await server_time(conn)
        scheduled = parse_start(at, now) if at else None
        given = {name: value for name, value in options.items() if value is not None}
        job = JobRequest(parse_type(type_), program, args, scheduled=scheduled, **given)
        [enqueued] = await jobs.enqueue(conn, [job], now=now)
        return enqueued


def show_enqueued(app: App, enqueued: EnqueuedJob, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(enqueued))
        return
    echo(enqueued.id)
    if not enqueued.new:
        app.say("A job with this key already waits or runs.")


async def add_from_file(app: App, file: BinaryIO) -> dict[str, int]:
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
    return total


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


def show_total(app: App, total: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        show_json(total)
    else:
        known = f", {total['known']:,} already wait or run" if total["known"] else ""
        app.say(f"{total['new']:,} new{known}")


async def retry_jobs(app: App, ids: Sequence[int]) -> list[JobRequestResult]:
    async with queue_transaction(app) as conn:
        retried = await admin.retry_jobs(conn, ids, now=await server_time(conn))
    return [JobRequestResult(job.id, job.what, job.job) for job in retried]


async def cancel_jobs(app: App, ids: Sequence[int], reason: str) -> list[JobRequestResult]:
    unique = list(dict.fromkeys(ids))
    async with queue_transaction(app) as conn:
        states = await jobs.cancel(conn, unique, reason=reason, now=await server_time(conn))
        ended = {job.id for job in await admin.load_ended_jobs(conn, unique)}

    def result(id_: int) -> JobRequestResult:
        if id_ in states:
            running = states[id_] is JobState.RUNNING
            return JobRequestResult(id_, "stopping" if running else "cancelled", id_)
        return JobRequestResult(id_, "ended" if id_ in ended else "missing")

    return [result(id_) for id_ in unique]


def show_results(results: Sequence[JobRequestResult], *, as_json: bool) -> bool:
    """Show each result; whether no request was refused."""
    if as_json:
        show_json(records_json(results))
    else:
        for result in results:
            echo(f"{result.id}  {RESULT_TEXTS[result.what].format(result.job)}")
    return not any(result.what in REFUSED_RESULTS for result in results)
