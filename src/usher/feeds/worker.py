"""A poll as a job: the function that the task of each feed runs.

Comes from the manager, with the number of a feed; goes to `poll`, and back as the job's message and exit code. A feed
that fails ends its job for good: its task, not the queue, knows when to try again. Under a manager the process takes
the jobs of other feeds that are due, too.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import uvloop

from usher.crawl.http.fetch import Fetcher
from usher.crawl.service import fetcher_of
from usher.db.areas import named
from usher.errors import BadSetting, NotFound, UsherError
from usher.feeds.items.job_functions import clean, digest, name_all, permalink
from usher.feeds.poll import batch_poller
from usher.feeds.poll.batch_poller import BatchPoller, ClaimOptions
from usher.feeds.poll.feed_poll import poll as poll_feed
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.store import databases as feed_databases
from usher.feeds.store.databases import FeedDatabases
from usher.queue.policy import policies
from usher.settings import Loaded, load
from usher.worker import PermanentError, TemporaryError

__all__ = ["clean", "digest", "name_all", "permalink", "poll"]

# What the manager gives is the queue as a worker may use it; a poll also sets its task's clock.
QUEUE_VARIABLE: Final = "USHER_CONTROL_URL"


def poll(number: str) -> None:
    """Poll the feed of that number."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            told = runner.run(_poll(int(number)))
    except NotFound as error:
        raise PermanentError(error.message) from error
    except UsherError as error:
        raise TemporaryError(error.message) from error
    if not told.good:
        raise PermanentError(batch_poller.job_message(told))


async def _poll(id_: int) -> PollOutcome:
    loaded = load({name: value for name, value in os.environ.items() if name != QUEUE_VARIABLE})
    settings = loaded.settings
    if not all(named(settings).values()) and not (settings.data / "postgres").exists():
        # The manager was given the address by its environment, which it keeps from jobs.
        raise BadSetting("A job must find the databases in usher.toml.", hint="database_url = …")
    async with (
        feed_databases.open_databases(settings) as databases,
        fetcher_of(settings) as fetcher,
    ):
        if QUEUE_VARIABLE not in os.environ:
            return await poll_feed(databases, fetcher, id_)
        return await _sweep(databases, fetcher, id_, loaded, os.environ)


async def _sweep(
    databases: FeedDatabases, fetcher: Fetcher, id_: int, loaded: Loaded, given: Mapping[str, str]
) -> PollOutcome:
    """Its own feed and others; told to stop, what it had taken goes back first."""
    async with databases.jobs() as queue:
        type_, job, claim = (given[f"USHER_{name}"] for name in ("JOB_TYPE", "JOB_ID", "CLAIM"))
        async with queue.connection() as conn:
            host = await batch_poller.manager_of(conn, int(job))
        lease = timedelta(seconds=loaded.settings.job_lease)
        post = ClaimOptions(host, type_, lease, policies(loaded.workers).of(type_))
        sweeping = asyncio.create_task(BatchPoller(databases, fetcher, queue, post).run(id_))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sweeping.cancel)
        try:
            told = await sweeping
        except asyncio.CancelledError:
            raise TemporaryError("PollOutcome to stop.") from None
        async with queue.connection() as conn:
            now = queue.clock.now()
            await batch_poller.save_job_result(conn, told, job=int(job), claim=claim, now=now)
        return told
