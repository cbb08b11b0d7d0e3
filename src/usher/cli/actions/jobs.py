"""The work behind `usher jobs`: jobs found, put in, tried again, cancelled, and the lines that tell of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from usher import durations
from usher.api.jobs import new_job
from usher.api.queue_messages import NewJob
from usher.cli.app import App, show_json, show_table
from usher.cli.output import echo
from usher.cli.queue_access import (
    at_the_queue,
    command_line,
    command_of,
    distance,
    queue_of,
    read_at,
    read_moment,
    read_since,
    read_span,
    read_type,
    task_of,
    within,
)
from usher.cli.wording import display_time, plain, printable, span
from usher.db.clock import server_time
from usher.errors import BadInput
from usher.queue import admin, jobs, queries, run_api, waiting_reason
from usher.queue.host_rules import normalize_host_rule
from usher.queue.job_states import JobState
from usher.queue.jobs import EnqueuedJob, JobRequest
from usher.queue.queries import JobCount, JobDetails, JobTreeNode, ListedJob, QueueCounts, RowWriter

BATCH = 5_000
LONGEST_LINE = 1 << 24  # bytes
MESSAGE = 60
JSON_HINT = """As in {"type": "fetch", "program": "curl", "args": ["https://example.com/"]}"""
REFUSED = ("live", "ended", "missing")
SAID: Mapping[str, str] = {
    "pending": "waits for its turn",
    "new": "is in again as job {}",
    "live": "cannot be tried again: job {} waits or runs already",
    "cancelled": "is cancelled",
    "stopping": "runs, and is being stopped",
    "ended": "has ended already",
    "missing": "is not there: see usher jobs list",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the wish to try a job again or to cancel it, and which job is now meant."""

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
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> list[ListedJob]:
    after_id, after_end = cursor(after)
    async with at_the_queue(app) as conn:
        return await queries.list_jobs(
            conn,
            log=log,
            n=limit,
            states=states,
            task=(await task_of(conn, task)).id if task else None,
            since=read_since(since, await server_time(conn)) if since else None,
            after_id=after_id,
            after_end=after_end,
            **wanted,
        )


def cursor(text: str | None) -> tuple[int | None, datetime | None]:
    """Where a page of a list ended: a job, and in the log also when it ended."""
    if text is None:
        return None, None
    number, _, end = text.partition("@")
    if not number.isdecimal() or len(number) > 18:  # noqa: PLR2004 - what a bigint holds
        raise BadInput(f"{text[:40]!a} is not the number of a job.", hint="usher jobs list")
    return int(number), read_moment(end, "As in 12@2026-11-16T08:00:00") if end else None


def rows_json(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [plain(asdict(row)) for row in rows]


def show_jobs(
    app: App, found: list[ListedJob], wanted: Mapping[str, Any], *, only_ids: bool, as_json: bool
) -> None:
    if told_plainly(found, only_ids=only_ids, as_json=as_json):
        return
    now = display_time()
    rows = [
        (
            job.id,
            job.type,
            state_words(job),
            time_words(job, now),
            job.hostname or "-",
            command_line(job.program, job.args),
            printable(job.message or "", MESSAGE),
        )
        for job in found
    ]
    show_table(("ID", "TYPE", "STATE", "TIME", "ON", "COMMAND", "MESSAGE"), rows)
    if len(found) == wanted["limit"]:
        app.say(f"  → perhaps more: --after {found[-1].id}")


def told_plainly(rows: Sequence[Any], *, only_ids: bool, as_json: bool) -> bool:
    """Whether a machine is to read it, which is then done."""
    if as_json:
        show_json(rows_json(rows))
    elif only_ids:
        echo("".join(f"{row.id}\n" for row in rows), nl=False)
    return as_json or only_ids


def state_words(job: ListedJob) -> str:
    if job.cancel and job.state == "running":
        return "running, to be stopped"
    if job.held:
        return f"held by {printable(job.resource or '?', MESSAGE)}"
    most = f" of {job.max_attempts}" if job.max_attempts else ""
    return f"{job.state} ({job.attempts}{most})" if job.attempts > 1 or job.end else job.state


def time_words(job: ListedJob, now: datetime) -> str:
    if job.state == "running":
        return f"for {span(now - job.start)}" if job.start else "-"
    return distance(job.scheduled, now)


def show_log(
    app: App, found: list[ListedJob], wanted: Mapping[str, Any], *, only_ids: bool, as_json: bool
) -> None:
    if told_plainly(found, only_ids=only_ids, as_json=as_json):
        return
    now = display_time()
    rows = [
        (
            job.id,
            job.type,
            job.state,
            "-" if job.exit_code is None else job.exit_code,
            distance(job.end, now),
            took(job),
            job.hostname or "-",
            command_line(job.program, job.args),
            printable(job.message or "", MESSAGE),
        )
        for job in found
    ]
    show_table(("ID", "TYPE", "STATE", "EXIT", "ENDED", "TOOK", "ON", "COMMAND", "MESSAGE"), rows)
    if len(found) == wanted["limit"]:
        last = found[-1]
        # A job is there once, unless attempts are asked for.
        end = f"@{last.end:%Y-%m-%dT%H:%M:%S.%f}" if "temporary-error" in wanted["states"] else ""
        app.say(f"  → perhaps more: --after {last.id}{end}")


def took(job: ListedJob) -> str:
    return "-" if job.start is None or job.end is None else span(job.end - job.start)


async def count_jobs(app: App) -> QueueCounts:
    async with at_the_queue(app) as conn:
        return await queries.count_jobs(conn, now=await server_time(conn))


def show_counts(counts: QueueCounts, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(counts))
        return
    rows = [("now", *count_words(one)) for one in counts.live]
    rows += [("last day", *count_words(one)) for one in counts.log]
    show_table(("WHEN", "TYPE", "STATE", "JOBS"), rows)


def count_words(one: JobCount) -> tuple[str, str, str]:
    return one.type, one.state, f"{'≥ ' if one.more else ''}{one.number:,}"


async def find_makers(app: App, table: str, row: str) -> list[RowWriter]:
    async with at_the_queue(app) as conn:
        return await queries.row_writers(conn, table, row)


def show_makers(found: list[RowWriter], *, only_ids: bool, as_json: bool) -> None:
    if told_plainly(found, only_ids=only_ids, as_json=as_json):
        return
    rows = [
        (
            one.id,
            f"{one.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            one.type or "-",
            one.state or "forgotten",
            command_line(one.program, one.args or ()) if one.program else "-",
        )
        for one in found
    ]
    show_table(("ID", "WROTE IT", "TYPE", "STATE", "COMMAND"), rows)


async def keep(app: App, text: str) -> str:
    wanted = read_span(text)
    async with at_the_queue(app) as conn:
        await admin.set_log_retention(conn, wanted)
    return durations.show(wanted)


async def read_job(
    app: App, id_: int, attempt: int | None, host: str | None
) -> tuple[JobDetails, list[str]]:
    async with at_the_queue(app) as conn:
        found = await queries.show_job(conn, id_, attempt=attempt)
        name = host.lower() if host else None
        now = await server_time(conn)
        told = (
            await waiting_reason.waiting_reasons(conn, id_, host=name, now=now)
            if found.live
            else []
        )
        return found, told


async def read_tree(app: App, id_: int) -> list[JobTreeNode]:
    async with at_the_queue(app) as conn:
        return await queries.job_tree(conn, id_)


async def add_job(
    app: App,
    words: Sequence[str],
    *,
    type_: str,
    at: str | None,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> EnqueuedJob:
    program, args = command_of(words)
    async with at_the_queue(app) as conn:
        now = await server_time(conn)
        scheduled = read_at(at, now) if at else None
        needs = tuple(wanted.pop("needs", ()))
        job = JobRequest(
            read_type(type_), program, args, scheduled=scheduled, needs=needs, **wanted
        )
        [entered] = await jobs.enqueue(conn, [job], now=now)
        return entered


def show_entered(app: App, entered: EnqueuedJob, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(entered))
        return
    echo(entered.id)
    if not entered.new:
        app.say("it waits or runs already, with the same key")


async def add_from(app: App, file: BinaryIO) -> dict[str, int]:
    """Jobs from lines of JSON, batch after batch; what came before a bad line is in."""
    total = {"new": 0, "known": 0}
    async with queue_of(app) as db:
        try:
            for batch in batches(file):
                async with within(db) as conn:
                    made = await run_api.enqueue_with_parents(
                        conn, batch, now=await server_time(conn)
                    )
                new = sum(one.new for one in made)
                total["new"] += new
                total["known"] += len(made) - new
        except BadInput as error:
            done = sum(total.values())
            message = f"{error.message} The {done:,} jobs before are in." if done else error.message
            raise BadInput(message, hint=error.hint) from error
    return total


def batches(file: BinaryIO) -> Iterator[list[tuple[JobRequest, int | None]]]:
    batch: list[tuple[JobRequest, int | None]] = []
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
        if not line.strip():
            continue
        try:
            batch.append(decoded(line))
        except (ValueError, BadInput) as error:
            if batch:
                yield batch
            raise BadInput(f"Line {number} is not a job: {error}.", hint=JSON_HINT) from error
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def decoded(line: bytes) -> tuple[JobRequest, int | None]:
    wanted = msgspec.json.decode(line, type=NewJob)
    job = new_job(wanted)
    normalize_host_rule(job.host_rule)
    if any("\0" in word for word in (job.program, *job.args, job.key or "", job.data or "")):
        raise ValueError("no text can hold a NUL byte")
    return job, wanted.parent


def show_total(app: App, total: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        show_json(total)
    else:
        known = f", {total['known']:,} wait or run already" if total["known"] else ""
        app.say(f"{total['new']:,} new{known}")


async def retry_jobs(app: App, ids: Sequence[int]) -> list[Fate]:
    async with at_the_queue(app) as conn:
        found = await admin.retry_jobs(conn, ids, now=await server_time(conn))
    return [Fate(one.id, one.what, one.job) for one in found]


async def cancel_jobs(app: App, ids: Sequence[int], reason: str) -> list[Fate]:
    wanted = list(dict.fromkeys(ids))
    async with at_the_queue(app) as conn:
        found = await jobs.cancel(conn, wanted, reason=reason, now=await server_time(conn))
        over = {one.id for one in await admin.load_ended_jobs(conn, wanted)} - found.keys()

    def fate(id_: int) -> Fate:
        if id_ in found:
            return Fate(id_, "stopping" if found[id_] is JobState.RUNNING else "cancelled", id_)
        return Fate(id_, "ended" if id_ in over else "missing")

    return [fate(id_) for id_ in wanted]


def show_fates(found: Sequence[Fate], *, as_json: bool) -> bool:
    """Tell what became of each; whether all went as wished."""
    if as_json:
        show_json(rows_json(found))
    else:
        for one in found:
            echo(f"{one.id}  {SAID[one.what].format(one.job)}")
    return not any(one.what in REFUSED for one in found)
