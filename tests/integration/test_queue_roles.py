"""What each role of the queue may do, and above all what it may not; by logging in as each."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from usher.db.pool import Connection, connect
from usher.queue import jobs
from usher.queue.job_env import worker_url
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob, JobRequest, SettledRun
from usher.queue.scheduler import Scheduler

LEASE = timedelta(seconds=60)
REFUSED = psycopg.errors.InsufficientPrivilege


async def running(database: str, n: int = 2) -> list[ClaimedJob]:
    """Jobs that a manager holds, claimed as the manager."""
    async with await connect(database, role="usher_manager") as conn:
        now = datetime.now(UTC)
        await jobs.enqueue(
            conn, [JobRequest("t", "p", resource="r", key="k"), JobRequest("t", "p")], now=now
        )
        found = await jobs.claim(conn, "t", "here", n, lease=LEASE, max_attempts=1, now=now)
        assert len(found) == n
        return found


def login(database: str, job: ClaimedJob) -> str:
    """The address that a manager gives to this job."""
    return worker_url(make_conninfo(database, user="usher_worker"), job)


async def one(conn: Connection, query: str, *given: object) -> object:
    rows = await conn.execute(query.encode(), given)
    row = await rows.fetchone()
    return row[0] if row else None


@pytest.mark.seed("002.7")
async def test_a_manager_claims_reports_and_settles(database: str) -> None:
    first, second = await running(database)
    async with await connect(database, role="usher_manager") as conn:
        now = datetime.now(UTC)
        await jobs.report_progress(
            conn, "here", [jobs.RunReport(*fence(first), 77, "so far")], now=now
        )
        assert await jobs.extend(conn, [fence(first)], lease=LEASE, now=now) == {first.id: False}
        done = SettledRun(*fence(first), state=JobState.COMPLETED, exit_code=0)
        assert await jobs.settle(conn, [done], now=now) == {first.id}
        assert await jobs.give_back(conn, [fence(second)], now=now) == {second.id}
        with pytest.raises(REFUSED):
            await conn.execute("delete from control.job_log")
        with pytest.raises(REFUSED):
            await conn.execute("select * from work.guestbook")


def fence(job: ClaimedJob) -> tuple[int, UUID]:
    return job.id, job.claim


@pytest.mark.seed("002.8", "002.17")
async def test_a_worker_updates_its_message_and_nothing_else(database: str) -> None:
    mine, other = await running(database)
    async with await connect(login(database, mine)) as conn:
        assert await one(conn, "select count(*) from control.job") == 1
        await conn.execute(
            "update control.job set message = 'fetching foo' where id = %s", [mine.id]
        )
        assert await one(conn, "select message from control.job") == "fetching foo"
        touched = await conn.execute(
            "update control.job set message = 'mine now' where id = %s", [other.id]
        )
        assert touched.rowcount == 0
        for change in ("state = 'completed'", "output = 'x'", "attempts = 0", "claim = null"):
            with pytest.raises(REFUSED):
                await conn.execute(f"update control.job set {change}".encode())
        for query in (
            "delete from control.job",
            "select * from control.task",
            "select * from control.job_log",
            "select control.settle('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', now())",
            "select * from control.claim('t', 'h', 1, '1 s', 1, now())",
            "select control.cancel('{}', '', now())",
            "insert into control.job (type, program, state) values ('t', 'p', 'running')",
            "insert into control.task (type, program, periodicity) values ('t', 'p', '1 h')",
        ):
            with pytest.raises(REFUSED):
                await conn.execute(query.encode())


@pytest.mark.seed("002.8")
async def test_a_worker_says_writes_and_puts_in(database: str) -> None:
    mine, _ = await running(database)
    async with await connect(login(database, mine)) as conn:
        await conn.execute("select control.say('half way')")
        await conn.execute("select control.put_output('lots')")
        await conn.execute("select control.wrote('feeds.feed_item', array['5', '6'])")
        await conn.execute(
            "insert into control.job (type, program, args) values ('t', 'plain', '{x}')"
        )
        child = await one(conn, "select control.enqueue('t', 'child', array['a b'], key => 'once')")
        assert await one(conn, "select control.enqueue('t', 'child', key => 'once')") == child
    async with await connect(database) as conn:
        assert await one(
            conn, "select message || output from control.job where id = %s", mine.id
        ) == ("half waylots")
        assert (
            await one(
                conn, "select parent_job_id from control.job_hierarchy where job_id = %s", child
            )
            == mine.id
        )
        assert (
            await one(conn, "select job_id from control.job_table_item where table_row_id = '6'")
            == mine.id
        )


async def test_a_worker_that_lost_its_claim_can_do_nothing(database: str) -> None:
    mine, other = await running(database)
    stolen = ClaimedJob(other.id, *[getattr(mine, name) for name in list(ClaimedJob.__slots__)[1:]])
    async with await connect(login(database, stolen)) as conn:
        with pytest.raises(REFUSED, match="no running job"):
            await conn.execute("select control.say('I am another')")
    async with await connect(login(database, mine)) as conn:
        async with await connect(database) as admin:
            done = SettledRun(mine.id, mine.claim, JobState.COMPLETED)
            await jobs.settle(admin, [done], now=datetime.now(UTC))
        for call in (
            "control.say('late')",
            "control.wrote('t', '{1}')",
            "control.enqueue('t', 'p')",
        ):
            with pytest.raises(REFUSED, match="no running job"):
                await conn.execute(f"select {call}".encode())


@pytest.mark.seed("002.9")
async def test_a_scheduler_does_its_round_and_no_more(database: str) -> None:
    async with await connect(database, role="usher_scheduler") as conn:
        await Scheduler(database, role="usher_scheduler").run_once(conn)
        for query in (
            "update control.job set program = 'rm'",
            "update control.task set program = 'rm'",
            "delete from control.job",
            "delete from control.task",
            "insert into control.job_log (id) values (1)",
            "select * from control.claim('t', 'h', 1, '1 s', 1, now())",
            "select control.prune_log(now())",
        ):
            with pytest.raises(REFUSED):
                await conn.execute(query.encode())


async def test_a_reader_reads(database: str) -> None:
    await running(database)
    async with await connect(database, role="usher_reader") as conn:
        assert await one(conn, "select count(*) from control.job") == 2
        for query in (
            "update control.job set message = 'x'",
            "insert into control.resource (name) values ('x')",
        ):
            with pytest.raises(REFUSED):
                await conn.execute(query.encode())
