"""Fetches the page of one item as a crawler does: within robots.txt, the crawl delay and the private-host rules.

A page that cannot be fetched is tried again with growing waits, then given up with the reason. It is wanted again when
its item changes.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.fetch_outcome import GONE_STATUSES
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.crawl.http.response import REDIRECT_STATUSES
from usher.crawl.page import media_type
from usher.crawl.page.charset import decode
from usher.crawl.politeness import CachedRobots, PolitenessPolicy
from usher.feeds.items import followup_jobs, full_pages
from usher.feeds.items.followup_jobs import PageJob
from usher.feeds.items.full_pages import PageRequest
from usher.feeds.items.robots import RobotsCache
from usher.feeds.store import item_texts
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.save_feed import storable_text
from usher.private_hosts import AllowList, may_lead
from usher.urls import Url, UrlRefusal, parse

MAX_REDIRECTS: Final = 8
MAX_ATTEMPTS: Final = 5
FIRST_RETRY_WAIT: Final = timedelta(hours=1)  # doubles with each attempt
MAX_RETRY_WAIT: Final = timedelta(days=1)
FETCH_SECONDS: Final = 600.0  # for all requests for one page, with the delays between them
MAX_ERROR_CHARS: Final = 500
SUCCESS: Final = 200
FINAL_STATUSES: Final = GONE_STATUSES | {401, 402, 403, 405, 406, 414, 451}  # no further attempt


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page, or why there is none; `final` if no further attempt is worth it."""

    url: Url | None
    status: int | None = None
    content: str = ""
    error: str = ""
    final: bool = False
    wait: timedelta = timedelta()
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class PageOutcome:
    """The result of a job that fetches a page."""

    item: int
    kind: Literal["fetched", "failed", "off"]
    words: str
    next_at: datetime | None = None

    @property
    def good(self) -> bool:
        return self.kind != "failed"


async def fetch_item_page(
    databases: FeedDatabases, fetcher: Fetcher, id_: int, *, now: datetime | None = None
) -> PageOutcome:
    """Fetch and save the page of an item if it is wanted."""
    async with databases.search.connection() as conn:
        request = await full_pages.find_request(conn, id_)
    if request.state != "wanted" or not request.wanted:
        return PageOutcome(id_, "off", "The page is not wanted any more.")
    url, feed = parse(request.link), parse(request.feed_url)
    if isinstance(url, UrlRefusal):
        page = FetchedPage(None, error=f"The link is not a web address: {url.detail}", final=True)
    else:
        source = "" if isinstance(feed, UrlRefusal) else feed.host
        async with RobotsCache(databases) as robots:
            manners = PolitenessPolicy(fetcher, robots.as_client())
            page = await fetch_page(manners, url, source=source, allowed=fetcher.allow)
    return await save_result(databases, request, page, now=now or databases.search.clock.now())


async def fetch_page(
    manners: PolitenessPolicy, url: Url, *, source: str, allowed: AllowList
) -> FetchedPage:
    """Fetch a page and follow its redirects, as far as each host's robots.txt allows.

    `source` is the host of the feed. Neither it nor a redirect leads to a private host of another name.
    """
    lease = ChunkLease(asyncio.get_running_loop().time() + FETCH_SECONDS)
    here = url
    for _ in range(MAX_REDIRECTS + 1):
        if not may_lead(allowed, source, here.host):
            error = f"{source} must not lead to the private host {here.host}"
            return FetchedPage(here, error=error, final=True)
        rules = await manners.rules(here, delay=0, lease=lease)
        if rules and (refusal := robots_refusal(rules, here)):
            return refusal
        delay = rules.robots.crawl_delay or 0.0 if rules else 0.0
        answer = await manners.request(here, {}, delay=delay, lease=lease) if rules else None
        if answer is None:
            return FetchedPage(here, error="The host was busy for too long")
        if answer.status not in REDIRECT_STATUSES:
            return read_response(answer, timedelta(seconds=delay))
        if answer.location is None:
            error = f"HTTP {answer.status} without a Location"
            return FetchedPage(here, answer.status, error=error)
        source, here = here.host, answer.location
    return FetchedPage(here, error=f"More than {MAX_REDIRECTS} redirects")


def robots_refusal(rules: CachedRobots, url: Url) -> FetchedPage | None:
    """Why robots.txt forbids the page; None if it does not."""
    if rules.robots.unavailable:
        return FetchedPage(url, error=f"Could not read robots.txt ({rules.why})")
    if not rules.robots.allows(str(url)):
        rule = rules.robots.explain(str(url))
        return FetchedPage(url, error=f"robots.txt does not allow it: {rule}", final=True)
    return None


def read_response(answer: FetchResponse, delay: timedelta) -> FetchedPage:
    """The page of a response, or its error; a response that was cut is no page."""
    seconds = answer.retry_after(datetime.now(UTC))
    wait = timedelta(seconds=min(seconds or 0.0, 30 * MAX_RETRY_WAIT.total_seconds()))
    url, status = answer.url, answer.status
    if answer.error or status is None:
        final = answer.kind in ("body", "private", "port", "own")
        return FetchedPage(url, status, error=answer.error, final=final, wait=wait, delay=delay)
    if status // 100 != SUCCESS // 100:
        error, final = f"HTTP {status} {answer.reason}".rstrip(), status in FINAL_STATUSES
        return FetchedPage(url, status, error=error, final=final, wait=wait, delay=delay)
    if media_type.content_kind(answer.media_type, answer.body) != "html":
        error = f"It is not HTML but {answer.media_type or 'of an unknown type'}"
        return FetchedPage(url, status, error=error, final=True, delay=delay)
    return FetchedPage(url, status, storable_text(decode(answer.body, answer.charset)), delay=delay)


async def save_result(
    databases: FeedDatabases, request: PageRequest, page: FetchedPage, *, now: datetime
) -> PageOutcome:
    """Save the page or its error, and raise the host's interval to its crawl delay."""
    if page.delay and page.url:
        delay = min(page.delay, MAX_RETRY_WAIT)
        async with databases.search.transaction() as conn, databases.queue(conn) as queue:
            await followup_jobs.raise_host_interval(queue, page.url.host, delay)
    if page.error:
        return await save_failure(databases, request, page, now)
    return await save_success(databases, request, page, now)


async def save_failure(
    databases: FeedDatabases, request: PageRequest, page: FetchedPage, now: datetime
) -> PageOutcome:
    """Save the error and queue the next attempt, unless there is none."""
    errors = request.errors + 1
    next_at = None if page.final else retry_time(errors, page.wait, now)
    error = storable_text(page.error)[:MAX_ERROR_CHARS]
    async with databases.search.transaction() as conn:
        if next_at:
            job = PageJob(request.id, errors, next_at, full_pages.host_of(request.link))
            async with databases.queue(conn) as queue:
                await followup_jobs.queue_page_jobs(queue, [job])
        await full_pages.save_page_error(
            conn, request.id, error, page.status, next_at=next_at, now=now
        )
    return PageOutcome(request.id, "failed", f"{error}.", next_at)


async def save_success(
    databases: FeedDatabases, request: PageRequest, page: FetchedPage, now: datetime
) -> PageOutcome:
    """Save the page, then let the cleaning task clean it or digest it at once."""
    url, status = str(page.url), page.status or SUCCESS
    async with databases.search.transaction() as conn:
        saved = await full_pages.save_page(conn, request, page.content, url, status, now=now)
        if saved and request.cleanup and request.feed is not None:
            async with databases.queue(conn) as queue:
                await followup_jobs.clean_soon(queue, [request.feed], now=now)
    if not saved:
        return PageOutcome(request.id, "off", "The item changed meanwhile; its page stays wanted.")
    if not request.cleanup:
        await item_texts.digest_feed(databases.search, request.feed_id)
    return PageOutcome(request.id, "fetched", "The page is stored.")


def retry_time(errors: int, wait: timedelta, now: datetime) -> datetime | None:
    """The time of the next attempt; None after too many errors."""
    if errors >= MAX_ATTEMPTS:
        return None
    growing: timedelta = FIRST_RETRY_WAIT * 2 ** (errors - 1)
    return now + max(min(growing, MAX_RETRY_WAIT), wait)
