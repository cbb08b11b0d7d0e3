"""Tasks and resources. Only admin sees the arguments of tasks."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from usher import durations
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.api.queue_calls import redact, sees_arguments
from usher.console.actions.registry import ACTIONS
from usher.console.actions.tasks import schedule_text
from usher.console.lists.jobs import command_text
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href, number
from usher.console.page import (
    REFRESH_SECONDS,
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.errors import NotAllowed
from usher.observe.status_report import read_transaction
from usher.queue import task_queries
from usher.queue.task_queries import ResourceStatus, StoredTask
from usher.wording import relative_time

STATES = ("enabled", "disabled")
MAX_RESOURCES = 200
HEADINGS = ("Task", "Name", "Command", "State", "Schedule", "Next run", "Last run")
CONDITION_NAMES = ("task", "state", "type", "resource", "contains")


async def tasks_page(call: MgmtCall[Any]) -> ConsolePage:
    """Tasks by number, and the first resources."""
    now = database_time(call)
    given = {name: condition(call, name) for name in CONDITION_NAMES}
    if given["contains"] and not sees_arguments(call):
        raise NotAllowed("Only the scope admin may search in arguments.")
    only = number(call, "task")
    async with read_transaction(call.context.control) as conn:
        listed = await task_queries.list_tasks(
            conn,
            state=choice(call, "state", STATES),
            type=given["type"] or None,
            resource=given["resource"] or None,
            contains=given["contains"] or None,
            after_id=only - 1 if only else number(call, "after") or 0,
            n=1 if only else ROWS_PER_PAGE + 1,
        )
        resources = await task_queries.list_resources(conn, n=MAX_RESOURCES)
    shown = [
        redact(call, task) for task in listed[:ROWS_PER_PAGE] if only is None or task.id == only
    ]
    table = ConsoleTable(
        HEADINGS,
        [task_row(task, now) for task in shown],
        filter_fields(given),
        path="/tasks",
        next_href=next_href("/tasks", given, shown[-1].id if len(listed) > len(shown) else None),
        empty="No task matches.",
    )
    page = list_page(
        "Tasks and resources",
        table,
        shown,
        list_command(given),
        links=[ACTIONS["task-add"].link(), ACTIONS["resource-set"].link("Set a resource")],
        more=[("Resources", resources_table(resources))],
        live_seconds=REFRESH_SECONDS,
    )
    return replace(page, data={**page.data, "resources": resources})


def filter_fields(given: Mapping[str, str]) -> Sequence[FilterField]:
    return (
        FilterField("task", "Task", given["task"]),
        FilterField("state", "State", given["state"], STATES),
        FilterField("type", "Type", given["type"]),
        FilterField("resource", "Resource", given["resource"]),
        FilterField("contains", "Name or command contains", given["contains"]),
    )


def resources_table(resources: Sequence[ResourceStatus]) -> ConsoleTable:
    headings = ("Resource", "Running", "Interval", "Waiting", "State")
    rows = [resource_row(resource) for resource in resources]
    return ConsoleTable(headings, rows, empty="There is no resource.")


def list_command(given: dict[str, str]) -> str:
    if given["task"]:
        return shlex.join(["usher", "tasks", "show", given["task"]])
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return shlex.join(["usher", "tasks", "list", *options])


def task_row(task: StoredTask, now: datetime) -> TableRow:
    is_enabled = task.state == "enabled"
    kind: CellKind = "text" if is_enabled else "bad"
    cells = (
        TableCell(str(task.id), kind="number"),
        TableCell(task.name or "-", more=task.type),
        TableCell(command_text(task.program, task.args), kind="code"),
        TableCell(task.state, kind=kind),
        TableCell(schedule_text(task)),
        TableCell(relative_time(task.next_run, now) if is_enabled else "-"),
        TableCell(relative_time(task.latest_run, now)),
    )
    names = ("task-disable" if is_enabled else "task-enable", "task-run", "task-edit")
    return TableRow(cells, [ACTIONS[name].link(task=str(task.id)) for name in names])


def resource_row(resource: ResourceStatus) -> TableRow:
    kind: CellKind = "bad" if resource.paused else "text"
    cells = (
        TableCell(resource.name),
        TableCell(f"{resource.running} of {resource.capacity}", kind="number"),
        TableCell(durations.show(resource.interval)),
        TableCell(f"{resource.waiting:,}", kind="number"),
        TableCell("paused" if resource.paused else "active", kind=kind),
    )
    name = "resource-resume" if resource.paused else "resource-pause"
    names = (name, "resource-set")
    return TableRow(cells, [ACTIONS[each].link(resource=resource.name) for each in names])
