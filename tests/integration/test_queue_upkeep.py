"""The scheduler's upkeep: what it reads and locks, whatever the number of resources, tasks and logged jobs."""

import asyncio
import json
from datetime import timedelta

import psycopg
import pytest

from support.db.lock_waits import WAIT_SECONDS, start_blocked
from support.queue.queued_jobs import (
    HOUR,
    LEASE,
    NOW,
    add_task,
    end,
    new,
    prune_log,
    put,
    started,
)
from usher.db.pool import Connection, connect
from usher.queue import admin, jobs, tasks
from usher.queue.job_states import JobState
from usher.queue.scheduler import Scheduler

DAY = timedelta(days=1)
BUSY = """
    insert into control.resource (name, running) select 'busy' || n, 1 from generate_series(1, 2000) n;
    insert into control.job (type, program, state, resource_id, claim, lease_until)
    select 'busy', 'p', 'running', id, gen_random_uuid(), now() + interval '1 day' from control.resource;
    insert into control.job (type, program, resource_id, held_until)
    select 'busy', 'p', id, 'infinity' from control.resource;
"""
LATE_TASKS = """
    delete from control.task;
    insert into control.task (type, program, periodicity, next_run)
    select 't', 'p', interval '1 hour', '2026-11-16 07:00+00' from generate_series(1, 5000);
    insert into control.job (task_id, type, program) select id, 't', 'p' from control.task;
"""
OLD_ITEMS = """
    insert into control.job_table_item (job_id, table_name, table_row_id, "timestamp")
    select n, 't', n, '2026-11-16 08:00+00'::timestamptz + n * interval '1 minute' from generate_series(1, 20000) n
"""


async def execute(conn: Connection, script: str) -> None:
    for statement in script.split(";\n"):
        if statement.strip():
            await conn.execute(statement.encode())


async def value(conn: Connection, query: str) -> object:
    row = await (await conn.execute(query.encode())).fetchone()
    return row[0] if row else None


async def pages_read(conn: Connection, query: bytes, **given: object) -> int:
    rows = await conn.execute(b"explain (analyze, buffers, format json) " + query, given)
    [[found]] = await rows.fetchall()
    [plan] = found if isinstance(found, list) else json.loads(found)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


# -- mend


async def test_mend_locks_no_resource_that_is_right(database: str) -> None:
    async with await connect(database) as scheduler, await connect(database) as manager:
        await execute(scheduler, BUSY)
        await put(manager, new(resource="r"))
        runs = await started(manager)
        async with scheduler.transaction():
            assert await tasks.repair_resources(scheduler, now=NOW) == 0
            async with asyncio.timeout(WAIT_SECONDS):
                await end(manager, runs, JobState.COMPLETED)


async def test_mend_repairs_counts_and_leaves_the_others(conn: Connection) -> None:
    await execute(conn, BUSY)
    await conn.execute("update control.resource set running = 5 where name = 'busy7'")
    await conn.execute("update control.resource set running = 0 where name = 'busy9'")
    assert await tasks.repair_resources(conn, now=NOW) == 2
    assert await tasks.repair_resources(conn, now=NOW) == 0
    assert await value(conn, "select count(*) from control.resource where running = 1") == 2000


async def test_mend_wakes_a_line_in_which_no_job_stands_ready(conn: Connection) -> None:
    await put(conn, *[new(resource="r")] * 3)
    await conn.execute("update control.job set held_until = 'infinity'")
    assert await started(conn) == []
    await tasks.repair_resources(conn, now=NOW)
    assert len(await started(conn)) == 1


async def test_mend_leaves_a_resource_that_is_locked(database: str) -> None:
    async with await connect(database) as scheduler, await connect(database) as holder:
        await put(holder, new(resource="r"))
        await holder.execute("update control.resource set running = 5")
        async with holder.transaction():
            await holder.execute("select from control.resource for no key update")
            async with asyncio.timeout(WAIT_SECONDS):
                assert await tasks.repair_resources(scheduler, now=NOW) == 0
        assert await tasks.repair_resources(scheduler, now=NOW) == 1


# -- due tasks


async def test_due_reads_no_task_whose_job_lives(database: str) -> None:
    async with await connect(database) as conn:
        await execute(conn, LATE_TASKS)
        await conn.execute("vacuum (analyze) control.task, control.job")
        before = await pages_read(conn, tasks.store.due_tasks.query, n=100, now=NOW)
        assert await tasks.park_tasks(conn, n=10_000, now=NOW) == 5000
        assert await tasks.park_tasks(conn, n=10_000, now=NOW) == 0
        await conn.execute("vacuum (analyze) control.task, control.job")
        after = await pages_read(conn, tasks.store.due_tasks.query, n=100, now=NOW)
        assert before > 50
        assert after < 5


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.PERMANENT_ERROR])
async def test_a_parked_task_is_due_when_its_job_ends(conn: Connection, state: JobState) -> None:
    task = await late_task(conn)
    assert await tasks.due_tasks(conn, n=10, now=NOW + HOUR) == []
    await end(conn, await started(conn), state)
    assert [due.id for due in await tasks.due_tasks(conn, n=10, now=NOW + HOUR)] == [task]


async def late_task(conn: Connection) -> int:
    """A task that is due again while its job waits, and is parked."""
    await conn.execute("delete from control.task")
    task = await add_task(conn)
    await tasks.enqueue_due_tasks(conn, await tasks.due_tasks(conn, n=10, now=NOW), now=NOW)
    assert await tasks.park_tasks(conn, n=10, now=NOW) == 0
    assert await tasks.park_tasks(conn, n=10, now=NOW + HOUR) == 1
    return task


async def test_a_parked_task_stays_so_while_its_job_is_retried(conn: Connection) -> None:
    await late_task(conn)
    await end(conn, await started(conn), JobState.TEMPORARY_ERROR)
    assert await value(conn, "select waits_for_job from control.task") is True


async def test_a_parked_task_is_due_when_its_job_is_cancelled(conn: Connection) -> None:
    task = await late_task(conn)
    [id_] = [run.id for run in await started(conn)]
    await jobs.cancel(conn, [id_], reason="", now=NOW)
    await tasks.requeue_lost_jobs(conn, n=10, now=NOW + 2 * LEASE)
    assert [due.id for due in await tasks.due_tasks(conn, n=10, now=NOW + HOUR)] == [task]
    await tasks.enqueue_due_tasks(
        conn, await tasks.due_tasks(conn, n=10, now=NOW + HOUR), now=NOW + HOUR
    )
    await tasks.park_tasks(conn, n=10, now=NOW + 2 * HOUR)
    live = await admin.run_task(conn, task, now=NOW)
    await jobs.cancel(conn, [live.id], reason="", now=NOW)
    assert [due.id for due in await tasks.due_tasks(conn, n=10, now=NOW + 2 * HOUR)] == [task]


async def test_a_parked_task_whose_job_was_deleted_by_hand_is_mended(conn: Connection) -> None:
    task = await late_task(conn)
    await conn.execute("delete from control.job")
    assert await tasks.due_tasks(conn, n=10, now=NOW + HOUR) == []
    await tasks.repair_resources(conn, now=NOW + HOUR)
    assert [due.id for due in await tasks.due_tasks(conn, n=10, now=NOW + HOUR)] == [task]


async def test_a_task_is_not_parked_for_a_job_that_is_ending(database: str) -> None:
    async with await connect(database) as manager, await connect(database) as scheduler:
        task = await late_task(manager)
        await manager.execute("update control.task set waits_for_job = false")
        runs = await started(manager)
        async with manager.transaction():
            await end(manager, runs, JobState.COMPLETED)
            assert await tasks.park_tasks(scheduler, n=10, now=NOW + HOUR) == 0
        assert [due.id for due in await tasks.due_tasks(scheduler, n=10, now=NOW + HOUR)] == [task]


async def test_a_job_that_ends_while_its_task_is_parked_clears_the_mark(database: str) -> None:
    async with (
        await connect(database) as manager,
        await connect(database) as scheduler,
        await connect(database) as watcher,
    ):
        await late_task(manager)
        await manager.execute("update control.task set waits_for_job = false")
        runs = await started(manager)
        async with scheduler.transaction():
            assert await tasks.park_tasks(scheduler, n=10, now=NOW + HOUR) == 1
            ending = await start_blocked(watcher, end(manager, runs, JobState.COMPLETED))
        await ending
        assert await value(watcher, "select waits_for_job from control.task") is False


async def test_a_round_of_the_scheduler_parks_as_its_role(database: str) -> None:
    async with await connect(database) as conn:
        await execute(conn, LATE_TASKS)
    async with await connect(database, role="usher_scheduler") as conn:
        await Scheduler(database, role="usher_scheduler").run_once(conn)
        assert await value(conn, "select count(*) from control.task where waits_for_job") == 5000


# -- the log


async def test_pruning_locks_the_log_only_at_its_end(database: str) -> None:
    """The deletes wait for a row that this test holds; meanwhile jobs end as ever."""
    async with (
        await connect(database) as pruner,
        await connect(database) as manager,
        await connect(database) as watcher,
    ):
        await put(manager, new())
        await end(manager, await started(manager), JobState.COMPLETED)
        await tasks.create_log_partitions(manager, months=2, now=NOW)
        await manager.execute(OLD_ITEMS.encode())
        await put(manager, new())
        async with watcher.transaction():
            await watcher.execute("select from control.job_table_item limit 1 for update")
            late = NOW + 400 * DAY
            async with await connect(database) as looker:
                pruning = await start_blocked(looker, prune_log(pruner, now=late))
            async with asyncio.timeout(WAIT_SECONDS):
                await end(manager, await started(manager), JobState.COMPLETED)
        assert await pruning == 3
        assert await value(watcher, "select count(*) from control.job_table_item") == 0


async def test_pruning_gives_up_soon_if_the_log_is_read_for_long(database: str) -> None:
    async with await connect(database) as pruner, await connect(database) as reader:
        await tasks.create_log_partitions(reader, months=0, now=NOW)
        async with reader.transaction():
            await reader.execute("select from control.job_log")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                await prune_log(pruner, now=NOW + 400 * DAY)
        assert await prune_log(pruner, now=NOW + 400 * DAY) == 1


async def test_old_items_are_found_by_index(conn: Connection) -> None:
    await conn.execute(OLD_ITEMS.encode())
    await conn.execute("analyze control.job_table_item")
    plan = await conn.execute(
        "explain delete from control.job_table_item where \"timestamp\" < '2026-11-16 09:00+00'"
    )
    lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "job_table_item_timestamp" in lines


async def test_pruning_keeps_the_hierarchy_of_kept_jobs(conn: Connection) -> None:
    [old] = await put(conn, new())
    [child] = await put(conn, new(), parent=old)
    await end(
        conn, [run for run in await started(conn) if run.id in {old, child}], JobState.COMPLETED
    )
    await tasks.create_log_partitions(conn, months=0, now=NOW)
    later = NOW + 100 * DAY
    [parent] = await put(conn, new())
    [kept] = await put(conn, new(), parent=parent)
    await end(conn, await started(conn, now=later), JobState.COMPLETED, now=later)
    assert await prune_log(conn, now=NOW + 120 * DAY) == 1
    assert await value(conn, "select array_agg(job_id) from control.job_hierarchy") == [kept]
