"""A real `usher manager` process, and jobs that it runs to their end."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from support.processes.commands import clean, usher
from support.processes.killable import eventually


@contextmanager
def manager(
    environment: dict[str, str],
    directory: Path,
    *,
    user: str | None = None,
    python: str = sys.executable,
) -> Iterator[subprocess.Popen[bytes]]:
    """`usher manager` in this directory, its log in the file `manager.log` there."""
    given = clean({"PYTHONPATH": str(directory), **environment})
    with (directory / "manager.log").open("ab") as log:
        command = [python, "-m", "usher", "manager"]
        process = subprocess.Popen(command, env=given, cwd=directory, stderr=log, user=user)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@dataclass(frozen=True, slots=True)
class Run:
    """How a job ended."""

    state: str
    message: str | None
    output: str | None

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the job printed
        assert self.output, self
        return json.loads(self.output)


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of a database that a manager works on."""

    dsn: str
    environment: Mapping[str, str]

    def rows(self, query: str, *given: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            found = conn.execute(query.encode(), given)
            return found.fetchall() if found.description else []

    def add(self, program: str, *args: str, type_: str = "attack") -> int:
        words = ["jobs", "add", "--type", type_, "--", program, *args]
        ran = usher(*words, environment=dict(self.environment))
        assert ran.code == 0, ran.err
        return int(ran.out.split()[0])

    def ended(self, job: int, seconds: float = 60) -> Run:
        """Wait for the end of a job."""
        query = "select state, message, output from control.job_log where id = %s and completed"
        assert eventually(lambda: bool(self.rows(query, job)), seconds), self.rows(
            "select id, state, program, message from control.job"
        )
        return Run(*self.rows(query, job)[0])

    def run(self, program: str, *args: str, type_: str = "attack") -> Run:
        return self.ended(self.add(program, *args, type_=type_))
