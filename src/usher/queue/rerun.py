"""Runs a job that ended once more in the foreground, as a new child of the old job."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from usher.db.pool import Database
from usher.db.statements import load_statements
from usher.errors import BadInput
from usher.queue import admin, jobs
from usher.queue.manager import ManagerConfig
from usher.queue.runners.process_runner import ProcessRunner, RunEnded, RunStarted
from usher.queue.runners.run_request import run_request
from usher.queue.running_jobs import JobRun, RunningJobs, settled_run

store = load_statements(__file__)

# The new job has this type until it is claimed, in the same transaction, so that the claim gets no other job.
RERUN_TYPE: Final = "usher-rerun"
RESOURCE_RETRY_SECONDS: Final = 0.5
OUTPUT_POLL_SECONDS: Final = 0.1


class ResourceBusy(Exception):
    """The resource of the job has no room; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """The job to run again, where, and the callbacks that show it."""

    db: Database
    config: ManagerConfig
    old: admin.EndedJob
    extra_args: tuple[str, ...] = ()
    show_output: Callable[[str], None]
    show_progress: Callable[[str], None]
    stop: asyncio.Event
    kill: asyncio.Event


async def rerun(request: RerunRequest) -> RunEnded | None:
    """Run the job to its end; None if stopped before its resource had room."""
    clock, config = request.db.clock, request.config
    running = RunningJobs(request.db, config.host, clock, lease=config.lease)
    run = await wait_for_resource(request, running)
    if run is None:
        return None
    request.show_progress(f"job {run.job.id} repeats job {request.old.id}")
    event = await run_to_end(request, run, running)
    if run.lost:
        request.show_progress(
            "lease lost: the run does not count, and a scheduler requeues the job"
        )
    else:
        running.end(run, settled_run(run, event, clock))
        await running.flush()
    return event


async def wait_for_resource(request: RerunRequest, running: RunningJobs) -> JobRun | None:
    """Claim the new job as soon as its resource has room; None if stopped before."""
    is_announced = False
    while not request.stop.is_set():
        with suppress(ResourceBusy):
            return await claim_repeat(request, running)
        if not is_announced:
            request.show_progress(f"waits for its resource {request.old.resource}")
            is_announced = True
        with suppress(TimeoutError):
            await asyncio.wait_for(request.stop.wait(), RESOURCE_RETRY_SECONDS)
    return None


async def claim_repeat(request: RerunRequest, running: RunningJobs) -> JobRun:
    """Add a child of the old job and claim it, whatever machine this is; ResourceBusy if it must wait."""
    old, config, now = request.old, request.config, running.clock.now()
    claimed_at = time.monotonic()
    repeat = replace(old, type=RERUN_TYPE, args=[*old.args, *request.extra_args], host_rule="")
    async with request.db.transaction() as conn:
        added = (await admin.enqueue_again(conn, [repeat], now=now))[old.id]
        if not added.new:
            raise BadInput(
                f"Job {added.id}, of the same task or key, waits or runs already.",
                hint=f"Wait for it, or usher jobs cancel {added.id}",
            )
        claimed = await jobs.claim(
            conn, RERUN_TYPE, config.host, 1, lease=config.lease, max_attempts=1, now=now
        )
        if [job.id for job in claimed] != [added.id]:
            raise ResourceBusy
        fence = {"id": added.id, "claim": claimed[0].claim}
        await store.take_over.run(conn, **fence, type=old.type, host_rule=old.host_rule)
    policy = replace(config.policies.of(old.type), max_attempts=1)
    return running.add(replace(claimed[0], type=old.type), policy, claimed_at)


async def run_to_end(request: RerunRequest, run: JobRun, running: RunningJobs) -> RunEnded:
    """Run the job with heartbeats and reports; stop or kill it when the operator asks."""
    key, policy = run.job.id, run.policy
    preload = ("usher.worker", *policy.preload)
    async with ProcessRunner(preload=preload) as runner, asyncio.TaskGroup() as group:
        runner.start(run_request(run.job, policy, request.config))
        background = [
            running.send_heartbeats(lambda _: runner.stop(key), lambda _: runner.kill(key)),
            running.watch_leases(lambda _: runner.kill(key)),
            running.report(runner.output),
            call_when_set(request.stop, lambda: runner.stop(key)),
            call_when_set(request.kill, lambda: runner.kill(key)),
        ]
        tasks = [group.create_task(work) for work in background]
        event = await follow_run(runner, run, running, request.show_output)
        for task in tasks:
            task.cancel()
    return event


async def call_when_set(event: asyncio.Event, action: Callable[[], None]) -> None:
    await event.wait()
    action()


async def follow_run(
    runner: ProcessRunner, run: JobRun, running: RunningJobs, show_output: Callable[[str], None]
) -> RunEnded:
    """Show the output as it comes, and return how the run ended."""
    shown = ""
    while True:
        try:
            async with asyncio.timeout(OUTPUT_POLL_SECONDS):
                event = await runner.events.get()
        except TimeoutError:
            output = runner.output(run.job.id)
            if output.startswith(shown):  # until it is so long that its middle is left out
                show_output(output[len(shown) :])
                shown = output
            continue
        if isinstance(event, RunStarted):
            running.note_start(run, event.pid)
        else:
            show_output(event.output[common_length(shown, event.output) :])
            return event


def common_length(first: str, second: str) -> int:
    """Return how many characters both texts begin with."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
