"""Queues the jobs and tasks that follow a poll: fetching the pages of items and cleaning items."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)

PERMALINK_PROGRAM: Final = "usher.feeds.worker:permalink"
CLEAN_PROGRAM: Final = "usher.feeds.worker:clean"
CLEAN_PERIOD: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page to fetch: its item, the number of failed attempts, the time, and the page's host."""

    item: int
    errors: int
    at: datetime
    host: str


async def queue_page_jobs(conn: Connection, pages: Sequence[PageJob]) -> int:
    """Queue a job for each page that has none; returns the number of new jobs."""
    return await store.queue_page_jobs.run(
        conn,
        program=PERMALINK_PROGRAM,
        items=[page.item for page in pages],
        tries=[page.errors for page in pages],
        times=[page.at for page in pages],
        hosts=[page.host for page in pages],
    )


async def raise_host_interval(conn: Connection, host: str, delay: timedelta) -> None:
    """Keep at least this delay between two requests to a host."""
    await store.raise_host_interval.run(conn, host=host, delay=delay)


async def enable_cleaning(conn: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """Enable the tasks that clean the items of these feeds, due at once."""
    await store.enable_cleaning.run(
        conn, ids=list(ids), program=CLEAN_PROGRAM, period=CLEAN_PERIOD, now=now
    )


async def disable_cleaning(conn: Connection, ids: Sequence[int]) -> None:
    """Disable the tasks that clean the items of these feeds."""
    await store.disable_cleaning.run(conn, ids=list(ids))


async def clean_soon(conn: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """Make the cleaning tasks of these feeds due now."""
    await store.clean_soon.run(conn, ids=list(ids), now=now)
