"""`usher jobs show` and `usher jobs tree`: one job with all its fields, and its ancestors and descendants."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from usher.cli.app import show_field, show_table
from usher.cli.output import echo
from usher.cli.queue_access import command_line
from usher.cli.wording import (
    display_time,
    duration_text,
    printable,
    record_json,
    records_json,
    time_text,
)
from usher.queue.queries import MAX_COUNTED_JOBS, JobDetails, JobTreeNode, ListedJob, StoredJob

MAX_TEXT_CHARACTERS = 2_000  # of a command line or a text
MAX_ROWS = 20


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


def show_job(details: JobDetails, reasons: Sequence[str]) -> None:
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
        yield (
            "result",
            printable(json.dumps(details.result.value, ensure_ascii=False), MAX_TEXT_CHARACTERS),
        )
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


def show_tree(nodes: Sequence[JobTreeNode], marked: int) -> None:
    """Draw the tree from its root, each job below its parent, and mark one job."""
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
