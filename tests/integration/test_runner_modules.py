"""Modules are preloaded once; a module that fails affects no other job."""

import asyncio
from pathlib import Path

import pytest

from integration.jobs_run import function, order, run
from usher.queue.runners.process_runner import ProcessRunner

BAD = {
    "exits": "raise SystemExit(7)",
    "raises": "raise RuntimeError('no')",
    "kills": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "vanishes": "import os; os._exit(0)",
    "lacks": "import no_such_thing",
    "threads": "import threading, time; threading.Thread(target=time.sleep, args=[9], daemon=True).start()",
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_module_hurts_only_its_own_jobs(tmp_path: Path, bad: str) -> None:
    (tmp_path / f"bad_{bad}.py").write_text(BAD[bad])
    async with ProcessRunner(path=[str(tmp_path)]) as runner:
        launcher = runner._process.pid
        end = await run(runner, order("fork", f"bad_{bad}:run"))
        expected = {"exits": 7, "raises": 1, "kills": -9, "vanishes": 0}.get(bad)
        assert end.code == expected
        assert end.why == ("missing" if expected is None else "ended")
        assert (await run(runner, order("exec", "/bin/true"))).code == 0
        await asyncio.sleep(0.3)
        assert runner._process.pid == launcher
        assert (await run(runner, order("exec", "/bin/true"))).code == 0


async def test_modules_that_spoil_the_start_are_left_out(tmp_path: Path) -> None:
    for bad, text in BAD.items():
        (tmp_path / f"bad_{bad}.py").write_text(text)
    preload = (*(f"bad_{bad}" for bad in BAD), "integration.job_functions")
    async with ProcessRunner(preload, path=[str(tmp_path)]) as runner:
        assert set(runner._preloaded) <= {"integration.job_functions", "bad_threads"}
        assert (await run(runner, function("nothing"))).code == 0


async def test_a_module_is_loaded_once_and_then_warm(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time, os; time.sleep(0.2); HOME = os.getpid()\ndef run(): print(HOME)"
    )
    async with ProcessRunner(path=[str(tmp_path)]) as runner:
        cold = await run(runner, order("fork", "slow:run"))
        assert cold.output == f"{cold.pid}\n"
        async with asyncio.timeout(20):
            while "slow" not in runner._preloaded:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for _ in range(3):
            warm = await run(runner, order("fork", "slow:run"))
            assert warm.output == f"{runner._process.pid}\n"
            assert warm.seconds < 0.2


async def test_a_module_may_lie_in_the_jobs_directory(tmp_path: Path) -> None:
    (tmp_path / "lying_here.py").write_text("def run(): print('here')")
    async with ProcessRunner() as runner:
        end = await run(runner, order("fork", "lying_here:run", directory=str(tmp_path)))
        assert (end.code, end.output) == (0, "here\n")
        assert (await run(runner, order("fork", "lying_here:run"))).why == "missing"
