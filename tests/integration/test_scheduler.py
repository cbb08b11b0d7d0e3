"""Tasks become jobs, once each; failed and lost jobs come back; the log has its months."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from support.queue.queued_jobs import prune_log
from usher.db.pool import Connection, connect
from usher.errors import BadInput
from usher.queue import jobs, tasks
from usher.queue.job_states import JobState
from usher.queue.jobs import JobRequest, SettledRun
from usher.queue.periods import TaskSchedule
from usher.queue.scheduler import Scheduler
from usher.queue.tasks import TaskSpec

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=60)
HOURLY = TaskSchedule.read(periodicity="1h")


async def pass_by(conn: Connection, now: datetime) -> int:
    """One look at the clock."""
    due = await tasks.due_tasks(conn, n=1000, now=now)
    return await tasks.enqueue_due_tasks(conn, due, now=now) if due else 0


async def finish(conn: Connection, now: datetime) -> list[int]:
    """Run whatever waits, at once and well."""
    mine = await jobs.claim(conn, "t", "here", 1000, lease=LEASE, max_attempts=1, now=now)
    done = [SettledRun(job.id, job.claim, JobState.COMPLETED, 0) for job in mine]
    await jobs.settle(conn, done, now=now)
    return [job.task_id or 0 for job in mine]


async def only(conn: Connection, task: TaskSpec, now: datetime = NOW) -> int:
    await conn.execute("delete from control.task")
    return await tasks.add_task(conn, task, now=now)


@pytest.mark.seed("002.36")
async def test_a_task_runs_at_once_and_then_by_its_period(conn: Connection) -> None:
    task = await only(conn, TaskSpec("t", "p", HOURLY, args=("a b",), data="d", priority=3))
    assert await pass_by(conn, NOW) == 1
    rows = await conn.execute(
        "select task_id, args, data, priority, state, scheduled from control.job"
    )
    assert await rows.fetchall() == [(task, ["a b"], "d", 3, "pending", NOW)]
    assert await finish(conn, NOW) == [task]
    assert await pass_by(conn, NOW + HOUR - timedelta(seconds=1)) == 0
    assert await pass_by(conn, NOW + HOUR) == 1


async def test_one_live_job_a_task_and_the_missed_time_is_made_up_once(conn: Connection) -> None:
    task = await only(conn, TaskSpec("t", "p", HOURLY))
    assert await pass_by(conn, NOW) == 1
    for hours in (1, 2, 3):
        assert await pass_by(conn, NOW + hours * HOUR) == 0
    late = NOW + timedelta(hours=3, minutes=30)
    assert await finish(conn, late) == [task]
    assert await pass_by(conn, late) == 1
    assert await finish(conn, late) == [task]
    assert await pass_by(conn, late + timedelta(minutes=59)) == 0
    assert await pass_by(conn, late + HOUR) == 1


async def test_a_time_of_day_is_kept_and_one_slept_through_is_made_up(conn: Connection) -> None:
    clock = TaskSchedule.read(periodicity="1d", hour=9, minute=30, timezone="Europe/Amsterdam")
    await only(conn, TaskSpec("t", "p", clock))
    at = NOW.replace(hour=8, minute=30)
    assert await pass_by(conn, at - timedelta(seconds=1)) == 0
    assert await pass_by(conn, at + timedelta(hours=2)) == 1
    await finish(conn, at + timedelta(hours=2))
    assert await pass_by(conn, at + timedelta(hours=23)) == 0
    assert await pass_by(conn, at + timedelta(hours=24)) == 1


async def test_disabled_tasks_rest_and_claims_write_latest_run(conn: Connection) -> None:
    task = await only(conn, TaskSpec("t", "p", HOURLY))
    await conn.execute("update control.task set state = 'disabled'")
    assert await pass_by(conn, NOW) == 0
    await conn.execute("update control.task set state = 'enabled'")
    assert await pass_by(conn, NOW) == 1
    await finish(conn, NOW + timedelta(minutes=5))
    rows = await conn.execute("select latest_run from control.task where id = %s", [task])
    assert await rows.fetchone() == (NOW + timedelta(minutes=5),)


async def test_jitter_spreads(conn: Connection) -> None:
    await conn.execute("delete from control.task")
    for _ in range(20):
        await tasks.add_task(
            conn, TaskSpec("t", "p", HOURLY, jitter=timedelta(minutes=10)), now=NOW
        )
    await pass_by(conn, NOW)
    rows = await conn.execute("select scheduled from control.job")
    times = {when for (when,) in await rows.fetchall()}
    assert len(times) == 20
    assert min(times) >= NOW
    assert max(times) <= NOW + timedelta(minutes=10)


async def test_names_are_given_once(conn: Connection) -> None:
    await tasks.add_task(conn, TaskSpec("t", "p", HOURLY, name="mine"), now=NOW)
    with pytest.raises(BadInput, match="named 'mine' already"):
        await tasks.add_task(conn, TaskSpec("t", "p", HOURLY, name="mine"), now=NOW)


@pytest.mark.parametrize(
    "task",
    [TaskSpec("no good", "p", HOURLY), TaskSpec("t", "", HOURLY), TaskSpec("t", "a\0b", HOURLY)],
)
async def test_what_cannot_be_a_task_is_said(conn: Connection, task: TaskSpec) -> None:
    with pytest.raises(BadInput, match="cannot be added"):
        await tasks.add_task(conn, task, now=NOW)


async def test_a_failed_job_waits_then_is_tried_again_and_every_attempt_is_in_the_log(
    conn: Connection,
) -> None:
    await conn.execute("delete from control.task")
    [entered] = await jobs.enqueue(conn, [JobRequest("t", "p")], now=NOW)
    for attempt in (1, 2):
        now = NOW + attempt * HOUR
        [job] = await jobs.claim(conn, "t", "here", 5, lease=LEASE, max_attempts=3, now=now)
        assert job.attempts == attempt
        end = SettledRun(
            job.id,
            job.claim,
            JobState.TEMPORARY_ERROR,
            1,
            77,
            f"no {attempt}",
            None,
            "out",
            now + HOUR,
        )
        assert await jobs.settle(conn, [end], now=now) == {entered.id}
        assert (
            await tasks.requeue_failed_jobs(conn, n=10, now=now + HOUR - timedelta(seconds=1)) == 0
        )
        assert await tasks.requeue_failed_jobs(conn, n=10, now=now + HOUR) == 1
    [job] = await jobs.claim(conn, "t", "here", 5, lease=LEASE, max_attempts=3, now=NOW + 9 * HOUR)
    await jobs.settle(
        conn, [SettledRun(job.id, job.claim, JobState.COMPLETED, 0)], now=NOW + 9 * HOUR
    )
    rows = await conn.execute(
        "select state, attempts, exit_code, message, output, process_id, completed "
        "from control.job_log where id = %s order by attempts",
        [entered.id],
    )
    assert await rows.fetchall() == [
        ("temporary-error", 1, 1, "no 1", "out", 77, False),
        ("temporary-error", 2, 1, "no 2", "out", 77, False),
        ("completed", 3, 0, None, None, None, True),
    ]


async def test_a_lost_run_counts_and_the_last_one_is_final(conn: Connection) -> None:
    await conn.execute("delete from control.task")
    [entered] = await jobs.enqueue(conn, [JobRequest("t", "p")], now=NOW)
    now = NOW
    for attempt in (1, 2):
        [job] = await jobs.claim(conn, "t", "gone", 5, lease=LEASE, max_attempts=2, now=now)
        assert await tasks.requeue_lost_jobs(conn, n=10, now=now + LEASE) == []
        now += LEASE + timedelta(seconds=1)
        assert await tasks.requeue_lost_jobs(conn, n=10, now=now) == [entered.id]
        late = SettledRun(job.id, job.claim, JobState.COMPLETED, 0)
        assert await jobs.settle(conn, [late], now=now) == set()
        assert await jobs.extend(conn, [(job.id, job.claim)], lease=LEASE, now=now) == {}
        assert await tasks.requeue_failed_jobs(conn, n=10, now=now) == (1 if attempt == 1 else 0)
    rows = await conn.execute(
        "select state, attempts, message from control.job_log where id = %s order by attempts",
        [entered.id],
    )
    word = "Lost: no heartbeat from gone since its lease expired"
    assert await rows.fetchall() == [("temporary-error", 1, word), ("permanent-error", 2, word)]


async def test_what_somebody_broke_by_hand_is_mended(conn: Connection) -> None:
    await conn.execute("delete from control.task")
    await jobs.enqueue(conn, [JobRequest("t", "p", resource="r")] * 3, now=NOW)
    [job] = await jobs.claim(conn, "t", "here", 3, lease=LEASE, max_attempts=1, now=NOW)
    await conn.execute("delete from control.job where id = %s", [job.id])
    assert not await jobs.claim(conn, "t", "here", 3, lease=LEASE, max_attempts=1, now=NOW + HOUR)
    assert await tasks.repair_resources(conn, now=NOW + HOUR) == 1
    assert await jobs.claim(conn, "t", "here", 3, lease=LEASE, max_attempts=1, now=NOW + HOUR)


async def test_the_log_has_a_part_for_each_month_and_old_ones_go(conn: Connection) -> None:
    await conn.execute("delete from control.task")
    await jobs.enqueue(conn, [JobRequest("t", "p")] * 2, now=NOW)
    await finish(conn, NOW)
    assert await tasks.create_log_partitions(conn, months=2, now=NOW) == 3
    assert await tasks.create_log_partitions(conn, months=2, now=NOW) == 0
    rows = await conn.execute(
        "select tableoid::regclass::text, count(*) from control.job_log group by 1"
    )
    assert await rows.fetchall() == [("control.job_log_2026_11", 2)]
    assert await prune_log(conn, now=NOW + timedelta(days=100)) == 0
    assert await prune_log(conn, now=NOW + timedelta(days=120)) == 1
    rows = await conn.execute("select count(*) from control.job_log")
    assert await rows.fetchone() == (0,)


@pytest.mark.soak
async def test_a_hundred_thousand_due_tasks_in_one_round(database: str) -> None:
    async with await connect(database) as conn:
        await conn.execute("delete from control.task")
        await conn.execute(
            "insert into control.task (type, program, periodicity, next_run) "
            "select 't', 'p', interval '1 hour', now() - interval '1 minute' from generate_series(1, 100000)"
        )
        scheduler = Scheduler(database)
        await scheduler.run_once(conn)
        rows = await conn.execute("select count(*), count(distinct task_id) from control.job")
        assert await rows.fetchone() == (100_000, 100_000)
        rows = await conn.execute("select count(*) from control.task where next_run <= now()")
        assert await rows.fetchone() == (0,)


async def test_three_schedulers_race_the_leader_dies_and_nothing_is_made_twice(
    database: str,
) -> None:
    """Jobs end as fast as they come, so that nothing but the tasks' own clocks keeps a second one away."""
    async with await connect(database) as conn:
        await conn.execute("delete from control.task")
        await conn.execute(
            "insert into control.task (type, program, periodicity, next_run) "
            "select 't', 'p', interval '1 hour', now() + i * interval '10 ms' from generate_series(1, 200) i"
        )
        stop = asyncio.Event()
        three = [Scheduler(database, tick=0.02) for _ in range(3)]
        running = [asyncio.create_task(one.run(stop)) for one in three]
        leaders = set()
        for _ in range(150):
            await finish(conn, datetime.now(UTC))
            leaders |= {number for number, one in enumerate(three) if one.leading}
            if _ % 40 == 20:
                await conn.execute(
                    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted"
                )
            await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*running)
        await finish(conn, datetime.now(UTC))
        rows = await conn.execute(
            "select count(*), count(distinct task_id) from control.job_log where state = 'completed'"
        )
        assert await rows.fetchone() == (200, 200)
        assert len(leaders) > 1


async def test_two_schedulers_without_a_leader_are_right_too(database: str) -> None:
    """The lock saves work; it is the statements that are right."""
    async with await connect(database) as one, await connect(database) as two:
        await one.execute("delete from control.task")
        await one.execute(
            "insert into control.task (type, program, periodicity, next_run) "
            "select 't', 'p', interval '1 hour', now() from generate_series(1, 2000)"
        )
        both = [Scheduler(database), Scheduler(database)]
        await asyncio.gather(*(s.run_once(c) for s, c in zip(both, (one, two), strict=True)))
        rows = await one.execute("select count(*), count(distinct task_id) from control.job")
        assert await rows.fetchone() == (2000, 2000)


async def test_a_second_live_job_of_a_task_is_impossible(conn: Connection) -> None:
    await conn.execute("delete from control.task")
    task = await tasks.add_task(conn, TaskSpec("t", "p", HOURLY), now=NOW)
    insert = "insert into control.job (type, program, task_id) values ('t', 'p', %s)"
    await conn.execute(insert, [task])
    with pytest.raises(psycopg.errors.UniqueViolation):
        await conn.execute(insert, [task])
