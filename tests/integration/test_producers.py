"""The Python client of producers, and the helpers for users' tests."""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from usher import jobs
from usher.errors import BadInput, NotFound, Unreachable
from usher.jobs import AsyncJobQueue, JobFailed, JobQueue, JobSpec
from usher.jobs.testing import drain, drain_async, run_inline, run_inline_async
from usher.worker import PermanentError, TemporaryError, job

MODULE = """
from usher.worker import TemporaryError, job

def first(word):
    job().message("working")
    job().wrote("words", word)
    child = job().enqueue("late", "shop_jobs:second", word, needs=[job().id])
    return {"child": child}

async def second(word):
    return {"word": word, "needed": list(job().results().values())}

def broken():
    raise ValueError("no")

def later():
    raise TemporaryError("not now")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "shop_jobs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("shop_jobs", None)


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode()).fetchall()


def test_jobs_are_added_in_the_callers_transaction(database: str) -> None:
    with psycopg.connect(database, row_factory=dict_row) as conn:
        conn.execute("create table orders (id bigint)")
        conn.commit()
        conn.execute("insert into orders values (7)")
        added = jobs.add(conn, JobSpec("mail", "shop:mail", ["7"]), JobSpec("mail", "shop:mail"))
        assert rows(database, "select id from control.job") == []
        conn.rollback()
        assert rows(database, "select id from control.job") == []
        added = jobs.add(conn, JobSpec("mail", "shop:mail", ["7"]))
        conn.commit()
    assert [job.new for job in added] == [True]
    assert rows(database, "select id, args from control.job") == [(added[0].id, ["7"])]


async def test_jobs_are_added_in_the_callers_async_transaction(database: str) -> None:
    async with await AsyncConnection.connect(database) as conn:
        [added] = await jobs.add_async(conn, JobSpec("mail", "shop:mail", ["7"]))
        await conn.rollback()
        assert rows(database, "select id from control.job") == []
        [added] = await jobs.add_async(conn, JobSpec("mail", "shop:mail", ["7"]))
        await conn.commit()
    assert rows(database, "select id from control.job") == [(added.id,)]


def test_every_condition_reaches_the_queue(database: str) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    with JobQueue(database) as queue:
        first = queue.add("a", "one")
        full = JobSpec(
            "t",
            "p",
            ["a b", "ü"],
            at,
            timedelta(seconds=90),
            "r",
            -3,
            "deny:x",
            "k",
            "d",
            [first.id],
        )
        added = queue.add_all(full, JobSpec("t", "q"), JobSpec("t", "other", key="k"))
        assert [job.new for job in added] == [True, True, False]
        assert added[0].id == added[2].id
        assert queue.add("t", "again", key="k").id == added[0].id
    query = """
        select type, program, args, scheduled, priority, host_rule, unique_key, data, state,
            (select name from control.resource r where r.id = resource_id)
        from control.job where unique_key = 'k'
    """
    when = at + timedelta(seconds=90)
    assert rows(database, query) == [
        ("t", "p", ["a b", "ü"], when, -3, "deny:x", "k", "d", "waiting", "r")
    ]
    assert rows(database, "select needs_id from control.job_dependency") == [(first.id,)]


def test_many_jobs_get_their_own_ids_in_order(database: str) -> None:
    with JobQueue(database) as queue:
        added = queue.add_all(*(JobSpec("t", "p", [str(n)]) for n in range(500)))
    stored = dict(rows(database, "select id, args[1] from control.job"))
    assert [stored[job.id] for job in added] == [str(n) for n in range(500)]


def test_what_cannot_be_added(database: str) -> None:
    with JobQueue(database) as queue:
        for new in (
            JobSpec("no type", "p"),
            JobSpec("t", ""),
            JobSpec("t", "p", needs=[99_999_999]),
        ):
            with pytest.raises(BadInput, match="cannot be added"):
                queue.add_all(JobSpec("t", "good"), new)
        assert rows(database, "select from control.job") == []
    with pytest.raises(BadInput, match="time zone"):
        JobSpec("t", "p", at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(BadInput, match="list"):
        JobSpec("t", "p", "7")
    with pytest.raises(Unreachable), JobQueue("postgresql://127.0.0.1:1/no"):
        pass


def test_a_least_privileged_login_can_add_and_wait(database: str) -> None:
    grants = (
        "create role shop_login",
        "grant usage on schema control to shop_login",
        "grant execute on function control.add_jobs(jsonb), control.job_status(bigint) to shop_login",
    )
    with psycopg.connect(database, autocommit=True) as conn:
        for grant in grants:
            conn.execute(grant.encode())
        try:
            conn.execute("set role shop_login")
            [added] = jobs.add(conn, JobSpec("t", "/bin/true"))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("select from control.job")
            state = conn.execute("select state from control.job_status(%s)", [added.id]).fetchone()
            assert state == ("pending",)
        finally:
            conn.execute("reset role")
            conn.execute("drop owned by shop_login")
            conn.execute("drop role shop_login")


@pytest.mark.usefixtures("module")
def test_drain_runs_what_is_due_and_stores_what_became_of_it(database: str) -> None:
    with JobQueue(database) as queue:
        first = queue.add("shop", "shop_jobs:first", "hello")
        bad = queue.add("shop", "shop_jobs:broken")
        later = queue.add("shop", "shop_jobs:later")
        queue.add("shop", "shop_jobs:first", "x", delay=timedelta(hours=1))
        missing = queue.add("shop", "shop_jobs:missing")
        program = queue.add("shop", "/bin/sh", "-c", "echo $USHER_JOB_ID; exit 2")
        ran = {one.id: one for one in drain(database)}
        assert len(ran) == 6
        child = ran[first.id].result["child"]
        assert ran[child].result == {"word": "hello", "needed": [{"child": child}]}
        assert queue.wait(child, timeout=1).result == ran[child].result
        assert queue.status(first.id).message == "working"
        assert queue.status(later.id).state == ran[later.id].state == "temporary-error"
        assert ran[bad.id].state == "temporary-error"
        assert "ValueError: no" in ran[bad.id].output
        assert ran[missing.id].state == "permanent-error"
        assert (ran[program.id].state, ran[program.id].output) == (
            "permanent-error",
            f"{program.id}\n",
        )
        with pytest.raises(JobFailed, match="permanent-error"):
            queue.wait(program.id, timeout=1)
        with pytest.raises(TimeoutError, match="temporary-error"):
            queue.wait(bad.id, timeout=0)
        with pytest.raises(NotFound):
            queue.status(999_999_999)
        parents = rows(database, "select job_id, parent_job_id from control.job_hierarchy")
        assert parents == [(child, first.id)]


@pytest.mark.usefixtures("module")
async def test_the_async_client(database: str) -> None:
    async with AsyncJobQueue(database) as queue:
        added = await queue.add("shop", "shop_jobs:second", "w")
        other = await queue.add("other", "shop_jobs:second", "w")
        [_] = await queue.add_all(JobSpec("shop", "shop_jobs:second", ["w"], key="k"))
        assert (await queue.status(added.id)).state == "pending"
        with pytest.raises(TimeoutError):
            await queue.wait(added.id, timeout=0)
        assert len(await drain_async(database, "shop", limit=1)) == 1
        assert (await queue.wait(added.id, timeout=1)).result == {"word": "w", "needed": []}
        assert await queue.cancel(other.id, "not needed")
        assert not await queue.cancel(other.id)
        with pytest.raises(JobFailed, match="not needed"):
            await queue.wait(other.id, timeout=1)


def work(word: str) -> dict[str, object]:
    job().message(f"{word} {job().data} {job().attempt}")
    job().enqueue("next", "m:f", word, after=timedelta(seconds=5), key="k")
    job().wrote("table", 1, 2)
    print("said")  # noqa: T201 - captured
    return {"got": job().results()[3]}


def test_a_worker_function_runs_inline() -> None:
    assert "USHER_JOB_ID" not in os.environ
    ran = run_inline(work, "w", data="d", attempt=2, results={3: "three"})
    assert (ran.state, ran.result, ran.message) == ("completed", {"got": "three"}, "w d 2")
    assert (ran.output, ran.wrote) == ("said\n", [("table", "1"), ("table", "2")])
    assert ran.enqueued == [JobSpec("next", "m:f", ("w",), delay=timedelta(seconds=5), key="k")]


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (TemporaryError("t"), "temporary-error", 1),
        (PermanentError("p"), "permanent-error", 2),
        (SystemExit(2), "permanent-error", 2),
        (ValueError("v"), "temporary-error", 1),
    ],
)
async def test_how_a_function_fails_inline(error: BaseException, state: str, code: int) -> None:
    async def fail() -> None:
        raise error

    ran = await run_inline_async(fail)
    assert (ran.state, ran.exit_code, ran.error) == (state, code, error)


def test_a_result_that_cannot_be_stored_fails_inline() -> None:
    ran = run_inline(lambda: {1, 2})
    assert ran.state == "permanent-error"
    assert "cannot be stored" in ran.output
