"""The work behind `usher tasks` and `usher resources`: read, changed, and told in lines."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from usher import durations
from usher.cli.actions.jobs_details import LONG, show_attempts
from usher.cli.app import App, show_json, show_table, tell
from usher.cli.output import echo
from usher.cli.queue_access import (
    at_the_queue,
    command_line,
    command_of,
    distance,
    read_span,
    read_type,
    task_of,
)
from usher.cli.wording import display_time, plain, printable, when
from usher.db.clock import server_time
from usher.errors import BadInput
from usher.queue import admin, queries, task_queries, tasks
from usher.queue.jobs import EnqueuedJob
from usher.queue.periods import TaskSchedule
from usher.queue.queries import ListedJob
from usher.queue.task_queries import MAX_COUNTED_JOBS, ResourceStatus, StoredTask
from usher.queue.tasks import TaskSpec

RUNS = 5
TYPE = "default"
CLOCK = ("periodicity", "hour", "minute", "second", "cron", "timezone")
EMPTIED = ("name", "resource", "data")  # by an empty word


async def find_tasks(app: App, *, after: int, limit: int, **wanted: Any) -> list[StoredTask]:  # noqa: ANN401
    async with at_the_queue(app) as conn:
        return await task_queries.list_tasks(conn, after_id=after, n=limit, **wanted)


def task_json(task: StoredTask) -> dict[str, Any]:
    return plain(asdict(task))


def show_tasks(app: App, found: list[StoredTask], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([task_json(task) for task in found])
        return
    rows = [
        (
            task.id,
            printable(task.name or "-"),
            task.type,
            clock_words(task),
            next_words(task) if task.state == "enabled" else "disabled",
            distance(task.latest_run, display_time()),
            "-" if task.job_id is None else f"{task.job_id} {task.job_state}",
            command_line(task.program, task.args),
        )
        for task in found
    ]
    show_table(("ID", "NAME", "TYPE", "RUNS", "NEXT", "LAST", "JOB", "COMMAND"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {found[-1].id}")


def clock_words(task: StoredTask) -> str:
    """When it runs: `every 15m`, `every 1d at 02:30 Europe/Amsterdam`, `cron 0 8 * * *`."""
    zone = f" {task.timezone}" if task.timezone != "UTC" else ""
    if task.cron is not None:
        return f"cron {task.cron}{zone}"
    often = f"every {durations.show(task.periodicity)}" if task.periodicity else "never"
    if task.schedule.cycle is None:
        return often
    hour = "*" if task.hour is None else f"{task.hour:02}"
    minute = "*" if task.hour is None and task.minute is None else f"{task.minute or 0:02}"
    second = f":{task.second:02}" if task.second is not None else ""
    return f"{often} at {hour}:{minute}{second}{zone}"


def next_words(task: StoredTask) -> str:
    now = display_time()
    return "now" if task.next_run <= now else distance(task.next_run, now)


def title(task: StoredTask) -> str:
    return f"{task.id} {printable(task.name)}" if task.name else str(task.id)


async def read_task(app: App, text: str) -> tuple[StoredTask, list[ListedJob]]:
    async with at_the_queue(app) as conn:
        task = await task_of(conn, text)
        return task, await queries.list_jobs(conn, log=True, task=task.id, n=RUNS)


def show_task(task: StoredTask, runs: Sequence[ListedJob], *, as_json: bool) -> None:
    if as_json:
        show_json({**task_json(task), "runs": [plain(asdict(one)) for one in runs]})
        return
    now = display_time()
    tell("task", f"{title(task)}, {task.state}, type {task.type}")
    tell("command", command_line(task.program, task.args, LONG))
    tell("runs", clock_words(task) + (", as the program finds" if task.autoperiodicity else ""))
    tell(
        "next", when(task.next_run, now) if task.state == "enabled" else "not while it is disabled"
    )
    tell("last", when(task.latest_run, now) if task.latest_run else "never")
    if task.jitter:
        tell("jitter", f"up to {durations.show(task.jitter)}")
    for name in ("resource", "host_rule", "priority", "data"):
        if value := getattr(task, name):
            tell(name.replace("_", " "), printable(str(value), LONG))
    if task.job_id is not None:
        tell("job", f"{task.job_id}, {task.job_state}: usher jobs show {task.job_id}")
    if runs:
        show_attempts(runs)


async def add_task(
    app: App,
    words: Sequence[str],
    *,
    type: str | None,  # noqa: A002 - the option's name
    jitter: str | None,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> StoredTask:
    program, args = command_of(words)
    given = {name: value for name, value in wanted.items() if value is not None}
    clock = read_clock({name: given.pop(name) for name in CLOCK if name in given})
    pause = read_span(jitter) if jitter else timedelta()
    async with at_the_queue(app) as conn:
        new = TaskSpec(read_type(type or TYPE), program, clock, args, jitter=pause, **given)
        id_ = await tasks.add_task(conn, new, now=await server_time(conn))
        return await task_queries.show_task(conn, id_)


def read_clock(given: dict[str, Any]) -> TaskSchedule:
    if given.keys() <= {"timezone"}:
        raise BadInput(
            "A task must know when it runs.",
            hint="As in --every 15m, --hour 2 --minute 30, or --cron '30 2 * * *'",
        )
    return TaskSchedule.read(**given)


async def change_task(
    app: App,
    text: str,
    words: Sequence[str],
    *,
    any_time: bool,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> StoredTask:
    given = {name: value for name, value in wanted.items() if value is not None}
    if any_time:
        given |= dict.fromkeys(("hour", "minute", "second"))
    given |= {name: given[name] or None for name in EMPTIED if name in given}
    if "type" in given:
        read_type(given["type"])
    if "jitter" in given:
        given["jitter"] = read_span(given["jitter"])
    if words:
        given["program"], given["args"] = command_of(words)
    async with at_the_queue(app) as conn:
        task = await task_of(conn, text)
        return await admin.update_task(conn, task.id, now=await server_time(conn), **given)


async def set_states(app: App, texts: Sequence[str], state: admin.TaskState) -> list[StoredTask]:
    async with at_the_queue(app) as conn:
        now = await server_time(conn)
        found = {task.id: task for task in [await task_of(conn, text) for text in texts]}
        return [await admin.set_task_state(conn, id_, state, now=now) for id_ in sorted(found)]


async def run_tasks(app: App, texts: Sequence[str]) -> list[EnqueuedJob]:
    async with at_the_queue(app) as conn:
        now = await server_time(conn)
        found = [await task_of(conn, text) for text in texts]
        return [await admin.run_task(conn, task.id, now=now) for task in found]


def show_entered(app: App, entered: Sequence[EnqueuedJob], *, as_json: bool) -> None:
    if as_json:
        show_json([asdict(one) for one in entered])
        return
    for one in entered:
        echo(one.id)
        if not one.new:
            app.say(f"job {one.id} of this task waits or runs already: usher jobs show {one.id}")


async def remove_tasks(app: App, texts: Sequence[str]) -> list[StoredTask]:
    async with at_the_queue(app) as conn:
        found = {task.id: task for task in [await task_of(conn, text) for text in texts]}
        return [await admin.delete_task(conn, id_) for id_ in sorted(found)]


async def find_resources(
    app: App, *, contains: str | None, after: str, limit: int
) -> list[ResourceStatus]:
    async with at_the_queue(app) as conn:
        return await task_queries.list_resources(conn, contains=contains, after=after, n=limit)


def show_resources(app: App, found: Sequence[ResourceStatus], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([plain(asdict(one)) for one in found])
        return
    now = display_time()
    rows = [
        (
            printable(one.name),
            f"{one.running} of {one.capacity}{', paused' if one.paused else ''}",
            durations.show(one.interval),
            distance(one.latest_run, now),
            f"≥ {MAX_COUNTED_JOBS}" if one.waiting >= MAX_COUNTED_JOBS else one.waiting,
        )
        for one in found
    ]
    show_table(("RESOURCE", "RUNNING", "INTERVAL", "LAST START", "WAITING"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {printable(found[-1].name)}")


async def set_resource(
    app: App, name: str, capacity: int | None, interval: str | None
) -> tuple[ResourceStatus, bool]:
    if not name:
        raise BadInput("A resource has a name.", hint="usher resources list")
    pause = read_span(interval) if interval else None
    async with at_the_queue(app) as conn:
        now = await server_time(conn)
        return await admin.set_resource(conn, name, capacity=capacity, interval=pause, now=now)
