"""What the log keeps of a job, from when a resource counts its interval, and what an inserting worker sees."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from integration.test_manager import house
from support.queue.queued_jobs import HOUR, LEASE, NOW, SECOND, end, new, put, started
from usher import durations
from usher.db.pool import Connection, connect
from usher.queue import admin, jobs, tasks
from usher.queue.job_env import worker_url
from usher.queue.job_states import JobState
from usher.queue.jobs import JobRequest, SettledRun


async def messages(conn: Connection, *ids: int) -> list[tuple[str, str | None]]:
    query = (
        "select state, message from control.job_log where id = any(%s) and completed order by id"
    )
    return [tuple(row) for row in await (await conn.execute(query, [list(ids)])).fetchall()]


async def test_a_cancelled_run_keeps_the_reason(conn: Connection) -> None:
    ids = await put(conn, *[new()] * 5)
    runs = await started(conn)
    await jobs.cancel(conn, ids[:4], reason="wrong host", now=NOW)
    await jobs.cancel(conn, ids[4:], reason="", now=NOW)
    await end(conn, runs[:1], JobState.CANCELLED, message="Cancelled")
    await end(conn, runs[1:2], JobState.TEMPORARY_ERROR, message="no answer")
    await jobs.give_back(conn, [(runs[2].id, runs[2].claim)], now=NOW)
    await tasks.requeue_lost_jobs(conn, n=10, now=NOW + 2 * LEASE)
    lost = "Lost: no heartbeat from here since its lease expired"
    assert await messages(conn, *ids) == [
        ("cancelled", "wrong host"),
        ("cancelled", "wrong host: no answer"),
        ("cancelled", "wrong host"),
        ("cancelled", f"wrong host: {lost}"),
        ("cancelled", f"Cancelled: {lost}"),
    ]


async def test_a_manager_settles_a_stopped_run_with_the_reason(database: str) -> None:
    async with house(database) as here:
        ids = await here.add(JobRequest("t", "/bin/sleep", ("50",)))
        while not await here.rows("select from control.job where process_id is not null"):
            pass
        async with here.db.transaction() as conn:
            await jobs.cancel(conn, ids, reason="not needed", now=datetime.now(UTC))
        [row] = await here.logged(ids)
        assert (row[0], row[2]) == ("cancelled", "not needed")


async def test_the_log_keeps_the_first_scheduled_time(conn: Connection) -> None:
    [id_] = await put(conn, new(scheduled=NOW))
    for attempt in (1, 2):
        now = NOW + attempt * 2 * HOUR
        await end(conn, await started(conn, now=now), JobState.TEMPORARY_ERROR, now=now)
        assert await tasks.requeue_failed_jobs(conn, n=10, now=now + 2 * HOUR) == 1
    await end(conn, await started(conn, now=NOW + 9 * HOUR), JobState.COMPLETED)
    query = "select attempts, scheduled from control.job_log where id = %s order by attempts"
    rows = await (await conn.execute(query, [id_])).fetchall()
    assert rows == [(1, NOW), (2, NOW), (3, NOW)]


async def test_an_interval_counts_from_the_start_of_the_process(conn: Connection) -> None:
    await admin.set_resource(conn, "r", capacity=9, interval=10 * SECOND, now=NOW)
    ids = await put(conn, *[new(resource="r")] * 3)
    [first] = await started(conn)
    await jobs.report_starts(conn, [(first.id, first.claim, NOW + 3 * SECOND)])
    assert await started(conn, now=NOW + 10 * SECOND) == []
    assert await started(conn, now=NOW + 12.9 * SECOND) == []
    [second] = await started(conn, now=NOW + 13 * SECOND)
    assert [first.id, second.id] == ids[:2]
    # A report under a claim that is not valid changes nothing.
    await jobs.report_starts(conn, [(second.id, first.claim, NOW + 99 * SECOND)])
    assert len(await started(conn, now=NOW + 23 * SECOND)) == 1


async def test_a_manager_reports_the_start_of_processes(database: str) -> None:
    async with house(database) as here:
        await here.logged(await here.add(JobRequest("t", "/bin/true", resource="r")))
        query = """
            select r.latest_run > l.start from control.job_log l join control.resource r on r.id = l.resource_id
        """
        assert await here.rows(query) == [(True,)]


async def test_intervals_below_a_second(conn: Connection) -> None:
    interval = timedelta(milliseconds=250)
    assert durations.parse("250ms") == durations.parse("0.25s") == interval
    await admin.set_resource(conn, "r", capacity=9, interval=interval, now=NOW)
    await put(conn, *[new(resource="r")] * 2)
    assert len(await started(conn)) == 1
    assert await jobs.next_due(conn, "t", "here") == NOW + interval
    assert await started(conn, now=NOW + 0.2 * SECOND) == []
    assert len(await started(conn, now=NOW + 0.25 * SECOND)) == 1


@pytest.mark.parametrize(
    "text", ["0.5s", "1m0.25s", "10s", "1d2h", "0.000001s", "0s", "59.999999s"]
)
def test_a_span_is_read_as_it_is_shown(text: str) -> None:
    span = durations.parse(text)
    assert span is not None
    assert durations.show(span) == text


@pytest.mark.parametrize("text", [".5s", "1.s", "1.1234567s", "0.5m", "ms", "1,5s", "-1s", "1ms1s"])
def test_what_is_no_span(text: str) -> None:
    assert durations.parse(text) is None


async def test_a_worker_inserts_and_gets_the_id(database: str) -> None:
    async with await connect(database, role="usher_manager") as conn:
        now = datetime.now(UTC)
        await jobs.enqueue(conn, [JobRequest("t", "p"), JobRequest("u", "theirs")], now=now)
        [mine] = await jobs.claim(conn, "t", "here", 1, lease=LEASE, max_attempts=1, now=now)
    insert = "insert into control.job (type, program) values ('t', 'x'), ('t', 'y') returning id, program"
    async with await connect(
        worker_url(make_conninfo(database, user="usher_worker"), mine)
    ) as conn:
        rows = await (await conn.execute(insert)).fetchall()
        assert [program for _, program in rows] == ["x", "y"]
        # Afterwards, and of other jobs, it sees nothing more than before.
        seen = await (await conn.execute("select program from control.job")).fetchall()
        assert seen == [("p",)]
        async with conn.transaction():
            await conn.execute(insert)
            seen = await (await conn.execute("select program from control.job")).fetchall()
            assert sorted(seen) == [("p",), ("y",)]
        children = await (
            await conn.execute(
                "select job_id from control.job_hierarchy where parent_job_id = %s", [mine.id]
            )
        ).fetchall()
        assert {id_ for id_, _ in rows} < {id_ for (id_,) in children}
    async with await connect(make_conninfo(database, user="usher_worker")) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute(insert.encode())


async def test_results_and_dependencies_are_pruned_with_the_log(conn: Connection) -> None:
    first, _ = await put(conn, new("a"), new("t"))
    await put(conn, new("b", needs=(first,)))
    [run] = await started(conn, "a")
    await jobs.settle(
        conn, [SettledRun(run.id, run.claim, JobState.COMPLETED, result="1")], now=NOW
    )
    await end(conn, [*await started(conn, "b"), *await started(conn)], JobState.COMPLETED)
    [last] = await put(conn, new("c"))
    count = "select (select count(*) from control.job_result), (select count(*) from control.job_dependency)"
    assert await (await conn.execute(count)).fetchone() == (1, 1)
    await conn.execute("select control.prune_log(%s)", [NOW + timedelta(days=400)])
    assert await (await conn.execute(count)).fetchone() == (0, 0)
    assert last
