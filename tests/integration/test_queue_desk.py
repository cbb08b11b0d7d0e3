"""The operator's desk: jobs tried again, tasks and resources changed by hand."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support.queue.queued_jobs import HOUR, NOW, SECOND, add_task, end, finished, new, put, started
from usher.db.pool import Connection, connect
from usher.errors import BadInput, NotFound
from usher.queue import admin, queries, task_queries, waiting_reason
from usher.queue.job_states import JobState
from usher.queue.periods import TaskSchedule

# -- again


async def test_what_failed_for_now_waits_at_once(conn: Connection) -> None:
    [id_] = await put(conn, new())
    await end(conn, await started(conn), JobState.TEMPORARY_ERROR)
    assert await started(conn) == []
    assert await admin.retry_jobs(conn, [id_, id_], now=NOW) == [
        admin.RetryResult(id_, "pending", id_)
    ]
    assert [job.id for job in await started(conn)] == [id_]


async def test_what_ended_is_put_in_again_below_itself(conn: Connection) -> None:
    wanted = new(
        "t", "prog", args=("a", 'b "c"'), resource="disk", priority=3, host_rule="here", data="d"
    )
    [old] = await finished(conn, wanted, state=JobState.PERMANENT_ERROR)
    [found] = await admin.retry_jobs(conn, [old], now=NOW)
    assert found.what == "new"
    assert found.job is not None
    again = (await queries.show_job(conn, found.job)).job
    for name in ("type", "program", "resource", "priority", "host_rule", "data"):
        assert getattr(again, name) == getattr(wanted, name)
    assert (again.args, again.attempts) == (["a", 'b "c"'], 0)
    assert [node.id for node in await queries.job_tree(conn, found.job)] == [old, found.job]


async def test_what_lives_is_not_tried_again(conn: Connection) -> None:
    waiting, running = await put(conn, new(), new("r"))
    await started(conn, "r")
    found = await admin.retry_jobs(conn, [waiting, running, 10**12], now=NOW)
    assert [(one.what, one.job) for one in found] == [
        ("live", waiting), ("live", running), ("missing", None),
    ]  # fmt: skip


async def test_one_of_a_key_or_task_lives(conn: Connection) -> None:
    task = await add_task(conn)
    olds = []
    for _ in range(2):
        olds.append((await admin.run_task(conn, task, now=NOW)).id)
        await end(conn, await started(conn), JobState.COMPLETED)
    [keyed] = await finished(conn, new(key="k"))
    [live] = await put(conn, new(key="k"))
    first, second, third = await admin.retry_jobs(conn, [*olds, keyed], now=NOW)
    assert (first.what, second.what, second.job) == ("new", "live", first.job)
    assert (third.what, third.job) == ("live", live)
    shown = await task_queries.show_task(conn, task)
    assert shown.job_id == first.job
    [again] = await admin.retry_jobs(conn, olds[:1], now=NOW)
    assert (again.what, again.job) == ("live", first.job)


async def test_a_job_of_a_task_that_is_gone_is_put_in_without_it(conn: Connection) -> None:
    task = await add_task(conn)
    old = (await admin.run_task(conn, task, now=NOW)).id
    await end(conn, await started(conn), JobState.COMPLETED)
    await admin.delete_task(conn, task)
    [found] = await admin.retry_jobs(conn, [old], now=NOW)
    assert found.job is not None
    assert (await queries.show_job(conn, found.job)).job.task_id is None


# -- tasks


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"periodicity": "15m"}, (NOW, "15m")),
        ({"cron": "30 9 * * *"}, (NOW + 1.5 * HOUR, "cron")),
        ({"hour": 10, "periodicity": "1d"}, (NOW + 2 * HOUR, "1d")),
        ({"data": "other"}, None),
    ],
)
async def test_another_clock_sets_the_next_run(
    conn: Connection, change: dict[str, Any], words: tuple[datetime, str] | None
) -> None:
    id_ = await add_task(conn, name="n", data="d", resource="disk", priority=2)
    before = await task_queries.show_task(conn, id_)
    after = await admin.update_task(conn, id_, now=NOW, **change)
    kept = ("name", "type", "program", "args", "resource", "priority", "state", "timezone")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    if words is None:
        assert (after.next_run, after.data) == (before.next_run, "other")
    else:
        assert after.next_run == words[0]
        assert (after.cron is None) == (words[1] != "cron")
        assert (after.periodicity is None) == (words[1] == "cron")


async def test_a_shorter_period_counts_from_the_last_run(conn: Connection) -> None:
    id_ = await add_task(conn, TaskSchedule.read(periodicity="1d"))
    await admin.run_task(conn, id_, now=NOW)
    await started(conn)
    later = NOW + timedelta(minutes=20)
    assert (await admin.update_task(conn, id_, now=later, periodicity="1h")).next_run == NOW + HOUR
    assert (await admin.update_task(conn, id_, now=later, periodicity="10m")).next_run == later


async def test_cron_and_period_replace_each_other(conn: Connection) -> None:
    id_ = await add_task(conn, TaskSchedule.read(periodicity="1d", hour=5))
    changed = await admin.update_task(conn, id_, now=NOW, cron="@daily")
    assert (changed.cron, changed.periodicity, changed.hour) == ("0 0 * * *", None, None)
    changed = await admin.update_task(conn, id_, now=NOW, minute=15)
    assert (changed.cron, changed.periodicity, changed.minute) == (None, HOUR, 15)
    changed = await admin.update_task(conn, id_, now=NOW, minute=None)
    assert (changed.periodicity, changed.minute, changed.next_run) == (HOUR, None, NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"cron": "61 * * * *"}, {"cron": "0 0 * * *", "hour": 3}, {"hour": 24}, {"periodicity": "0s"},
        {"periodicity": None}, {"timezone": "Mars/Olympus"}, {"host_rule": "allow:"}, {"type": "no type"},
        {"program": ""}, {"name": "taken"}, {"data": "a\0b"}, {"jitter": -SECOND},
    ],
)  # fmt: skip
async def test_a_change_that_makes_no_sense_is_refused(
    conn: Connection, change: dict[str, Any]
) -> None:
    await add_task(conn, name="taken")
    id_ = await add_task(conn)
    with pytest.raises(BadInput):
        await admin.update_task(conn, id_, now=NOW, **change)


async def test_what_a_disabled_task_missed_is_not_made_up_for(conn: Connection) -> None:
    nightly = await add_task(conn, TaskSchedule.read(hour=2))
    soon = await add_task(conn, TaskSchedule.read(cron="0 9 * * *"))
    for id_ in (nightly, soon):
        assert (await admin.set_task_state(conn, id_, "disabled", now=NOW)).state == "disabled"
    later = NOW + timedelta(days=3, minutes=5)
    found = await admin.set_task_state(conn, nightly, "enabled", now=later)
    assert (found.state, found.next_run) == ("enabled", NOW + timedelta(days=3, hours=18))
    # One whose time has not come keeps it.
    again = await admin.set_task_state(conn, soon, "enabled", now=NOW)
    assert again.next_run == NOW + HOUR


async def test_a_task_runs_now_unless_it_does_already(conn: Connection) -> None:
    id_ = await add_task(conn, TaskSchedule.read(hour=2))
    await admin.set_task_state(conn, id_, "disabled", now=NOW)
    first = await admin.run_task(conn, id_, now=NOW)
    again = await admin.run_task(conn, id_, now=NOW)
    assert (first.new, again.new, again.id) == (True, False, first.id)
    with pytest.raises(NotFound):
        await admin.run_task(conn, 10**12, now=NOW)


async def test_tasks_are_listed_and_forgotten(conn: Connection) -> None:
    one = await add_task(conn, name="one", resource="disk")
    two = await add_task(conn, name="two", args=("needle",))
    job = await admin.run_task(conn, two, now=NOW)
    assert [task.id for task in await task_queries.list_tasks(conn, type="t")] == [one, two]
    assert [task.id for task in await task_queries.list_tasks(conn, resource="disk")] == [one]
    assert [task.id for task in await task_queries.list_tasks(conn, contains="needle")] == [two]
    assert [task.id for task in await task_queries.list_tasks(conn, after_id=one, n=1)] == [two]
    assert await task_queries.list_tasks(conn, state="disabled") == []
    assert (await admin.delete_task(conn, two)).job_id == job.id
    assert (await queries.show_job(conn, job.id)).job.task_id is None
    for gone in (two, "two"):
        with pytest.raises(NotFound):
            await task_queries.show_task(conn, gone)


# -- resources and the log


async def test_more_room_lets_the_line_in(conn: Connection) -> None:
    await put(conn, *[new(resource="disk") for _ in range(4)])
    assert len(await started(conn)) == 1
    assert len(await started(conn, now=NOW + HOUR)) == 0
    found, made = await admin.set_resource(
        conn, "disk", capacity=3, interval=timedelta(), now=NOW + HOUR
    )
    assert (made, found.capacity, found.running, found.waiting) == (False, 3, 1, 3)
    assert len(await started(conn, now=NOW + HOUR)) == 2
    kept, _ = await admin.set_resource(conn, "disk", now=NOW)
    assert (kept.capacity, kept.interval) == (3, timedelta())


async def test_a_resource_is_made(conn: Connection) -> None:
    found, made = await admin.set_resource(conn, "b", interval=HOUR, now=NOW)
    assert (made, found.capacity, found.interval, found.latest_run) == (True, 1, HOUR, None)
    await admin.set_resource(conn, "a", now=NOW)
    assert [one.name for one in await task_queries.list_resources(conn)] == ["a", "b"]
    assert [one.name for one in await task_queries.list_resources(conn, after="a")] == ["b"]
    assert [one.name for one in await task_queries.list_resources(conn, contains="B")] == []


@pytest.mark.parametrize("wrong", [{"name": ""}, {"capacity": 0}, {"interval": -SECOND}])
async def test_a_resource_that_makes_no_sense(conn: Connection, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        await admin.set_resource(conn, **{"name": "a", "now": NOW, **wrong})


async def test_how_long_the_log_is_kept(conn: Connection) -> None:
    await admin.set_log_retention(conn, timedelta(days=7))
    assert await task_queries.log_retention(conn) == timedelta(days=7)
    with pytest.raises(BadInput):
        await admin.set_log_retention(conn, timedelta.max)
    with pytest.raises(BadInput):
        await admin.set_log_retention(conn, HOUR)


# -- who may


async def test_the_manager_may_do_all_of_it_and_the_reader_may_look(database: str) -> None:
    async with await connect(database, role="usher_manager") as conn:
        task = await add_task(conn, name="n", resource="disk")
        job = await admin.run_task(conn, task, now=NOW)
        await end(conn, await started(conn), JobState.COMPLETED)
        [again] = await admin.retry_jobs(conn, [job.id], now=NOW)
        await admin.update_task(conn, task, now=NOW, cron="@daily")
        await admin.set_task_state(conn, task, "disabled", now=NOW)
        await admin.set_resource(conn, "disk", capacity=2, now=NOW)
        await admin.set_log_retention(conn, timedelta(days=2))
        await admin.delete_task(conn, task)
    async with await connect(database, role="usher_reader") as conn:
        assert again.job is not None
        await queries.show_job(conn, again.job)
        await queries.count_jobs(conn, now=NOW)
        await queries.job_tree(conn, job.id)
        await waiting_reason.waiting_reasons(conn, again.job, now=NOW)
        await task_queries.list_tasks(conn)
        await task_queries.list_resources(conn)
        await queries.list_jobs(conn, log=True)
