"""Results of jobs: set or returned by a run, bounded, readable, and out of reach of other jobs."""

from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from integration.jobs_run import function, run
from integration.test_manager import house
from support.queue.queued_jobs import LEASE, NOW, end, new, put, started
from usher.db.pool import Connection, connect
from usher.queue import jobs, queries
from usher.queue.job_env import worker_url
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob, JobRequest, SettledRun
from usher.queue.runners.process_runner import ProcessRunner
from usher.worker import MAX_RESULT_BYTES, PermanentError, encode_result


def settled(run: ClaimedJob, result: str) -> SettledRun:
    return SettledRun(run.id, run.claim, JobState.COMPLETED, exit_code=0, result=result)


async def states(conn: Connection, ids: list[int]) -> list[tuple[str, str | None]]:
    query = (
        "select state, message from control.job_log where id = any(%s) and completed order by id"
    )
    return [tuple(row) for row in await (await conn.execute(query, [ids])).fetchall()]


async def test_a_settled_result_is_kept_with_the_job(conn: Connection) -> None:
    ids = await put(conn, new(), new())
    first, second = await started(conn)
    await jobs.settle(conn, [settled(first, '{"pages": 3}')], now=NOW)
    await end(conn, [second], JobState.COMPLETED)
    shown = await queries.show_job(conn, ids[0])
    assert shown.result is not None
    assert (shown.result.value, shown.result.attempt) == ({"pages": 3}, 1)
    assert (await queries.show_job(conn, ids[1])).result is None


async def test_one_bad_result_does_not_spoil_the_batch(conn: Connection) -> None:
    """PostgreSQL refuses some of what Python writes as JSON; the others of the batch are settled."""
    ids = await put(conn, new(), new(), new(), new())
    runs = await started(conn)
    texts = ["1", '"\\u0000"', "not JSON", f'"{"x" * 40_000}"']
    ends = [settled(run, text) for run, text in zip(runs, texts, strict=True)]
    assert await jobs.settle(conn, ends, now=NOW) == set(ids)
    found = await states(conn, ids)
    assert [state for state, _ in found] == ["completed", *["permanent-error"] * 3]
    assert all(str(message).startswith("The result cannot be stored: ") for _, message in found[1:])


async def test_a_result_needs_the_claim_of_its_run(conn: Connection) -> None:
    first, second = await put(conn, new(), new())
    [mine, _] = await started(conn)
    forged = SettledRun(second, mine.claim, JobState.COMPLETED, result='"forged"')
    assert await jobs.settle(conn, [forged], now=NOW) == set()
    assert await queries.show_result(conn, second) is None
    assert await queries.show_result(conn, first) is None


async def test_a_worker_sets_its_own_result_only(database: str) -> None:
    async with await connect(database, role="usher_manager") as conn:
        now = datetime.now(UTC)
        await jobs.enqueue(conn, [JobRequest("t", "p"), JobRequest("t", "p")], now=now)
        mine, other = await jobs.claim(conn, "t", "here", 2, lease=LEASE, max_attempts=1, now=now)
    url = worker_url(make_conninfo(database, user="usher_worker"), mine)
    async with await connect(url) as conn:
        await conn.execute("select control.put_result('{\"n\": 1}')")
        await conn.execute("select control.put_result('{\"n\": 2}')")
        rows = await (await conn.execute("select job_id, value from control.job_result")).fetchall()
        assert rows == [(mine.id, {"n": 2})]
        for query in (
            f"insert into control.job_result (job_id, attempt, value) values ({other.id}, 1, '1')",
            "update control.job_result set value = '1'",
            "delete from control.job_result",
            f"select control.put_results(array[{other.id}::bigint], array['{other.claim}'::uuid], '{{1}}', now())",
            "select control.add_jobs('[]')",
            f"select * from control.job_status({other.id})",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute(query.encode())
        with pytest.raises(psycopg.errors.CheckViolation):
            await conn.execute("select control.put_result(to_jsonb(repeat('x', 40000)))")
    async with await connect(make_conninfo(database, user="usher_worker")) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("select control.put_result('1')")
        found = await conn.execute("select count(*) from control.job_result")
        assert await found.fetchone() == (0,)


async def test_what_a_function_returns_is_its_result(database: str) -> None:
    async with house(database) as here:
        ids = await here.add(
            JobRequest("t", "integration.job_functions:give_back", ('{"a": [1, null]}',)),
            JobRequest("t", "integration.job_functions:nothing"),
            JobRequest("t", "integration.job_functions:give_back_a_set"),
            JobRequest("t", "integration.job_functions:give_back_much"),
            JobRequest("t", "integration.job_functions:set_result", ("7",)),
        )
        rows = await here.logged(ids)
        assert [row[0] for row in rows] == [
            "completed", "completed", "permanent-error", "permanent-error", "completed",
        ]  # fmt: skip
        assert "cannot be stored as JSON" in rows[2][2]
        assert "bytes of JSON" in rows[3][2]
        found = await here.rows("select job_id, value from control.job_result order by job_id")
        assert found == [(ids[0], {"a": [1, None]}), (ids[4], "7")]


async def test_what_one_job_writes_is_not_the_result_of_the_next() -> None:
    """Jobs run one after the other under the same supervisor, which owns the pipe of results."""
    async with ProcessRunner(preload=("integration.job_functions",)) as runner:
        stuffed = await run(runner, function("stuff_pipes"))
        assert stuffed.result.startswith("111")
        assert (await run(runner, function("nothing"))).result == ""
        assert (await run(runner, function("give_back", "[7]"))).result == "[7]"


def test_the_limit_of_a_result() -> None:
    assert encode_result("x" * (MAX_RESULT_BYTES - 2))
    with pytest.raises(PermanentError, match="at most 16,384"):
        encode_result("x" * (MAX_RESULT_BYTES - 1))
    with pytest.raises(PermanentError, match="JSON"):
        encode_result(float("nan"))
