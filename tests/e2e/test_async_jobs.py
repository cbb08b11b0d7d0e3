"""A manager ends while jobs run inside it: killed with -9, and told to stop while a job blocks."""

import psycopg

from support.processes.killable import eventually
from support.processes.stack import USHER, ask, stage
from usher.db.embedded.server_lease import EmbeddedServerLease

CONFIG = """
job_lease = 3
[worker.defaults]
max_attempts = 3
[worker.quick]
run = "async"
max_processes = 10
"""


def add(lodging: EmbeddedServerLease, name: str, *args: str) -> int:
    with psycopg.connect(lodging.dsn) as conn:
        query = (
            "insert into control.job (type, program, args) values ('quick', %s, %s) returning id"
        )
        [(id_,)] = conn.execute(
            query, [f"integration.async_functions:{name}", list(args)]
        ).fetchall()
    return int(id_)


def test_jobs_inside_a_killed_manager_run_again() -> None:
    with stage(CONFIG) as (cast, lodging, directory):
        mark = directory / "go"
        waiting = add(lodging, "wait_in_thread", str(mark))
        sleeping = add(lodging, "refuse_to_stop", str(mark))
        cast.enter("manager", *USHER, "manager", "--host", "m")
        cast.enter("scheduler", *USHER, "scheduler")
        running = "select count(*) from control.job where state = 'running' and attempts = 1"
        assert eventually(lambda: ask(lodging.dsn, running) == [(2,)], 30)
        cast.kill("manager")
        again = running.replace("attempts = 1", "attempts = 2")
        assert eventually(lambda: ask(lodging.dsn, again) == [(2,)], 60), ask(
            lodging.dsn, "select id, state, attempts, message, lease_until from control.job"
        )
        mark.touch()
        ended = "select count(*) from control.job_log where state = 'completed' and type = 'quick'"
        assert eventually(lambda: ask(lodging.dsn, ended) == [(2,)], 30)
        rows = ask(
            lodging.dsn,
            "select id, attempts, state, message from control.job_log where type = 'quick' order by id, attempts",
        )
        lost = "Lost: no heartbeat from m since its lease expired"
        assert rows == [
            (waiting, 1, "temporary-error", lost),
            (waiting, 2, "completed", None),
            (sleeping, 1, "temporary-error", lost),
            (sleeping, 2, "completed", None),
        ]
        assert cast.leave() == [0, 0], (directory / "log").read_text()[-2000:]


def test_a_manager_told_twice_ends_beside_code_that_does_not() -> None:
    with stage(CONFIG) as (cast, lodging, directory):
        id_ = add(lodging, "block", "600")
        cast.enter("manager", *USHER, "manager")
        begun = "select output from control.job where state = 'running'"
        assert eventually(lambda: ask(lodging.dsn, begun) == [("blocking\n",)], 30)
        manager = cast.playing["manager"]
        manager.terminate()
        assert eventually(lambda: "drains" in (directory / "log").read_text(), 20)
        manager.terminate()
        assert manager.wait(30) == 0, (directory / "log").read_text()[-2000:]
        rows = ask(lodging.dsn, "select id, state, attempts, claim from control.job")
        assert rows == [(id_, "pending", 0, None)]
