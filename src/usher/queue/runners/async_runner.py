"""Runs jobs inside the manager's process: coroutines on an event loop of their own, plain functions in threads.

The manager's own event loop, which renews leases, is in another thread: code that blocks delays other jobs but no
heartbeat. Starts and ends pass between the threads in batches, with one wake-up for each batch.
"""

import asyncio
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self, TypeVar

from usher.queue.child_programs import ProgramPermission
from usher.queue.job_states import EndReason
from usher.queue.jobs import ClaimedJob
from usher.queue.policy import FUNCTION_NAME, Policy
from usher.queue.runners.job_start import (
    JobRefused,
    exit_code,
    exit_code_of,
    import_worker_module,
    load_function,
    print_failure,
    run_async_function,
    run_function,
)
from usher.queue.runners.manager_job import ManagerJob, WorkerConnections, captured_streams
from usher.queue.runners.process_runner import RunEnded
from usher.telemetry import Log
from usher.worker import CURRENT_JOB, encode_result

T = TypeVar("T")
Function = Callable[..., Any]
log = Log("manager")
WATCH_SECONDS: Final = 0.1  # between checks of time limits
KILL_GRACE_SECONDS: Final = 1.0  # for a coroutine that must end now
BLOCKED_SECONDS: Final = 5.0  # without an answer of the jobs' event loop
CLOSING_SECONDS: Final = 2.0


@dataclass(slots=True, eq=False)
class AsyncRun:
    """One job inside the manager. The manager's thread owns it until it begins; then both threads read it."""

    claimed: ClaimedJob
    policy: Policy
    defined_only: bool
    job: ManagerJob
    begin: float  # monotonic
    deadline: float  # monotonic; then it is cancelled, or abandoned
    why: EndReason = "ended"  # anything else: it was cancelled
    task: "asyncio.Task[None] | None" = None
    has_begun: bool = False
    in_thread: bool = False
    is_abandoned: bool = False
    code: int | None = None
    detail: str = ""
    seconds: float = 0.0
    result: str = ""  # JSON; empty if the function returned nothing

    @property
    def grace(self) -> float:
        return self.policy.grace.total_seconds()

    @property
    def is_cancelled(self) -> bool:
        return self.why != "ended"

    def set_result(self, value: object) -> None:
        """Store what the function returned; PermanentError if it cannot be stored."""
        if value is not None:
            self.result = encode_result(value)


class AsyncRunner:
    """`async with AsyncRunner(dsn, ended) as runner`; its thread starts with the first job."""

    def __init__(self, dsn: str, ended: Callable[[list[RunEnded]], None]) -> None:
        """Take the database login of jobs, and a callback for ends, which runs in the manager's thread."""
        # By type: abandoned runs that still occupy a thread or the event loop.
        self.stuck: Counter[str] = Counter()
        self.is_blocked = False
        self._connections = WorkerConnections(dsn)
        self._ended = ended
        self._runs: dict[int, AsyncRun] = {}
        self._to_begin: deque[AsyncRun] = deque()
        self._results: deque[AsyncRun] = deque()
        self._functions: dict[tuple[str, bool], tuple[Function, bool]] = {}
        self._loading = asyncio.Lock()
        self._pid = os.getpid()
        self._pinged = self._answered = 0.0  # monotonic; the last ping of the jobs' event loop
        self._is_closing = False
        self._streams = ExitStack()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        self._manager_loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what still runs. A thread that does not end runs until the process ends."""
        self._is_closing = True
        if self._thread:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, CLOSING_SECONDS)
        self._streams.close()
        await asyncio.to_thread(self._connections.close)

    # -- in the manager's thread

    def start(self, claimed: ClaimedJob, policy: Policy, permission: ProgramPermission) -> None:
        """Start a job. Its end is reported, also if it cannot start."""
        if permission.refusal:
            ended = RunEnded(claimed.id, None, None, "forbidden", permission.refusal, "", 0.0)
            self._manager_loop.call_soon(self._ended, [ended])
            return
        if self._thread is None:
            self._launch()
        add_to_path(policy.directory)
        now, limit = time.monotonic(), policy.kill_after.total_seconds()
        job = ManagerJob(claimed, policy.output, self._connections)
        run = AsyncRun(claimed, policy, permission.defined_only, job, now, now + limit)
        self._runs[claimed.id] = run
        self._to_begin.append(run)
        if len(self._to_begin) == 1:
            self._loop.call_soon_threadsafe(self._begin_all)

    def stop(self, key: int) -> None:
        """Cancel a run; one that does not end within its grace is abandoned."""
        if run := self._runs.get(key):
            self._cancel_run(run, "cancelled", run.grace)

    def kill(self, key: int) -> None:
        """Cancel a run with the shortest grace."""
        if run := self._runs.get(key):
            self._cancel_run(run, "cancelled", KILL_GRACE_SECONDS)

    def output(self, key: int) -> str:
        run = self._runs.get(key)
        return run.job.output.text(whole=False) if run else ""

    async def watch(self) -> None:
        """Enforce time limits, also while a job blocks the event loop of the jobs."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            for run in [run for run in self._runs.values() if now >= run.deadline]:
                if run.is_cancelled:
                    self._abandon(run, now)
                else:
                    self._cancel_run(run, "timeout", run.grace)
            self._check_loop(now)

    def _cancel_run(self, run: AsyncRun, why: EndReason, grace: float) -> None:
        """Cancel a run. The first reason stays, the shortest grace counts."""
        deadline = time.monotonic() + grace
        if run.is_cancelled:
            run.deadline = min(run.deadline, deadline)
            return
        run.why, run.deadline, run.job.stopping = why, deadline, True
        self._loop.call_soon_threadsafe(self._cancel_task, run)

    def _abandon(self, run: AsyncRun, now: float) -> None:
        """Report the end of a run whose code goes on. Its place stays occupied until the code ends."""
        run.is_abandoned = True
        del self._runs[run.job.id]
        type_ = run.claimed.type
        self.stuck[type_] += 1
        log.error("job_does_not_stop", job=run.job.id, type=type_, hint="Restart the manager.")
        run.detail = f"it did not stop within {run.grace:g} s and still runs in the manager"
        if run.why == "timeout":
            run.why = "unstoppable"
            run.detail = (
                f"Timed out after {run.policy.kill_after.total_seconds():g} s; {run.detail}"
            )
        run.seconds = now - run.begin
        self._ended([self._end_of(run)])

    def _end_of(self, run: AsyncRun) -> RunEnded:
        text = run.job.output.text(whole=True)
        end = (run.code, run.why, run.detail, text, run.seconds, run.result)
        return RunEnded(run.job.id, self._pid, *end)

    def _check_loop(self, now: float) -> None:
        """Detect a coroutine that blocks the event loop. Types inside the manager get no new jobs meanwhile."""
        if not self._runs and not self.stuck.total():
            self._answered, self.is_blocked = now, False
            return
        was_blocked, self.is_blocked = self.is_blocked, now - self._answered > BLOCKED_SECONDS
        if self.is_blocked and not was_blocked:
            task = asyncio.current_task(self._loop)
            name = task.get_name() if task else ""
            log.error("job_blocks_event_loop", job=name, hint="Await, or use asyncio.to_thread.")
        if self._answered >= self._pinged:
            self._pinged = now
            self._loop.call_soon_threadsafe(setattr, self, "_answered", now)

    def _launch(self) -> None:
        self._loop = new_event_loop()
        self._answered = time.monotonic()
        self._streams.enter_context(captured_streams())
        self._thread = Thread(target=self._serve, name="async-jobs", daemon=True)
        self._thread.start()

    def _deliver(self) -> None:
        ends: list[RunEnded] = []
        while self._results:
            run = self._results.popleft()
            if run.is_abandoned:
                self.stuck[run.claimed.type] -= 1
            else:
                del self._runs[run.job.id]
                ends.append(self._end_of(run))
        self._ended(ends)

    # -- in the thread of the jobs

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_closing:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - sys.exit in a task that a job left behind
                log.error("job_left_task", error=repr(error))  # noqa: TRY400
        with suppress(RuntimeError):
            for task in asyncio.all_tasks(self._loop):  # of code in threads that do not end
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def _begin_all(self) -> None:
        while self._to_begin:
            run = self._to_begin.popleft()
            run.task = self._loop.create_task(self._execute(run), name=str(run.job.id))

    def _cancel_task(self, run: AsyncRun) -> None:
        if run.task and run.has_begun and not run.in_thread:
            run.task.cancel()

    async def _execute(self, run: AsyncRun) -> None:
        CURRENT_JOB.set(run.job)
        run.has_begun = True
        run.begin = time.monotonic()
        try:
            if not run.is_cancelled:
                run.code = await self._exit_code(run)
        except JobRefused as refused:
            run.why, run.detail = refused.why, str(refused)
        except SystemExit as error:
            run.code = exit_code(error)
        except asyncio.CancelledError as error:
            run.code = None if run.is_cancelled else print_failure(error)
        except BaseException as error:  # noqa: BLE001 - a worker may raise anything
            run.code = print_failure(error)
        run.seconds = time.monotonic() - run.begin
        self._results.append(run)
        if len(self._results) == 1:
            with suppress(RuntimeError):  # the manager has ended
                self._manager_loop.call_soon_threadsafe(self._deliver)

    async def _exit_code(self, run: AsyncRun) -> int:
        key, args = (run.claimed.program, run.defined_only), run.claimed.args
        function, is_async = self._functions.get(key) or await self._load(run)
        if is_async:
            run.set_result(await run_async_function(function, args))
            return 0
        run.in_thread = True
        return await self._in_thread(
            partial(exit_code_of, lambda: run.set_result(run_function(function, args)))
        )

    async def _load(self, run: AsyncRun) -> tuple[Function, bool]:
        """Import the function in a thread, because that may take long. It stays loaded while the manager runs."""
        program, type_ = run.claimed.program, run.claimed.type
        if not FUNCTION_NAME.fullmatch(program):
            detail = f"{program!r} is not module:function, and type {type_} runs inside the manager"
            raise JobRefused("missing", detail)
        key = program, run.defined_only
        async with self._loading:
            if key not in self._functions:
                work = partial(imported_function, program, defined_only=run.defined_only)
                function = await self._in_thread(work)
                self._functions[key] = function, iscoroutinefunction(function)
        return self._functions[key]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run a function in a thread of its own, which does not keep the process alive."""
        future: asyncio.Future[T] = self._loop.create_future()

        def resolve(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - for the coroutine that waits
                failure = error
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(resolve, result, failure)

        Thread(target=copy_context().run, args=(run,), daemon=True).start()
        return await future


def imported_function(program: str, *, defined_only: bool) -> Function:
    """Import the module and return the function."""
    import_worker_module(program.partition(":")[0], program)
    return load_function(program, defined_only=defined_only)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create the faster event loop where that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@lru_cache(64)
def add_to_path(directory: str) -> None:
    """Make modules in the program directory importable, as in the process of a job."""
    if directory and (path := str(Path(directory).resolve())) not in sys.path:
        sys.path.append(path)
