"""Claims, settles, cancels and reaps of the same jobs at the same time: no deadlock, no lost cancel, one end each."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from support.db.lock_waits import WAIT_SECONDS, start_blocked, until_blocked
from support.queue.queued_jobs import HOUR, LEASE, NOW, add_task, new, put, started
from usher.db.pool import Connection, connect
from usher.queue import admin, jobs, tasks
from usher.queue.child_programs import Origin
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob, SettledRun

LATER = NOW + LEASE + timedelta(seconds=1)
LOG = "select state, message, cancel from control.job_log order by id, attempts"


async def all_rows(conn: Connection, query: str) -> list[tuple[object, ...]]:
    return await (await conn.execute(query.encode())).fetchall()


async def cancel(conn: Connection, *ids: int) -> dict[int, JobState]:
    return await jobs.cancel(conn, ids, reason="not wanted", now=NOW)


async def settle(
    conn: Connection, runs: list[ClaimedJob], state: JobState = JobState.COMPLETED
) -> set[int]:
    retry = NOW + HOUR if state is JobState.TEMPORARY_ERROR else None
    ends = [SettledRun(run.id, run.claim, state, retry_at=retry, message="busy") for run in runs]
    return await jobs.settle(conn, ends, now=NOW)


async def give_back(conn: Connection, runs: list[ClaimedJob]) -> set[int]:
    return await jobs.give_back(conn, [(run.id, run.claim) for run in runs], now=NOW)


async def extend(conn: Connection, runs: list[ClaimedJob]) -> dict[int, bool]:
    ours = [(run.id, run.claim) for run in runs]
    return await jobs.extend(conn, ours, lease=LEASE, now=NOW)


# -- no cancel is lost


@pytest.mark.parametrize("resource", [None, "r"])
async def test_a_cancel_during_a_claim_stops_the_run(database: str, resource: str | None) -> None:
    async with (
        await connect(database) as claimer,
        await connect(database) as operator,
        await connect(database) as watcher,
    ):
        [id_] = await put(claimer, new(resource=resource))
        async with claimer.transaction():
            [run] = await started(claimer)
            cancelling = await start_blocked(watcher, cancel(operator, id_))
        assert await cancelling == {id_: JobState.RUNNING}
        assert await extend(claimer, [run]) == {id_: True}
        assert await jobs.cancelled(claimer, [(run.id, run.claim)]) == {id_}


async def test_a_temporary_error_after_a_cancel_ends_the_job(conn: Connection) -> None:
    [id_] = await put(conn, new(resource="r"))
    runs = await started(conn)
    assert await cancel(conn, id_) == {id_: JobState.RUNNING}
    assert await settle(conn, runs, JobState.TEMPORARY_ERROR) == {id_}
    assert await all_rows(conn, LOG) == [("cancelled", "not wanted: busy", True)]
    assert await all_rows(conn, "select id from control.job") == []
    assert await all_rows(conn, "select running from control.resource") == [(0,)]


async def test_settle_tells_cancelled_jobs_from_the_others_of_a_batch(conn: Connection) -> None:
    first, second = await put(conn, new(), new())
    runs = await started(conn)
    await cancel(conn, second)
    assert await settle(conn, runs, JobState.TEMPORARY_ERROR) == {first, second}
    assert await all_rows(conn, "select id, state from control.job") == [(first, "temporary-error")]
    assert await all_rows(conn, LOG) == [
        ("temporary-error", "busy", False),
        ("cancelled", "not wanted: busy", True),
    ]


async def test_a_run_that_completed_before_its_cancel_stays_completed(conn: Connection) -> None:
    [id_] = await put(conn, new())
    runs = await started(conn)
    await cancel(conn, id_)
    await settle(conn, runs)
    assert await all_rows(conn, LOG) == [("completed", "busy", True)]


async def test_a_cancelled_run_that_is_given_back_ends(conn: Connection) -> None:
    first, second = await put(conn, new(resource="r"), new())
    runs = await started(conn)
    await cancel(conn, first)
    assert await give_back(conn, runs) == {first, second}
    assert await all_rows(conn, "select id, attempts from control.job") == [(second, 0)]
    assert await all_rows(conn, LOG) == [("cancelled", "not wanted", True)]
    assert await all_rows(conn, "select running from control.resource") == [(0,)]


async def test_a_settle_in_progress_is_seen_by_the_cancel_after_it(database: str) -> None:
    async with (
        await connect(database) as manager,
        await connect(database) as operator,
        await connect(database) as watcher,
    ):
        [id_] = await put(manager, new())
        runs = await started(manager)
        async with manager.transaction():
            await settle(manager, runs, JobState.TEMPORARY_ERROR)
            cancelling = await start_blocked(watcher, cancel(operator, id_))
        assert await cancelling == {id_: JobState.CANCELLED}
        assert await all_rows(operator, "select id from control.job") == []


async def test_a_lease_that_is_extended_meanwhile_is_not_taken_back(database: str) -> None:
    async with await connect(database) as manager, await connect(database) as scheduler:
        [id_] = await put(manager, new(resource="r"))
        [run] = await started(manager)
        ours = [(run.id, run.claim)]
        async with manager.transaction():
            await jobs.extend(manager, ours, lease=2 * LEASE, now=LATER)
            assert await tasks.requeue_lost_jobs(scheduler, n=10, now=LATER) == []
        assert await tasks.requeue_lost_jobs(scheduler, n=10, now=LATER) == []
        assert await tasks.requeue_lost_jobs(scheduler, n=10, now=LATER + 3 * LEASE) == [id_]


async def test_a_child_that_arrives_during_a_claim_has_its_origin(database: str) -> None:
    """The statements inside control.claim see newer rows than the statement that calls it."""
    async with (
        await connect(database) as manager,
        await connect(database) as run,
        await connect(database) as watcher,
    ):
        await put(manager, new(program="parent"))
        [parent] = await started(manager)
        [first] = await put(manager, new(program="first"))
        async with run.transaction():
            await run.execute("lock table control.job in exclusive mode")
            claiming = await start_blocked(watcher, started(manager))
            [child] = await put(run, new(program="child"))
            await run.execute("select control.record_children(%s, %s, true)", [[child], parent.id])
        origins = {job.id: job.origin for job in await claiming}
    assert origins == {first: None, child: Origin("t", "parent")}


# -- no deadlock

Call = Callable[[Connection, list[ClaimedJob]], Coroutine[Any, Any, object]]


async def cancel_all(conn: Connection, runs: list[ClaimedJob]) -> object:
    return await cancel(conn, *(run.id for run in runs))


async def settle_mixed(conn: Connection, runs: list[ClaimedJob]) -> object:
    """Retry the first run and end the others: without one order, the first is locked last."""
    ends = [
        SettledRun(runs[0].id, runs[0].claim, JobState.TEMPORARY_ERROR, retry_at=NOW + HOUR),
        *(SettledRun(run.id, run.claim, JobState.COMPLETED) for run in runs[1:]),
    ]
    return await jobs.settle(conn, ends, now=NOW)


async def reap_all(conn: Connection, _: list[ClaimedJob]) -> object:
    return await tasks.requeue_lost_jobs(conn, n=100, now=LATER)


PAIRS: dict[str, tuple[Call, Call]] = {
    "settle and cancel": (settle_mixed, cancel_all),
    "give back and cancel": (give_back, cancel_all),
    "settle and reap": (settle_mixed, reap_all),
    "cancel and extend": (cancel_all, extend),
}
HOLD_RESOURCE = "select from control.resource for no key update"
HOLD_LAST_JOB = "select from control.job order by id desc limit 1 for update"


@pytest.mark.parametrize("hold", [HOLD_RESOURCE, HOLD_LAST_JOB], ids=["resource", "last job"])
@pytest.mark.parametrize("pair", PAIRS)
async def test_two_calls_on_the_same_jobs_do_not_deadlock(
    database: str, pair: str, hold: str
) -> None:
    """The first call waits for a lock that this test holds, the second comes meanwhile, then the lock is released."""
    first, second = PAIRS[pair]
    async with AsyncExitStack() as stack:
        watcher, holder, left, right = [
            await stack.enter_async_context(await connect(database)) for _ in range(4)
        ]
        await put(watcher, new(resource="r"), new(), new())
        runs = sorted(await started(watcher), key=lambda run: run.id)
        async with holder.transaction():
            await holder.execute(hold.encode())
            waiting = await start_blocked(watcher, first(left, runs))
            coming = asyncio.create_task(second(right, runs))
            blocked = asyncio.create_task(until_blocked(watcher, sessions=2))
            await asyncio.wait({coming, blocked}, return_when=asyncio.FIRST_COMPLETED)
            blocked.cancel()
        await waiting
        await coming
        await reap_all(watcher, runs)
        assert await all_rows(watcher, "select running from control.resource") == [(0,)]


async def test_a_frozen_transaction_does_not_stop_the_reaper(database: str) -> None:
    async with await connect(database) as frozen, await connect(database) as scheduler:
        first, second = await put(frozen, new(resource="r"), new())
        await started(frozen)
        async with frozen.transaction():
            await frozen.execute(HOLD_RESOURCE.encode())
            async with asyncio.timeout(WAIT_SECONDS):
                assert await tasks.requeue_lost_jobs(scheduler, n=10, now=LATER) == [second]
        assert await tasks.requeue_lost_jobs(scheduler, n=10, now=LATER) == [first]


async def test_deleting_a_task_does_not_deadlock_with_the_claim_of_its_job(database: str) -> None:
    async with AsyncExitStack() as stack:
        watcher, claimer, operator = [
            await stack.enter_async_context(await connect(database)) for _ in range(3)
        ]
        task = await add_task(watcher)
        await admin.run_task(watcher, task, now=NOW)
        async with claimer.transaction():
            # A claim that has locked the job and comes to the task next.
            await claimer.execute("select from control.job where task_id = %s for update", [task])
            deleting = await start_blocked(watcher, delete_task(operator, task))
            assert [run.task_id for run in await started(claimer)] == [task]
        await deleting
        assert await all_rows(watcher, "select task_id, state from control.job") == [
            (None, "running")
        ]


async def delete_task(conn: Connection, task: int) -> None:
    async with conn.transaction():
        await admin.delete_task(conn, task)
