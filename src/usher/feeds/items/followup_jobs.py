"""The jobs that come after a poll, as the queue has them: pages to be fetched, items to be cleaned.

Comes from polls, from those jobs themselves and from the operator; goes to control.job, control.task and
control.resource.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import beside

store = beside(__file__)

PERMALINK_PROGRAM: Final = "usher.feeds.worker:permalink"
CLEAN_PROGRAM: Final = "usher.feeds.worker:clean"
CLEAN_PERIOD: Final = timedelta(days=1)  # between two looks at a feed that brings nothing new


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page to be fetched: whose, for the how manieth time, when, and of which host."""

    item: int
    errors: int
    at: datetime
    host: str


async def queue_page_jobs(conn: Connection, errands: Sequence[PageJob]) -> int:
    """Jobs for pages; returns how many are new."""
    return await store.send_pages.run(
        conn,
        program=PERMALINK_PROGRAM,
        items=[one.item for one in errands],
        tries=[one.errors for one in errands],
        times=[one.at for one in errands],
        hosts=[one.host for one in errands],
    )


async def raise_host_interval(conn: Connection, host: str, delay: timedelta) -> None:
    """Leave a host the time between two requests that it asks for."""
    await store.slow_down.run(conn, host=host, delay=delay)


async def enable_cleaning(conn: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """Clean the items of these feeds, now and whenever there is something new."""
    await store.keep_clean.run(
        conn, ids=list(ids), program=CLEAN_PROGRAM, period=CLEAN_PERIOD, now=now
    )


async def disable_cleaning(conn: Connection, ids: Sequence[int]) -> None:
    await store.stop_cleaning.run(conn, ids=list(ids))


async def clean_soon(conn: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """There is something to be cleaned."""
    await store.clean_soon.run(conn, ids=list(ids), now=now)
