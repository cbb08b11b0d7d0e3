"""The programs that the queue runs for feeds: poll, permalink, clean, digest and name_all.

A poll that fails ends its job permanently, because the feed's task decides when to try again. Under a manager the
process also claims the jobs of other feeds that are due.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

import uvloop

from usher.crawl.http.fetch import Fetcher
from usher.crawl.service import make_fetcher
from usher.db.areas import configured_dsns
from usher.errors import BadSetting, NotFound, UsherError
from usher.feeds.items import clean_job, multimatch
from usher.feeds.items.digest import digest_all
from usher.feeds.items.permalink import PageOutcome, fetch_item_page
from usher.feeds.poll import batch_poller
from usher.feeds.poll.batch_poller import BatchPoller, ClaimOptions
from usher.feeds.poll.feed_poll import poll as poll_feed
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.store.databases import FeedDatabases, open_databases
from usher.queue.policy import read_policies
from usher.settings import LoadedSettings, load
from usher.worker import PermanentError, TemporaryError, job

# The manager sets this to the queue as a job may use it. Jobs of feeds also write tasks and other jobs, so they
# connect with the address in usher.toml instead.
QUEUE_VARIABLE: Final = "USHER_CONTROL_URL"
T = TypeVar("T")


def poll(number: str) -> None:
    """Poll the feed with this number."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = run_job(_poll(int(number)), runner)
    if not outcome.good:
        raise PermanentError(batch_poller.job_message(outcome))


def permalink(number: str) -> None:
    """Fetch the page of the item with this number."""
    outcome = run_job(_permalink(int(number)))
    if outcome.next_at:
        raise PermanentError(f"{outcome.words} Next attempt {outcome.next_at:%Y-%m-%d %H:%M}.")
    if not outcome.good:
        raise PermanentError(outcome.words)
    _set_message(outcome.words)


def clean(number: str) -> None:
    """Clean the items of the feed with this number."""
    outcome = run_job(_with_databases(lambda dbs: clean_job.clean_feed(dbs, int(number))))
    _set_message(" ".join([outcome.words, *outcome.problems]))


def digest() -> None:
    """Digest all items that are new or changed."""
    items = run_job(_with_databases(lambda dbs: digest_all(dbs.search)))
    _set_message(f"{items} items.")


def name_all() -> None:
    """Give names in the schema `multimatch` to the feeds, items and enclosures that have none."""
    work = _with_databases(lambda dbs: multimatch.name_all(dbs.search))
    feeds, items, enclosures = run_job(work)
    _set_message(f"Named {feeds} feeds, {items} items and {enclosures} enclosures.")


def run_job(work: Coroutine[Any, Any, T], runner: asyncio.Runner | None = None) -> T:
    """Run a job; errors become permanent (not found) or temporary errors of the queue."""
    try:
        return runner.run(work) if runner else asyncio.run(work)
    except NotFound as error:
        raise PermanentError(error.message) from error
    except UsherError as error:
        raise TemporaryError(error.message) from error


def job_settings() -> LoadedSettings:
    """The settings of a job; BadSetting if usher.toml does not name the databases."""
    environment = {name: value for name, value in os.environ.items() if name != QUEUE_VARIABLE}
    loaded = load(environment)
    settings = loaded.settings
    if not all(configured_dsns(settings).values()) and not (settings.data / "postgres").exists():
        # The manager may have the address in its environment, which it does not pass to jobs.
        raise BadSetting("Jobs need the databases in usher.toml.", hint="database_url = …")
    return loaded


def _set_message(words: str) -> None:
    if QUEUE_VARIABLE in os.environ:
        job().message(words)


async def _permalink(id_: int) -> PageOutcome:
    settings = job_settings().settings
    async with open_databases(settings) as databases, make_fetcher(settings) as fetcher:
        return await fetch_item_page(databases, fetcher, id_)


async def _with_databases(work: Callable[[FeedDatabases], Awaitable[T]]) -> T:
    async with open_databases(job_settings().settings) as databases:
        return await work(databases)


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
    job_type, job_id, claim = (env[f"USHER_{name}"] for name in ("JOB_TYPE", "JOB_ID", "CLAIM"))
    async with databases.jobs() as queue:
        async with queue.connection() as conn:
            host = await batch_poller.manager_of(conn, int(job_id))
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
            await batch_poller.save_job_result(conn, outcome, job=int(job_id), claim=claim, now=now)
        return outcome
