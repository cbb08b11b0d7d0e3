"""No process opens more connections than docs/database.md says, whatever its load."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.mgmt.mgmt_process import mgmt
from support.processes.killable import eventually
from usher.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "database.md"
ROW = re.compile(r"^\| (\w+) \| ([^|]+) \| (\d+) \|", re.MULTILINE)
TIMES = "\N{MULTIPLICATION SIGN}"
POOL_SIZE = 2
STEADY_SAMPLES = 50
REQUESTS = 120
CALLERS = 24
PATHS = ("/v1/jobs", "/v1/hosts", "/v1/components", "/feeds.json", "/items.json", "/status.json")
COUNT = "select count(*) from pg_stat_activity where application_name = %s"
JOBS = 60
FILL = "insert into control.job (type, program) select 'counted', '/bin/true' from generate_series(1, %s)"
UNFINISHED = "select count(*) from control.job where state in ('pending', 'running')"


def documented() -> dict[str, tuple[str, int]]:
    section = PAGE.read_text(encoding="utf-8").split("\n### Connections\n")[1].split("\n##")[0]
    return {name: (words, int(number)) for name, words, number in ROW.findall(section)}


def bound(words: str, pool_size: int) -> int:
    """The value of a product and a sum as the table has them."""
    total = 0
    for term in words.split("+"):
        factors = [factor.strip() for factor in term.split(TIMES)]
        values = [pool_size if factor == "pool_size" else int(factor) for factor in factors]
        total += values[0] * (values[1] if len(values) > 1 else 1)
    return total


class Counter(threading.Thread):
    """Looks at pg_stat_activity without pause and keeps the numbers of connections that it saw."""

    def __init__(self, dsn: str, name: str) -> None:
        super().__init__(daemon=True)
        self.dsn, self.application = dsn, name
        self.seen: list[int] = []
        self.ended = threading.Event()

    @property
    def most(self) -> int:
        return max(self.seen, default=0)

    def run(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while not self.ended.wait(0.005):
                row = conn.execute(COUNT, [self.application]).fetchone()
                self.seen.append(row[0] if row else 0)

    def is_steady(self, number: int) -> bool:
        return self.seen[-STEADY_SAMPLES:] == [number] * STEADY_SAMPLES


@contextmanager
def counted(dsn: str, name: str) -> Iterator[Counter]:
    counter = Counter(dsn, name)
    counter.start()
    try:
        yield counter
    finally:
        counter.ended.set()
        counter.join()


@pytest.mark.parametrize("name", ["MGMT", "watchdog", "scheduler", "manager"])
def test_the_table_states_the_default(name: str) -> None:
    words, number = documented()[name]
    assert bound(words, Settings().pool_size) == number


def test_mgmt_under_load(database: str, tmp_path: Path) -> None:
    dsn = make_conninfo(database, application_name="counted-mgmt")
    settings = {"USHER_POOL_SIZE": str(POOL_SIZE), "USHER_CONNECT_TIMEOUT": "60"}
    with (
        mgmt(dsn, tmp_path / "log", settings=settings) as running,
        counted(database, "counted-mgmt") as counter,
    ):

        def call(number: int) -> int:
            if number % 3 == 0:
                return running.knock(f"http://example.com/{number}").status
            return running.get(PATHS[number % len(PATHS)]).status

        with ThreadPoolExecutor(CALLERS) as callers:
            answers = set(callers.map(call, range(REQUESTS)))
    assert answers <= {200, 202, 404}, answers
    words, _ = documented()["MGMT"]
    assert 3 * POOL_SIZE <= counter.most <= bound(words, POOL_SIZE)


@contextmanager
def service(database: str, directory: Path, *words: str) -> Iterator[str]:
    """Run a service with its own name in pg_stat_activity, until it is ready; yields that name."""
    name = f"counted-{words[0]}"
    clean = {key: value for key, value in os.environ.items() if "USHER" not in key}
    process = subprocess.Popen(
        [sys.executable, "-m", "usher", *words],
        env={
            **clean,
            "DATABASE_URL": make_conninfo(database, application_name=name),
            "USHER_DATA": str(directory / "data"),
            "USHER_POOL_SIZE": str(POOL_SIZE),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield name
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("role", ["watchdog", "scheduler"])
def test_leaders_and_those_who_wait(database: str, tmp_path: Path, role: str) -> None:
    words, _ = documented()[role]
    with (
        counted(database, f"counted-{role}") as counter,
        service(database, tmp_path, role),
        service(database, tmp_path, role),
    ):
        assert eventually(lambda: counter.is_steady(2 * bound(words, POOL_SIZE)))


def test_a_manager_with_jobs(database: str, tmp_path: Path) -> None:
    words, _ = documented()["manager"]
    with (
        psycopg.connect(database, autocommit=True) as conn,
        counted(database, "counted-manager") as counter,
        service(database, tmp_path, "manager"),
    ):
        conn.execute(FILL, [JOBS])
        conn.execute("select pg_notify('usher_job', 'counted')")

        def is_done() -> bool:
            row = conn.execute(UNFINISHED).fetchone()
            return row == (0,)

        assert eventually(is_done, seconds=120)
    assert POOL_SIZE < counter.most <= bound(words, POOL_SIZE)
