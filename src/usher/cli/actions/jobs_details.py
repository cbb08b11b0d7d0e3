"""A job at length: the lines of `usher jobs show` and the drawing of `usher jobs tree`."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from usher.cli.app import show_field, show_table
from usher.cli.output import echo
from usher.cli.queue_access import command_line
from usher.cli.wording import display_time, duration_text, json_fields, printable, time_text
from usher.queue.queries import MOST, Job, Listed, Node, Shown

MAX_TEXT_CHARACTERS = (
    2_000  # characters of a command line or a text, where one job is all there is to see
)
MAX_ROWS = 20


def job_json(found: Shown, why: Sequence[str]) -> dict[str, Any]:
    return {
        **json_fields(asdict(found.job)),
        "live": found.live,
        "why": list(why),
        "runs": [json_fields(asdict(one)) for one in found.attempts],
        "parent": found.parent,
        "root_task": found.root_task,
        "children": found.children,
        "wrote": [json_fields(asdict(one)) for one in found.wrote],
        "result": json_fields(asdict(found.result)) if found.result else None,
        "needs": [asdict(need) for need in found.needs],
        "needed_by": found.needed_by,
    }


def show_job(found: Shown, why: Sequence[str]) -> None:
    job, now = found.job, display_time()
    for name, words in (*job_fields(job, now), *relation_fields(found)):
        show_field(name, words)
    for number, words in enumerate(why):
        show_field("why" if number == 0 else "", printable(words, MAX_TEXT_CHARACTERS))
    if found.attempts and (found.live or len(found.attempts) > 1):
        show_attempts(found.attempts)
    if job.output:
        echo("output")
        for line in job.output.splitlines():
            echo(f"  {printable(line, MAX_TEXT_CHARACTERS)}")


def job_fields(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
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
        most = f" of {job.max_attempts}" if job.max_attempts else ""
        yield "attempt", f"{job.attempts}{most}"
    for name in ("resource", "host_rule", "key", "data"):
        if value := getattr(job, name):
            yield name.replace("_", " "), printable(value, MAX_TEXT_CHARACTERS)
    if job.priority:
        yield "priority", str(job.priority)


def relation_fields(found: Shown) -> Iterator[tuple[str, str]]:
    if found.root_task is not None:
        own = "" if found.job.task_id is not None else " at the root"
        yield "task", f"{found.root_task}{own}"
    if found.parent is not None:
        yield "parent", f"job {found.parent}"
    if found.children:
        more = "≥ " if found.children >= MOST else ""
        yield "children", f"{more}{found.children}: usher jobs tree {found.job.id}"
    for need in found.needs[:MAX_ROWS]:
        yield "needs", f"job {need.id}, {need.state or 'unknown'}"
    if found.needed_by:
        yield "needed by", ", ".join(f"job {id_}" for id_ in found.needed_by[:MAX_ROWS])
    if found.result is not None:
        yield (
            "result",
            printable(json.dumps(found.result.value, ensure_ascii=False), MAX_TEXT_CHARACTERS),
        )
    for row in found.wrote[:MAX_ROWS]:
        yield "wrote", printable(f"{row.table} {row.row_id}")
    if len(found.wrote) > MAX_ROWS:
        yield "wrote", f"and {len(found.wrote) - MAX_ROWS} more rows"


def show_attempts(attempts: Sequence[Listed]) -> None:
    echo("runs that ended")
    rows = [
        (
            f"  {one.attempts}",
            one.state,
            "-" if one.exit_code is None else one.exit_code,
            "-" if one.start is None else f"{one.start.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            "-" if one.start is None or one.end is None else duration_text(one.end - one.start),
            one.hostname or "-",
            printable(one.message or ""),
        )
        for one in attempts
    ]
    show_table(("  ATTEMPT", "STATE", "EXIT", "STARTED", "TOOK", "ON", "MESSAGE"), rows)


def show_tree(nodes: Sequence[Node], asked: int) -> None:
    """The root first, each job under the one that put it in."""
    below: defaultdict[int | None, list[Node]] = defaultdict(list)
    there = {node.id for node in nodes}
    for node in nodes:
        below[node.parent if node.parent in there else None].append(node)
    root = nodes[0]
    if root.task_id is not None:
        echo(f"task {root.task_id}")
    # Not by recursion: a chain of jobs may be longer than Python's stack.
    waiting = [(node, 0) for node in reversed(below[None])]
    shown: set[int] = set()
    while waiting:
        node, depth = waiting.pop()
        if node.id in shown:
            continue
        shown.add(node.id)
        echo(f"{'  ' * depth}{node_text(node, asked)}")
        waiting += [(child, depth + 1) for child in reversed(below[node.id])]


def node_text(node: Node, asked: int) -> str:
    command = command_line(node.program, node.args or ()) if node.program else ""
    words = f"{node.id}  {node.type or '-'}  {node.state or 'forgotten'}  {command}".rstrip()
    return f"{words}  ←" if node.id == asked else words
