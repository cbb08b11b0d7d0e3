"""What comes after polls, as jobs: the functions that fetch the page of an item and clean the items of a feed.

Comes from the manager, with the number of an item or a feed; goes to `permalink` and `cleaning`, and back as the job's
message and exit code.
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from usher.crawl.service import fetcher_of
from usher.db.areas import named
from usher.errors import BadSetting, NotFound, UsherError
from usher.feeds.items import clean_job, multimatch
from usher.feeds.items import digest as digesting
from usher.feeds.items import permalink as permalinks
from usher.feeds.store import databases as feed_databases
from usher.settings import Settings, load
from usher.worker import PermanentError, TemporaryError, job

# What the manager gives is the queue as a worker may use it; these also put in further jobs for others.
QUEUE_VARIABLE: Final = "USHER_CONTROL_URL"
T = TypeVar("T")


def permalink(number: str) -> None:
    """Fetch the page of the item of that number."""
    told = _run(_permalink(int(number)))
    if told.next_at:
        _end(f"{told.words} Again {told.next_at:%Y-%m-%d %H:%M}.", good=False)
    else:
        _end(told.words, good=told.good)


def clean(number: str) -> None:
    """Clean the items of the feed of that number."""
    told = _run(_clean(int(number)))
    _end(" ".join([told.words, *told.problems]), good=True)


def digest() -> None:
    """Take the words of all items that have none."""
    number = _run(_digest())
    _end(f"{number} items.", good=True)


def name_all() -> None:
    """Give names to the feeds, items and enclosures that have none in the schema `multimatch`."""
    feeds, items, enclosures = _run(_name_all())
    _end(f"Named {feeds} feeds, {items} items and {enclosures} enclosures.", good=True)


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except NotFound as error:
        raise PermanentError(error.message) from error
    except UsherError as error:
        raise TemporaryError(error.message) from error


def _end(words: str, *, good: bool) -> None:
    if not good:
        raise PermanentError(words)
    if QUEUE_VARIABLE in os.environ:
        job().message(words)


async def _permalink(id_: int) -> permalinks.PageOutcome:
    settings = _settings()
    async with (
        feed_databases.open_databases(settings) as databases,
        fetcher_of(settings) as fetcher,
    ):
        return await permalinks.fetch_item_page(databases, fetcher, id_)


async def _digest() -> int:
    async with feed_databases.open_databases(_settings()) as databases:
        return await digesting.digest_all(databases.search)


async def _name_all() -> tuple[int, int, int]:
    async with feed_databases.open_databases(_settings()) as databases:
        return await multimatch.name_all(databases.search)


async def _clean(id_: int) -> clean_job.CleanOutcome:
    async with feed_databases.open_databases(_settings()) as databases:
        return await clean_job.clean_feed(databases, id_)


def _settings() -> Settings:
    settings = load(
        {name: value for name, value in os.environ.items() if name != QUEUE_VARIABLE}
    ).settings
    if not all(named(settings).values()) and not (settings.data / "postgres").exists():
        # The manager was given the address by its environment, which it keeps from jobs.
        raise BadSetting("A job must find the databases in usher.toml.", hint="database_url = …")
    return settings
