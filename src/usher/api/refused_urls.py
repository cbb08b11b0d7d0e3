"""Stores the sample of refused URLs every few seconds while MGMT serves."""

import asyncio
from typing import Final

from usher.db.pool import CONFLICT_ERRORS, UNAVAILABLE_ERRORS, Database
from usher.door.refused_urls import RefusedSample
from usher.telemetry import Log

log = Log("web")
PAUSE_SECONDS: Final = 5.0


async def store_refused(door_db: Database, sample: RefusedSample) -> None:
    """Store what the door refused meanwhile, until it is cancelled; a sample that cannot be stored is dropped."""
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        try:
            async with door_db.transaction() as conn:
                await sample.store(conn, now=door_db.clock.now())
        except (*UNAVAILABLE_ERRORS, *CONFLICT_ERRORS) as error:
            log.warning("refused_urls_dropped", reason=str(error).strip())
