"""The client of producers, blocking and for asyncio. Both run the same three statements, one round trip each."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, Unpack

import psycopg
from psycopg import AsyncConnection, Connection

from usher.errors import BadInput, NotFound, Unreachable
from usher.jobs.values import AddedJob, JobFailed, JobOptions, JobSpec, JobStatus, encode_jobs

ADD: Final = "select id, is_new from control.add_jobs(%s::jsonb)"
STATUS: Final = "select %(id)s::bigint, state, message, exit_code, attempts, result from control.job_status(%(id)s)"
CANCEL: Final = "select id from control.cancel(array[%s::bigint], %s, now())"
FIRST_POLL_SECONDS: Final = 0.05
MAX_POLL_SECONDS: Final = 1.0


def add(conn: Connection[Any], *jobs: JobSpec) -> list[AddedJob]:
    """Add jobs on the caller's connection; they exist when the caller commits.

    BadInput if they cannot be stored; the transaction has then failed, as after any SQL error.
    """
    with translated_errors():
        rows = conn.cursor(row_factory=psycopg.rows.tuple_row).execute(ADD, [encode_jobs(jobs)])
        return [AddedJob(*row) for row in rows.fetchall()]


async def add_async(conn: AsyncConnection[Any], *jobs: JobSpec) -> list[AddedJob]:
    """As `add`, for asyncio."""
    with translated_errors():
        cursor = conn.cursor(row_factory=psycopg.rows.tuple_row)
        await cursor.execute(ADD, [encode_jobs(jobs)])
        return [AddedJob(*row) for row in await cursor.fetchall()]


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of the driver that a caller can correct."""
    try:
        yield
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        reason = (error.diag.message_primary or str(error)).rstrip(".")
        raise BadInput(f"The jobs cannot be added: {reason}.", hint="See docs/python.md") from error


class JobQueue:
    """`with JobQueue(url) as queue`: has its own connection; each call is a transaction."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        try:
            self._conn = psycopg.connect(self._url, autocommit=True)
        except psycopg.OperationalError as error:
            raise unreachable_error(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def add(
        self, type_: str, program: str, *args: str, **conditions: Unpack[JobOptions]
    ) -> AddedJob:
        """Add one job."""
        [added] = add(self._conn, JobSpec(type_, program, args, **conditions))
        return added

    def add_all(self, *jobs: JobSpec) -> list[AddedJob]:
        """Add jobs in one transaction, all or none."""
        return add(self._conn, *jobs)

    def status(self, id_: int) -> JobStatus:
        """Return the state of a job; NotFound if there is no such job."""
        return status_of(id_, self._conn.execute(STATUS, {"id": id_}).fetchone())

    def wait(self, id_: int, *, timeout: float) -> JobStatus:
        """Wait until a job completes; JobFailed if it fails, TimeoutError after so many seconds."""
        for delay in poll_delays(timeout):
            time.sleep(delay)
            status = self.status(id_)
            if status.ended:
                return completed(status)
        raise timeout_error(status)

    def cancel(self, id_: int, reason: str = "Cancelled by the producer") -> bool:
        """Cancel a job, and stop it if it runs; return False if it has ended."""
        return self._conn.execute(CANCEL, [id_, reason]).fetchone() is not None


class AsyncJobQueue:
    """`async with AsyncJobQueue(url) as queue`: as JobQueue, for asyncio."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        try:
            self._conn = await AsyncConnection.connect(self._url, autocommit=True)
        except psycopg.OperationalError as error:
            raise unreachable_error(error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._conn.close()

    async def add(
        self, type_: str, program: str, *args: str, **conditions: Unpack[JobOptions]
    ) -> AddedJob:
        """Add one job."""
        [added] = await add_async(self._conn, JobSpec(type_, program, args, **conditions))
        return added

    async def add_all(self, *jobs: JobSpec) -> list[AddedJob]:
        """Add jobs in one transaction, all or none."""
        return await add_async(self._conn, *jobs)

    async def status(self, id_: int) -> JobStatus:
        """Return the state of a job; NotFound if there is no such job."""
        return status_of(id_, await (await self._conn.execute(STATUS, {"id": id_})).fetchone())

    async def wait(self, id_: int, *, timeout: float) -> JobStatus:  # noqa: ASYNC109 - as in JobQueue
        """Wait until a job completes; JobFailed if it fails, TimeoutError after so many seconds."""
        for delay in poll_delays(timeout):
            await asyncio.sleep(delay)
            status = await self.status(id_)
            if status.ended:
                return completed(status)
        raise timeout_error(status)

    async def cancel(self, id_: int, reason: str = "Cancelled by the producer") -> bool:
        """Cancel a job, and stop it if it runs; return False if it has ended."""
        return await (await self._conn.execute(CANCEL, [id_, reason])).fetchone() is not None


def status_of(id_: int, row: tuple[Any, ...] | None) -> JobStatus:
    if row is None:
        raise NotFound(f"There is no job {id_}.", hint="usher jobs log")
    return JobStatus(*row)


def completed(status: JobStatus) -> JobStatus:
    if status.state != "completed":
        raise JobFailed(status)
    return status


def timeout_error(status: JobStatus) -> TimeoutError:
    return TimeoutError(f"Job {status.id} has not ended: it is {status.state}.")


def unreachable_error(error: psycopg.OperationalError) -> Unreachable:
    reason = " ".join(str(error).split())
    return Unreachable(f"Could not connect to the queue: {reason}", hint="Check the address.")


def poll_delays(timeout: float) -> Iterator[float]:
    """Yield the seconds to wait before each poll, which grow, until the timeout; the first is 0."""
    deadline, delay = time.monotonic() + timeout, FIRST_POLL_SECONDS
    yield 0.0
    while time.monotonic() + delay <= deadline:
        yield delay
        delay = min(2 * delay, MAX_POLL_SECONDS)
