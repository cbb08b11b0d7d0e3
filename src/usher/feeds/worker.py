"""A poll as a job: the function that the task of each feed runs.

Comes from the manager, with the number of a feed; goes to `poll`, and back as the job's message and exit code. A feed
that fails ends its job for good: its task, not the queue, knows when to try again.
"""

import asyncio
import os

from usher.areas import named
from usher.crawl.service import fetcher_of
from usher.errors import BadSetting, NotFound, UsherError
from usher.feeds import house as houses
from usher.feeds.poll import Told
from usher.feeds.poll import poll as poll_feed
from usher.settings import load
from usher.worker import PermanentError, TemporaryError, job

# What the manager gives is the queue as a worker may use it; a poll also sets its task's clock.
NOT_OURS = "USHER_CONTROL_URL"


def poll(number: str) -> None:
    """Poll the feed of that number."""
    try:
        told = asyncio.run(_poll(int(number)))
    except NotFound as error:
        raise PermanentError(error.message) from error
    except UsherError as error:
        raise TemporaryError(error.message) from error
    told_by = job() if NOT_OURS in os.environ else None
    if told_by and told.new:
        told_by.wrote("feeds.feed_item", *told.new)
    words = told.words if told.next_at is None else f"{told.words} Next {told.next_at:%H:%M:%S}."
    if not told.good:
        raise PermanentError(words)
    if told_by:
        told_by.message(words)


async def _poll(id_: int) -> Told:
    environment = {name: value for name, value in os.environ.items() if name != NOT_OURS}
    settings = load(environment).settings
    if not all(named(settings).values()) and not (settings.data / "postgres").exists():
        # The manager was given the address by its environment, which it keeps from jobs.
        raise BadSetting("A job must find the databases in usher.toml.", hint="database_url = …")
    async with houses.opened(settings) as house, fetcher_of(settings) as fetcher:
        return await poll_feed(house, fetcher, id_)
