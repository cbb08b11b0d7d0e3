"""The directory of a builder or an index server, which one process at a time may use, and its background tasks."""

import asyncio
import fcntl
import os
import re
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from usher.chunk_store import make_folder, translate_disk_errors
from usher.errors import Conflict
from usher.private_files import open_file
from usher.telemetry import Log, log_failure

log = Log("index")


def directory_name(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", host)


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Create and lock a directory; Conflict if another process has locked it. The lock ends with the process."""
    with translate_disk_errors(directory):
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
    """Run a coroutine beside the block and cancel it at the end; a failure is logged at once."""
    task = log_failure(asyncio.create_task(work), log)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
