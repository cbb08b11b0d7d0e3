"""Actions that add a job and change the schedule of a task."""

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
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.queue import admin, jobs, task_queries
from usher.queue.admin import TaskUpdate
from usher.queue.jobs import JobRequest
from usher.queue.task_queries import StoredTask

SCHEDULE_NAMES: Final = ("every", "hour", "minute", "cron")
MAX_HOUR, MAX_MINUTE = 23, 59


def command_words(text: str) -> list[str]:
    """The program and its arguments, split as a shell would; no shell runs."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"The command cannot be split: {error}.") from error
    if not words or not words[0]:
        raise BadInput("The command names no program.")
    return words


async def add_job(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    program, *args = command_words(fields["command"])
    request = JobRequest(
        fields["type"], program, tuple(args), resource=fields.get("resource") or None
    )
    [added] = await jobs.enqueue(conn, [request], now=await server_time(conn))
    return ActionResult(
        "", f"job {added.id}", f"Job {added.id} runs as soon as a manager claims it."
    )


def add_words(fields: ActionFields) -> list[str]:
    """The command line; a command that cannot be split yet stays one word."""
    try:
        words = command_words(fields["command"])
    except BadInput:
        words = [fields["command"]]
    # A single word would be split again.
    words = words if len(words) > 1 else [shlex.quote(word) for word in words]
    resource = ["--resource", fields["resource"]] if fields.get("resource") else []
    return ["jobs", "add", "--type", fields["type"], *resource, "--", *words]


def schedule_text(task: StoredTask) -> str:
    if task.cron:
        return f"cron {task.cron}"
    often = f"every {durations.show(task.periodicity)}" if task.periodicity else "never"
    if task.hour is None and task.minute is None:
        return often
    hour = "*" if task.hour is None else f"{task.hour:02}"
    return f"{often} at {hour}:{task.minute or 0:02}"


async def set_schedule(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    id_ = whole_number(fields["task"], "task")
    before = await task_queries.show_task(conn, id_)
    update = schedule_update(fields)
    after = await admin.update_task(conn, id_, now=await server_time(conn), **update)
    text = schedule_text(after)
    return ActionResult(schedule_text(before), text, f"Task {id_} runs {text}.")


def schedule_update(fields: ActionFields) -> TaskUpdate:
    """What to change; BadInput if nothing or an impossible time."""
    update = TaskUpdate()
    if fields["every"]:
        update["periodicity"] = fields["every"]
    if fields["hour"]:
        update["hour"] = clock_number(fields["hour"], "hour", MAX_HOUR)
    if fields["minute"]:
        update["minute"] = clock_number(fields["minute"], "minute", MAX_MINUTE)
    if fields["cron"]:
        update["cron"] = fields["cron"]
    if not update:
        raise BadInput("Fill in an interval, a time of day or a cron expression.")
    return update


def clock_number(text: str, noun: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:4]) > most:
        raise BadInput(f"The {noun} is a number from 0 to {most}.")
    return int(text)


def schedule_words(fields: ActionFields) -> list[str]:
    given = [
        word for name in SCHEDULE_NAMES if fields.get(name) for word in (f"--{name}", fields[name])
    ]
    return ["tasks", "set", fields["task"], *given]


async def preview_schedule(conn: Connection, fields: ActionFields) -> list[str]:
    task = await task_queries.show_task(conn, whole_number(fields["task"], "task"))
    return [f"It runs {schedule_text(task)} now. Fields that you leave empty stay as they are."]


ACTIONS = (
    ConsoleAction(
        "job-add",
        "Add a job",
        "A job is added to the queue; a manager that runs jobs of this type starts it.",
        (
            ActionField("type", "Type of job"),
            ActionField(
                "command", "Program and arguments", help="Split as a shell would, without a shell"
            ),
            ActionField("resource", "Resource", required=False),
        ),
        add_words,
        "control",
        add_job,
        lambda _fields: "/jobs",
    ),
    ConsoleAction(
        "task-schedule",
        "Change the schedule",
        "The task gets its next run by the new schedule; a live job continues. "
        "An interval and a cron expression replace each other.",
        (
            ActionField("task", "Task"),
            ActionField("every", "Interval", required=False, help="Such as 15m, 6h or 1d"),
            ActionField("hour", "Hour", required=False, help="0 to 23"),
            ActionField("minute", "Minute", required=False, help="0 to 59"),
            ActionField("cron", "Cron expression", required=False, help="Such as 0 8 * * MON-FRI"),
        ),
        schedule_words,
        "control",
        set_schedule,
        lambda _fields: "/tasks",
        preview_schedule,
    ),
)
