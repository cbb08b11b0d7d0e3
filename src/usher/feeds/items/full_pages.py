"""Pages of the items of partial feeds: wanted once when an item is new or changed, fetched, kept in its content.

Comes from polls, which want them; goes to the queue, a job for each page, and from there through `permalink` to the
schema `feeds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from usher.db.pool import Connection
from usher.db.statements import beside
from usher.errors import NotFound
from usher.feeds.items import followup_jobs
from usher.feeds.items.followup_jobs import PageJob
from usher.feeds.store.databases import FeedDatabases
from usher.urls import Refused, parse

store = beside(__file__)

MAX_JOBS_PER_POLL: Final = 500  # pages sent to the queue at once
LATEST_ITEMS: Final = 50  # items of a feed that becomes partial


@dataclass(frozen=True, slots=True)
class WantedPage:
    """A page that is to be fetched, and how often that failed."""

    id: int
    link: str
    errors: int
    next_at: datetime


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An item whose page is asked for; not if its feed is not partial any more, or off."""

    id: int
    feed_id: int
    link: str
    hash: UUID
    state: str
    errors: int
    feed: int | None
    cleanup: bool | None
    asked: bool
    feed_url: str


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How the pages of a feed are."""

    wanted: int
    fetched: int
    failed: int
    error: str
    next_at: datetime | None


async def want_pages(conn: Connection, ids: Sequence[int], *, now: datetime) -> None:
    """These items are new or changed: their pages are to be fetched."""
    await store.want.run(conn, ids=list(ids), now=now)


async def set_partial(
    conn: Connection, ids: Sequence[int], *, partial: bool, now: datetime
) -> list[int]:
    """Fetch the pages of feeds' items, or do not; which feeds that changes."""
    kind = "partial" if partial else "full"
    changed = [id_ for (id_,) in await store.set_partial.tuples(conn, ids=list(ids), kind=kind)]
    if changed and partial:
        await store.want_latest.run(conn, ids=changed, n=LATEST_ITEMS, now=now)
    return changed


async def queue_wanted_pages(databases: FeedDatabases, feed_id: int) -> int:
    """Put jobs for all wanted pages of a feed into the queue; those that are there already stay."""
    async with databases.search.transaction() as conn:
        wanted = await store.wanted.rows(conn, WantedPage, feed=feed_id, n=MAX_JOBS_PER_POLL)
        if not wanted:
            return 0
        async with databases.queue(conn) as queue:
            return await followup_jobs.queue_page_jobs(queue, [page_job(one) for one in wanted])


def page_job(page: WantedPage) -> PageJob:
    return PageJob(page.id, page.errors, page.next_at, host_of(page.link))


def host_of(link: str) -> str:
    """Whose a page is; one that nobody can ask for still gets a job, which says so."""
    url = parse(link)
    return "-" if isinstance(url, Refused) else url.host


async def find_request(conn: Connection, id_: int) -> PageRequest:
    found = await store.find.row(conn, PageRequest, id=id_)
    if found is None:
        raise NotFound(f"No page of an item {id_} is wanted.", hint=f"usher items show {id_}")
    return found


async def save_page(
    conn: Connection, asked: PageRequest, content: str, url: str, status: int, *, now: datetime
) -> bool:
    """Keep a page; not if its item changed meanwhile."""
    found = await store.put_page.tuples(
        conn, id=asked.id, hash=asked.hash, content=content, url=url, status=status, now=now
    )
    return bool(found)


async def save_page_error(
    conn: Connection,
    id_: int,
    error: str,
    status: int | None,
    *,
    next_at: datetime | None,
    now: datetime,
) -> None:
    """A page could not be had; without a time to try again it is given up."""
    await store.put_error.run(
        conn,
        id=id_,
        error=error,
        status=status,
        state="wanted" if next_at else "failed",
        next_at=next_at or now,
        now=now,
    )


async def page_counts(conn: Connection, feed_id: int) -> PageCounts:
    """How the pages of a feed are."""
    found = await store.tally.row(conn, PageCounts, feed=feed_id)
    return found or PageCounts(0, 0, 0, "", None)
