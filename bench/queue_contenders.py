"""The contenders of bench/queue.py: Usher and peers as processes, pgbench, a manager, and empty processes."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

import frame
from frame import Child
from usher.db.embedded import binaries
from usher.db.statements import split_statements

PROCESSES = {1: "one process", 2: "two processes"}
# Options of a peer's worker; --quick uses the first.
WAYS: dict[str, list[dict[str, Any]]] = {
    "procrastinate": [
        {"concurrency": n, "delete_jobs": delete}
        for n in (5, 1, 10, 30)
        for delete in ("never", "always")
    ],
    "pgqueuer": [{"batch_size": n} for n in (500, 10, 100, 1000)],
    "usher": [{"max_processes": n} for n in (1000, 100, 500, 2000)],  # jobs inside the manager
}
TABLES = {
    "usher": ("control.job, control.job_log", "true"),
    "procrastinate": ("procrastinate_jobs, procrastinate_events", "status <> 'succeeded'"),
    "pgqueuer": ("pgqueuer, pgqueuer_log", "true"),
}
# What a manager runs: a function in a fork, and a program.
RUNS = {"fork": ("noop:noop", list[str]()), "exec": (sys.executable, ["-c", "pass"])}
JOB = """
import time

def noop():
    pass

def stamp(path):
    now = time.monotonic()
    with open(path, "a") as file:
        print(now, file=file)
"""
# The limit of both, with a manager's default concurrency.
BARE = """
import os, sys, time
runner, number, alive = sys.argv[1], int(sys.argv[2]), 0
begin = time.monotonic()
for _ in range(number):
    if runner == "exec":
        os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], os.environ)
    elif not os.fork():
        os._exit(0)
    alive += 1
    if alive == 5:
        os.wait()
        alive -= 1
for _ in range(alive):
    os.wait()
print(number / (time.monotonic() - begin))
"""
PATIENCE = 60
SCRIPT = Path(__file__).with_name("queue_peers.py")
TEXTS = dict(split_statements(Path(__file__).with_name("queue.sql").read_text()))


class Side:
    """One contender: its database, its two processes, and the options of its worker."""

    def __init__(self, name: str, python: str, dsn: str, ends: AsyncExitStack) -> None:
        self.name, self.dsn = name, dsn
        self.conn = psycopg.connect(dsn, autocommit=True)
        ends.callback(self.conn.close)
        self.ways = dict.fromkeys(PROCESSES, WAYS.get(name, [{}])[0])
        self.children = []
        for _ in PROCESSES:
            self.children.append(Child(python, SCRIPT, name, dsn))
            ends.callback(self.children[-1].end)
        self.children[0].ask("install")

    def left(self) -> int:
        tables, unfinished = TABLES[self.name]
        found = self.conn.execute(
            f"select count(*) from {tables.split(',')[0]} where {unfinished}"  # noqa: S608 - ours
        )
        return int((found.fetchone() or [0])[0])

    def clear(self) -> None:
        self.conn.execute(f"truncate {TABLES[self.name][0]} cascade")

    def enqueue(self, number: int, batch: int) -> float:
        """Return the jobs that one process enqueues in a second."""
        self.clear()
        seconds, _ = self.children[0].ask("enqueue", number, batch)
        if self.left() != number:
            raise RuntimeError(f"{self.name} has {self.left()} jobs, not {number}")
        return number / seconds

    def fill(self, number: int) -> None:
        self.enqueue(number, min(number, 500))
        self.conn.execute(f"vacuum (analyze) {TABLES[self.name][0]}")

    def work(self, number: int, processes: int, way: Mapping[str, Any] | None = None) -> float:
        """Return the jobs claimed and settled in a second, from the start of the workers until the queue is empty."""
        self.fill(number)
        workers = self.children[:processes]
        for worker in workers:
            worker.send("work", way or self.ways[processes])
        begins, ends, _ = zip(*(worker.receive() for worker in workers), strict=True)
        if self.left():
            raise RuntimeError(f"{self.name} left {self.left()} of {number} jobs")
        return float(number / (max(ends) - min(begins)))

    def run(self, number: int, processes: int, way: Mapping[str, Any] | None = None) -> float:
        """Return the jobs claimed, run and settled in a second by a peer's workers or Usher's managers."""
        if self.name != "usher":
            return self.work(number, processes, way)
        self.fill(number)
        workers = self.children[:processes]
        for worker in workers:
            worker.send("run", way or self.ways[processes])
        begins, ends = zip(*(worker.receive()[2] for worker in workers), strict=True)
        if self.left():
            raise RuntimeError(f"{self.left()} of {number} jobs are left")
        return float(number / (max(ends) - min(begins)))

    def tune(self, number: int) -> None:
        """Choose the fastest options for each number of processes."""
        for processes in PROCESSES:
            rates = [self.run(number, processes, way) for way in WAYS[self.name]]
            self.ways[processes] = WAYS[self.name][rates.index(max(rates))]


class Limit:
    """pgbench on Usher's database."""

    def __init__(self, side: Side, home: Path) -> None:
        self.side, self.home = side, home
        self.program = binaries.find_binaries() / "pgbench"

    def there(self) -> bool:
        return Path(self.program).exists()

    def pgbench(self, script: str, turns: int, clients: int, batch: int) -> float:
        """Return the transactions a second of all clients together."""
        file = self.home / f"{script}.sql"
        file.write_text(TEXTS[script])
        many = ["-c", clients, "-j", clients, "-t", turns // clients, "-D", f"batch={batch}"]
        options = ["-n", "-M", "prepared", "-f", file, *many, self.side.dsn]
        command = [self.program, *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or not found:
            raise RuntimeError(f"pgbench said: {done.stderr.strip()}")
        return float(found[1])

    def enqueue(self, number: int, batch: int) -> float:
        self.side.clear()
        return batch * self.pgbench("limit_enqueue", number // batch, 1, batch)

    def work(self, number: int, processes: int, batch: int) -> float:
        self.side.fill(number)
        rate = batch * self.pgbench("limit_work", number // batch, processes, batch)
        return rate * (number - self.side.left()) / number


class ManagerProcess:
    """A manager on Usher's database with default settings."""

    def __init__(self, side: Side, home: Path, ends: AsyncExitStack) -> None:
        self.side = side
        self.stamps = home / "stamps"
        self.stamps.touch()
        (home / "noop.py").write_text(JOB)
        ours = {"DATABASE_URL": side.dsn, "PYTHONPATH": str(home), "USHER_LOG_LEVEL": "warning"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "usher", "manager"], env={**os.environ, **ours}, cwd=home
        )
        ends.callback(self.end)
        for runner in RUNS:
            self.rate(runner, 10)  # to load all modules

    def put_in(self, program: str, args: list[str], number: int = 1) -> None:
        words = [Path(program).name.replace(":", "."), program, args, number]
        self.side.conn.execute(
            "insert into control.job (type, program, args) select %s, %s, %s::text[] from generate_series(1, %s)",
            words,
        )

    def wait(self, number: int) -> None:
        """Wait until this number of jobs is in the log."""
        frame.wait_until(lambda: self.ended() >= number, PATIENCE, pause=0.01)

    def ended(self) -> int:
        if self.process.poll() is not None:
            raise RuntimeError("the manager ended early, see above")
        found = self.side.conn.execute(
            "select count(*) from control.job_log where state = 'completed'"
        )
        return int((found.fetchone() or [0])[0])

    def rate(self, runner: str, number: int) -> float:
        """Return the jobs a second, from before they are enqueued until the last is in the log."""
        self.side.clear()
        begin = monotonic()
        self.put_in(*RUNS[runner], number)
        self.wait(number)
        return number / (monotonic() - begin)

    def latency(self, number: int) -> float:
        """Return the milliseconds from before the insert until the job's first line; the manager is idle."""
        begin = monotonic()
        self.put_in("noop:stamp", [str(self.stamps)])
        self.wait(number)
        return 1000 * (float(self.stamps.read_text().split()[-1]) - begin)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def bare(runner: str, number: int) -> float:
    """Return the empty processes that a minimal Python starts in a second."""
    command = [sys.executable, "-I", "-S", "-c", BARE, runner, str(number)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def made(dsn: str, name: str, template: str = "template1") -> str:
    """Return the DSN of a new database on the same server; the template must have no sessions."""
    with psycopg.connect(dsn, dbname="postgres", autocommit=True) as conn:
        conn.execute(f"create database {name} template {template} strategy file_copy")
    return make_conninfo(dsn, dbname=name)
