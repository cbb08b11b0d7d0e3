"""Jobs in the queue and in its log. Only admin sees arguments and messages."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.api.queue_calls import HIDDEN, redact, sees_arguments
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href, number
from usher.console.page import (
    REFRESH_SECONDS,
    ActionLink,
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.console.text_values import time_ago
from usher.errors import BadInput, NotAllowed
from usher.observe.status_report import read_transaction
from usher.queue import queries, task_queries
from usher.queue.bulk_cancel import LIVE_STATES
from usher.queue.job_states import JobState
from usher.queue.queries import JobFilter, ListedJob
from usher.queue.task_queries import PausedType
from usher.wording import relative_time

HEADINGS: Final = ("Job", "Type", "Command", "State", "Attempts", "Scheduled", "Message")
STATES: Final = tuple(state.value for state in JobState)
SHOWN_LISTS: Final = ("queue", "log")
QUEUE_LISTS: Final = ("log",)  # the queue is shown if nothing is chosen
CONDITION_NAMES: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "show": ("Show", QUEUE_LISTS),
    "state": ("State", STATES),
    "type": ("Type", ()),
    "resource": ("Resource", ()),
    "contains": ("Command or message contains", ()),
    "task": ("Task", ()),
    "host": ("Machine", ()),
    "since": ("In the last", ()),
}
FAILED_STATES: Final = frozenset({"temporary-error", "permanent-error"})
WAITING_STATES: Final = ("pending", "waiting")


async def jobs_page(call: MgmtCall[Any]) -> ConsolePage:
    """The queue, newest first, or the log, latest end first."""
    given = {name: condition(call, name) for name in CONDITION_NAMES}
    is_log, now = choice(call, "show", SHOWN_LISTS) == "log", database_time(call)
    conditions = read_conditions(call, given, is_log=is_log)
    async with read_transaction(call.context.control) as conn:
        listed = await queries.list_jobs(conn, n=ROWS_PER_PAGE + 1, log=is_log, **conditions)
        paused = await task_queries.paused_types(conn)
    shown = [redact(call, job) for job in listed[:ROWS_PER_PAGE]]
    last = None
    if len(listed) > len(shown):
        last = shown[-1].run_position if is_log else shown[-1].id
    table = ConsoleTable(
        HEADINGS,
        [job_row(job, now) for job in shown],
        [
            FilterField(name, label, given[name], options, "queue" if name == "show" else "any")
            for name, (label, options) in CONDITION_NAMES.items()
        ],
        path="/jobs",
        next_href=next_href("/jobs", given, last),
        empty="No job matches.",
    )
    return list_page(
        "Jobs",
        table,
        shown,
        list_command(given, is_log=is_log),
        related=[ActionLink("Types of jobs", "/types"), ActionLink("Tasks", "/tasks")],
        links=[*matching_links(given), *job_links(paused)],
        live_seconds=REFRESH_SECONDS,
    )


def read_conditions(call: MgmtCall[Any], given: dict[str, str], *, is_log: bool) -> JobFilter:
    """The conditions of the query; NotAllowed if the scope `read` looks for arguments."""
    if given["contains"] and not sees_arguments(call):
        raise NotAllowed("Only the scope admin may search in arguments.")
    state = choice(call, "state", STATES)
    conditions = JobFilter(
        states=[state] if state else None,
        type=given["type"] or None,
        resource=given["resource"] or None,
        contains=given["contains"] or None,
        task=number(call, "task"),
        host=given["host"] or None,
        since=time_ago(given["since"], database_time(call)),
    )
    if (after := condition(call, "after")) and is_log:
        conditions["after_id"], conditions["after_end"] = parse_run_position(after)
    elif after:
        conditions["after_id"] = number(call, "after")
    return conditions


def job_links(paused: Sequence[PausedType]) -> list[ActionLink]:
    """Links that resume the paused types, pause a type, and add a job."""
    resume = ACTIONS["type-resume"]
    links = [resume.link(f"Resume {each.type}", type=each.type) for each in paused]
    return [*links, ACTIONS["type-pause"].link("Pause a type"), ACTIONS["job-add"].link()]


def matching_links(given: Mapping[str, str]) -> list[ActionLink]:
    """Links that retry all failed jobs and cancel all live jobs that match the list."""
    names = ("state", "type", "resource", "contains")
    chosen = {name: given[name] for name in names if given[name]}
    if any(given[name] for name in given.keys() - {*names, "show"}):
        return []  # these actions do not know the other conditions
    links = []
    if given["state"] in FAILED_STATES:
        links.append(ACTIONS["jobs-retry"].link(**chosen))
    if given["state"] in LIVE_STATES and not given["show"]:
        links.append(ACTIONS["jobs-cancel"].link(**chosen))
    return links


def parse_run_position(text: str) -> tuple[int, datetime]:
    """The job and end of a run, as `ListedJob.run_position` writes them."""
    id_, _, end = text.partition("@")
    try:
        time = datetime.fromisoformat(f"{end}+00:00")
        return int(id_[:18]), time
    except ValueError:
        raise BadInput(f"{text[:60]!a} is not a position in the log.") from None


def list_command(given: dict[str, str], *, is_log: bool) -> str:
    options = [
        word
        for name in CONDITION_NAMES
        if given[name] and name != "show"
        for word in (f"--{name}", given[name])
    ]
    return shlex.join(["usher", "jobs", "log" if is_log else "list", *options])


def command_text(program: str, args: Sequence[str]) -> str:
    return f"{program} {HIDDEN}" if list(args) == [HIDDEN] else shlex.join([program, *args])


def job_row(job: ListedJob, now: datetime) -> TableRow:
    kind: CellKind = "bad" if job.state in FAILED_STATES else "text"
    attempts = f"{job.attempts}" + (f" of {job.max_attempts}" if job.max_attempts else "")
    cells = (
        TableCell(str(job.id), f"/jobs/{job.id}", "number"),
        TableCell(job.type),
        TableCell(command_text(job.program, job.args), kind="code"),
        TableCell(job.state, kind=kind),
        TableCell(attempts, kind="number"),
        TableCell(relative_time(job.end or job.scheduled, now)),
        TableCell(job.message or "-"),
    )
    return TableRow(cells, job_actions(job.id, job.state))


def job_actions(id_: int, state: str) -> list[ActionLink]:
    links = []
    if state not in WAITING_STATES and state != "running":
        links.append(ACTIONS["job-retry"].link(job=str(id_)))
    if state in (*WAITING_STATES, "running", "temporary-error"):
        links.append(ACTIONS["job-cancel"].link(job=str(id_)))
    return links
