"""`usher jobs result`: wait for a job and print its result."""

import asyncio
import json
from typing import Final

from usher.cli.app import App
from usher.cli.area_access import checked_transaction
from usher.cli.output import echo
from usher.cli.queue_access import open_queue, parse_duration
from usher.errors import UsherError
from usher.queue import queries
from usher.queue.job_states import JobState
from usher.queue.queries import JobDetails

FIRST_WAIT_SECONDS: Final = 0.1
MAX_WAIT_SECONDS: Final = 2.0


async def read_result(app: App, id_: int, wait: str | None) -> JobDetails:
    """Wait up to this duration for the end of the job, and return the job."""
    seconds = parse_duration(wait).total_seconds() if wait else 0.0
    deadline = asyncio.get_running_loop().time() + seconds
    pause = FIRST_WAIT_SECONDS
    async with open_queue(app) as db:
        while True:
            async with checked_transaction(db) as conn:
                details = await queries.show_job(conn, id_)
            left = deadline - asyncio.get_running_loop().time()
            if not details.live or left <= 0:
                return details
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, MAX_WAIT_SECONDS)


def show_result(details: JobDetails) -> bool:
    """Print the result as JSON; False if the job has none. UsherError if it did not complete."""
    job = details.job
    if details.live:
        raise UsherError(
            f"Job {job.id} has not ended: it is {job.state}.",
            hint=f"usher jobs result {job.id} --wait 1m",
        )
    if job.state != JobState.COMPLETED:
        message = f": {job.message}" if job.message else ""
        raise UsherError(
            f"Job {job.id} did not complete: {job.state}{message}", hint=f"usher jobs show {job.id}"
        )
    if details.result is not None:
        echo(json.dumps(details.result.value, ensure_ascii=False))
    return details.result is not None
