"""Tasks and resources over HTTP: listed, added, changed, run."""

from dataclasses import asdict
from typing import Any

import msgspec
from msgspec import UNSET

from usher import durations
from usher.api.access import ADMIN, READ_QUEUE
from usher.api.context import MgmtCall
from usher.api.queue_calls import (
    NUMBER,
    SECOND,
    check_contains,
    queue_transaction,
    shown_to,
    span,
    wrong_state,
)
from usher.api.queue_messages import (
    MAX_NAME_LENGTH,
    JobType,
    JobTypeList,
    NewTaskRequest,
    QueuedJob,
    ResourceChange,
    ResourceList,
    ResourcesQuery,
    ResourceView,
    TaskChangeRequest,
    TaskFields,
    TaskList,
    TasksQuery,
    TaskView,
    TypeChange,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.http.server.endpoint import Endpoint
from usher.queue import admin, task_queries
from usher.queue import tasks as queue
from usher.queue.periods import TaskSchedule


async def list_tasks(call: MgmtCall[TasksQuery]) -> TaskList:
    asked = call.body
    check_contains(call, asked.contains)
    async with queue_transaction(call) as conn:
        found = await task_queries.list_tasks(
            conn,
            state=asked.state,
            type=asked.type,
            resource=asked.resource,
            contains=asked.contains,
            after_id=asked.after,
            n=asked.limit,
        )
    more = found[-1].id if len(found) == asked.limit else None
    return TaskList([shown_task(call, task) for task in found], more)


async def add_task(call: MgmtCall[NewTaskRequest]) -> TaskView:
    given = read(call.body)
    state = given.pop("state", "enabled")
    clock = TaskSchedule.read(
        **{name: given.pop(name) for name in admin.SCHEDULE_FIELDS if name in given}
    )
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        id_ = await queue.add_task(conn, queue.TaskSpec(schedule=clock, **given), now=now)
        if state != "enabled":
            await admin.set_task_state(conn, id_, state, now=now)
        return shown(await task_queries.show_task(conn, id_))


async def show_task(call: MgmtCall[None]) -> TaskView:
    async with queue_transaction(call) as conn:
        return shown_task(call, await named(conn, call))


async def change_task(call: MgmtCall[TaskChangeRequest]) -> TaskView:
    given = read(call.body)
    state = given.pop("state", None)
    async with queue_transaction(call) as conn:
        task, now = await named(conn, call), await server_time(conn)
        if given:
            task = await admin.update_task(conn, task.id, now=now, **given)
        if state is not None:
            task = await admin.set_task_state(conn, task.id, state, now=now)
    return shown(task)


async def delete_task(call: MgmtCall[None]) -> TaskView:
    """The task as it was."""
    async with queue_transaction(call) as conn:
        task = await named(conn, call)
        return shown(await admin.delete_task(conn, task.id))


async def run_task(call: MgmtCall[None]) -> QueuedJob:
    async with queue_transaction(call) as conn:
        task = await named(conn, call)
        made = await admin.run_task(conn, task.id, now=await server_time(conn))
    if not made.new:
        raise wrong_state(f"Task {task.id} has a live job already: {made.id}.")
    return QueuedJob(made.id, new=True)


async def named(conn: Connection, call: MgmtCall[Any]) -> task_queries.StoredTask:
    """The task that the path names, by its number or its name."""
    word = call.path_params["id"]
    return await task_queries.show_task(conn, int(word) if NUMBER.fullmatch(word) else word)


def read(asked: TaskFields) -> dict[str, Any]:
    """What is given, with spans read."""
    given = {
        field.name: value
        for field in msgspec.structs.fields(asked)
        if (value := getattr(asked, field.name)) is not UNSET
    }
    for name in ("periodicity", "jitter"):
        if given.get(name) is not None:
            given[name] = span(given[name], name, 0 * SECOND)
    if "args" in given:
        given["args"] = tuple(given["args"])
    return given


def shown_task(call: MgmtCall[Any], task: task_queries.StoredTask) -> TaskView:
    """A task as this caller may see it."""
    return shown(shown_to(call, task))


def shown(task: task_queries.StoredTask) -> TaskView:
    given: dict[str, Any] = asdict(task)
    for name in ("periodicity", "jitter"):
        if given[name] is not None:
            given[name] = durations.show(given[name])
    return TaskView(**given)


async def list_resources(call: MgmtCall[ResourcesQuery]) -> ResourceList:
    asked = call.body
    async with queue_transaction(call) as conn:
        found = await task_queries.list_resources(
            conn, contains=asked.contains, after=asked.after, n=asked.limit
        )
    more = found[-1].name if len(found) == asked.limit else None
    return ResourceList([resource(one) for one in found], more)


async def set_resource(call: MgmtCall[ResourceChange]) -> ResourceView:
    name, asked = call.path_params["name"], call.body
    if len(name) > MAX_NAME_LENGTH:
        raise BadInput(f"A resource's name has at most {MAX_NAME_LENGTH} characters.")
    interval = None
    if asked.interval is not None:
        interval = span(asked.interval, "interval", 0 * SECOND)
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        changed, _ = await admin.set_resource(
            conn, name, capacity=asked.capacity, interval=interval, now=now
        )
        if asked.paused:
            changed = await admin.pause_resource(conn, name)
        elif asked.paused is not None:
            changed = await admin.resume_resource(conn, name, now=now)
    return resource(changed)


async def list_types(call: MgmtCall[None]) -> JobTypeList:
    async with queue_transaction(call) as conn:
        pauses = await task_queries.paused_types(conn)
    return JobTypeList([paused(pause) for pause in pauses])


async def set_type(call: MgmtCall[TypeChange]) -> JobType:
    type_, asked = call.path_params["type"], call.body
    async with queue_transaction(call) as conn:
        if asked.paused:
            now = await server_time(conn)
            return paused(await admin.pause_type(conn, type_, reason=asked.reason, now=now))
        await admin.resume_type(conn, type_)
    return JobType(type_, paused=False, reason="", since=None)


def paused(pause: task_queries.PausedType) -> JobType:
    return JobType(pause.type, paused=True, reason=pause.reason, since=pause.since)


def resource(found: task_queries.ResourceStatus) -> ResourceView:
    return ResourceView(
        found.name,
        found.capacity,
        durations.show(found.interval),
        found.running,
        found.waiting,
        found.latest_run,
        found.paused,
    )


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/tasks", list_tasks, TasksQuery, TaskList, "Tasks, by number", access=READ_QUEUE
    ),
    Endpoint("POST", "/v1/tasks", add_task, NewTaskRequest, TaskView, "Add a task", access=ADMIN),
    Endpoint("GET", "/v1/tasks/{id}", show_task, None, TaskView, "One task", access=READ_QUEUE),
    Endpoint(
        "PUT",
        "/v1/tasks/{id}",
        change_task,
        TaskChangeRequest,
        TaskView,
        "Change a task, enable or disable it",
        access=ADMIN,
    ),
    Endpoint(
        "DELETE", "/v1/tasks/{id}", delete_task, None, TaskView, "Forget a task", access=ADMIN
    ),
    Endpoint(
        "POST",
        "/v1/tasks/{id}/run",
        run_task,
        None,
        QueuedJob,
        "A job of a task now",
        access=ADMIN,
    ),
    Endpoint(
        "GET",
        "/v1/resources",
        list_resources,
        ResourcesQuery,
        ResourceList,
        "Resources, by name",
        access=READ_QUEUE,
    ),
    Endpoint(
        "PUT",
        "/v1/resources/{name}",
        set_resource,
        ResourceChange,
        ResourceView,
        "Make a resource, or change, pause or resume one",
        access=ADMIN,
    ),
    Endpoint(
        "GET",
        "/v1/types",
        list_types,
        None,
        JobTypeList,
        "Types of job that are paused",
        access=READ_QUEUE,
    ),
    Endpoint(
        "PUT",
        "/v1/types/{type}",
        set_type,
        TypeChange,
        JobType,
        "Pause or resume a type of job",
        access=ADMIN,
    ),
)
