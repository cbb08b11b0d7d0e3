"""Actions that add and edit a task: its program, its schedule and its settings."""

import shlex
from typing import Any, Final

from usher import durations
from usher.api.context import MgmtCall
from usher.console.actions.action import (
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
    whole_number,
)
from usher.console.actions.new_jobs import command_words, program_words
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.queue import admin, task_queries, tasks
from usher.queue.admin import TaskUpdate
from usher.queue.periods import TaskSchedule
from usher.queue.task_queries import StoredTask
from usher.queue.tasks import TaskSpec

MAX_HOUR, MAX_MINUTE = 23, 59
OPTION_NAMES: Final = ("name", "type", "every", "hour", "minute", "cron", "timezone", "resource")
SCHEDULE_FIELDS: Final = (
    ActionField("every", "Interval", required=False, help="Such as 15m, 6h or 1d"),
    ActionField("hour", "Hour", required=False, help="0 to 23"),
    ActionField("minute", "Minute", required=False, help="0 to 59"),
    ActionField("cron", "Cron expression", required=False, help="Such as 0 8 * * MON-FRI"),
    ActionField("timezone", "Time zone", required=False, help="Such as Europe/Amsterdam; else UTC"),
)
RESOURCE: Final = ActionField("resource", "Resource", required=False)
COMMAND_HELP: Final = "Split as a shell would, without a shell"


def schedule_text(task: StoredTask) -> str:
    """`every 15m`, `every 1d at 02:30 Europe/Amsterdam`, `cron 0 8 * * *`."""
    zone = f" {task.timezone}" if task.timezone != "UTC" else ""
    if task.cron:
        return f"cron {task.cron}{zone}"
    often = f"every {durations.show(task.periodicity)}" if task.periodicity else "never"
    if task.hour is None and task.minute is None:
        return often
    hour = "*" if task.hour is None else f"{task.hour:02}"
    return f"{often} at {hour}:{task.minute or 0:02}{zone}"


def task_text(task: StoredTask) -> str:
    """The task as the audit shows it before and after a change."""
    name = f"{task.name}: " if task.name else ""
    resource = f", resource {task.resource}" if task.resource else ""
    command = shlex.join([task.program, *task.args])
    return f"{name}{schedule_text(task)}, type {task.type}{resource}, {command}"


def clock_fields(fields: ActionFields) -> TaskUpdate:
    """The parts of a schedule that the form has; BadInput if one is impossible."""
    update = TaskUpdate()
    if fields["every"]:
        update["periodicity"] = fields["every"]
    if fields["hour"]:
        update["hour"] = clock_number(fields["hour"], "hour", MAX_HOUR)
    if fields["minute"]:
        update["minute"] = clock_number(fields["minute"], "minute", MAX_MINUTE)
    if fields["cron"]:
        update["cron"] = fields["cron"]
    if fields["timezone"]:
        update["timezone"] = fields["timezone"]
    return update


def clock_number(text: str, noun: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:4]) > most:
        raise BadInput(f"The {noun} is a number from 0 to {most}.")
    return int(text)


async def add_task(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    clock: dict[str, Any] = {**clock_fields(fields)}
    if clock.keys() <= {"timezone"}:
        raise BadInput("Fill in an interval, a time of day or a cron expression.")
    program, *args = command_words(fields["command"])
    schedule = TaskSchedule.read(**clock)
    new = TaskSpec(
        fields["type"] or "default",
        program,
        schedule,
        tuple(args),
        name=fields["name"],
        resource=fields["resource"] or None,
    )
    id_ = await tasks.add_task(conn, new, now=await server_time(conn))
    text = task_text(await task_queries.show_task(conn, id_))
    return ActionResult("", f"task {id_}, {text}", f"Task {id_} is added: {text}.")


async def edit_task(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    id_ = whole_number(fields["task"], "task")
    before = await task_queries.show_task(conn, id_)
    update = task_update(fields)
    after = await admin.update_task(conn, id_, now=await server_time(conn), **update)
    text = task_text(after)
    return ActionResult(task_text(before), text, f"Task {id_} is now {text}.")


def task_update(fields: ActionFields) -> TaskUpdate:
    """What to change; BadInput if that is nothing."""
    update = clock_fields(fields)
    if fields["name"]:
        update["name"] = fields["name"]
    if fields["type"]:
        update["type"] = fields["type"]
    if fields["resource"]:
        update["resource"] = fields["resource"]
    if fields["command"]:
        program, *args = command_words(fields["command"])
        update["program"], update["args"] = program, args
    if not update:
        raise BadInput("Fill in what to change.")
    return update


def option_words(fields: ActionFields) -> list[str]:
    return [
        word for name in OPTION_NAMES if fields.get(name) for word in (f"--{name}", fields[name])
    ]


def edit_words(fields: ActionFields) -> list[str]:
    command = ["--", *program_words(fields["command"])] if fields.get("command") else []
    return ["tasks", "set", fields["task"], *option_words(fields), *command]


async def preview_edit(conn: Connection, fields: ActionFields) -> list[str]:
    task = await task_queries.show_task(conn, whole_number(fields["task"], "task"))
    return [f"Now: {task_text(task)}.", "Fields that you leave empty stay as they are."]


def tasks_path(_fields: ActionFields) -> str:
    return "/tasks"


ACTIONS = (
    ConsoleAction(
        "task-add",
        "Add a task",
        "The task adds jobs to the queue by its schedule. An interval and a cron expression exclude each other.",
        (
            ActionField("name", "Name"),
            ActionField("command", "Program and arguments", help=COMMAND_HELP),
            *SCHEDULE_FIELDS,
            ActionField("type", "Type of its jobs", required=False),
            RESOURCE,
        ),
        lambda fields: [
            "tasks",
            "add",
            *option_words(fields),
            "--",
            *program_words(fields["command"]),
        ],
        "control",
        add_task,
        tasks_path,
    ),
    ConsoleAction(
        "task-edit",
        "Edit",
        "A new schedule sets the next run; a live job continues as it is. "
        "An interval and a cron expression replace each other.",
        (
            ActionField("task", "Task"),
            ActionField("name", "Name", required=False),
            ActionField("command", "Program and arguments", required=False, help=COMMAND_HELP),
            *SCHEDULE_FIELDS,
            ActionField("type", "Type of its jobs", required=False),
            RESOURCE,
        ),
        edit_words,
        "control",
        edit_task,
        tasks_path,
        preview_edit,
    ),
)
