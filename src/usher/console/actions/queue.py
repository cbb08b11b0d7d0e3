"""Actions on the queue: retry and cancel a job; types and resources; enable, disable and run tasks."""

from functools import partial
from typing import Any

from usher import durations
from usher.api.context import MgmtCall
from usher.console.actions.action import (
    REASON,
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
    reason_words,
    whole_number,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput, Conflict, NotFound
from usher.queue import admin, jobs, queries, task_queries
from usher.queue.admin import TaskState
from usher.queue.job_states import JobState
from usher.queue.task_queries import ResourceStatus

JOB = ActionField("job", "Job")
TYPE = ActionField("type", "Type of job")
TASK = ActionField("task", "Task")
RESOURCE = ActionField("resource", "Resource")


async def retry_job(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    id_ = whole_number(fields["job"], "job")
    before = (await queries.show_job(conn, id_)).job.state
    [result] = await admin.retry_jobs(conn, [id_], now=await server_time(conn))
    if result.what == "live":
        raise Conflict(f"Job {result.job} waits or runs already.", hint=f"usher jobs show {id_}")
    after = "pending" if result.what == "pending" else f"new job {result.job}"
    return ActionResult(before, after, f"Job {result.job} runs as soon as a manager claims it.")


async def cancel_job(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    id_ = whole_number(fields["job"], "job")
    before = (await queries.show_job(conn, id_)).job.state
    states = await jobs.cancel(
        conn, [id_], reason=fields.get("reason", ""), now=await server_time(conn)
    )
    if id_ not in states:
        raise Conflict(f"Job {id_} has ended.", hint=f"usher jobs show {id_}")
    stopping = states[id_] is JobState.RUNNING
    after = "stopping" if stopping else "cancelled"
    return ActionResult(before, after, f"Job {id_}: {after}.")


async def pause_type(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    before = await type_state(conn, fields["type"])
    reason = fields.get("reason", "")
    await admin.pause_type(conn, fields["type"], reason=reason, now=await server_time(conn))
    message = f"Managers start no jobs of type {fields['type']}; running jobs continue."
    return ActionResult(before, "paused", message)


async def resume_type(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    if not await admin.resume_type(conn, fields["type"]):
        raise Conflict(f"The type {fields['type']} is not paused.", hint="usher jobs paused")
    return ActionResult("paused", "active", f"Managers start jobs of type {fields['type']} again.")


async def type_state(conn: Connection, type_: str) -> str:
    paused = {entry.type for entry in await task_queries.paused_types(conn)}
    return "paused" if type_ in paused else "active"


async def set_task_state(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields, *, state: TaskState
) -> ActionResult:
    id_ = whole_number(fields["task"], "task")
    before = (await task_queries.show_task(conn, id_)).state
    await admin.set_task_state(conn, id_, state, now=await server_time(conn))
    return ActionResult(before, state, f"Task {id_} is {state}.")


async def run_task(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    id_ = whole_number(fields["task"], "task")
    job = await admin.run_task(conn, id_, now=await server_time(conn))
    if not job.new:
        raise Conflict(f"Job {job.id} of this task waits or runs already.")
    return ActionResult("", f"job {job.id}", f"Job {job.id} runs as soon as a manager claims it.")


async def pause_resource(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    before = await resource_state(conn, fields["resource"])
    await admin.pause_resource(conn, fields["resource"])
    return ActionResult(before, "paused", "Its jobs wait; running jobs continue.")


async def resume_resource(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    before = await resource_state(conn, fields["resource"])
    await admin.resume_resource(conn, fields["resource"], now=await server_time(conn))
    return ActionResult(before, "active", "Its jobs start again.")


async def resource_state(conn: Connection, name: str) -> str:
    for resource in await task_queries.list_resources(conn, name=name):
        return "paused" if resource.paused else "active"
    raise NotFound(f"There is no resource {name!r}.", hint="usher resources list")


async def set_resource(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    name = fields["resource"]
    present = await task_queries.list_resources(conn, name=name)
    capacity = whole_number(fields["capacity"], "capacity") if fields["capacity"] else None
    interval = durations.parse(fields["interval"]) if fields["interval"] else None
    if fields["interval"] and interval is None:
        raise BadInput("The interval is no duration.", hint="Such as 10s, 15m, or 0s for none.")
    now = await server_time(conn)
    changed, _ = await admin.set_resource(conn, name, capacity=capacity, interval=interval, now=now)
    before, after = (limits_text(present[0]) if present else "", limits_text(changed))
    return ActionResult(before, after, f"{name}: {after}.")


def limits_text(resource: ResourceStatus) -> str:
    interval = durations.show(resource.interval)
    return f"{resource.capacity:,} at once, one start every {interval}"


def set_words(fields: ActionFields) -> list[str]:
    given = [
        word
        for name in ("capacity", "interval")
        if fields[name]
        for word in (f"--{name}", fields[name])
    ]
    return ["resources", "set", fields["resource"], *given]


async def preview_resource(conn: Connection, fields: ActionFields) -> list[str]:
    for resource in await task_queries.list_resources(conn, name=fields["resource"]):
        return [f"Now: {limits_text(resource)}. Fields that you leave empty stay as they are."]
    return ["There is no such resource; it is created. Without values: 1 at once, every 10s."]


def job_path(fields: ActionFields) -> str:
    return f"/jobs/{fields['job']}"


def tasks_path(_fields: ActionFields) -> str:
    return "/tasks"


ACTIONS = (
    ConsoleAction(
        "job-retry",
        "Retry",
        "A job with attempts left runs again now; an ended job is added as a new job.",
        (JOB,),
        lambda fields: ["jobs", "retry", fields["job"]],
        "control",
        retry_job,
        job_path,
    ),
    ConsoleAction(
        "job-cancel",
        "Cancel",
        "A waiting job ends; a running job is stopped.",
        (JOB, REASON),
        lambda fields: ["jobs", "cancel", fields["job"], *reason_words(fields)],
        "control",
        cancel_job,
        job_path,
    ),
    ConsoleAction(
        "type-pause",
        "Pause the type",
        "Managers start no jobs of this type; running jobs continue.",
        (TYPE, REASON),
        lambda fields: ["jobs", "pause", fields["type"], *reason_words(fields)],
        "control",
        pause_type,
        lambda _fields: "/jobs",
    ),
    ConsoleAction(
        "type-resume",
        "Resume the type",
        "Managers start jobs of this type again.",
        (TYPE,),
        lambda fields: ["jobs", "resume", fields["type"]],
        "control",
        resume_type,
        lambda _fields: "/jobs",
    ),
    ConsoleAction(
        "task-disable",
        "Disable",
        "The task creates no jobs until it is enabled; a live job continues.",
        (TASK,),
        lambda fields: ["tasks", "disable", fields["task"]],
        "control",
        partial(set_task_state, state="disabled"),
        tasks_path,
    ),
    ConsoleAction(
        "task-enable",
        "Enable",
        "The task runs again; missed runs are not made up.",
        (TASK,),
        lambda fields: ["tasks", "enable", fields["task"]],
        "control",
        partial(set_task_state, state="enabled"),
        tasks_path,
    ),
    ConsoleAction(
        "task-run",
        "Run now",
        "A job of the task is added now, whatever its schedule.",
        (TASK,),
        lambda fields: ["tasks", "run", fields["task"]],
        "control",
        run_task,
        tasks_path,
    ),
    ConsoleAction(
        "resource-pause",
        "Pause",
        "No job of this resource starts; running jobs continue.",
        (RESOURCE,),
        lambda fields: ["resources", "pause", fields["resource"]],
        "control",
        pause_resource,
        tasks_path,
    ),
    ConsoleAction(
        "resource-set",
        "Set",
        "Limits how many jobs of the resource run at once, and the time between two starts. "
        "Jobs that wait start if the limits allow them now.",
        (
            RESOURCE,
            ActionField("capacity", "Jobs at once", required=False),
            ActionField(
                "interval", "Time between starts", required=False, help="Such as 10s or 0s"
            ),
        ),
        set_words,
        "control",
        set_resource,
        tasks_path,
        preview_resource,
    ),
    ConsoleAction(
        "resource-resume",
        "Resume",
        "Jobs of this resource start again.",
        (RESOURCE,),
        lambda fields: ["resources", "resume", fields["resource"]],
        "control",
        resume_resource,
        tasks_path,
    ),
)
