"""`usher resources`: list, set, pause and resume resources."""

from collections.abc import Sequence
from typing import Any

from usher import durations
from usher.cli.app import App, show_list
from usher.cli.area_access import call_in, call_now
from usher.cli.output import display_time
from usher.cli.queue_access import parse_duration, queue_transaction
from usher.errors import BadInput
from usher.queue import admin, task_queries
from usher.queue.task_queries import MAX_COUNTED_JOBS, ResourceStatus
from usher.wording import capped_count, printable, relative_time


def list_resources(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    resources = call_in(queue_transaction(app), task_queries.list_resources, n=limit, **conditions)
    show_resources(app, resources, limit=limit, as_json=as_json)


def show_resources(
    app: App, resources: Sequence[ResourceStatus], *, limit: int = 0, as_json: bool
) -> None:
    now = display_time()
    rows = [
        (
            printable(resource.name),
            f"{resource.running} of {resource.capacity}{', paused' if resource.paused else ''}",
            durations.show(resource.interval),
            relative_time(resource.latest_run, now),
            capped_count(resource.waiting, MAX_COUNTED_JOBS),
        )
        for resource in resources
    ]
    headings = ("RESOURCE", "RUNNING", "INTERVAL", "LAST START", "WAITING")
    after = "name" if limit else ""
    show_list(app, resources, headings, rows, as_json=as_json, limit=limit, after=after)


def set_resource(
    app: App, name: str, *, capacity: int | None, interval: str | None, as_json: bool
) -> None:
    if not name:
        raise BadInput("The name of a resource is empty.", hint="usher resources list")
    pause = parse_duration(interval) if interval else None
    changes = {"capacity": capacity, "interval": pause}
    resource, new = call_now(queue_transaction(app), admin.set_resource, name, **changes)
    show_resources(app, [resource], as_json=as_json)
    app.say("created" if new else "set")


def pause_resource(app: App, name: str, *, as_json: bool) -> None:
    paused = call_in(queue_transaction(app), admin.pause_resource, name)
    show_resources(app, [paused], as_json=as_json)


def resume_resource(app: App, name: str, *, as_json: bool) -> None:
    resumed = call_now(queue_transaction(app), admin.resume_resource, name)
    show_resources(app, [resumed], as_json=as_json)
