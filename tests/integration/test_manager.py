"""A manager with real programs: every ending in its state, limits kept, and leaving in order."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from support.processes.killable import eventually, running
from usher.db.pool import Database, connect
from usher.queue import jobs, tasks
from usher.queue.jobs import JobRequest
from usher.queue.manager import Manager, ManagerConfig
from usher.queue.periods import TaskSchedule
from usher.queue.policy import read_policies
from usher.queue.tasks import TaskSpec

TABLES: dict[str, dict[str, Any]] = {
    "defaults": {"kill_after": 20, "grace": 0.5, "poll_interval": 0.5, "reschedule_after": "1h"},
    "short": {"kill_after": 0.5},
    "again": {"kill_after": 0.5, "retry_after_kill": True},
    "once": {"max_attempts": 1},
    "narrow": {"max_processes": 2},
    "none": {"max_processes": 0},
    "small": {"output": 100},
    "t": {"child_programs": ["/bin/true"]},
}


@dataclass
class House:
    """A manager at work, and a connection to look on."""

    dsn: str
    manager: Manager
    stop: asyncio.Event
    stop_now: asyncio.Event
    db: Database

    async def add(self, *new: JobRequest) -> list[int]:
        async with self.db.transaction() as conn:
            entered = await jobs.enqueue(conn, new, now=datetime.now(UTC))
        return [one.id for one in entered]

    async def rows(self, query: str, *given: object) -> list[Any]:
        async with self.db.transaction() as conn:
            found = await conn.execute(query.encode(), given)
            return await found.fetchall()

    async def logged(self, ids: list[int], seconds: float = 30) -> list[Any]:
        """State, exit code, message and output of each, as soon as all are in the log."""
        query = """
            select state, exit_code, message, output from control.job_log where id = any(%s) order by id
        """
        deadline = asyncio.get_running_loop().time() + seconds
        while len(found := await self.rows(query, ids)) < len(ids):
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.02)
        return found

    async def run(self, type_: str, program: str, *args: str) -> Any:  # noqa: ANN401 - a row
        [row] = await self.logged(await self.add(JobRequest(type_, program, args)))
        return row


@asynccontextmanager
async def house(
    dsn: str,
    tables: dict[str, dict[str, Any]] = TABLES,
    **wish: Any,  # noqa: ANN401 - of a Post
) -> AsyncIterator[House]:
    worker = make_conninfo(dsn, user="usher_worker")
    post = ManagerConfig(host="here", policies=read_policies(tables), dsn=worker, **wish)
    async with Database(dsn, role="usher_manager") as db:
        manager = Manager(db, post)
        stop, stop_now = asyncio.Event(), asyncio.Event()
        working = asyncio.create_task(manager.run(stop, stop_now))
        try:
            yield House(dsn, manager, stop, stop_now, db)
        finally:
            stop.set()
            stop_now.set()
            await asyncio.wait_for(working, 30)


async def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Let the loop go on until it is true."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - the manager has no event for a test
            await asyncio.sleep(0.02)


def shell(text: str) -> JobRequest:
    return JobRequest("t", "/bin/sh", ("-c", text))


@pytest.mark.seed("002.14", "002.18", "002.19", "002.21", "002.32")
async def test_every_exit_code_has_its_state(database: str) -> None:
    async with house(database) as here:
        ids = await here.add(*(shell(f"echo {code}; exit {code}") for code in (0, 1, 2, 3, 255)))
        assert await here.logged(ids) == [
            ("completed", 0, None, "0\n"),
            ("temporary-error", 1, "1", "1\n"),
            ("permanent-error", 2, "2", "2\n"),
            ("temporary-error", 3, "Invalid exit code: 3", "3\n"),
            ("temporary-error", 255, "Invalid exit code: 255", "255\n"),
        ]
        rows = await here.rows(
            'select hostname, process_id > 0, attempts, start <= "end" from control.job_log'
        )
        assert set(rows) == {("here", True, 1, True)}


@pytest.mark.seed("002.21")
async def test_signals_timeouts_and_what_never_ran(database: str, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    stubborn = f"trap '' TERM; sleep 50 & echo $$ $! > {mark}; wait; sleep 50"
    async with house(database) as here:
        assert await here.run("t", "/bin/sh", "-c", "kill -SEGV $$") == (
            "permanent-error", -11, "Killed by signal SEGV", None,
        )  # fmt: skip
        state, code, message, _ = await here.run("short", "/bin/sh", "-c", stubborn)
        assert (state, code) == ("permanent-error", -9)
        assert message == "Timed out after 0.5s: killed by signal KILL"
        pids = [int(word) for word in mark.read_text().split()]
        assert eventually(lambda: not any(map(running, pids)))
        state, code, *_ = await here.run("again", "/bin/sleep", "50")
        assert (state, code) == ("temporary-error", -15)
        state, code, message, _ = await here.run("t", "/no/such/program")
        assert (state, code) == ("permanent-error", None)
        assert "/no/such/program" in message
        state, code, message, _ = await here.run("once", "/bin/false")
        assert (state, code) == ("permanent-error", 1)


@pytest.mark.seed("002.18", "002.20")
async def test_output_is_bounded_readable_and_seen_while_it_runs(database: str) -> None:
    async with house(database) as here:
        noise = f'{sys.executable} -c "import os; os.write(1, bytes(range(256)) * 4000)"'
        state, _, _, output = await here.run("small", "/bin/sh", "-c", noise)
        assert state == "completed"
        assert len(output) < 300
        assert "left out" in output
        [id_] = await here.add(shell("echo begun; sleep 20"))
        for _ in range(200):
            found = await here.rows(
                "select output, process_id from control.job where id = %s and output is not null",
                id_,
            )
            if found:
                break
            await asyncio.sleep(0.05)
        assert found[0][0] == "begun\n"
        assert running(found[0][1])
        async with here.db.transaction() as conn:
            assert await jobs.cancel(conn, [id_], reason="enough", now=datetime.now(UTC))
        [(state, code, message, _)] = await here.logged([id_])
        assert (state, code, message) == ("cancelled", -15, "enough")
        assert not running(found[0][1])


async def test_a_function_knows_its_job(database: str, tmp_path: Path) -> None:
    async with house(database, env={"EXTRA": "yes"}) as here:
        async with here.db.transaction() as conn:
            task = TaskSpec(
                "t",
                "support.queue.job_functions:story",
                TaskSchedule.read(cron="0 0 1 1 *"),
                data="d",
            )
            number = await tasks.add_task(conn, task, now=datetime.now(UTC))
            await conn.execute(
                "insert into control.job (type, program, args, task_id, data) "
                "select type, program, array[%s], id, data from control.task where id = %s",
                [str(tmp_path / "told"), number],
            )
        rows: list[Any] = []
        while not rows:
            rows = await here.rows(
                "select id, state, message, output from control.job_log where task_id = %s", number
            )
            await asyncio.sleep(0.02)
        [(id_, state, message, output)] = rows
        assert (state, message) == ("completed", "fetching foo")
        assert (tmp_path / "told").read_text() == f"{id_} {number} d 1 yes"
        assert output == "said\n"
        kin = await here.rows(
            "select parent_job_id, parent_task_id, origin_type, origin_program from control.job_hierarchy"
        )
        assert set(kin) == {(id_, number, "t", "support.queue.job_functions:story")}
        children = [id_ for (id_,) in await here.rows("select job_id from control.job_hierarchy")]
        assert {row[0] for row in await here.logged(children)} == {"completed"}
        assert await here.rows("select job_id, table_row_id from control.job_table_item") == [
            (id_, "1"), (id_, "2"),
        ]  # fmt: skip


async def test_errors_of_functions(database: str) -> None:
    async with house(database) as here:
        state, code, message, output = await here.run("t", "support.queue.job_functions:later")
        assert (state, code, message) == ("temporary-error", 1, "not now")
        state, code, message, output = await here.run("t", "support.queue.job_functions:never")
        assert (state, code, message) == ("permanent-error", 2, "not ever")
        state, code, _, output = await here.run("t", "support.queue.job_functions:broken")
        assert (state, code) == ("temporary-error", 1)
        assert "ZeroDivisionError" in output
        state, _, message, _ = await here.run("t", "no_such_module:work")
        assert state == "permanent-error"
        assert "no_such_module" in message


@pytest.mark.seed("002.13")
async def test_pools_have_room_for_so_many(database: str, tmp_path: Path) -> None:
    async with house(database, max_processes=3) as here:
        text = f"echo + >> {tmp_path}/n; sleep 0.2; echo - >> {tmp_path}/n"
        narrow = [JobRequest("narrow", "/bin/sh", ("-c", text))] * 6
        ids = await here.add(*narrow, *[JobRequest("t", "/bin/sh", ("-c", text))] * 6)
        asleep = await here.add(JobRequest("none", "/bin/true"))
        await here.logged(ids)
        signs = [1 if line == "+" else -1 for line in (tmp_path / "n").read_text().split()]
        assert max(sum(signs[:end]) for end in range(len(signs))) == 3
        rows = await here.rows("select state from control.job where id = any(%s)", asleep)
        assert rows == [("pending",)]


@pytest.mark.seed("002.37")
async def test_a_resource_keeps_starts_apart_and_the_manager_comes_back_in_time(
    database: str,
) -> None:
    async with house(database) as here:
        async with here.db.transaction() as conn:
            await conn.execute(
                "insert into control.resource (name, interval) values ('r', '300 ms')"
            )
        ids = await here.add(*[JobRequest("t", "/bin/true", resource="r")] * 4)
        await here.logged(ids)
        rows = await here.rows("select start from control.job_log order by start")
        starts = [start for (start,) in rows]
        gaps = [later - earlier for earlier, later in pairwise(starts)]
        assert min(gaps) >= timedelta(milliseconds=300)
        assert max(gaps) < timedelta(seconds=3)


async def test_the_first_call_to_stop_lets_jobs_end(database: str) -> None:
    async with house(database) as here:
        [id_] = await here.add(shell("sleep 1; echo done"))
        await until(lambda: here.manager.busy.total() == 1)
        here.stop.set()
        later = await here.add(shell("echo never"))
        assert await here.logged([id_]) == [("completed", 0, None, "done\n")]
        await asyncio.sleep(0.3)
        assert await here.rows("select state from control.job where id = any(%s)", later) == [
            ("pending",)
        ]


async def test_the_second_call_gives_jobs_back_without_charging_them(database: str) -> None:
    async with house(database) as here:
        ids = await here.add(
            shell("sleep 60"), JobRequest("t", "/bin/sleep", ("60",), resource="r")
        )
        await until(lambda: here.manager.busy.total() == 2)
        here.stop.set()
        here.stop_now.set()
    async with await connect(database) as conn:
        rows = await conn.execute(
            "select id, state, attempts, claim, hostname from control.job order by id"
        )
        assert await rows.fetchall() == [(id_, "pending", 0, None, None) for id_ in ids]
        rows = await conn.execute("select running from control.resource where name = 'r'")
        assert await rows.fetchone() == (0,)


async def test_a_run_that_lost_its_lease_is_killed_and_settles_nothing(database: str) -> None:
    async with house(database, lease=timedelta(seconds=1.5)) as here:
        [id_] = await here.add(shell("sleep 60"))
        runs = here.manager.running.runs
        await until(lambda: id_ in runs and runs[id_].pid is not None)
        pid = runs[id_].pid or 0
        here.stop.set()  # so that it does not take the job again
        async with await connect(database) as conn:
            await tasks.requeue_lost_jobs(conn, n=10, now=datetime.now(UTC) + timedelta(minutes=1))
        await until(lambda: here.manager.busy.total() == 0)
        assert not running(pid)
        [(state, _, message, _)] = await here.logged([id_])
        assert state == "temporary-error"
        assert message.startswith("Lost: no heartbeat")


@pytest.mark.parametrize("host", ["here", "elsewhere"])
async def test_host_rules(database: str, host: str) -> None:
    async with house(database) as here:
        [id_] = await here.add(JobRequest("t", "/bin/true", host_rule=host))
        if host == "here":
            assert (await here.logged([id_]))[0][0] == "completed"
            rows = await here.rows("select host_rule from control.job_log where id = %s", id_)
            assert rows == [("here",)]
        else:
            await asyncio.sleep(0.5)
            rows = await here.rows("select state from control.job where id = %s", id_)
            assert rows == [("pending",)]


@pytest.mark.seed("002.15")
async def test_a_hostile_argument_is_an_argument(database: str, tmp_path: Path) -> None:
    async with house(database) as here:
        word = f"'; touch {tmp_path}/x; '"
        assert await here.run("t", "/bin/echo", word) == ("completed", 0, None, f"{word}\n")
        assert not (tmp_path / "x").exists()


RUNNING = "select count(*) from control.job where state = 'running'"


async def test_what_was_claimed_ahead_is_given_back_when_runs_get_long(database: str) -> None:
    """Jobs at hand behind five that take long would wait here while other managers are idle."""
    async with house(database) as here:
        await here.logged(await here.add(*[JobRequest("t", "/bin/true")] * 40))
        await here.add(
            *[JobRequest("t", "/bin/sleep", ("60",))] * 5, *[JobRequest("t", "/bin/true")] * 30
        )
        await until(lambda: here.manager.busy["t"] == 5)
        async with asyncio.timeout(10):
            while await here.rows(RUNNING) != [(5,)]:  # noqa: ASYNC110 - it is in the database
                await asyncio.sleep(0.05)
        rows = await here.rows(
            "select distinct attempts, claim from control.job where state = 'pending'"
        )
        assert rows == [(0, None)]


async def test_nobody_takes_a_resources_seat_before_it_runs(database: str) -> None:
    async with house(database) as here:
        async with here.db.transaction() as conn:
            await conn.execute(
                "insert into control.resource (name, capacity, interval) values ('wide', 1000, '0')"
            )
        await here.logged(await here.add(*[JobRequest("t", "/bin/true")] * 40))
        ids = await here.add(*[JobRequest("t", "/bin/sleep", ("0.04",), resource="wide")] * 100)
        await asyncio.sleep(0.3)
        taken = []
        while await here.rows("select count(*) from control.job where id = any(%s)", ids) != [(0,)]:
            taken += await here.rows("select running from control.resource where name = 'wide'")
            await asyncio.sleep(0.01)
        assert taken
        assert max(taken) <= (5 + 5,)  # those that run, and those whose end is not written down yet


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3])
async def test_told_to_stop_in_the_middle_of_it_nothing_is_left_claimed(
    database: str, delay: float
) -> None:
    async with house(database) as here:
        await here.logged(await here.add(*[JobRequest("t", "/bin/true")] * 20))
        await here.add(*[JobRequest("t", "/bin/true")] * 1000)
        await asyncio.sleep(delay)
        here.stop.set()
    async with await connect(database) as conn:
        rows = await conn.execute(
            "select state, attempts, count(*) > 0 from control.job group by 1, 2"
        )
        assert await rows.fetchall() == [("pending", 0, True)]
        rows = await conn.execute("select count(*) from control.job_log where state <> 'completed'")
        assert await rows.fetchone() == (0,)
