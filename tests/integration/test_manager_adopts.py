"""Jobs of a manager that died: another one takes them on, and who cancels them is heard all the same."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.processes.commands import clean, usher
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually, running

pytestmark = EMBEDDED
JOB = "select state, hostname, process_id, cancel from control.job where id = %s"
LOG = "select state, hostname from control.job_log where id = %s order by attempts"
ONCE = """echo $$ >> "$0"; trap 'exit 0' TERM; sleep 600 & wait"""


class Queue:
    """Managers and a scheduler as processes, and what became of one job."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn, self.marks = dsn, directory / "pids"
        self.environment = clean(
            {"DATABASE_URL": dsn, "USHER_JOB_LEASE": "3", "USHER_DATA": str(directory)}
        )
        self.log = (directory / "log").open("ab")
        self.playing: dict[str, subprocess.Popen[bytes]] = {}

    def enter(self, name: str, *words: str) -> None:
        command = [sys.executable, "-m", "usher", *words]
        self.playing[name] = subprocess.Popen(
            command, env=self.environment, stdout=self.log, stderr=self.log
        )

    def manager(self, name: str) -> None:
        self.enter(name, "manager", "--host", name)

    def kill(self, name: str) -> None:
        self.playing[name].kill()
        self.playing[name].wait()

    def end(self) -> None:
        for name in self.playing:
            self.kill(name)
        self.log.close()

    def add(self) -> int:
        command = ("/bin/sh", "-c", ONCE, str(self.marks))
        done = usher("jobs", "add", "--", *command, environment=self.environment)
        assert done.code == 0, done.err
        return int(done.out)

    def cancel(self, job: int) -> None:
        done = usher("jobs", "cancel", str(job), environment=self.environment)
        assert done.code == 0, done.err

    def ask(self, query: str, job: int) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query.encode(), [job]).fetchall()

    def runs_at(self, job: int, name: str) -> bool:
        """Whether its process is there, and belongs to this manager."""
        found = self.ask(JOB, job)
        return bool(found) and found[0][:2] == ("running", name) and running(found[0][2] or 0)

    def pids(self) -> list[int]:
        return [int(word) for word in self.marks.read_text().split()]


@pytest.fixture
def queue(database: str, tmp_path: Path) -> Iterator[Queue]:
    made = Queue(database, tmp_path)
    try:
        yield made
    finally:
        made.end()


def bereft(queue: Queue) -> int:
    """A job whose manager was killed while it ran."""
    queue.manager("first")
    job = queue.add()
    assert eventually(lambda: queue.runs_at(job, "first"), 60), queue.ask(JOB, job)
    queue.kill("first")
    return job


def over(queue: Queue, job: int) -> list[tuple[Any, ...]]:
    """Where it ran, and how that ended, once it is in the queue no more and none of its processes is left."""
    assert eventually(lambda: queue.ask(JOB, job) == [], 60), queue.ask(JOB, job)
    assert eventually(lambda: not any(map(running, queue.pids())), 60)
    return queue.ask(LOG, job)


def test_who_cancels_an_adopted_job_ends_it(queue: Queue) -> None:
    job = bereft(queue)
    queue.enter("scheduler", "scheduler")
    queue.manager("second")
    assert eventually(lambda: queue.runs_at(job, "second"), 60), queue.ask(JOB, job)
    queue.cancel(job)
    assert over(queue, job) == [("temporary-error", "first"), ("cancelled", "second")]
    assert len(queue.pids()) == 2


def test_what_is_cancelled_before_anybody_adopts_it_is_not_run_again(queue: Queue) -> None:
    job = bereft(queue)
    queue.cancel(job)
    queue.enter("scheduler", "scheduler")
    queue.manager("second")
    assert over(queue, job) == [("cancelled", "first")]
    assert len(queue.pids()) == 1
