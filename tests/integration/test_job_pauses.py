"""Paused types and resources: claims skip them, other jobs go on, and resuming wakes the managers."""

from datetime import timedelta

import pytest

from support.queue.queued_jobs import NOW, SECOND, end, new, put, started
from usher.db.pool import Connection, Database
from usher.errors import BadInput, NotFound
from usher.observe.blockers import queue_blockers
from usher.observe.stages import PausedEntry, read_queue
from usher.queue import admin, jobs, task_queries
from usher.queue.job_states import JobState
from usher.queue.waiting_reason import waiting_reasons


async def test_a_paused_type_is_not_claimed(conn: Connection) -> None:
    [first, _] = await put(conn, new("a"), new("b"))
    await admin.pause_type(conn, "a", reason="the site is down", now=NOW)
    assert await started(conn, "a") == []
    assert await jobs.next_due(conn, "a", "here") is None
    assert len(await started(conn, "b")) == 1
    assert await waiting_reasons(conn, first, now=NOW) == [
        "Its type a is paused: usher jobs resume a"
    ]
    assert await task_queries.paused_types(conn) == [
        task_queries.PausedType("a", "the site is down", NOW)
    ]
    seen = await read_queue(conn, now=NOW)
    assert seen.paused == [PausedEntry("type", "a")]
    assert [holdup.kind for holdup in queue_blockers(seen, NOW)] == ["type_paused"]
    assert await admin.resume_type(conn, "a")
    assert not await admin.resume_type(conn, "a")
    assert [run.id for run in await started(conn, "a")] == [first]


async def test_a_job_that_runs_while_its_type_is_paused_finishes(conn: Connection) -> None:
    await put(conn, new("a"))
    runs = await started(conn, "a")
    await admin.pause_type(conn, "a", reason="", now=NOW)
    await end(conn, runs, JobState.COMPLETED)


async def test_a_paused_resource_starts_nothing(conn: Connection) -> None:
    await admin.set_resource(conn, "r", capacity=2, interval=timedelta(0), now=NOW)
    ids = await put(conn, *[new(resource="r")] * 4, new())
    running = [run for run in await started(conn, n=1) if run.resource_id]
    assert (await admin.pause_resource(conn, "r")).paused
    assert [run.id for run in await started(conn)] == ids[4:]
    await end(conn, running, JobState.COMPLETED)  # its seat stays empty
    assert await started(conn) == []
    assert await waiting_reasons(conn, ids[1], now=NOW) == [
        "Its resource r is paused: usher resources resume r"
    ]
    changed, _ = await admin.set_resource(conn, "r", capacity=3, now=NOW)
    assert (changed.capacity, changed.paused) == (3, True)
    assert await started(conn) == []
    assert (await read_queue(conn, now=NOW)).paused == [PausedEntry("resource", "r", waiting=3)]
    resumed = await admin.resume_resource(conn, "r", now=NOW)
    assert (resumed.capacity, resumed.paused) == (3, False)
    assert [run.id for run in await started(conn, now=NOW + SECOND)] == ids[1:4]


async def test_pausing_twice_keeps_the_capacity(conn: Connection) -> None:
    await admin.set_resource(conn, "r", capacity=5, now=NOW)
    for _ in range(2):
        assert (await admin.pause_resource(conn, "r")).capacity == 5
    for _ in range(2):
        assert (await admin.resume_resource(conn, "r", now=NOW)).capacity == 5


async def test_what_cannot_be_paused(conn: Connection) -> None:
    for change in (admin.pause_resource(conn, "no"), admin.resume_resource(conn, "no", now=NOW)):
        with pytest.raises(NotFound, match="There is no resource 'no'"):
            await change
    with pytest.raises(BadInput):
        await admin.pause_type(conn, "not a type", reason="", now=NOW)


async def test_resuming_a_type_wakes_its_managers(database: str) -> None:
    async with Database(database, role="usher_manager") as db:
        async with db.transaction() as conn:
            await admin.pause_type(conn, "a", reason="", now=NOW)
        wakes = db.listen("usher_job")
        assert (await anext(wakes)).missed
        async with db.transaction() as conn:
            await admin.resume_type(conn, "a")
        assert (await anext(wakes)).payload == "a"
        await wakes.aclose()
