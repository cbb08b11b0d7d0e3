"""Where a component of the index is: its name for others, the directory that is its alone, and what runs beside it."""

import asyncio
import fcntl
import os
import re
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from usher.chunk_store import at_disk, make_folder
from usher.errors import Conflict
from usher.private_files import open_file
from usher.telemetry import Log, observed

log = Log("index")


def directory_name(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", host)


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """A directory for one process; Conflict if another lives in it. The lock goes with the process."""
    with at_disk(directory):
        make_folder(directory)
        handle = open_file(directory / "lock", os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = "Give each its own address with --bind, or its own data directory."
            raise Conflict(f"{directory} is in use by another process.", hint=hint) from error
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def background_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Something that goes on meanwhile; if it fails, the log says so at once."""
    task = observed(asyncio.create_task(work), log)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
