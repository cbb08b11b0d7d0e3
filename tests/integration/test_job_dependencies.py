"""Jobs that wait for other jobs: released once, cancelled with what they need, and free of cost for claims."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.queue.queued_jobs import LEASE, NOW, end, new, put, started
from usher.db.pool import Connection, Database, connect
from usher.errors import BadInput, NotAllowed
from usher.queue import jobs, queries, run_api
from usher.queue.job_env import worker_url
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob, JobRequest, SettledRun
from usher.queue.waiting_reason import waiting_reasons


async def waiting(conn: Connection) -> list[int]:
    query = "select id from control.job where state = 'waiting' order by id"
    return [id_ for (id_,) in await (await conn.execute(query)).fetchall()]


async def log_of(conn: Connection, id_: int) -> tuple[str, str | None]:
    query = "select state, message from control.job_log where id = %s and completed"
    row = await (await conn.execute(query, [id_])).fetchone()
    assert row
    return row[0], row[1]


async def test_a_job_waits_until_all_it_needs_have_completed(conn: Connection) -> None:
    first, second = await put(conn, new("a"), new("b"))
    [third] = await put(conn, new("t", needs=(first, second)))
    assert await started(conn) == []
    assert await waiting_reasons(conn, third, now=NOW) == [
        f"It waits until other jobs have completed: {first} (pending), {second} (pending)."
    ]
    await end(conn, await started(conn, "a"), JobState.COMPLETED)
    assert await started(conn) == []
    [run] = await started(conn, "b")
    await end(conn, [run], JobState.TEMPORARY_ERROR)  # it is tried again, so the job still waits
    assert await waiting(conn) == [third]
    await conn.execute("update control.job set state = 'pending' where id = %s", [second])
    await end(conn, await started(conn, "b", now=NOW + 2 * LEASE * 60), JobState.COMPLETED)
    assert [run.id for run in await started(conn)] == [third]
    assert [need.state for need in await queries.list_needs(conn, third)] == ["completed"] * 2


@pytest.mark.parametrize("how", ["permanent-error", "cancelled", "cancel", "before"])
async def test_jobs_are_cancelled_with_what_they_need(conn: Connection, how: str) -> None:
    [first] = await put(conn, new("a"))
    if how == "before":
        await end(conn, await started(conn, "a"), JobState.PERMANENT_ERROR)
    [second] = await put(conn, new("b", needs=(first,)))
    if how != "before":
        [third] = await put(conn, new("c", needs=(second,)))
    if how == "cancel":
        await jobs.cancel(conn, [first], reason="not now", now=NOW)
    elif how != "before":
        await end(conn, await started(conn, "a"), JobState(how))
    words = "Cancelled: job {}, which it waits for, did not complete"
    assert await log_of(conn, second) == ("cancelled", words.format(first))
    if how != "before":
        assert await log_of(conn, third) == ("cancelled", words.format(second))
    assert await waiting(conn) == []


async def test_a_waiting_job_can_be_cancelled(conn: Connection) -> None:
    [first] = await put(conn, new("a"))
    [second] = await put(conn, new("b", needs=(first,)))
    await jobs.cancel(conn, [second], reason="not now", now=NOW)
    assert await log_of(conn, second) == ("cancelled", "not now")
    await end(conn, await started(conn, "a"), JobState.COMPLETED)
    assert await started(conn, "b") == []


async def test_needs_that_have_completed_hold_nothing_up(conn: Connection) -> None:
    [first] = await put(conn, new("a"))
    await end(conn, await started(conn, "a"), JobState.COMPLETED)
    [second] = await put(conn, new("b", needs=(first,)))
    assert [run.id for run in await started(conn, "b")] == [second]


async def test_unknown_needs_are_refused(conn: Connection) -> None:
    [first] = await put(conn, new("a"))
    with pytest.raises(BadInput, match="there is no job 999999999 to wait for"):
        await put(conn, new("b", needs=(first, 999_999_999)))


async def test_a_key_in_the_queue_keeps_its_own_needs(conn: Connection) -> None:
    [first, keyed] = await put(conn, new("a"), new("b", key="k"))
    assert await put(conn, new("b", key="k", needs=(first,))) == [keyed]
    assert [run.id for run in await started(conn, "b")] == [keyed]


async def test_two_that_end_at_once_release_the_third(database: str) -> None:
    """Each transaction sees the other's job as unfinished; the lock of the waiting job puts them in order."""
    async with await connect(database) as one, await connect(database) as two:
        now = datetime.now(UTC)
        first, second = await put(one, new("a"), new("b"))
        [third] = await put(one, new("t", needs=(first, second)))
        runs = [*await started(one, "a", now=now), *await started(one, "b", now=now)]

        async def settle(conn: Connection, run: ClaimedJob) -> None:
            done = SettledRun(run.id, run.claim, JobState.COMPLETED)
            assert await jobs.settle(conn, [done], now=now) == {run.id}

        async with one.transaction():
            await settle(one, runs[0])
            other = asyncio.create_task(settle(two, runs[1]))
            await blocked(database, other)
        await other
        assert [run.id for run in await started(one, "t", now=now)] == [third]


async def blocked(database: str, other: "asyncio.Task[None]") -> None:
    """Wait until the other transaction waits for a lock."""
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    async with await connect(database) as conn:
        while not other.done():
            row = await (await conn.execute(query)).fetchone()
            if row and row[0]:
                return
            await asyncio.sleep(0.01)


async def test_a_need_that_ends_before_the_commit_is_noticed(database: str) -> None:
    async with await connect(database) as one, await connect(database) as two:
        now = datetime.now(UTC)
        good, bad = await put(one, new("a"), new("b"))
        runs = [*await started(one, "a", now=now), *await started(one, "b", now=now)]
        async with two.transaction():
            after_good, after_bad = await put(two, new("t", needs=(good,)), new("t", needs=(bad,)))
            # The producer holds no lock on what it waits for: both settle at once.
            async with asyncio.timeout(10):
                await end(one, runs[:1], JobState.COMPLETED, now=now)
                await end(one, runs[1:], JobState.PERMANENT_ERROR, now=now)
            assert await waiting(two) == [after_good, after_bad]
        assert [run.id for run in await started(one, "t", now=now)] == [after_good]
        assert (await log_of(one, after_bad))[0] == "cancelled"


async def test_a_worker_cannot_use_jobs_of_others(database: str) -> None:
    async with await connect(database, role="usher_manager") as conn:
        now = datetime.now(UTC)
        await jobs.enqueue(
            conn, [JobRequest("t", "p"), JobRequest("t", "p"), JobRequest("u", "p")], now=now
        )
        mine, other = await jobs.claim(conn, "t", "here", 2, lease=LEASE, max_attempts=1, now=now)
        result = SettledRun(other.id, other.claim, JobState.COMPLETED, result='"secret"')
        await jobs.settle(conn, [result], now=now)
    url = worker_url(make_conninfo(database, user="usher_worker"), mine)
    async with await connect(url) as conn:
        foreign = (
            await (await conn.execute("select %s::bigint + 1", [other.id])).fetchone() or [0]
        )[0]
        for needed in (other.id, foreign):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is not a child"):
                await conn.execute(
                    "select control.enqueue_after(array[%s::bigint], 't', 'p')", [needed]
                )
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is not a child"):
            await conn.execute(
                "select control.wait_for(array[%s::bigint], array[%s::bigint])", [foreign, mine.id]
            )
        for query in (
            f"insert into control.job_dependency (job_id, needs_id) values ({mine.id}, {other.id})",
            "update control.job_dependency set resolved = true",
            "delete from control.job_dependency",
            f"select control.resolve_dependencies(array[{mine.id}::bigint], now())",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute(query.encode())
        [(child,)] = await (
            await conn.execute(
                "select control.enqueue_after(array[%s::bigint], 't', 'child')", [mine.id]
            )
        ).fetchall()
        rows = await (await conn.execute("select * from control.job_dependency")).fetchall()
        assert rows == [(child, mine.id, False)]
        assert await (await conn.execute("select * from control.needed_results()")).fetchall() == []


async def test_a_run_over_http_cannot_use_jobs_of_others(conn: Connection) -> None:
    stranger, _ = await put(conn, new("a"), new("t"))
    [run] = await started(conn)
    fence = (run.id, run.claim)
    with pytest.raises(NotAllowed, match="is not a child"):
        await run_api.enqueue_children(conn, fence, [new("t", needs=(stranger,))], now=NOW)
    made = await run_api.enqueue_children(conn, fence, [new("t", needs=(run.id,))], now=NOW)
    assert made
    assert await waiting(conn) == [made[0].id]


async def test_a_job_reads_the_results_of_what_it_needed(database: str) -> None:
    async with await connect(database) as conn:
        now = datetime.now(UTC)
        first, second = await put(conn, new("a"), new("a"))
        one, two = await started(conn, "a", now=now)
        await put(conn, new("t", needs=(first, second)))
        given = SettledRun(one.id, one.claim, JobState.COMPLETED, result='{"n": 1}')
        await jobs.settle(conn, [given, SettledRun(two.id, two.claim, JobState.COMPLETED)], now=now)
        [run] = await started(conn, "t", now=now)
    url = worker_url(make_conninfo(database, user="usher_worker"), run)
    async with await connect(url) as conn:
        rows = await (await conn.execute("select * from control.needed_results()")).fetchall()
        assert rows == [(first, {"n": 1}), (second, None)]


async def test_jobs_that_wait_cost_a_claim_nothing(conn: Connection) -> None:
    """Neither the index of claims nor a claim's reads grow with jobs that wait for others."""
    [first] = await put(conn, new("a"))
    query = "select pg_relation_size('control.job_claim')"

    async def size() -> int:
        row = await (await conn.execute(query)).fetchone()
        assert row
        return int(row[0])

    before = await size()
    await conn.execute(
        """
        with made as (
            insert into control.job (type, program, state, scheduled)
            select 't', 'p', 'waiting', %s from generate_series(1, 20000)
            returning id
        )
        insert into control.job_dependency (job_id, needs_id) select id, %s from made
        """,
        [NOW, first],
    )
    assert await size() == before
    assert await started(conn) == []
    await end(conn, await started(conn, "a"), JobState.COMPLETED)
    assert len(await started(conn, n=5)) == 5
    assert await waiting(conn) == []


async def test_the_end_of_a_job_finds_what_waits_by_index(conn: Connection) -> None:
    await conn.execute(
        """
        insert into control.job_dependency (job_id, needs_id)
        select n + 1000000, n from generate_series(1, 20000) n
        """
    )
    await conn.execute("analyze control.job_dependency")
    await conn.execute("set local enable_seqscan = off")
    plan = await conn.execute(
        "explain select d.needs_id from control.job_dependency d where d.needs_id = any('{1,2,3}') and not d.resolved"
    )
    lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "job_dependency_needs" in lines


async def work(
    dsn: str, bad: set[int], left: set[int], needs: Mapping[int, Sequence[int]], done: set[int]
) -> None:
    """Claim and settle small batches until no job is left; jobs in `bad` fail permanently.

    No job may be claimed before those that it needs are in `done`.
    """
    async with Database(dsn, role="usher_manager") as db:
        while left:
            now = db.clock.now()
            runs = await db.run(
                lambda conn, now=now: jobs.claim(
                    conn, "t", "here", 5, lease=LEASE, max_attempts=1, now=now
                )  # type: ignore[misc]
            )
            ends = [
                SettledRun(
                    run.id,
                    run.claim,
                    JobState.PERMANENT_ERROR if run.id in bad else JobState.COMPLETED,
                )
                for run in runs
            ]
            early = [run.id for run in runs if not done.issuperset(needs[run.id])]
            assert not early
            if ends:
                done.update(run.id for run in runs)
                await db.run(lambda conn, ends=ends, now=now: jobs.settle(conn, ends, now=now))  # type: ignore[misc]
            async with db.transaction() as conn:
                rows = await (await conn.execute("select id from control.job")).fetchall()
            left.intersection_update({id_ for (id_,) in rows})


async def test_a_random_graph_ends_as_a_model_says(database: str) -> None:
    chance = random.Random(18)  # noqa: S311 - not a secret
    needs: dict[int, tuple[int, ...]] = {}
    async with await connect(database) as conn:
        for _ in range(300):
            known = list(needs)
            chosen = tuple(chance.sample(known, min(len(known), chance.choice([0, 0, 1, 2, 5]))))
            [entered] = await jobs.enqueue(conn, [new(needs=chosen)], now=NOW)
            needs[entered.id] = chosen
        bad = {id_ for id_ in needs if chance.random() < 0.1}
        left, done = set(needs), set[int]()
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(work(database, bad, left, needs, done))
        expected: dict[int, str] = {}
        for id_, chosen in needs.items():
            good = all(expected[needed] == "completed" for needed in chosen)
            expected[id_] = (
                ("permanent-error" if id_ in bad else "completed") if good else "cancelled"
            )
        assert {"completed", "permanent-error", "cancelled"} == set(expected.values())
        rows = await (await conn.execute("select id, state from control.job_log")).fetchall()
        assert dict(rows) == expected
        unresolved = "select count(*) from control.job_dependency where not resolved"
        assert await (await conn.execute(unresolved)).fetchone() == (0,)
