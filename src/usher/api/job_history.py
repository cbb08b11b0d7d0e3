"""Records the figures of jobs for the charts of the console, once a minute: only MGMT reads both areas."""

import asyncio
from typing import Final

from usher.db.pool import UNAVAILABLE_ERRORS, Database
from usher.mgmt import history
from usher.queue import queries
from usher.telemetry import Log

log = Log("web")
PAUSE_SECONDS: Final = 20.0  # a minute is recorded once, soon after its end


async def record_jobs(mgmt_db: Database, control: Database) -> None:
    """Record the last full minute if no MGMT did, until it is cancelled."""
    while True:
        try:
            await record_last_minute(mgmt_db, control)
        except UNAVAILABLE_ERRORS as error:
            log.warning("job_history_skipped", reason=str(error).strip())
        await asyncio.sleep(PAUSE_SECONDS)


async def record_last_minute(mgmt_db: Database, control: Database) -> bool:
    """Record the last full minute; False if it is recorded already."""
    minute = history.last_minute(mgmt_db.clock.now())
    async with mgmt_db.connection() as conn:
        if await history.has_jobs(conn, minute=minute):
            return False
    async with control.connection() as conn:
        figures = await queries.job_figures(conn, since=minute, until=minute + history.MINUTE)
    async with mgmt_db.transaction() as conn:
        return await history.record_jobs(conn, figures, minute=minute)
