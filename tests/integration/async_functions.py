"""Functions that tests run inside a manager."""
# ruff: noqa: T201 - what they print is what the tests look at

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

from usher.worker import PermanentError, TemporaryError, job

log = logging.getLogger("async_functions")
# As in a program that does not configure logging; pytest configures it.
log.propagate = False
log.addHandler(logging.lastResort or logging.NullHandler())
__all__ = ["shout"]


async def nothing() -> None:
    """Do nothing."""


async def split(text: str) -> list[str]:
    await asyncio.sleep(0)
    return text.split()


def split_in_thread(text: str) -> list[str]:
    return text.split()


async def give_back_a_set() -> set[int]:
    return {1}


def shout(text: str) -> None:
    print(text.upper())


async def count(book: str) -> None:
    """Write a line for this run in one call, so that no two runs mix theirs."""
    await asyncio.sleep(0)
    end = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(end, f"{job().id} {job().attempt} {os.getpid()}\n".encode())
    os.close(end)


async def say(name: str, lines: str) -> None:
    """Print and log in turns with other jobs."""
    for number in range(int(lines)):
        print(name, number)
        await asyncio.sleep(0.001)
        log.warning("%s logs %s", name, number)
        await asyncio.to_thread(print, name, "thread", number, file=sys.stderr)
    sys.stdout.buffer.write(f"{name} bytes".encode())


def say_in_thread(name: str, lines: str) -> None:
    for number in range(int(lines)):
        print(name, number)
        time.sleep(0.001)
        log.warning("%s logs %s", name, number)


async def fail(kind: str) -> None:
    await asyncio.sleep(0)
    fail_in_thread(kind)


def fail_in_thread(kind: str) -> None:
    if kind == "exit":
        sys.exit("bye")
    if kind == "code":
        sys.exit(2)
    kinds = {"temporary": TemporaryError, "permanent": PermanentError, "other": ValueError}
    raise kinds[kind](f"{kind} words")


async def sleep(seconds: str) -> None:
    print("sleeping")
    try:
        await asyncio.sleep(float(seconds))
    finally:
        print("cleaned up")


async def block(seconds: str) -> None:
    print("blocking")
    time.sleep(float(seconds))  # noqa: ASYNC251 - what it is for
    print("woke")


async def refuse_to_stop(mark: str) -> None:
    """Run until a file exists, whatever is asked."""
    while not Path(mark).exists():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            print("not me")


def wait_in_thread(mark: str) -> None:
    """Run until a file exists."""
    print("waiting")
    while not Path(mark).exists():
        time.sleep(0.02)


def stop_when_asked() -> None:
    while not job().stopping:
        time.sleep(0.02)
    print("stopped")


async def tell(path: str) -> None:
    """Use every call of the worker's API."""
    me = job()
    me.message("fetching foo")
    words = (me.id, me.task_id, me.data, me.attempt)
    Path(path).write_text(" ".join(map(str, words)))
    await asyncio.to_thread(me.wrote, "feeds.feed_item", 1, 2)
    me.enqueue("quick", "integration.async_functions:shout", "child", key="once")
    me.enqueue("quick", "integration.async_functions:shout", "child", key="once")


async def start_program() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('from a process')", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    print(output.decode(), end="")


async def leave_task() -> None:
    """Leave a task behind that ends the event loop."""
    asyncio.get_running_loop().call_later(0.01, asyncio.ensure_future, leave())


async def leave() -> None:
    sys.exit(3)
