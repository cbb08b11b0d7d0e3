"""Endpoints for tasks, resources and types of job: list, add, change, run, pause."""

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
    read_duration,
    redact,
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
from usher.http.server.endpoint import EndpointList
from usher.queue import admin, task_queries
from usher.queue import tasks as queue
from usher.queue.periods import TaskSchedule

ENDPOINTS = EndpointList()


@ENDPOINTS.get("/v1/tasks", "Tasks, by number", READ_QUEUE)
async def list_tasks(call: MgmtCall[TasksQuery]) -> TaskList:
    query = call.body
    check_contains(call, query.contains)
    async with queue_transaction(call) as conn:
        tasks_ = await task_queries.list_tasks(
            conn,
            state=query.state,
            type=query.type,
            resource=query.resource,
            contains=query.contains,
            after_id=query.after,
            n=query.limit,
        )
    next_id = tasks_[-1].id if len(tasks_) == query.limit else None
    return TaskList([redacted_view(call, task) for task in tasks_], next_id)


@ENDPOINTS.post("/v1/tasks", "Add a task", ADMIN)
async def add_task(call: MgmtCall[NewTaskRequest]) -> TaskView:
    fields = task_fields(call.body)
    state = fields.pop("state", "enabled")
    schedule = TaskSchedule.read(
        **{name: fields.pop(name) for name in admin.SCHEDULE_FIELDS if name in fields}
    )
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        id_ = await queue.add_task(conn, queue.TaskSpec(schedule=schedule, **fields), now=now)
        if state != "enabled":
            await admin.set_task_state(conn, id_, state, now=now)
        return task_view(await task_queries.show_task(conn, id_))


@ENDPOINTS.get("/v1/tasks/{id}", "One task", READ_QUEUE)
async def show_task(call: MgmtCall[None]) -> TaskView:
    async with queue_transaction(call) as conn:
        return redacted_view(call, await task_in_path(conn, call))


@ENDPOINTS.put("/v1/tasks/{id}", "Change a task, enable or disable it", ADMIN)
async def change_task(call: MgmtCall[TaskChangeRequest]) -> TaskView:
    fields = task_fields(call.body)
    state = fields.pop("state", None)
    async with queue_transaction(call) as conn:
        task, now = await task_in_path(conn, call), await server_time(conn)
        if fields:
            task = await admin.update_task(conn, task.id, now=now, **fields)
        if state is not None:
            task = await admin.set_task_state(conn, task.id, state, now=now)
    return task_view(task)


@ENDPOINTS.delete("/v1/tasks/{id}", "Delete a task", ADMIN)
async def delete_task(call: MgmtCall[None]) -> TaskView:
    """Delete the task and return it as it was."""
    async with queue_transaction(call) as conn:
        task = await task_in_path(conn, call)
        return task_view(await admin.delete_task(conn, task.id))


@ENDPOINTS.post("/v1/tasks/{id}/run", "Run a task now", ADMIN)
async def run_task(call: MgmtCall[None]) -> QueuedJob:
    async with queue_transaction(call) as conn:
        task = await task_in_path(conn, call)
        job = await admin.run_task(conn, task.id, now=await server_time(conn))
    if not job.new:
        raise wrong_state(f"Task {task.id} has a live job already: {job.id}.")
    return QueuedJob(job.id, new=True)


async def task_in_path(conn: Connection, call: MgmtCall[Any]) -> task_queries.StoredTask:
    """The task that the path names by its number or its name."""
    name = call.path_params["id"]
    return await task_queries.show_task(conn, int(name) if NUMBER.fullmatch(name) else name)


def task_fields(request: TaskFields) -> dict[str, Any]:
    """The fields that the request sets, with durations parsed."""
    fields = {
        field.name: value
        for field in msgspec.structs.fields(request)
        if (value := getattr(request, field.name)) is not UNSET
    }
    for name in ("periodicity", "jitter"):
        if fields.get(name) is not None:
            fields[name] = read_duration(fields[name], name, 0 * SECOND)
    if "args" in fields:
        fields["args"] = tuple(fields["args"])
    return fields


def redacted_view(call: MgmtCall[Any], task: task_queries.StoredTask) -> TaskView:
    """The task as this caller may see it."""
    return task_view(redact(call, task))


def task_view(task: task_queries.StoredTask) -> TaskView:
    fields: dict[str, Any] = asdict(task)
    for name in ("periodicity", "jitter"):
        if fields[name] is not None:
            fields[name] = durations.show(fields[name])
    return TaskView(**fields)


@ENDPOINTS.get("/v1/resources", "Resources, by name", READ_QUEUE)
async def list_resources(call: MgmtCall[ResourcesQuery]) -> ResourceList:
    query = call.body
    async with queue_transaction(call) as conn:
        resources = await task_queries.list_resources(
            conn, contains=query.contains, after=query.after, n=query.limit
        )
    next_name = resources[-1].name if len(resources) == query.limit else None
    return ResourceList([resource_view(status) for status in resources], next_name)


@ENDPOINTS.put("/v1/resources/{name}", "Create, change, pause or resume a resource", ADMIN)
async def set_resource(call: MgmtCall[ResourceChange]) -> ResourceView:
    name, request = call.path_params["name"], call.body
    if len(name) > MAX_NAME_LENGTH:
        raise BadInput(f"A resource's name has at most {MAX_NAME_LENGTH} characters.")
    interval = None
    if request.interval is not None:
        interval = read_duration(request.interval, "interval", 0 * SECOND)
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        changed, _ = await admin.set_resource(
            conn, name, capacity=request.capacity, interval=interval, now=now
        )
        if request.paused:
            changed = await admin.pause_resource(conn, name)
        elif request.paused is not None:
            changed = await admin.resume_resource(conn, name, now=now)
    return resource_view(changed)


@ENDPOINTS.get("/v1/types", "Paused types of job", READ_QUEUE)
async def list_types(call: MgmtCall[None]) -> JobTypeList:
    async with queue_transaction(call) as conn:
        pauses = await task_queries.paused_types(conn)
    return JobTypeList([paused_type(pause) for pause in pauses])


@ENDPOINTS.put("/v1/types/{type}", "Pause or resume a type of job", ADMIN)
async def set_type(call: MgmtCall[TypeChange]) -> JobType:
    type_, request = call.path_params["type"], call.body
    async with queue_transaction(call) as conn:
        if request.paused:
            now = await server_time(conn)
            return paused_type(await admin.pause_type(conn, type_, reason=request.reason, now=now))
        await admin.resume_type(conn, type_)
    return JobType(type_, paused=False, reason="", since=None)


def paused_type(pause: task_queries.PausedType) -> JobType:
    return JobType(pause.type, paused=True, reason=pause.reason, since=pause.since)


def resource_view(status: task_queries.ResourceStatus) -> ResourceView:
    interval = durations.show(status.interval)
    return msgspec.convert(asdict(status) | {"interval": interval}, ResourceView)
