"""`usher resources`: list, set, pause and resume resources."""

from collections.abc import Sequence

from usher import durations
from usher.cli.app import App, show_json, show_more, show_table
from usher.cli.queue_access import parse_duration, queue_transaction, relative_time
from usher.cli.wording import display_time, printable, records_json
from usher.db.clock import server_time
from usher.errors import BadInput
from usher.queue import admin, task_queries
from usher.queue.task_queries import MAX_COUNTED_JOBS, ResourceStatus


async def find_resources(
    app: App, *, contains: str | None, after: str, limit: int
) -> list[ResourceStatus]:
    async with queue_transaction(app) as conn:
        return await task_queries.list_resources(conn, contains=contains, after=after, n=limit)


def show_resources(
    app: App, resources: Sequence[ResourceStatus], *, limit: int | None = None, as_json: bool
) -> None:
    if as_json:
        show_json(records_json(resources))
        return
    now = display_time()
    rows = [
        (
            printable(resource.name),
            f"{resource.running} of {resource.capacity}{', paused' if resource.paused else ''}",
            durations.show(resource.interval),
            relative_time(resource.latest_run, now),
            f"≥ {MAX_COUNTED_JOBS}" if resource.waiting >= MAX_COUNTED_JOBS else resource.waiting,
        )
        for resource in resources
    ]
    show_table(("RESOURCE", "RUNNING", "INTERVAL", "LAST START", "WAITING"), rows)
    if limit is not None:
        show_more(app, resources, limit, resources and printable(resources[-1].name))


async def set_resource(
    app: App, name: str, capacity: int | None, interval: str | None
) -> tuple[ResourceStatus, bool]:
    """Create or change a resource; return it, and whether it is new."""
    if not name:
        raise BadInput("The name of a resource is empty.", hint="usher resources list")
    pause = parse_duration(interval) if interval else None
    async with queue_transaction(app) as conn:
        now = await server_time(conn)
        return await admin.set_resource(conn, name, capacity=capacity, interval=pause, now=now)


async def pause_resource(app: App, name: str) -> ResourceStatus:
    async with queue_transaction(app) as conn:
        return await admin.pause_resource(conn, name)


async def resume_resource(app: App, name: str) -> ResourceStatus:
    async with queue_transaction(app) as conn:
        return await admin.resume_resource(conn, name, now=await server_time(conn))
