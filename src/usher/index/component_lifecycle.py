"""What index servers, builders and front-ends share: a locked directory, registration at MGMT."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from usher.background import wait_up_to
from usher.chunk_store import make_folder, translate_disk_errors
from usher.errors import Conflict, UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.components import EngineName
from usher.private_files import open_file
from usher.telemetry import Log

log = Log("index")
REGISTER_RETRY_SECONDS: Final = 2.0


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


async def register(
    mgmt: Client,
    stop: asyncio.Event,
    kind: str,
    *,
    row: int | None = None,
    weight: int | None = None,
    engine: EngineName | None = None,
) -> bool:
    """Register at MGMT, retrying while MGMT is unavailable; False if `stop` is set before."""
    while not stop.is_set():
        try:
            await mgmt.set_state("online", type=kind, row=row, weight=weight, engine=engine)
        except UsherError as error:
            if error.status < 500:  # noqa: PLR2004 - MGMT has refused this component
                raise
            log.warning("mgmt_away", error=error.message)
            await wait_up_to(REGISTER_RETRY_SECONDS, stop)
        else:
            return True
    return False
