"""`usher jobs show`, `tree` and `result`: one job with all its fields, its ancestors and descendants, its result."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from usher.cli.app import App, run, show_field, show_json, show_table
from usher.cli.area_access import call_in, checked_transaction
from usher.cli.output import display_time, echo
from usher.cli.queue_access import command_line, open_queue, parse_duration, queue_transaction
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import UsherError
from usher.queue import queries, waiting_reason
from usher.queue.job_states import JobState
from usher.queue.queries import MAX_COUNTED_JOBS, JobDetails, JobTreeNode, ListedJob, StoredJob
from usher.wording import duration_text, printable, record_json, records_json, time_text

MAX_TEXT_CHARACTERS = 2_000  # of a command line or a text
MAX_ROWS = 20
FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 2.0


async def find_job(
    conn: Connection, id_: int, attempt: int | None, host: str | None
) -> tuple[JobDetails, list[str]]:
    """The job and, while it waits, the reasons."""
    details = await queries.show_job(conn, id_, attempt=attempt)
    if not details.live:
        return details, []
    name, now = host.lower() if host else None, await server_time(conn)
    return details, await waiting_reason.waiting_reasons(conn, id_, host=name, now=now)


def job_json(details: JobDetails, reasons: Sequence[str]) -> dict[str, Any]:
    return {
        **record_json(details.job),
        "live": details.live,
        "why": list(reasons),
        "runs": records_json(details.attempts),
        "parent": details.parent,
        "root_task": details.root_task,
        "children": details.children,
        "wrote": records_json(details.wrote),
        "result": record_json(details.result) if details.result else None,
        "needs": records_json(details.needs),
        "needed_by": details.needed_by,
    }


def show_job(app: App, id_: int, *, attempt: int | None, host: str | None, as_json: bool) -> None:
    details, reasons = call_in(queue_transaction(app), find_job, id_, attempt, host)
    if as_json:
        show_json(job_json(details, reasons))
        return
    job, now = details.job, display_time()
    for name, text in (*job_fields(job, now), *relation_fields(details)):
        show_field(name, text)
    show_field("why", *(printable(reason, MAX_TEXT_CHARACTERS) for reason in reasons))
    if details.attempts and (details.live or len(details.attempts) > 1):
        show_attempts(details.attempts)
    if job.output:
        echo("output")
        for line in job.output.splitlines():
            echo(f"  {printable(line, MAX_TEXT_CHARACTERS)}")


def job_fields(job: StoredJob, now: datetime) -> Iterator[tuple[str, str]]:
    yield "job", f"{job.id}, {job.state}, type {job.type}"
    yield "command", command_line(job.program, job.args, MAX_TEXT_CHARACTERS)
    yield "scheduled", time_text(job.scheduled, now)
    if job.start:
        ran = f", ran {duration_text(job.end - job.start)}" if job.end else ""
        process = f" as process {job.process_id}" if job.process_id else ""
        yield "started", f"{time_text(job.start, now)} on {job.hostname}{process}{ran}"
    if job.exit_code is not None:
        yield "exit code", str(job.exit_code)
    if job.message:
        yield "message", printable(job.message, MAX_TEXT_CHARACTERS)
    if job.attempts:
        limit = f" of {job.max_attempts}" if job.max_attempts else ""
        yield "attempt", f"{job.attempts}{limit}"
    for name in ("resource", "host_rule", "key", "data"):
        if value := getattr(job, name):
            yield name.replace("_", " "), printable(value, MAX_TEXT_CHARACTERS)
    if job.priority:
        yield "priority", str(job.priority)


def relation_fields(details: JobDetails) -> Iterator[tuple[str, str]]:
    if details.root_task is not None:
        own = "" if details.job.task_id is not None else " (of the root job)"
        yield "task", f"{details.root_task}{own}"
    if details.parent is not None:
        yield "parent", f"job {details.parent}"
    if details.children:
        more = "≥ " if details.children >= MAX_COUNTED_JOBS else ""
        yield "children", f"{more}{details.children}: usher jobs tree {details.job.id}"
    for need in details.needs[:MAX_ROWS]:
        yield "needs", f"job {need.id}, {need.state or 'unknown'}"
    if details.needed_by:
        yield "needed by", ", ".join(f"job {id_}" for id_ in details.needed_by[:MAX_ROWS])
    if details.result is not None:
        result = json.dumps(details.result.value, ensure_ascii=False)
        yield "result", printable(result, MAX_TEXT_CHARACTERS)
    for row in details.wrote[:MAX_ROWS]:
        yield "wrote", printable(f"{row.table} {row.row_id}")
    if len(details.wrote) > MAX_ROWS:
        yield "wrote", f"and {len(details.wrote) - MAX_ROWS} more rows"


def show_attempts(attempts: Sequence[ListedJob]) -> None:
    echo("ended attempts")
    rows = [
        (
            f"  {run.attempts}",
            run.state,
            "-" if run.exit_code is None else run.exit_code,
            "-" if run.start is None else f"{run.start.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            "-" if run.start is None or run.end is None else duration_text(run.end - run.start),
            run.hostname or "-",
            printable(run.message or ""),
        )
        for run in attempts
    ]
    show_table(("  ATTEMPT", "STATE", "EXIT", "STARTED", "TOOK", "ON", "MESSAGE"), rows)


def show_tree(app: App, marked: int, *, as_json: bool) -> None:
    """Draw the tree of a job from its root, each job below its parent, and mark the job."""
    nodes = call_in(queue_transaction(app), queries.job_tree, marked)
    if as_json:
        show_json(records_json(nodes))
        return
    children: defaultdict[int | None, list[JobTreeNode]] = defaultdict(list)
    ids = {node.id for node in nodes}
    for node in nodes:
        children[node.parent if node.parent in ids else None].append(node)
    root = nodes[0]
    if root.task_id is not None:
        echo(f"task {root.task_id}")
    # A loop, because a chain of jobs may be longer than Python's stack.
    waiting = [(node, 0) for node in reversed(children[None])]
    shown: set[int] = set()
    while waiting:
        node, depth = waiting.pop()
        if node.id in shown:
            continue
        shown.add(node.id)
        echo(f"{'  ' * depth}{node_text(node, marked)}")
        waiting += [(child, depth + 1) for child in reversed(children[node.id])]


def node_text(node: JobTreeNode, marked: int) -> str:
    command = command_line(node.program, node.args or ()) if node.program else ""
    text = f"{node.id}  {node.type or '-'}  {node.state or 'deleted'}  {command}".rstrip()
    return f"{text}  ←" if node.id == marked else text


async def wait_for_end(app: App, id_: int, wait: str | None) -> JobDetails:
    """Wait up to this duration for the end of the job, and return the job."""
    seconds = parse_duration(wait).total_seconds() if wait else 0.0
    deadline = asyncio.get_running_loop().time() + seconds
    pause = FIRST_WAIT_SECONDS
    async with open_queue(app) as db:
        while True:
            async with checked_transaction(db) as conn:
                details = await queries.show_job(conn, id_)
            left = deadline - asyncio.get_running_loop().time()
            if not details.live or left <= 0:
                return details
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, MAX_WAIT_SECONDS)


def show_result(app: App, id_: int, wait: str | None) -> bool:
    """Print the result as JSON; False if the job has none. UsherError if it did not complete."""
    details = run(wait_for_end(app, id_, wait))
    job = details.job
    if details.live:
        raise UsherError(
            f"Job {job.id} has not ended: it is {job.state}.",
            hint=f"usher jobs result {job.id} --wait 1m",
        )
    if job.state != JobState.COMPLETED:
        message = f": {job.message}" if job.message else ""
        raise UsherError(
            f"Job {job.id} did not complete: {job.state}{message}", hint=f"usher jobs show {job.id}"
        )
    if details.result is None:
        app.say(f"Job {id_} completed without a result.")
        return False
    echo(json.dumps(details.result.value, ensure_ascii=False))
    return True
