"""A manager ends while jobs run inside it: killed with -9, and told to stop while a job blocks."""

import psycopg

from support.processes.killable import eventually
from support.processes.stack import USHER, ask, open_stack
from usher.db.embedded.server_lease import EmbeddedServerLease

CONFIG = """
job_lease = 3
[worker.defaults]
max_attempts = 3
[worker.quick]
run = "async"
max_processes = 10
"""


def add(lease: EmbeddedServerLease, name: str, *args: str) -> int:
    with psycopg.connect(lease.dsn) as conn:
        query = (
            "insert into control.job (type, program, args) values ('quick', %s, %s) returning id"
        )
        [(id_,)] = conn.execute(
            query, [f"integration.async_functions:{name}", list(args)]
        ).fetchall()
    return int(id_)


def test_jobs_inside_a_killed_manager_run_again() -> None:
    with open_stack(CONFIG) as (stack, lease, directory):
        mark = directory / "go"
        waiting = add(lease, "wait_in_thread", str(mark))
        sleeping = add(lease, "refuse_to_stop", str(mark))
        stack.start("manager", *USHER, "manager", "--host", "m")
        stack.start("scheduler", *USHER, "scheduler")
        running = "select count(*) from control.job where state = 'running' and attempts = 1"
        assert eventually(lambda: ask(lease.dsn, running) == [(2,)], 30)
        stack.kill("manager")
        again = running.replace("attempts = 1", "attempts = 2")
        assert eventually(lambda: ask(lease.dsn, again) == [(2,)], 60), ask(
            lease.dsn, "select id, state, attempts, message, lease_until from control.job"
        )
        mark.touch()
        ended = "select count(*) from control.job_log where state = 'completed' and type = 'quick'"
        assert eventually(lambda: ask(lease.dsn, ended) == [(2,)], 30)
        rows = ask(
            lease.dsn,
            "select id, attempts, state, message from control.job_log where type = 'quick' order by id, attempts",
        )
        lost = "Lost: no heartbeat from m since its lease expired"
        assert rows == [
            (waiting, 1, "temporary-error", lost),
            (waiting, 2, "completed", None),
            (sleeping, 1, "temporary-error", lost),
            (sleeping, 2, "completed", None),
        ]
        assert stack.stop() == [0, 0], (directory / "log").read_text()[-2000:]


def test_a_manager_told_twice_ends_beside_code_that_does_not() -> None:
    with open_stack(CONFIG) as (stack, lease, directory):
        id_ = add(lease, "block", "600")
        stack.start("manager", *USHER, "manager")
        begun = "select output from control.job where state = 'running'"
        assert eventually(lambda: ask(lease.dsn, begun) == [("blocking\n",)], 30)
        manager = stack.running["manager"]
        manager.terminate()
        assert eventually(lambda: "drains" in (directory / "log").read_text(), 20)
        manager.terminate()
        assert manager.wait(30) == 0, (directory / "log").read_text()[-2000:]
        rows = ask(lease.dsn, "select id, state, attempts, claim from control.job")
        assert rows == [(id_, "pending", 0, None)]
