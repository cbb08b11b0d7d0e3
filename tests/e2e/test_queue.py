"""Two thousand jobs while managers, schedulers, workers and PostgreSQL are killed: nothing lost, nothing run by two."""

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from support.processes.killable import eventually, kill_9, running
from support.processes.stack import TESTS, USHER, ProcessStack, ask, open_stack
from usher.db.embedded.server_lease import EmbeddedServerLease

JOBS, MANAGERS, SECONDS = 2_000, 3, 15
CONFIG = """
job_lease = 3
[worker.defaults]
max_processes = 6
reschedule_after = 0.2
backoff = 1
max_attempts = 1000
retry_after_kill = true
"""


def fill(dsn: str, book: Path) -> None:
    """Most jobs are functions, some are programs; a third share resources."""
    query = """
        insert into control.resource (name, capacity, interval)
        values ('r0', 1, '1 ms'), ('r1', 2, '0'), ('r2', 5, '0');
        insert into control.job (type, program, args, resource_id)
        select
            't' || i %% 2, case when i %% 10 = 0 then %(python)s else 'support.queue.logged_jobs:errand' end,
            case when i %% 10 = 0 then array[%(script)s, %(book)s] else array[%(book)s] end,
            case when i %% 3 = 0 then 1 + i %% 9 / 3 end
        from generate_series(1, %(jobs)s) i
    """
    given = {
        "python": sys.executable,
        "script": str(TESTS / "support" / "queue" / "logged_jobs.py"),
        "book": str(book),
        "jobs": JOBS,
    }
    with psycopg.connect(dsn) as conn, psycopg.ClientCursor(conn) as cursor:
        cursor.execute(query.encode(), given)


def kill_a_worker(dsn: str) -> None:
    pids = ask(dsn, "select process_id from control.job where process_id is not null")
    if pids:
        with suppress(ProcessLookupError):
            os.kill(int(str(pids[0][0])), signal.SIGKILL)


def trouble(stack: ProcessStack, lease: EmbeddedServerLease, luck: random.Random) -> Counter[str]:
    """Fifteen seconds in which anything may die."""
    deaths: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        who = luck.choice(["manager", "manager", "scheduler", "worker", "worker", "postgres"])
        deaths[who] += 1
        if who == "manager":
            stack.kill(f"m{luck.randrange(MANAGERS)}")
        elif who == "scheduler":
            stack.kill("scheduler")
        elif who == "worker":
            kill_a_worker(lease.dsn)
        elif (pid := lease.cluster.pid()) and running(pid):
            kill_9(pid)
        time.sleep(luck.uniform(0.3, 0.9))
    return deaths


@pytest.mark.soak
def test_two_thousand_jobs_while_everything_dies(capsys: pytest.CaptureFixture[str]) -> None:
    luck = random.Random(4)  # noqa: S311 - repeatable
    with open_stack(CONFIG) as (stack, lease, directory):
        book = directory / "book"
        book.touch()
        fill(lease.dsn, book)
        for number in range(MANAGERS):
            stack.start(f"m{number}", *USHER, "manager", "--host", f"m{number}")
        stack.start("scheduler", *USHER, "scheduler")
        deaths = trouble(stack, lease, luck)
        left = "select count(*) from control.job where type like 't%'"
        done = eventually(lambda: ask(lease.dsn, left) == [(0,)], 150)
        lines = [line.split() for line in book.read_text().splitlines()]
        with capsys.disabled():
            print(f"\n{summary(lease.dsn, deaths, lines)}")  # noqa: T201 - the issue asks for it
        assert done, (directory / "log").read_text()[-4000:]
        check(lease.dsn, lines)
        assert stack.stop() == [0] * (MANAGERS + 1), (directory / "log").read_text()[-4000:]
        assert not [pid for _, pid in alive(book) if running(pid)]


def summary(dsn: str, deaths: Counter[str], lines: list[list[str]]) -> str:
    states = ask(dsn, "select state, count(*) from control.job_log group by 1 order by 1")
    return f"killed: {dict(deaths)}; log: {dict(states)}; runs begun: {sum(line[0] == 'begin' for line in lines)}"  # type: ignore[arg-type]


def check(dsn: str, lines: list[list[str]]) -> None:
    assert not [line for line in lines if line[0] == "overlap"]
    begun = Counter((line[1], line[2]) for line in lines if line[0] == "begin")
    assert max(begun.values()) == 1, "an attempt ran twice"
    finals = "select count(*) filter (where completed), count(distinct id) from control.job_log where type like 't%'"
    assert ask(dsn, finals) == [(JOBS, JOBS)]
    assert ask(
        dsn, "select distinct state from control.job_log where completed and type like 't%'"
    ) == [("completed",)]
    gaps = """
        select id from control.job_log where type like 't%'
        group by id having count(*) <> max(attempts) or count(distinct attempts) <> max(attempts)
    """
    assert ask(dsn, gaps) == []
    traced = {(str(id_), str(n)) for id_, n in ask(dsn, "select id, attempts from control.job_log")}
    assert set(begun) <= traced
    assert ask(dsn, "select sum(running) from control.resource") == [(0,)]


def alive(book: Path) -> list[tuple[str, int]]:
    words = [line.split() for line in book.read_text().splitlines()]
    return [(one[1], int(one[3])) for one in words if one[0] == "begin"]
