"""`usher tasks`: list, add, change, run and remove tasks."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from usher import durations
from usher.cli.actions.jobs_details import MAX_TEXT_CHARACTERS, show_attempts
from usher.cli.app import App, run, show_field, show_json, show_list
from usher.cli.area_access import call_in
from usher.cli.output import display_time, echo
from usher.cli.queue_access import (
    command_line,
    find_task,
    parse_command,
    parse_duration,
    parse_type,
    queue_transaction,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.queue import admin, queries, task_queries, tasks
from usher.queue.jobs import EnqueuedJob
from usher.queue.periods import TaskSchedule
from usher.queue.queries import ListedJob
from usher.queue.task_queries import StoredTask
from usher.queue.tasks import TaskSpec
from usher.wording import printable, record_json, records_json, relative_time, time_text

MAX_RUNS = 5
DEFAULT_TYPE = "default"
CLOCK_FIELDS = ("periodicity", "hour", "minute", "second", "cron", "timezone")
CLEARABLE_FIELDS = ("name", "resource", "data")  # an empty text removes the value


def list_tasks(app: App, *, after: int, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    conditions |= {"after_id": after, "n": limit}
    tasks_ = call_in(queue_transaction(app), task_queries.list_tasks, **conditions)
    rows = [
        (
            task.id,
            printable(task.name or "-"),
            task.type,
            clock_text(task),
            next_run_text(task) if task.state == "enabled" else "disabled",
            relative_time(task.latest_run, display_time()),
            "-" if task.job_id is None else f"{task.job_id} {task.job_state}",
            command_line(task.program, task.args),
        )
        for task in tasks_
    ]
    headings = ("ID", "NAME", "TYPE", "RUNS", "NEXT", "LAST", "JOB", "COMMAND")
    show_list(app, tasks_, headings, rows, as_json=as_json, limit=limit, after="id")


def clock_text(task: StoredTask) -> str:
    """The schedule: `every 15m`, `every 1d at 02:30 Europe/Amsterdam`, `cron 0 8 * * *`."""
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


def next_run_text(task: StoredTask) -> str:
    now = display_time()
    return "now" if task.next_run <= now else relative_time(task.next_run, now)


def task_label(task: StoredTask) -> str:
    return f"{task.id} {printable(task.name)}" if task.name else str(task.id)


async def find_runs(conn: Connection, text: str) -> tuple[StoredTask, list[ListedJob]]:
    task = await find_task(conn, text)
    return task, await queries.list_jobs(conn, log=True, task=task.id, n=MAX_RUNS)


def show_task(app: App, text: str, *, as_json: bool) -> None:
    task, runs = call_in(queue_transaction(app), find_runs, text)
    if as_json:
        show_json({**record_json(task), "runs": records_json(runs)})
        return
    now = display_time()
    show_field("task", f"{task_label(task)}, {task.state}, type {task.type}")
    show_field("command", command_line(task.program, task.args, MAX_TEXT_CHARACTERS))
    adaptive = ", adapted by the program" if task.autoperiodicity else ""
    show_field("runs", f"{clock_text(task)}{adaptive}")
    enabled = task.state == "enabled"
    show_field("next", time_text(task.next_run, now) if enabled else "not while it is disabled")
    show_field("last", time_text(task.latest_run, now) if task.latest_run else "never")
    if task.jitter:
        show_field("jitter", f"up to {durations.show(task.jitter)}")
    for name in ("resource", "host_rule", "priority", "data"):
        if value := getattr(task, name):
            show_field(name.replace("_", " "), printable(str(value), MAX_TEXT_CHARACTERS))
    if task.job_id is not None:
        show_field("job", f"{task.job_id}, {task.job_state}: usher jobs show {task.job_id}")
    if runs:
        show_attempts(runs)


async def add_task(
    app: App,
    words: Sequence[str],
    *,
    type: str | None,  # noqa: A002 - the option's name
    jitter: str | None,
    **options: Any,  # noqa: ANN401 - as click read them
) -> StoredTask:
    program, args = parse_command(words)
    given = {name: value for name, value in options.items() if value is not None}
    clock = parse_clock({name: given.pop(name) for name in CLOCK_FIELDS if name in given})
    pause = parse_duration(jitter) if jitter else timedelta()
    async with queue_transaction(app) as conn:
        new = TaskSpec(
            parse_type(type or DEFAULT_TYPE), program, clock, args, jitter=pause, **given
        )
        id_ = await tasks.add_task(conn, new, now=await server_time(conn))
        return await task_queries.show_task(conn, id_)


def parse_clock(given: dict[str, Any]) -> TaskSchedule:
    if given.keys() <= {"timezone"}:
        raise BadInput(
            "The task has no schedule.",
            hint="Examples: --every 15m, --hour 2 --minute 30, --cron '30 2 * * *'",
        )
    return TaskSchedule.read(**given)


async def change_task(
    app: App,
    text: str,
    words: Sequence[str],
    *,
    any_time: bool,
    **options: Any,  # noqa: ANN401 - as click read them
) -> StoredTask:
    given = {name: value for name, value in options.items() if value is not None}
    if any_time:
        given |= dict.fromkeys(("hour", "minute", "second"))
    given |= {name: given[name] or None for name in CLEARABLE_FIELDS if name in given}
    if "type" in given:
        parse_type(given["type"])
    if "jitter" in given:
        given["jitter"] = parse_duration(given["jitter"])
    if words:
        given["program"], given["args"] = parse_command(words)
    async with queue_transaction(app) as conn:
        task = await find_task(conn, text)
        return await admin.update_task(conn, task.id, now=await server_time(conn), **given)


async def set_states(app: App, texts: Sequence[str], state: admin.TaskState) -> list[StoredTask]:
    async with queue_transaction(app) as conn:
        now = await server_time(conn)
        ids = {(await find_task(conn, text)).id for text in texts}
        return [await admin.set_task_state(conn, id_, state, now=now) for id_ in sorted(ids)]


async def run_tasks(app: App, texts: Sequence[str]) -> list[EnqueuedJob]:
    async with queue_transaction(app) as conn:
        now = await server_time(conn)
        ids = [(await find_task(conn, text)).id for text in texts]
        return [await admin.run_task(conn, id_, now=now) for id_ in ids]


def start_tasks(app: App, texts: Sequence[str], *, as_json: bool) -> bool:
    """Create a job of each task and show it; whether all jobs are new."""
    jobs = run(run_tasks(app, texts))
    if as_json:
        show_json(records_json(jobs))
    for job in () if as_json else jobs:
        echo(job.id)
        if not job.new:
            app.say(f"Job {job.id} of this task already waits or runs: usher jobs show {job.id}")
    return all(job.new for job in jobs)


def show_live_job(app: App, task: StoredTask) -> None:
    """Name the command that cancels the job of a task that was disabled or removed."""
    if task.job_id is not None:
        app.say(f"  → its job {task.job_id} is {task.job_state}: usher jobs cancel {task.job_id}")


async def remove_tasks(app: App, texts: Sequence[str]) -> list[StoredTask]:
    async with queue_transaction(app) as conn:
        ids = {(await find_task(conn, text)).id for text in texts}
        return [await admin.delete_task(conn, id_) for id_ in sorted(ids)]
