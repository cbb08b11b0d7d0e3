"""The programs that the queue runs for feeds: poll, permalink, clean, digest and name_all.

A poll that fails ends its job permanently, because the feed's task decides when to try again. Under a manager the
process also claims the jobs of other feeds that are due.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import timedelta

import uvloop

from usher.crawl.http.fetch import Fetcher
from usher.crawl.service import make_fetcher
from usher.feeds.items.job_functions import (
    QUEUE_VARIABLE,
    clean,
    digest,
    job_settings,
    name_all,
    permalink,
    run_job,
)
from usher.feeds.poll import batch_poller
from usher.feeds.poll.batch_poller import BatchPoller, ClaimOptions
from usher.feeds.poll.feed_poll import poll as poll_feed
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.store.databases import FeedDatabases, open_databases
from usher.queue.policy import read_policies
from usher.settings import LoadedSettings
from usher.worker import PermanentError, TemporaryError

__all__ = ["clean", "digest", "name_all", "permalink", "poll"]


def poll(number: str) -> None:
    """Poll the feed with this number."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = run_job(_poll(int(number)), runner)
    if not outcome.good:
        raise PermanentError(batch_poller.job_message(outcome))


async def _poll(id_: int) -> PollOutcome:
    loaded = job_settings()
    settings = loaded.settings
    async with open_databases(settings) as databases, make_fetcher(settings) as fetcher:
        if QUEUE_VARIABLE not in os.environ:
            return await poll_feed(databases, fetcher, id_)
        return await _poll_batch(databases, fetcher, id_, loaded, os.environ)


async def _poll_batch(
    databases: FeedDatabases,
    fetcher: Fetcher,
    id_: int,
    loaded: LoadedSettings,
    env: Mapping[str, str],
) -> PollOutcome:
    """Poll this feed and others that are due; on SIGTERM return unfinished jobs to the queue."""
    job_type, job, claim = (env[f"USHER_{name}"] for name in ("JOB_TYPE", "JOB_ID", "CLAIM"))
    async with databases.jobs() as queue:
        async with queue.connection() as conn:
            host = await batch_poller.manager_of(conn, int(job))
        lease = timedelta(seconds=loaded.settings.job_lease)
        options = ClaimOptions(host, job_type, lease, read_policies(loaded.workers).of(job_type))
        poller = BatchPoller(databases, fetcher, queue, options)
        polling = asyncio.create_task(poller.run(id_))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, polling.cancel)
        try:
            outcome = await polling
        except asyncio.CancelledError:
            raise TemporaryError("Stopped by a signal.") from None
        async with queue.connection() as conn:
            now = queue.clock.now()
            await batch_poller.save_job_result(conn, outcome, job=int(job), claim=claim, now=now)
        return outcome
