"""The API of `usher.worker`, and the output, of a job that runs inside the manager's process.

Such jobs share the environment, the streams and the connections of the process. A context variable tells them apart.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, TextIO

import psycopg
from psycopg_pool import ConnectionPool

from usher.queue.jobs import ClaimedJob
from usher.queue.runners.output import Output
from usher.worker import CURRENT_JOB, Job, PermanentError

OUTPUT_LOCK: Final = Lock()  # one for all jobs; one each would cost every job time
MAX_CONNECTIONS: Final = 4  # of all jobs inside one manager


class WorkerConnections:
    """Connections as `usher_worker` that the jobs share; each call names the job and its claim."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = Lock()
        self._pool: ConnectionPool[psycopg.Connection[tuple[Any, ...]]] | None = None

    def call(self, claimed: ClaimedJob, query: str, values: tuple[object, ...]) -> Any:  # noqa: ANN401 - the function's type
        """Run one statement with the rights of one job."""
        if not self._dsn:
            raise PermanentError(
                "This job has no database login: the manager's log says why. Use the HTTP API."
            )
        with self._opened().connection() as conn, conn.transaction():
            identity = [str(claimed.id), str(claimed.claim)]
            conn.execute(
                "select set_config('usher.job', %s, true), set_config('usher.claim', %s, true)",
                identity,
            )
            row = conn.execute(query.encode(), values).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        with self._lock:
            if self._pool:
                self._pool.close()
                self._pool = None

    def _opened(self) -> "ConnectionPool[psycopg.Connection[tuple[Any, ...]]]":
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._dsn,
                    kwargs={"autocommit": True},
                    configure=prepare_connection,
                    min_size=0,
                    max_size=MAX_CONNECTIONS,
                    open=True,
                )
            return self._pool


def prepare_connection(conn: "psycopg.Connection[tuple[Any, ...]]") -> None:
    conn.execute("select set_config('TimeZone', 'UTC', false), set_config('jit', 'off', false)")


class JobOutput:
    """The bounded output of one job, which several threads may write."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._output: Output | None = None  # created late: most jobs print nothing

    def add(self, piece: bytes) -> None:
        with OUTPUT_LOCK:
            if self._output is None:
                self._output = Output(self._limit)
            self._output.add(piece)

    def text(self, *, whole: bool) -> str:
        if self._output is None:
            return ""
        with OUTPUT_LOCK:
            return self._output.text(whole=whole)


class ManagerJob(Job):
    """What `usher.worker.job()` returns inside the manager."""

    def __init__(self, claimed: ClaimedJob, limit: int, connections: WorkerConnections) -> None:
        # Not the constructor of Job, which reads the environment of a process of its own.
        self.id = claimed.id
        self.task_id = claimed.task_id
        self.data = claimed.data or ""
        self.attempt = claimed.attempts
        self.output = JobOutput(limit)
        self._claimed = claimed
        self._connections = connections

    def close(self) -> None:
        """Do nothing: the connections belong to all jobs of the manager."""

    def _call(self, query: str, *values: object) -> Any:  # noqa: ANN401 - the function's type
        return self._connections.call(self._claimed, query, values)


def current_output() -> JobOutput | None:
    """Return the output of the job that this code belongs to; None outside of jobs."""
    job = CURRENT_JOB.get(None)
    return job.output if isinstance(job, ManagerJob) else None


class JobStream(io.TextIOBase):
    """A standard stream. What a job writes goes to its output, other output to the replaced stream."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self.buffer = JobBuffer(stream)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def write(self, text: str) -> int:
        output = current_output()
        if output is None:
            return self.stream.write(text)
        output.add(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return current_output() is None and self.stream.isatty()


class JobBuffer(io.RawIOBase):
    """The binary side of a `JobStream`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream

    def write(self, piece: Any) -> int:  # noqa: ANN401 - any buffer
        output = current_output()
        data = bytes(piece)
        if output is None:
            return self.stream.buffer.write(data)
        output.add(data)
        return len(data)

    def writable(self) -> bool:
        return True


@contextmanager
def captured_streams() -> Iterator[None]:
    """Give every job its own output. Processes that a job starts still write to the manager's streams."""
    originals = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = JobStream(originals[0]), JobStream(originals[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = originals
