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
from usher.db.areas import configured_dsns
from usher.errors import BadSetting, NotFound, UsherError
from usher.feeds.items.job_functions import clean, digest, name_all, permalink
from usher.feeds.poll import sweep
from usher.feeds.poll.feed_poll import Told
from usher.feeds.poll.feed_poll import poll as poll_feed
from usher.feeds.poll.sweep import Post, Sweep
from usher.feeds.store import databases as houses
from usher.feeds.store.databases import House
from usher.queue.policy import read_policies
from usher.settings import Loaded, load
from usher.worker import PermanentError, TemporaryError

__all__ = ["clean", "digest", "name_all", "permalink", "poll"]

# What the manager gives is the queue as a worker may use it; a poll also sets its task's clock.
NOT_OURS: Final = "USHER_CONTROL_URL"


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
        raise PermanentError(sweep.words(told))


async def _poll(id_: int) -> Told:
    loaded = load({name: value for name, value in os.environ.items() if name != NOT_OURS})
    settings = loaded.settings
    if not all(configured_dsns(settings).values()) and not (settings.data / "postgres").exists():
        # The manager was given the address by its environment, which it keeps from jobs.
        raise BadSetting("A job must find the databases in usher.toml.", hint="database_url = …")
    async with houses.opened(settings) as house, fetcher_of(settings) as fetcher:
        if NOT_OURS not in os.environ:
            return await poll_feed(house, fetcher, id_)
        return await _sweep(house, fetcher, id_, loaded, os.environ)


async def _sweep(
    house: House, fetcher: Fetcher, id_: int, loaded: Loaded, given: Mapping[str, str]
) -> Told:
    """Its own feed and others; told to stop, what it had taken goes back first."""
    async with house.jobs() as queue:
        type_, job, claim = (given[f"USHER_{name}"] for name in ("JOB_TYPE", "JOB_ID", "CLAIM"))
        async with queue.connection() as conn:
            host = await sweep.host_of(conn, int(job))
        lease = timedelta(seconds=loaded.settings.job_lease)
        post = Post(host, type_, lease, read_policies(loaded.workers).of(type_))
        sweeping = asyncio.create_task(Sweep(house, fetcher, queue, post).run(id_))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sweeping.cancel)
        try:
            told = await sweeping
        except asyncio.CancelledError:
            raise TemporaryError("Told to stop.") from None
        async with queue.connection() as conn:
            now = queue.clock.now()
            await sweep.report(conn, told, job=int(job), claim=claim, now=now)
        return told
