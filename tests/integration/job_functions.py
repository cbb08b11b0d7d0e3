"""Functions that the runner's tests run as fork jobs."""
# ruff: noqa: T201 - what they print is what the tests look at

import asyncio
import fcntl
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from usher.worker import PermanentError, TemporaryError, job

NOT_A_FUNCTION = 1


def nothing(*args: str) -> None:
    del args


def leave(code: str) -> None:
    sys.exit(int(code))


def leave_with(words: str) -> None:
    sys.exit(words)


def fail(kind: str, words: str = "") -> None:
    kinds = {"temporary": TemporaryError, "permanent": PermanentError, "other": ValueError}
    raise kinds[kind](words)


def say(*args: str) -> None:
    """With an unfinished line, and from both streams in turn."""
    print("out 1")
    print("err 1", file=sys.stderr)
    print("out 2")
    print(*args, end="")


def chance() -> None:
    print(random.random())  # noqa: S311


def surroundings(*names: str) -> None:
    """Who and where we are, and what we were told."""
    print(os.getpid() == os.getpgrp() == os.getsid(0), Path.cwd(), sys.argv[1:])
    print(*(os.environ.get(name) for name in names))
    print(sorted(os.environ))


def sleep(seconds: str) -> None:
    print("sleeping")
    time.sleep(float(seconds))


def eat(megabytes: str) -> None:
    print(len(bytearray(int(megabytes) << 20)))


def spin() -> None:
    while True:
        pass


def leave_behind(marker: str) -> None:
    """A child that goes on in a session of its own."""
    subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", marker], start_new_session=True
    )


def give_back(text: str) -> object:
    return json.loads(text)


def give_back_a_set() -> object:
    return {1, 2}


def give_back_much() -> object:
    return "x" * 100_000


def set_result(text: str) -> None:
    job().result(text)


def stuff_pipes() -> None:
    """Fill every pipe of this process beyond what one read takes."""
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2:
            try:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1 << 20)
            except OSError:
                continue  # not a pipe
            os.write(fd, b"1" * 300_000)


async def say_later(*args: str) -> None:
    print("before")
    await asyncio.sleep(0.01)
    print(*args)


async def fail_later(kind: str, text: str) -> None:
    await asyncio.sleep(0)
    fail(kind, text)


def say_by_coroutine(text: str) -> object:
    """A plain function that returns a coroutine, as some decorators make of an async one."""
    return say_later(text)


def generate() -> Iterator[int]:
    yield 1


async def generate_later() -> AsyncIterator[int]:
    yield 1
