"""Helpers for tests of your workers and producers.

`run_inline` calls one worker function in this process, without a database, and records what it did. `drain` runs the
due jobs of a database, one after the other. Both have a form for asyncio.

    ran = run_inline(fetch, "https://example.com/")
    assert ran.state == "completed" and ran.enqueued[0].program == "my.module:clean"

    jobs.add(conn, jobs.JobSpec("mail", "shop.mail:confirm", ["7"])); conn.commit()
    [ran] = drain(url)
    assert ran.state == "completed", ran.message
"""

import asyncio
import contextlib
import inspect
import io
import os
import subprocess
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from psycopg.conninfo import make_conninfo

from usher.db.clock import server_time
from usher.db.pool import connect
from usher.jobs.values import JobSpec
from usher.queue import jobs as queue
from usher.queue.job_env import job_environment, worker_url
from usher.queue.job_states import JobState, ProcessEnd, job_outcome
from usher.queue.jobs import ClaimedJob, SettledRun
from usher.queue.policy import FUNCTION_NAME, Policy
from usher.queue.runners.job_start import (
    JobRefused,
    load_function,
    run_async_function,
    run_function,
)
from usher.schema.roles import WORKER, may_set_role
from usher.worker import CURRENT_JOB, Job, PermanentError, TemporaryError, encode_result

HOST: Final = "usher-testing"
LEASE: Final = timedelta(hours=1)
MAX_JOBS: Final = 1_000
EXIT_CODES: Final = {TemporaryError: 1, PermanentError: 2}


@dataclass(slots=True)
class RanJob:
    """How a job ended, and what it did."""

    state: str  # after the first attempt
    exit_code: int
    result: Any = None
    message: str | None = None
    output: str = ""
    error: BaseException | None = None
    id: int = 0
    type: str = ""
    program: str = ""
    enqueued: list[JobSpec] = field(default_factory=list)  # run_inline only
    wrote: list[tuple[str, str]] = field(default_factory=list)  # run_inline only

    def end(self, output: str) -> None:
        """Set the output, and the state that the queue gives a job with this exit code."""
        end = ProcessEnd(self.exit_code)
        outcome = job_outcome(end, attempts=1, policy=Policy(), random_share=0)
        self.output, self.state = output, outcome.state


class InlineJob(Job):
    """The job of `run_inline`, which records what the worker does."""

    def __init__(self, ran: RanJob, *, data: str, attempt: int, results: Mapping[int, Any]) -> None:
        super().__init__("", id_=1)
        self.data, self.attempt, self._ran, self._results = data, attempt, ran, dict(results)

    def message(self, text: str) -> None:
        self._ran.message = text

    def enqueue(
        self,
        type_: str,
        program: str,
        *args: str,
        at: datetime | None = None,
        after: timedelta | None = None,
        **conditions: Any,  # noqa: ANN401 - as in Job
    ) -> int:
        delay = after or timedelta(0)
        job = JobSpec(type_, program, args, at, delay, **conditions)
        self._ran.enqueued.append(job)
        return self.id + len(self._ran.enqueued)

    def result(self, value: object) -> None:
        self._ran.result = msgspec.json.decode(encode_result(value))

    def results(self) -> dict[int, Any]:
        return self._results

    def wrote(self, table: str, *rows: object) -> None:
        self._ran.wrote += [(table, str(row)) for row in rows]

    def set_pace(self, period: timedelta) -> timedelta | None:
        return period

    def prune_log(self) -> int:
        return 0


def run_inline(
    function: Callable[..., object],
    *args: str,
    data: str = "",
    attempt: int = 1,
    results: Mapping[int, Any] | None = None,
) -> RanJob:
    """Call a worker function as a job in this process; `results` are those of the jobs that it needs."""
    return asyncio.run(
        run_inline_async(function, *args, data=data, attempt=attempt, results=results)
    )


async def run_inline_async(
    function: Callable[..., object],
    *args: str,
    data: str = "",
    attempt: int = 1,
    results: Mapping[int, Any] | None = None,
) -> RanJob:
    """As `run_inline`, for asyncio."""
    ran = RanJob(JobState.COMPLETED, 0)
    job = InlineJob(ran, data=data, attempt=attempt, results=results or {})
    await call(ran, job, function, args)
    return ran


async def call(
    ran: RanJob, job: Job, function: Callable[..., object], args: tuple[str, ...]
) -> None:
    """Run the function for the job: a coroutine here, a plain function in a thread. Record its end in `ran`."""
    output = io.StringIO()
    token = CURRENT_JOB.set(job)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            if inspect.iscoroutinefunction(function):
                value = await run_async_function(function, args)
            else:
                value = await asyncio.to_thread(run_function, function, args)
            if value is not None:
                ran.result = msgspec.json.decode(encode_result(value))
    except SystemExit as error:
        ran.error, ran.exit_code = error, error.code if isinstance(error.code, int) else 1
    except Exception as error:  # noqa: BLE001 - a worker may raise anything
        ran.error, ran.exit_code = error, EXIT_CODES.get(type(error), 1)
        print(*failure_lines(error), sep="", file=output)
    finally:
        CURRENT_JOB.reset(token)
        job.close()
    ran.end(output.getvalue())


def failure_lines(error: Exception) -> list[str]:
    """Return what the queue shows of an error: the worker's own text, or the traceback."""
    if type(error) in EXIT_CODES:
        return [str(error)]
    return traceback.format_exception(error)


def drain(url: str, *types: str, limit: int = MAX_JOBS) -> list[RanJob]:
    """Run the due jobs, of these types or of all, until none is due or the limit is reached.

    The address is that of the control database, with the rights of its owner. Jobs that a job adds run too. Each job
    has one attempt; a temporary error stays in the queue. Pauses, needs, host rules, times and resources apply.
    """
    return asyncio.run(drain_async(url, *types, limit=limit))


async def drain_async(url: str, *types: str, limit: int = MAX_JOBS) -> list[RanJob]:
    """As `drain`, for asyncio."""
    done: list[RanJob] = []
    async with await connect(url) as conn:
        # As a worker, if the roles exist, so that a test detects what a job may not do.
        as_worker = await may_set_role(conn, WORKER)
        worker_address = make_conninfo(url, options=f"-c role={WORKER}") if as_worker else url
        while len(done) < limit:
            for type_ in types or await queue.waiting_types(conn):
                now = await server_time(conn)
                claimed = await queue.claim(
                    conn, type_, HOST, 1, lease=LEASE, max_attempts=2, now=now
                )
                if claimed:
                    break
            else:
                return done
            ran = await run_claimed(worker_address, claimed[0])
            done.append(ran)
            await queue.settle(
                conn, [settled_run(claimed[0], ran, now)], now=await server_time(conn)
            )
    return done


async def run_claimed(url: str, job: ClaimedJob) -> RanJob:
    ran = RanJob(JobState.COMPLETED, 0, id=job.id, type=job.type, program=job.program)
    try:
        if FUNCTION_NAME.fullmatch(job.program):
            worker = Job(worker_url(url, job), id_=job.id, task_id=job.task_id)
            worker.data, worker.attempt = job.data or "", job.attempts
            await call(ran, worker, load_function(job.program, defined_only=False), tuple(job.args))
        else:
            await run_program(ran, url, job)
    except (JobRefused, OSError) as error:
        ran.exit_code, ran.error = 2, error
        ran.end(str(error))
    return ran


async def run_program(ran: RanJob, url: str, job: ClaimedJob) -> None:
    """Run a program; record its end in `ran`."""
    env = {**os.environ, **job_environment(job, url)}
    process = await asyncio.to_thread(
        subprocess.run,
        [job.program, *job.args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    ran.exit_code = process.returncode
    ran.end(process.stdout.decode(errors="replace"))


def settled_run(job: ClaimedJob, ran: RanJob, now: datetime) -> SettledRun:
    state = JobState(ran.state)
    return SettledRun(
        job.id,
        job.claim,
        state,
        exit_code=ran.exit_code,
        default_message=ran.output.rstrip().rpartition("\n")[2] or None if ran.exit_code else None,
        output=ran.output or None,
        retry_at=now + Policy().reschedule_after if state is JobState.TEMPORARY_ERROR else None,
        result=None if ran.result is None else encode_result(ran.result),
    )
