"""The API for programs that Usher runs as jobs: message, result, child jobs.

It connects to the control database as `usher_worker`, which can change only this job. Programs in other languages call
the same SQL functions, or `POST /v1/jobs/…`.

    from usher.worker import PermanentError, TemporaryError, job

    def fetch(url):
        job().message(f"fetching {url}")
        job().enqueue("clean", "my.module:clean", url)
"""

import json
import os
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


MAX_RESULT_BYTES = 16_384


class TemporaryError(Exception):
    """The job failed and may succeed later: exit code 1. The queue retries it."""


class PermanentError(Exception):
    """The job failed and must not be retried: exit code 2."""


class Job:
    """The job that this process runs."""

    stopping = (
        False  # True for a job inside the manager that must end; other jobs get the signal TERM
    )

    def __init__(self, url: str, *, id_: int, task_id: int | None = None) -> None:
        self.id = id_
        self.task_id = task_id
        self.data = os.environ.get("USHER_TASK_DATA", "")
        self.attempt = int(os.environ.get("USHER_ATTEMPT", "1"))
        self._url = url
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None

    def message(self, text: str) -> None:
        """Set the message that operators read."""
        self._call("select control.say(%s)", text)

    def enqueue(  # noqa: PLR0913 - one for each condition of a job
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
        needs: Sequence[int] = (),
    ) -> int:
        """Add a child job; return its id, or that of the live job with the same key.

        `needs` are jobs that must complete first: this job itself, or its other children.
        """
        function = "enqueue_after(%s::bigint[]," if needs else "enqueue("
        query = f"""
            select control.{function}
                %s, %s, %s::text[], coalesce(%s::timestamptz, now()) + coalesce(%s::interval, '0'), %s, %s, %s, %s, %s
            )
        """
        values = (type_, program, list(args), at, after, resource, priority, host_rule, key, data)
        added = self._call(query, *([list(needs)] if needs else []), *values)
        return int(added)

    def result(self, value: object) -> None:
        """Set the result of this job, a JSON value of up to 16 KB; a later call replaces it.

        A function can also return its result.
        """
        self._call("select control.put_result(%s::jsonb)", encode_result(value))

    def results(self) -> dict[int, Any]:
        """Return the results of the jobs that this one waited for; None for a job that set none."""
        query = "select jsonb_object_agg(job_id, value) from control.needed_results()"
        return {int(id_): value for id_, value in (self._call(query) or {}).items()}

    def wrote(self, table: str, *rows: object) -> None:
        """Record which rows this job wrote; `usher jobs list --wrote` finds the job of a row."""
        self._call("select control.wrote(%s, %s::text[])", table, [str(row) for row in rows])

    def set_pace(self, period: timedelta) -> timedelta | None:
        """Set how often its task runs, and return the period; None if the task has no autoperiodicity."""
        stored: timedelta | None = self._call("select control.set_pace(%s)", period)
        return stored

    def prune_log(self) -> int:
        """Drop the months of the log that are older than its retention; return how many."""
        return int(self._call("select control.prune_log()"))

    def close(self) -> None:
        if self._conn:
            self._conn.close()
            self._conn = None

    def _call(self, query: str, *values: object) -> Any:  # noqa: ANN401 - the function's type
        # Imported late: with the driver in memory, each fork of the launcher would cost three times as much.
        import psycopg  # noqa: PLC0415

        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self._url, autocommit=True)
            # PostgreSQL 15 would spend seconds on compiling functions that forbid sequential scans.
            self._conn.execute("set jit = off")
        row = self._conn.execute(query.encode(), values).fetchone()
        return row[0] if row else None


def encode_result(value: object) -> str:
    """Return a result as JSON text; PermanentError if it cannot be stored."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise PermanentError(f"The result cannot be stored as JSON: {error}.") from error
    if len(text) > MAX_RESULT_BYTES:
        raise PermanentError(
            f"The result has {len(text):,} bytes of JSON; at most {MAX_RESULT_BYTES:,} can be stored. "
            "Store the data elsewhere and return where it is."
        )
    return text


# Set for code that runs for a job inside another process: a manager (`run = "async"`) or a test (`usher.jobs.testing`).
CURRENT_JOB: ContextVar[Job] = ContextVar("usher_job")


def job() -> Job:
    """Return the job of this coroutine, thread or process; PermanentError if there is none."""
    if current := CURRENT_JOB.get(None):
        return current
    if "USHER_JOB_ID" not in os.environ:
        raise PermanentError("This process was not started by an Usher manager.")
    if "USHER_CONTROL_URL" not in os.environ:
        raise PermanentError(
            "This job has no database login: the manager's log says why. Use the HTTP API."
        )
    return _of_process(os.getpid())


@lru_cache(1)
def _of_process(_pid: int) -> Job:
    """Return the job of this process, cached for it and not for its forks."""
    task = os.environ.get("USHER_TASK_ID")
    return Job(
        os.environ["USHER_CONTROL_URL"],
        id_=int(os.environ["USHER_JOB_ID"]),
        task_id=int(task) if task else None,
    )
