"""Jobs inside the manager: every ending, limits, cancellation, and an output for each job."""

import asyncio
import itertools
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from integration.test_manager import House, house, until
from usher.db.pool import connect
from usher.queue import jobs, tasks
from usher.queue.jobs import JobRequest
from usher.queue.periods import TaskSchedule
from usher.queue.tasks import TaskSpec

MODULE = "integration.async_functions"
TABLES: dict[str, dict[str, Any]] = {
    "defaults": {"kill_after": 20, "grace": 0.3, "poll_interval": 0.2, "reschedule_after": "1h"},
    "quick": {"run": "async", "max_processes": 100},
    "short": {"run": "async", "kill_after": 0.3, "retry_after_kill": True},
    "small": {"run": "async", "output": 100},
    "narrow": {"run": "async", "max_processes": 2},
    "forked": {},
    "named": {"child_programs": [f"{MODULE}:nothing", f"{MODULE}:sh*"]},
}


def quick(name: str, *args: str, type_: str = "quick", **more: Any) -> JobRequest:  # noqa: ANN401 - of a New
    return JobRequest(type_, f"{MODULE}:{name}", args, **more)


async def result(here: House, name: str, *args: str, type_: str = "quick") -> Any:  # noqa: ANN401 - a row
    return await here.run(type_, f"{MODULE}:{name}", *args)


async def cancel(here: House, id_: int) -> None:
    async with here.db.transaction() as conn:
        await jobs.cancel(conn, [id_], reason="enough", now=datetime.now(UTC))


async def has_output(here: House, id_: int, text: str) -> None:
    async with asyncio.timeout(20):
        while text not in here.manager.output(id_):  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.02)


async def begun(here: House, id_: int) -> None:
    await until(lambda: id_ in here.manager.running.runs)


async def test_coroutines_and_functions_run_and_end_like_processes(database: str) -> None:
    async with house(database, TABLES) as here:
        assert await result(here, "nothing") == ("completed", 0, None, None)
        assert await result(here, "shout", "aha") == ("completed", 0, None, "AHA\n")
        for name in ("fail", "fail_in_thread"):
            for kind, expected in {
                "temporary": ("temporary-error", 1, "temporary words", "temporary words\n"),
                "permanent": ("permanent-error", 2, "permanent words", "permanent words\n"),
                "exit": ("temporary-error", 1, "bye", "bye\n"),
                "code": ("permanent-error", 2, None, None),
            }.items():
                assert await result(here, name, kind) == expected
        rows = await here.rows(
            'select hostname, process_id > 0, start <= "end" from control.job_log'
        )
        assert set(rows) == {("here", True, True)}


async def test_what_a_function_returns_is_the_result(database: str) -> None:
    query = "select job_id, value from control.job_result order by job_id"
    async with house(database, TABLES) as here:
        for name in ("split", "split_in_thread"):
            assert (await result(here, name, "a b"))[0] == "completed"
        assert [value for _, value in await here.rows(query)] == [["a", "b"], ["a", "b"]]
        state, _, message, _ = await result(here, "give_back_a_set")
        assert state == "permanent-error"
        assert "cannot be stored as JSON" in message


@pytest.mark.parametrize("name", ["fail", "fail_in_thread"])
async def test_an_error_leaves_its_traceback_in_the_log(database: str, name: str) -> None:
    async with house(database, TABLES) as here:
        state, code, message, output = await result(here, name, "other")
        assert (state, code, message) == ("temporary-error", 1, "ValueError: other words")
        assert output.startswith("Traceback")
        assert "async_functions.py" in output
        assert "usher/queue" not in output


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("no_such_module:work", "no_such_module"),
        (f"{MODULE}:no_such", "no_such"),
        ("/bin/true", "is not module:function, and type quick runs inside the manager"),
    ],
)
async def test_what_cannot_run_is_a_permanent_error(
    database: str, program: str, message: str
) -> None:
    async with house(database, TABLES) as here:
        state, code, text, _ = await here.run("quick", program)
        assert (state, code) == ("permanent-error", None)
        assert message in text


async def test_each_job_has_its_own_output(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with house(database, TABLES) as here:
        names = [f"job{number}" for number in range(20)]
        loops = await here.add(*(quick("say", name, "10") for name in names))
        threads = await here.add(*(quick("say_in_thread", name, "10") for name in names))
        for name, (state, _, _, output) in zip(names, await here.logged(loops), strict=True):
            turns = [f"{name} {n}\n{name} logs {n}\n{name} thread {n}\n" for n in range(10)]
            assert (state, output) == ("completed", "".join(turns) + f"{name} bytes")
        for name, (state, _, _, output) in zip(names, await here.logged(threads), strict=True):
            turns = [f"{name} {n}\n{name} logs {n}\n" for n in range(10)]
            assert (state, output) == ("completed", "".join(turns))
        sys.stdout.write("the test's own\n")
    assert capsys.readouterr().out == "the test's own\n"


async def test_output_is_bounded_and_seen_while_the_job_runs(database: str) -> None:
    async with house(database, TABLES) as here:
        _, _, _, output = await result(here, "say", "x" * 50, "20", type_="small")
        assert "bytes left out" in output
        assert len(output) < 200
        [id_] = await here.add(quick("sleep", "60"))
        query = "select output from control.job where id = %s and output is not null"
        async with asyncio.timeout(20):
            while not (rows := await here.rows(query, id_)):  # noqa: ASYNC110 - it is in the database
                await asyncio.sleep(0.05)
        assert rows == [("sleeping\n",)]


async def test_a_run_is_cancelled_at_its_time_limit(database: str) -> None:
    async with house(database, TABLES) as here:
        state, code, message, output = await result(here, "sleep", "60", type_="short")
        assert (state, code, message) == ("temporary-error", None, "Timed out after 0.3s")
        assert output == "sleeping\ncleaned up\n"
        state, code, message, output = await result(here, "stop_when_asked", type_="short")
        assert (state, code, output) == ("temporary-error", 0, "stopped\n")
        assert message == "Timed out after 0.3s: exit code 0"


@pytest.mark.parametrize("name", ["refuse_to_stop", "wait_in_thread"])
async def test_code_that_does_not_stop_is_given_up_and_not_retried(
    database: str, tmp_path: Path, name: str
) -> None:
    """A retry would run beside the first run; its place stays taken until that ends."""
    async with house(database, TABLES) as here:
        mark = tmp_path / "go"
        state, code, message, _ = await result(here, name, str(mark), type_="short")
        assert (state, code) == ("permanent-error", None)
        assert message == (
            "Timed out after 0.3 s; it did not stop within 0.3 s and still runs in the manager"
        )
        stuck = here.manager._async_runner.stuck
        assert stuck == {"short": 1}
        mark.touch()
        await until(lambda: stuck["short"] == 0)
        assert (await result(here, "nothing", type_="short"))[0] == "completed"


async def test_a_cancelled_run_stops(database: str, tmp_path: Path) -> None:
    async with house(database, TABLES) as here:
        ids = await here.add(quick("sleep", "60"), quick("wait_in_thread", str(tmp_path / "go")))
        await has_output(here, ids[0], "sleeping")
        await has_output(here, ids[1], "waiting")
        for id_ in ids:
            await cancel(here, id_)
        coroutine, thread = await here.logged(ids)
        assert coroutine == ("cancelled", None, "enough", "sleeping\ncleaned up\n")
        assert thread[:2] == ("cancelled", None)
        assert "did not stop within 0.3 s" in thread[2]
        (tmp_path / "go").touch()


async def test_a_blocking_coroutine_costs_no_lease(database: str) -> None:
    """Leases are renewed by the manager's own event loop."""
    lease = timedelta(seconds=1.5)
    async with house(database, TABLES, lease=lease) as here:
        [blocking] = await here.add(quick("block", "4"))
        await has_output(here, blocking, "blocking")
        others = await here.add(quick("nothing"), JobRequest("forked", "/bin/true"))
        assert await here.logged([others[1]]) == [("completed", 0, None, None)]
        async with await connect(database) as conn:
            assert not await tasks.requeue_lost_jobs(conn, n=10, now=datetime.now(UTC))
        assert await here.logged([blocking, others[0]]) == [
            ("completed", 0, None, "blocking\nwoke\n"),
            ("completed", 0, None, None),
        ]


async def test_a_blocked_event_loop_is_logged_and_gets_no_further_jobs(
    database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usher.queue.runners.async_runner.BLOCKED_SECONDS", 0.5)
    async with house(database, TABLES) as here:
        [blocking] = await here.add(quick("block", "3"))
        runner = here.manager._async_runner
        await until(lambda: runner.is_blocked)
        [later] = await here.add(quick("nothing"))
        await asyncio.sleep(0.5)
        assert await here.rows("select state from control.job where id = %s", later) == [
            ("pending",)
        ]
        await here.logged([blocking, later])
    [record] = [one for one in caplog.records if one.getMessage() == "job_blocks_event_loop"]
    assert record.__dict__["fields"]["job"] == str(blocking)


async def test_a_job_knows_itself_and_may_do_what_a_worker_may(
    database: str, tmp_path: Path
) -> None:
    async with house(database, TABLES) as here:
        async with here.db.transaction() as conn:
            clock = TaskSchedule.read(cron="0 0 1 1 *")
            task = TaskSpec(
                "quick", f"{MODULE}:tell", clock, args=(str(tmp_path / "told"),), data="d"
            )
            number = await tasks.add_task(conn, task, now=datetime.now(UTC))
            rows = await conn.execute(
                "insert into control.job (type, program, args, task_id, data) "
                "select type, program, args, id, data from control.task where id = %s returning id",
                [number],
            )
            [(id_,)] = await rows.fetchall()
        assert await here.logged([id_]) == [("completed", 0, "fetching foo", None)]
        assert (tmp_path / "told").read_text() == f"{id_} {number} d 1"
        [child] = await here.rows(
            "select job_id, parent_job_id, parent_task_id, origin_type, origin_program from control.job_hierarchy"
        )
        assert child[1:] == (id_, number, "quick", f"{MODULE}:tell")
        assert await here.logged([child[0]]) == [("completed", 0, None, "CHILD\n")]
        items = await here.rows("select job_id, table_row_id from control.job_table_item")
        assert items == [(id_, "1"), (id_, "2")]


@pytest.mark.parametrize(
    ("parent", "name", "state"),
    [
        (
            "forked",
            "nothing",
            "permanent-error",
        ),  # its own module is allowed, but not in the manager
        ("named", "nothing", "completed"),
        ("named", "shout", "permanent-error"),  # allowed by a wildcard only
        ("quick", "nothing", "completed"),
        ("quick", "asyncio.sleep", "permanent-error"),  # not defined by the module
    ],
)
async def test_jobs_that_other_jobs_put_in_keep_to_child_programs(
    database: str, parent: str, name: str, state: str
) -> None:
    async with house(database, TABLES, types=frozenset({"quick"})) as here:
        async with here.db.transaction() as conn:
            now = datetime.now(UTC)
            [above] = await jobs.enqueue(
                conn, [JobRequest(parent, f"{MODULE}:nothing", host_rule="x")], now=now
            )
            [below] = await jobs.enqueue(conn, [quick(name)], now=now)
            await conn.execute(
                "select control.record_children(array[%s::bigint], %s, true)", [below.id, above.id]
            )
        [row] = await here.logged([below.id])
        assert row[0] == state, row


async def test_types_keep_their_places(database: str, tmp_path: Path) -> None:
    async with house(database, TABLES) as here:
        mark = tmp_path / "go"
        ids = await here.add(*[quick("wait_in_thread", str(mark), type_="narrow")] * 4)
        await until(lambda: here.manager.busy["narrow"] == 2)
        await asyncio.sleep(0.5)
        running = "select count(*) from control.job where state = 'running'"
        assert await here.rows(running) == [(2,)]
        mark.touch()
        assert {row[0] for row in await here.logged(ids)} == {"completed"}


async def test_a_resource_holds_jobs_inside_the_manager_back(database: str) -> None:
    async with house(database, TABLES) as here:
        async with here.db.transaction() as conn:
            await conn.execute(
                "insert into control.resource (name, interval) values ('r', '200 ms')"
            )
        ids = await here.add(*[quick("nothing", resource="r")] * 4)
        await here.logged(ids)
        rows = await here.rows("select start from control.job_log order by start")
        starts = [start for (start,) in rows]
        assert all(
            after - before >= timedelta(milliseconds=200)
            for before, after in itertools.pairwise(starts)
        )


async def test_a_thousand_jobs_run_once_each(database: str, tmp_path: Path) -> None:
    async with house(database, TABLES) as one, house(database, TABLES) as two:
        book = tmp_path / "book"
        ids = await one.add(*[quick("count", str(book))] * 1000)
        rows = await one.logged(ids, 60)
        assert Counter(row[:2] for row in rows) == {("completed", 0): 1000}
        lines = [line.split() for line in book.read_text().splitlines()]
        assert sorted(int(line[0]) for line in lines) == sorted(ids)
        assert {line[1] for line in lines} == {"1"}
        assert two.manager.running.runs == {}


async def test_told_to_stop_jobs_end_and_told_twice_they_are_given_back(database: str) -> None:
    async with house(database, TABLES) as here:
        ids = await here.add(quick("sleep", "0.5"))
        await has_output(here, ids[0], "sleeping")
        here.stop.set()
        assert (await here.logged(ids))[0][0] == "completed"
    async with house(database, TABLES) as here:
        ids = await here.add(quick("sleep", "60"))
        await has_output(here, ids[0], "sleeping")
        here.stop.set()
        here.stop_now.set()
    async with await connect(database) as conn:
        rows = await conn.execute("select id, state, attempts, claim from control.job")
        assert await rows.fetchall() == [(ids[0], "pending", 0, None)]


async def test_a_run_that_lost_its_lease_is_cancelled_and_settles_nothing(database: str) -> None:
    async with house(database, TABLES, lease=timedelta(seconds=1.5)) as here:
        [id_] = await here.add(quick("sleep", "60"))
        await has_output(here, id_, "sleeping")
        here.stop.set()  # so that it does not take the job again
        async with await connect(database) as conn:
            await tasks.requeue_lost_jobs(conn, n=10, now=datetime.now(UTC) + timedelta(minutes=1))
        await until(lambda: here.manager.busy.total() == 0)
        [(state, _, message, _)] = await here.logged([id_])
        assert state == "temporary-error"
        assert message.startswith("Lost: no heartbeat")


async def test_the_late_end_of_a_lost_run_is_not_that_of_the_next(
    database: str, tmp_path: Path
) -> None:
    """The manager gets the job again before the code of the run that lost its lease has ended."""
    async with house(database, TABLES, lease=timedelta(seconds=1.5)) as here:
        mark = tmp_path / "go"
        [id_] = await here.add(quick("refuse_to_stop", str(mark)))
        await begun(here, id_)
        async with await connect(database) as conn:
            await tasks.requeue_lost_jobs(conn, n=10, now=datetime.now(UTC) + timedelta(minutes=1))
            await conn.execute("update control.job set state = 'pending', scheduled = now()")
            await conn.execute("select pg_notify('usher_job', 'quick')")
        again = "select id from control.job where state = 'running' and attempts = 2"
        stuck = here.manager._async_runner.stuck
        await until(lambda: stuck["quick"] == 1)
        async with asyncio.timeout(20):
            while not await here.rows(again):  # noqa: ASYNC110 - it is in the database
                await asyncio.sleep(0.05)
        mark.touch()
        rows = await here.logged([id_, id_])
        assert sorted(row[0] for row in rows) == ["completed", "temporary-error"]
        assert here.manager.busy.total() == 0


async def test_a_job_may_start_programs_and_leave_tasks_behind(database: str) -> None:
    async with house(database, TABLES) as here:
        row = await result(here, "start_program")
        assert row == ("completed", 0, None, "from a process\n")
        assert (await result(here, "leave_task"))[0] == "completed"
        await asyncio.sleep(0.1)
        assert (await result(here, "nothing"))[0] == "completed"
