"""Running orders in tests: start one, wait for its end, and look for processes by a mark they carry."""

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any, Literal

from usher.queue.runners.process_runner import ProcessRunner, RunEnded, RunRequest, RunStarted

NUMBERS = itertools.count(1)
PATIENCE = 30


def order(how: Literal["exec", "fork"], program: str, *args: str, **more: Any) -> RunRequest:  # noqa: ANN401
    return RunRequest(key=next(NUMBERS), how=how, program=program, args=args, **more)


def python(code: str, *args: str, **more: Any) -> RunRequest:  # noqa: ANN401
    """An exec job that runs Python code."""
    return order("exec", sys.executable, "-c", code, *args, **more)


def function(name: str, *args: str, **more: Any) -> RunRequest:  # noqa: ANN401
    """A fork job out of `job_functions`."""
    return order("fork", f"integration.job_functions:{name}", *args, **more)


async def started(runner: ProcessRunner) -> RunStarted:
    event = await asyncio.wait_for(runner.events.get(), PATIENCE)
    assert isinstance(event, RunStarted), event
    return event


async def ended(runner: ProcessRunner) -> RunEnded:
    """The next end; whatever starts before is let go."""
    while True:
        event = await asyncio.wait_for(runner.events.get(), PATIENCE)
        if isinstance(event, RunEnded):
            return event


async def run(runner: ProcessRunner, what: RunRequest) -> RunEnded:
    runner.start(what)
    end = await ended(runner)
    assert end.key == what.key
    return end


def marked(mark: str) -> list[int]:
    """Processes that carry the mark in their command line or environment, zombies left out."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in words and state != "Z":
            found.append(int(place.name))
    return found


async def says(runner: ProcessRunner, what: RunRequest, words: str) -> None:
    """Wait until a running job has said that."""
    async with asyncio.timeout(PATIENCE):
        while words not in runner.output(what.key):  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.01)
