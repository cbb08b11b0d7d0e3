"""A job ends with all its processes, wherever they hide and whichever process dies."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from integration.jobs_run import ended, function, marked, order, python, run, says, started
from support.processes.killable import eventually, kill_9, running
from usher.queue.runners.process_runner import ProcessRunner

# Hundreds of processes, each in a session of its own, and half of them daemons whose parents are gone.
SWARM = """
import os, sys, time
for number in range(150):
    if os.fork() == 0:
        os.setsid()
        if number % 2 and os.fork():
            os._exit(0)
        os.execv(sys.executable, [sys.executable, '-S', '-c', 'import time; time.sleep(600)', sys.argv[1]])
print('swarmed', flush=True)
time.sleep(float(sys.argv[2]))
"""
# Always one step ahead: a process that lives on only in its child, in yet another session.
COMET = """
import os, sys
if os.fork() == 0:
    while True:
        os.setsid()
        if os.fork():
            os._exit(0)
"""
OWNER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from usher.queue.runners.process_runner import ProcessRunner, RunRequest
async def main():
    async with ProcessRunner(preload=['integration.job_functions']) as runner:
        mark = {'MARK': sys.argv[1]}
        swarm = (sys.argv[3], sys.argv[1], '600')
        runner.start(RunRequest(key=1, how='exec', program=sys.executable, args=('-c', *swarm), env=mark))
        sleep = 'integration.job_functions:sleep'
        runner.start(RunRequest(key=2, how='fork', program=sleep, args=('600',), env=mark))
        leave = 'integration.job_functions:leave_behind'
        runner.start(RunRequest(key=3, how='fork', program=leave, args=(sys.argv[1],)))
        while 'swarmed' not in runner.output(1):
            await asyncio.sleep(0.05)
        print(runner._process.pid, runner._busy[2].pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
async def runner() -> AsyncIterator[ProcessRunner]:
    async with ProcessRunner(preload=("integration.job_functions",)) as one:
        yield one


@pytest.fixture
def mark() -> str:
    return f"mark-{uuid4()}"


# -- no process is left behind


async def test_children_end_with_their_job(runner: ProcessRunner, mark: str) -> None:
    end = await run(
        runner, order("exec", "/bin/sh", "-c", "sleep 600 & echo done", env={"MARK": mark})
    )
    assert (end.code, end.output) == (0, "done\n")
    assert not marked(mark)
    await run(runner, function("leave_behind", mark))
    assert not marked(mark)


@pytest.mark.parametrize(("seconds", "code"), [("0", 0), ("600", -15)])
async def test_a_swarm_ends_with_its_job(
    runner: ProcessRunner, mark: str, seconds: str, code: int
) -> None:
    what = python(SWARM, mark, seconds)
    runner.start(what)
    if code:
        await says(runner, what, "swarmed")
        assert len(marked(mark)) > 100
        runner.stop(what.key)
    end = await ended(runner)
    assert not marked(mark)
    assert (end.code, end.output) == (code, "swarmed\n")


async def test_who_is_always_a_step_ahead_is_caught_too(runner: ProcessRunner, mark: str) -> None:
    end = await run(runner, python(COMET, mark))
    assert end.code == 0
    assert not marked(mark)


async def test_neighbours_are_left_alone(runner: ProcessRunner, mark: str) -> None:
    long = [order("exec", "/bin/sleep", "600", env={"MARK": mark}) for _ in range(5)]
    for what in long:
        runner.start(what)
        await started(runner)
    await run(runner, python(SWARM, "another", "0"))
    assert len(marked(mark)) == 5
    for what in long:
        runner.kill(what.key)
        assert (await ended(runner)).code == -9


# -- when one of our processes dies


async def test_a_dead_owner_leaves_nothing(mark: str) -> None:
    owner = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
        [sys.executable, "-c", OWNER, mark, str(Path(__file__).parents[1]), SWARM],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout
    with owner.stdout:
        line = await asyncio.to_thread(owner.stdout.readline)
        pids = [int(word) for word in line.split()]
        assert all(map(running, pids))
        assert len(marked(mark)) > 100
        owner.kill()
        owner.wait()
    assert await asyncio.to_thread(
        eventually, lambda: not marked(mark) and not any(map(running, pids))
    )


async def test_a_dead_launcher_takes_its_jobs_along_and_is_replaced(mark: str) -> None:
    async with ProcessRunner(preload=("integration.job_functions",)) as runner:
        await run(runner, function("nothing"))
        jobs = [
            function("sleep", "600", env={"MARK": mark}),
            python(SWARM, mark, "600"),
            order("exec", "/bin/sleep", "600", env={"MARK": mark}),
        ]
        for what in jobs:
            runner.start(what)
        pids = [(await started(runner)).pid for _ in jobs]
        await says(runner, jobs[1], "swarmed")
        first = runner._process.pid
        os.kill(first, signal.SIGKILL)
        ends = [await ended(runner) for _ in jobs]
        assert {end.key for end in ends} == {what.key for what in jobs}
        assert {(end.code, end.why, end.detail) for end in ends} == {
            (-9, "ended", "The launcher died")
        }
        assert not marked(mark)
        assert not any(map(running, pids))
        assert (await run(runner, function("nothing"))).code == 0
        assert runner._process.pid != first


async def test_the_job_of_a_dead_supervisor_is_killed(mark: str) -> None:
    async with ProcessRunner() as runner:
        what = python(SWARM, mark, "600")
        runner.start(what)
        await says(runner, what, "swarmed")
        pid = next(iter(runner._busy.values())).pid
        supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        await asyncio.to_thread(kill_9, supervisor)
        end = await ended(runner)
        assert (end.code, end.why, end.detail) == (-9, "ended", "The supervisor of this job died")
        assert "swarmed" in end.output
        assert await asyncio.to_thread(eventually, lambda: not marked(mark))
        assert (await run(runner, order("exec", "/bin/true"))).code == 0


async def test_leaving_ends_everything(mark: str) -> None:
    async with ProcessRunner() as runner:
        what = python(SWARM, mark, "600")
        runner.start(what)
        await says(runner, what, "swarmed")
        launcher = runner._process.pid
    assert not marked(mark)
    assert not running(launcher)
