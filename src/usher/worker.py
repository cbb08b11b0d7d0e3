"""For programs that Usher runs: who am I, what do I say, what comes after me.

It connects to the control database as `usher_worker`, which may touch nothing but this job.
In any other language: the same SQL functions, or `POST /v1/jobs/…`.

    from usher.worker import PermanentError, TemporaryError, job

    def fetch(url):
        job().message(f"fetching {url}")
        job().enqueue("clean", "my.module:clean", url)
"""

import os
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


class TemporaryError(Exception):
    """It may work another time: exit code 1."""


class PermanentError(Exception):
    """It will never work: exit code 2."""


class Job:
    """The job that this process runs."""

    def __init__(self, url: str, *, id_: int, task_id: int | None = None) -> None:
        self.id = id_
        self.task_id = task_id
        self.data = os.environ.get("USHER_TASK_DATA", "")
        self.attempt = int(os.environ.get("USHER_ATTEMPT", "1"))
        self._url = url
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None

    def message(self, text: str) -> None:
        """What people read while it runs and after."""
        self._call("select control.say(%s)", text)

    def enqueue(  # noqa: PLR0913 - as many as a job has conditions
        self,
        type_: str,
        program: str,
        *args: str,
        at: datetime | None = None,
        after: timedelta | None = None,
        resource: str | None = None,
        priority: int = 0,
        host_rule: str = "",
        key: str | None = None,
        data: str | None = None,
    ) -> int:
        """Put in a job below this one; returns its number, or that of the live one with the same key."""
        query = """
            select control.enqueue(
                %s, %s, %s::text[], coalesce(%s::timestamptz, now()) + coalesce(%s::interval, '0'), %s, %s, %s, %s, %s
            )
        """
        found = self._call(
            query, type_, program, list(args), at, after, resource, priority, host_rule, key, data
        )
        return int(found)

    def wrote(self, table: str, *rows: object) -> None:
        """Which rows this job wrote, so that people can ask who made one."""
        self._call("select control.wrote(%s, %s::text[])", table, [str(row) for row in rows])

    def set_pace(self, period: timedelta) -> timedelta | None:
        """How often its task is to run from now on; None if the operator does not let tasks set that."""
        found: timedelta | None = self._call("select control.set_pace(%s)", period)
        return found

    def prune_log(self) -> int:
        """Drop the months of the log that nobody keeps; returns how many."""
        return int(self._call("select control.prune_log()"))

    def close(self) -> None:
        if self._conn:
            self._conn.close()
            self._conn = None

    def _call(self, query: str, *given: object) -> Any:  # noqa: ANN401 - as the function answers
        # When first needed: the driver in memory makes each fork of the warm process three times as dear.
        import psycopg  # noqa: PLC0415

        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self._url, autocommit=True)
            # PostgreSQL 15 would spend seconds to compile functions that forbid sequential scans.
            self._conn.execute("set jit = off")
        row = self._conn.execute(query.encode(), given).fetchone()
        return row[0] if row else None


def job() -> Job:
    """The job of this process."""
    if "USHER_JOB_ID" not in os.environ:
        raise PermanentError("This process was not started by an Usher manager.")
    if "USHER_CONTROL_URL" not in os.environ:
        raise PermanentError(
            "This job has no address of the database: the manager's log says why. Use the HTTP API."
        )
    return _of_process(os.getpid())


@lru_cache(1)
def _of_process(_pid: int) -> Job:
    """Kept for the life of this process, and for no fork of it."""
    task = os.environ.get("USHER_TASK_ID")
    return Job(
        os.environ["USHER_CONTROL_URL"],
        id_=int(os.environ["USHER_JOB_ID"]),
        task_id=int(task) if task else None,
    )
