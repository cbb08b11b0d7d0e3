"""A job that ended, run once more in front of whoever asked for it.

Comes from the operator; goes to a new job below the old one, which is claimed here at once and settled like any other.
"""

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
from usher.queue.manager import ManagerConfig, settled_run
from usher.queue.runners.process_runner import ProcessRunner, RunEnded, RunStarted
from usher.queue.runners.run_request import run_request
from usher.queue.running_jobs import JobRun, RunningJobs

store = load_statements(__file__)

# It is claimed under this type, and has its own again before anybody else sees it; so nobody else's job is claimed.
RERUN_TYPE: Final = "usher-rerun"
RESOURCE_RETRY_SECONDS: Final = 0.5  # until its resource is asked again
OUTPUT_POLL_SECONDS: Final = 0.1  # between looks at what it says


class ResourceBusy(Exception):
    """Its resource has no seat for it now, and nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """What is to be run again, where, and who hears of it."""

    db: Database
    post: ManagerConfig
    old: admin.EndedJob
    extra: tuple[str, ...] = ()
    hear: Callable[[str], None]  # what the program says
    talk: Callable[[str], None]  # how it goes
    stop: asyncio.Event
    kill: asyncio.Event


async def rerun(again: RerunRequest) -> RunEnded | None:
    """Run it to its end; None if told to stop before its resource had a seat for it."""
    clock = again.db.clock
    ledger = RunningJobs(again.db, again.post.host, clock, lease=again.post.lease)
    run = await wait_for_resource(again, ledger)
    if run is None:
        return None
    again.talk(f"job {run.job.id} repeats job {again.old.id}")
    event = await run_to_end(again, run, ledger)
    if run.lost:
        again.talk("its lease was lost: it counts as not run, and a scheduler takes it back")
    else:
        ledger.end(run, settled_run(run, event, clock))
        await ledger.flush()
    return event


async def wait_for_resource(again: RerunRequest, ledger: RunningJobs) -> JobRun | None:
    told = False
    while not again.stop.is_set():
        with suppress(ResourceBusy):
            return await claim_repeat(again, ledger)
        if not told:
            again.talk(f"waits for its resource {again.old.resource}")
            told = True
        with suppress(TimeoutError):
            await asyncio.wait_for(again.stop.wait(), RESOURCE_RETRY_SECONDS)
    return None


async def claim_repeat(again: RerunRequest, ledger: RunningJobs) -> JobRun:
    """A new job below the old one, ours from its beginning; it keeps to its resource, whatever machine this is."""
    old, post, asked, now = again.old, again.post, time.monotonic(), ledger.clock.now()
    guise = replace(old, type=RERUN_TYPE, args=[*old.args, *again.extra], host_rule="")
    async with again.db.transaction() as conn:
        entered = (await admin.enqueue_again(conn, [guise], now=now))[old.id]
        if not entered.new:
            raise BadInput(
                f"Job {entered.id}, of the same task or key, waits or runs already.",
                hint=f"Wait for it, or usher jobs cancel {entered.id}",
            )
        found = await jobs.claim(conn, RERUN_TYPE, post.host, 1, lease=post.lease, tries=1, now=now)
        if [job.id for job in found] != [entered.id]:
            raise ResourceBusy
        fence = {"id": entered.id, "claim": found[0].claim}
        await store.take_over.run(conn, **fence, type=old.type, host_rule=old.host_rule)
    policy = replace(post.policies.of(old.type), max_attempts=1)
    return ledger.enter(replace(found[0], type=old.type), policy, asked)


async def run_to_end(again: RerunRequest, run: JobRun, ledger: RunningJobs) -> RunEnded:
    """To its end: alive to the others, heard, and stopped when told."""
    key, policy, post = run.job.id, run.policy, again.post
    preload = ("usher.worker", *policy.preload)
    async with ProcessRunner(preload=preload) as runner, asyncio.TaskGroup() as group:
        runner.start(run_request(run.job, policy, post))
        meanwhile = [
            ledger.beat(lambda _: runner.stop(key), lambda _: runner.kill(key)),
            ledger.watch(lambda _: runner.kill(key)),
            ledger.report(runner.output),
            call_when_set(again.stop, lambda: runner.stop(key)),
            call_when_set(again.kill, lambda: runner.kill(key)),
        ]
        tasks = [group.create_task(work) for work in meanwhile]
        event = await follow_run(runner, run, ledger, again.hear)
        for task in tasks:
            task.cancel()
    return event


async def call_when_set(told: asyncio.Event, act: Callable[[], None]) -> None:
    await told.wait()
    act()


async def follow_run(
    runner: ProcessRunner, run: JobRun, ledger: RunningJobs, hear: Callable[[str], None]
) -> RunEnded:
    """Until it ends; what it says is passed on as it comes."""
    heard = ""
    while True:
        try:
            async with asyncio.timeout(OUTPUT_POLL_SECONDS):
                event = await runner.events.get()
        except TimeoutError:
            said = runner.output(run.job.id)
            if said.startswith(heard):  # until it is so much that the middle is left out
                hear(said[len(heard) :])
                heard = said
            continue
        if isinstance(event, RunStarted):
            ledger.note_start(run, event.pid)
        else:
            hear(event.output[alike(heard, event.output) :])
            return event


def alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
