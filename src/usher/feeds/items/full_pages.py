"""The pages of items of partial feeds: which are wanted, which are fetched, and the jobs that fetch them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.feeds.items import followup_jobs
from usher.feeds.items.followup_jobs import PageJob
from usher.feeds.store.databases import FeedDatabases
from usher.urls import UrlRefusal, parse

store = load_statements(__file__)

MAX_JOBS_PER_POLL: Final = 500
LATEST_ITEMS: Final = 50  # whose pages are wanted when a feed becomes partial


@dataclass(frozen=True, slots=True)
class WantedPage:
    """A page to fetch, and the number of failed attempts."""

    id: int
    link: str
    errors: int
    next_at: datetime


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An item and its page; not `wanted` if the feed is disabled or not partial any more."""

    id: int
    feed_id: int
    link: str
    hash: UUID
    state: str
    errors: int
    feed: int | None
    cleanup: bool | None
    wanted: bool
    feed_url: str


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How many pages of a feed are wanted, fetched and failed, with the latest error."""

    wanted: int
    fetched: int
    failed: int
    error: str
    next_at: datetime | None


async def want_pages(conn: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """Want the pages of these items."""
    await store.want_pages.run(conn, ids=list(ids), now=now)


async def set_partial(
    conn: Connection, ids: Sequence[int], *, partial: bool, now: datetime
) -> list[int]:
    """Set whether jobs fetch the pages of feeds; returns the feeds that this changes."""
    kind = "partial" if partial else "full"
    changed = await store.set_partial.column(conn, ids=list(ids), kind=kind)
    if changed and partial:
        await store.want_latest_pages.run(conn, ids=changed, n=LATEST_ITEMS, now=now)
    return changed


async def queue_wanted_pages(databases: FeedDatabases, feed_id: int) -> int:
    """Queue jobs for the wanted pages of a feed; returns the number of new jobs."""
    async with databases.search.transaction() as conn:
        pages = await store.wanted_pages.rows(conn, WantedPage, feed=feed_id, n=MAX_JOBS_PER_POLL)
        if not pages:
            return 0
        page_jobs = [
            PageJob(page.id, page.errors, page.next_at, host_of(page.link)) for page in pages
        ]
        async with databases.queue(conn) as queue:
            return await followup_jobs.queue_page_jobs(queue, page_jobs)


def host_of(link: str) -> str:
    """The host of a page; `-` for a link that cannot be requested, whose job reports that."""
    url = parse(link)
    return "-" if isinstance(url, UrlRefusal) else url.host


async def find_request(conn: Connection, id_: int) -> PageRequest:
    """The page of an item; NotFound if it was never wanted."""
    request = await store.find_request.row(conn, PageRequest, id=id_)
    if request is None:
        raise NotFound(f"The page of item {id_} is not wanted.", hint=f"usher items show {id_}")
    return request


async def save_page(
    conn: Connection, request: PageRequest, content: str, url: str, status: int, *, now: datetime
) -> bool:
    """Save a page as the content of its item; false if the item changed meanwhile."""
    rows = await store.save_page.tuples(
        conn, id=request.id, hash=request.hash, content=content, url=url, status=status, now=now
    )
    return bool(rows)


async def save_page_error(
    conn: Connection,
    id_: int,
    error: str,
    status: int | None,
    *,
    next_at: datetime | None,
    now: datetime,
) -> None:
    """Save why a page could not be fetched; without `next_at` there is no further attempt."""
    await store.save_page_error.run(
        conn,
        id=id_,
        error=error,
        status=status,
        state="wanted" if next_at else "failed",
        next_at=next_at or now,
        now=now,
    )


async def page_counts(conn: Connection, feed_id: int) -> PageCounts:
    """How many pages of a feed are wanted, fetched and failed."""
    counts = await store.page_counts.row(conn, PageCounts, feed=feed_id)
    return counts or PageCounts(0, 0, 0, "", None)
