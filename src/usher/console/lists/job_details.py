"""One job: why it waits, its tree, its attempts and its output. Only admin sees arguments, messages and output."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.api.queue_calls import path_id, redact, sees_arguments
from usher.console.lists.jobs import FAILED_STATES, command_text, job_actions
from usher.console.page import CellKind, ConsolePage, ConsoleTable, TableCell, TableRow
from usher.observe.status_report import read_transaction
from usher.queue import queries, waiting_reason
from usher.queue.queries import JobDetails, JobTreeNode, ListedJob, StoredJob
from usher.wording import duration_text, relative_time, time_text

FOLLOW_SECONDS: Final = 2  # the manager stores the output of a running job every few seconds
MAX_SHOWN_DEPTH: Final = 8
ATTEMPT_HEADINGS: Final = ("Attempt", "State", "Started", "Took", "Exit code", "Machine", "Message")
TREE_HEADINGS: Final = ("Job", "Relation", "Type", "Command", "State", "Message")
RELATIONS: Final = {-1: "parent", 0: "this job", 1: "child"}


async def job_page(call: MgmtCall[Any]) -> ConsolePage:
    """One job, why it waits, its tree, its attempts and its output."""
    id_, now = path_id(call), database_time(call)
    async with read_transaction(call.context.control) as conn:
        details = await queries.show_job(conn, id_)
        reasons = await waiting_reason.waiting_reasons(conn, id_, now=now) if details.live else []
        nodes = await queries.job_tree(conn, id_)
    job = redact(call, details.job)
    attempts = [redact(call, attempt) for attempt in details.attempts]
    tree = [redact(call, node) for node in nodes]
    result = details.result if sees_arguments(call) else None
    values = {
        "fields": list(job_fields(job, details, reasons, now)),
        "is_live": details.live,
        "actions": job_actions(id_, job.state),
        "runs": ConsoleTable(
            ATTEMPT_HEADINGS,
            [attempt_row(attempt, now) for attempt in attempts],
            empty="No attempt has ended.",
        ),
        "tree": ConsoleTable(TREE_HEADINGS, list(tree_rows(tree))),
        "output": job.output or "",
        "id": id_,
    }
    data = {"job": job, "why": reasons, "runs": attempts, "tree": tree, "result": result}
    command = f"usher jobs show {id_}"
    live_seconds = FOLLOW_SECONDS if details.live else 0
    return ConsolePage("job.html", f"Job {id_}", values, data, command, live_seconds)


def job_fields(
    job: StoredJob, details: JobDetails, reasons: Sequence[str], now: datetime
) -> Iterator[tuple[str, list[str | TableCell]]]:
    yield "State", [job.state, *reasons]
    yield "Type", [job.type]
    yield "Command", [command_text(job.program, job.args)]
    yield "Message", [job.message or "-"]
    yield "Attempts", [f"{job.attempts}" + (f" of {job.max_attempts}" if job.max_attempts else "")]
    yield "Scheduled", [time_text(job.scheduled, now)]
    yield "Machine", [job.hostname or "-"]
    yield "Resource", [TableCell(job.resource, "/tasks#resources") if job.resource else "-"]
    if details.root_task is not None:
        yield "Task", [TableCell(f"task {details.root_task}", f"/tasks?task={details.root_task}")]
    if details.needs:
        needs = details.needs
        yield "Needs", [job_cell(need.id, f": {need.state or 'not in the log'}") for need in needs]
    if details.needed_by:
        yield "Needed by", [job_cell(id_) for id_ in details.needed_by]
    if details.wrote:
        yield "Wrote", [f"{row.table} {row.row_id}" for row in details.wrote]


def job_cell(id_: int, more: str = "") -> TableCell:
    return TableCell(f"job {id_}{more}", f"/jobs/{id_}")


def attempt_row(attempt: ListedJob, now: datetime) -> TableRow:
    kind: CellKind = "bad" if attempt.state in FAILED_STATES else "text"
    start, end = attempt.start, attempt.end
    cells = (
        TableCell(str(attempt.attempts), kind="number"),
        TableCell(attempt.state, kind=kind),
        TableCell(
            relative_time(start, now), more=f"{start:%Y-%m-%d %H:%M:%S} UTC" if start else ""
        ),
        TableCell(duration_text(end - start) if start and end else "-"),
        TableCell("-" if attempt.exit_code is None else str(attempt.exit_code), kind="number"),
        TableCell(attempt.hostname or "-"),
        TableCell(attempt.message or "-"),
    )
    return TableRow(cells)


def in_tree_order(nodes: Sequence[JobTreeNode]) -> Iterator[JobTreeNode]:
    """Each job before its children, which follow it."""
    children: dict[int | None, list[JobTreeNode]] = {}
    job_ids = {node.id for node in nodes}
    for node in nodes:
        parent = node.parent if node.parent in job_ids else None
        children.setdefault(parent, []).append(node)
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children.get(node.id, []))


def tree_rows(nodes: Sequence[JobTreeNode]) -> Iterator[TableRow]:
    root = min(node.depth for node in nodes)
    for node in in_tree_order(nodes):
        yield tree_row(node, min(node.depth - root, MAX_SHOWN_DEPTH))


def tree_row(node: JobTreeNode, depth: int) -> TableRow:
    kind: CellKind = "bad" if node.state in FAILED_STATES else "text"
    relation = RELATIONS.get(node.depth, "ancestor" if node.depth < 0 else "descendant")
    command = "-" if node.program is None else command_text(node.program, node.args or ())
    cells = (
        TableCell(str(node.id), f"/jobs/{node.id}", depth=depth),
        TableCell(relation),
        TableCell(node.type or "-"),
        TableCell(command, kind="code"),
        TableCell(node.state or "not in the log", kind=kind),
        TableCell(node.message or "-"),
    )
    return TableRow(cells)
