"""Jobs in the queue and in its log, and one job with its attempts. Only admin sees arguments and output."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.api.queue_calls import HIDDEN, path_id, redact, sees_arguments
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href, number
from usher.console.page import (
    ActionLink,
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.errors import BadInput, NotAllowed
from usher.observe.status_report import read_transaction
from usher.queue import queries, task_queries, waiting_reason
from usher.queue.job_states import JobState
from usher.queue.queries import JobFilter, ListedJob
from usher.queue.task_queries import PausedType
from usher.wording import relative_time

HEADINGS: Final = ("Job", "Type", "Command", "State", "Attempts", "Scheduled", "Message")
STATES: Final = tuple(state.value for state in JobState)
SHOWN_LISTS: Final = ("queue", "log")
CONDITION_NAMES: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "show": ("Show", SHOWN_LISTS),
    "state": ("State", STATES),
    "type": ("Type", ()),
    "resource": ("Resource", ()),
    "contains": ("Contains", ()),
}
FOLLOW_SECONDS: Final = 2
FAILED_STATES: Final = frozenset({"temporary-error", "permanent-error"})


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
            FilterField(name, label, given[name], options)
            for name, (label, options) in CONDITION_NAMES.items()
        ],
        path="/jobs",
        next_href=next_href("/jobs", given, last),
        empty="No job matches.",
    )
    page = list_page("Jobs", table, shown, list_command(given, is_log=is_log))
    values = {**page.values, "links": [*retry_links(given), *job_links(paused)]}
    return ConsolePage(page.template, page.heading, values, page.data, page.command)


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


def retry_links(given: Mapping[str, str]) -> list[ActionLink]:
    """A link that retries all failed jobs that match the list."""
    if given["state"] not in FAILED_STATES:
        return []
    names = ("state", "type", "resource", "contains")
    return [ACTIONS["jobs-retry"].link(**{name: given[name] for name in names if given[name]})]


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
        for name in ("state", "type", "resource", "contains")
        if given[name]
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
    if state not in ("pending", "running"):
        links.append(ACTIONS["job-retry"].link(job=str(id_)))
    if state in ("pending", "running", "temporary-error"):
        links.append(ACTIONS["job-cancel"].link(job=str(id_)))
    return links


async def job_page(call: MgmtCall[Any]) -> ConsolePage:
    """One job, why it waits, its attempts and its output."""
    id_, now = path_id(call), database_time(call)
    async with read_transaction(call.context.control) as conn:
        details = await queries.show_job(conn, id_)
        reasons = await waiting_reason.waiting_reasons(conn, id_, now=now) if details.live else []
    job = redact(call, details.job)
    attempts = [redact(call, attempt) for attempt in details.attempts]
    result = details.result if sees_arguments(call) else None
    fields = [
        ("State", [job.state, *reasons]),
        ("Type", [job.type]),
        ("Command", [command_text(job.program, job.args)]),
        ("Message", [job.message or "-"]),
        ("Attempts", [f"{job.attempts}" + (f" of {job.max_attempts}" if job.max_attempts else "")]),
        ("Scheduled", [relative_time(job.scheduled, now)]),
        ("Machine", [job.hostname or "-"]),
        ("Resource", [job.resource or "-"]),
        ("Parent", [str(details.parent or "-")]),
        ("Children", [f"{details.children:,}"]),
    ]
    runs = ConsoleTable(HEADINGS, [TableRow(job_row(run, now).cells) for run in attempts])
    # The manager stores the output of a running job every few seconds.
    follows = call.request.query_params.get("follow") == "1" and details.live
    values = {
        "fields": fields,
        "is_live": details.live,
        "refresh": FOLLOW_SECONDS if follows else 0,
        "actions": job_actions(id_, job.state),
        "runs": runs,
        "output": job.output or "",
        "id": id_,
    }
    data = {"job": job, "why": reasons, "runs": attempts, "result": result}
    return ConsolePage("job.html", f"Job {id_}", values, data, f"usher jobs show {id_}")
