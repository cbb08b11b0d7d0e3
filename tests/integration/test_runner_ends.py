"""A job ends when it should: by itself, when its time is up, when it is told, or at its limits."""

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.jobs_run import ended, function, order, python, run, says
from usher.queue.runners.process_runner import ProcessRunner, RunEnded

STUBBORN = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print('ready', flush=True)
while True:
    time.sleep(60)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(3)))
print('ready', flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
async def runner() -> AsyncIterator[ProcessRunner]:
    async with ProcessRunner(preload=("integration.job_functions",)) as one:
        yield one


# -- time, and being told


async def test_a_job_that_ignores_term_is_killed_after_its_grace(runner: ProcessRunner) -> None:
    end = await run(runner, python(STUBBORN, kill_after=0.5, grace=0.5))
    assert (end.code, end.why, end.output) == (-9, "timeout", "ready\n")
    assert end.detail == "It ran longer than 0.5 s"
    assert 0.9 < end.seconds < 5


async def test_a_job_may_use_its_grace(runner: ProcessRunner) -> None:
    end = await run(runner, python(POLITE, kill_after=0.5, grace=20))
    assert (end.code, end.why, end.output) == (3, "timeout", "ready\nbye\n")


async def test_the_whole_group_gets_the_term(runner: ProcessRunner) -> None:
    both = "trap 'wait; echo child; exit' TERM; (trap 'echo grandchild; exit' TERM; sleep 60 & wait) & wait; wait"
    end = await run(runner, order("exec", "/bin/sh", "-c", both, kill_after=1, grace=5))
    assert end.why == "timeout"
    assert "grandchild" in end.output


async def test_a_job_can_be_stopped(runner: ProcessRunner) -> None:
    what = python(POLITE)
    runner.start(what)
    await says(runner, what, "ready")
    runner.stop(what.key)
    end = await ended(runner)
    assert (end.code, end.why, end.detail, end.output) == (3, "cancelled", "", "ready\nbye\n")


async def test_a_job_can_be_killed_even_while_it_is_being_stopped(runner: ProcessRunner) -> None:
    what = python(STUBBORN, grace=600)
    runner.start(what)
    await says(runner, what, "ready")
    runner.stop(what.key)
    runner.kill(what.key)
    end = await ended(runner)
    assert (end.code, end.why) == (-9, "cancelled")
    assert end.seconds < 10


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_job_can_be_stopped_while_it_starts(runner: ProcessRunner, how: str) -> None:
    for what in (function("sleep", "60"), python("import time; time.sleep(60)")):
        runner.start(what)
        getattr(runner, how)(what.key)
        end = await ended(runner)
        assert (end.code, end.why) == ({"stop": -15, "kill": -9}[how], "cancelled")


async def test_what_has_ended_cannot_be_stopped(runner: ProcessRunner) -> None:
    what = function("nothing")
    await run(runner, what)
    runner.stop(what.key)
    runner.kill(what.key)
    assert runner.output(what.key) == ""
    assert (await run(runner, function("nothing"))).code == 0


# -- limits


async def test_memory_is_limited(runner: ProcessRunner) -> None:
    for what in (
        function("eat", "400", memory=300 << 20),
        python("print(len(bytearray(400 << 20)))", memory=300 << 20),
    ):
        end = await run(runner, what)
        assert end.code == 1
        assert "MemoryError" in end.output
    assert (await run(runner, function("eat", "100", memory=300 << 20))).output == f"{100 << 20}\n"


async def test_processor_time_is_limited(runner: ProcessRunner) -> None:
    for what in (function("spin", cpu=1), python("while True: pass", cpu=1)):
        end = await run(runner, what)
        assert (end.code, end.why) == (-signal.SIGXCPU, "ended")
    ignore = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert (await run(runner, python(ignore, cpu=1))).code == -9


# -- output


async def test_a_hundred_megabytes_pass_quickly_and_in_little_memory(runner: ProcessRunner) -> None:
    begin = time.monotonic()
    await run(runner, order("exec", "/usr/bin/head", "-c", "100M", "/dev/zero", output=10_000))
    end = await run(
        runner, python("import sys\nfor _ in range(100): sys.stdout.write('x' * (1 << 20))")
    )
    assert end.code == 0
    assert end.output.startswith("x" * 32_768 + "\n… 104,792,064 bytes left out …\n")
    assert time.monotonic() - begin < 15
    for place in (
        Path(f"/proc/{runner._process.pid}/task/{runner._process.pid}/children").read_text().split()
    ):
        assert int(Path(f"/proc/{place}/statm").read_text().split()[1]) * 4096 < 100 << 20


async def test_endless_output_ends_with_its_time(runner: ProcessRunner) -> None:
    what = order("exec", "/usr/bin/yes", kill_after=1.5, output=1000)
    runner.start(what)
    await says(runner, what, "y\n")
    assert "bytes left out" in runner.output(what.key)
    end = await ended(runner)
    assert (end.code, end.why) == (-15, "timeout")
    assert len(end.output) < 1100


async def test_a_job_may_close_its_output_and_work_on(runner: ProcessRunner) -> None:
    end = await run(
        runner,
        python("import os, time; print('x', flush=True); os.closerange(0, 3); time.sleep(0.5)"),
    )
    assert (end.code, end.output) == (0, "x\n")
    assert end.seconds > 0.5


# -- many


async def test_five_hundred_at_once_all_end_once(runner: ProcessRunner) -> None:
    jobs = [function("leave", str(number % 4)) for number in range(500)]
    for what in jobs:
        runner.start(what)
    ends: list[RunEnded] = [await ended(runner) for _ in jobs]
    assert runner.events.empty()
    assert {end.key: end.code for end in ends} == {
        what.key: number % 4 for number, what in enumerate(jobs)
    }
    assert len(ends) == len({end.key for end in ends}) == len({end.pid for end in ends}) == 500
