"""The page of one item, fetched as a crawler would: past the guard, by the host's robots.txt, at its pace.

Comes from the queue, as a job whose resource is the page's host; goes to the item's content, and its host's robots.txt
to where every crawler looks for it. A page that cannot be had is tried again later and later, then given up, with the
reason; it is wanted again when its item changes.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from usher.crawl.chunk_lease import Lease
from usher.crawl.fetch_outcome import GONE, MOVED
from usher.crawl.http.fetch import Answer, Fetcher
from usher.crawl.page import media_type
from usher.crawl.page.charset import decode
from usher.crawl.politeness import Manners, Rules
from usher.crawl.service import PRODUCT
from usher.feeds.items import followup_jobs, full_pages
from usher.feeds.items.followup_jobs import PageJob
from usher.feeds.items.full_pages import PageRequest
from usher.feeds.items.robots import RobotsCache
from usher.feeds.store import item_texts
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.save_feed import storable_text
from usher.private_hosts import Allowed, may_lead
from usher.urls import Refused, Url, parse

MAX_REDIRECTS: Final = 8
MAX_ATTEMPTS: Final = 5
FIRST_RETRY_WAIT: Final = timedelta(hours=1)  # after the first error; each time twice as long
MAX_RETRY_WAIT: Final = timedelta(days=1)
FETCH_SECONDS: Final = (
    600.0  # seconds that all requests for one page may take, with the rests between them
)
MAX_ERROR_CHARS: Final = 500
SUCCESS: Final = 200
# What another time may bring: all that is not the host's last word.
FINAL_STATUSES: Final = GONE | {401, 402, 403, 405, 406, 414, 451}


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page, or why there is none; `final` if there never will be one."""

    url: Url | None
    status: int | None = None
    content: str = ""
    error: str = ""
    final: bool = False
    wait: timedelta = timedelta()
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class PageOutcome:
    """What came of a job for a page."""

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
    """Fetch the page of an item, if it is wanted."""
    async with databases.search.connection() as conn:
        asked = await full_pages.find_request(conn, id_)
    if asked.state != "wanted" or not asked.asked:
        return PageOutcome(id_, "off", "Its page is not wanted any more.")
    url, feed = parse(asked.link), parse(asked.feed_url)
    if isinstance(url, Refused):
        fetched = FetchedPage(None, error=f"It has no address: {url.detail}", final=True)
    else:
        source = "" if isinstance(feed, Refused) else feed.host
        async with RobotsCache(databases) as shelf:
            manners = Manners(fetcher, PRODUCT, shelf.as_client())
            fetched = await fetch_page(manners, url, source=source, allowed=fetcher.allow)
    return await save_result(databases, asked, fetched, now=now or databases.search.clock.now())


async def fetch_page(manners: Manners, url: Url, *, source: str, allowed: Allowed) -> FetchedPage:
    """Ask for a page, and follow where it leads, as far as each host allows it.

    `source` is the host of the feed. Neither it nor a redirect leads to a private host of another name.
    """
    lease = Lease(asyncio.get_running_loop().time() + FETCH_SECONDS)
    here = url
    for _ in range(MAX_REDIRECTS + 1):
        if not may_lead(allowed, source, here.host):
            words = f"{source} must not lead to the private host {here.host}"
            return FetchedPage(here, error=words, final=True)
        rules = await manners.rules(here, delay=0, lease=lease)
        if (barred := robots_refusal(rules, here)) or rules is None:
            return barred or FetchedPage(here, error="Its turn did not come.")
        delay = rules.robots.crawl_delay or 0.0
        answer = await manners.ask(here, {}, delay=delay, lease=lease)
        if answer is None:
            return FetchedPage(here, error="Its turn did not come.")
        if answer.status not in MOVED:
            return read_response(answer, timedelta(seconds=delay))
        if answer.location is None:
            said = f"HTTP {answer.status} that does not say where it leads"
            return FetchedPage(here, answer.status, error=said)
        source, here = here.host, answer.location
    return FetchedPage(here, error=f"It sends us on more than {MAX_REDIRECTS} times")


def robots_refusal(rules: Rules | None, url: Url) -> FetchedPage | None:
    """Why a page may not be asked for."""
    if rules is None:
        return None
    if rules.robots.wait:
        return FetchedPage(url, error=f"robots.txt cannot be had ({rules.why})")
    if not rules.robots.allowed(str(url)):
        rule = rules.robots.rule(str(url))
        return FetchedPage(url, error=f"robots.txt does not allow it: {rule}", final=True)
    return None


def read_response(answer: Answer, delay: timedelta) -> FetchedPage:
    """What an answer means: only a whole page is one."""
    rest = answer.retry_after(datetime.now(UTC))
    wait = timedelta(seconds=min(rest or 0.0, 30 * MAX_RETRY_WAIT.total_seconds()))
    url, status = answer.url, answer.status
    if answer.error or status is None:
        final = answer.kind in ("body", "private", "port", "own")
        return FetchedPage(url, status, error=answer.error, final=final, wait=wait, delay=delay)
    if status // 100 != SUCCESS // 100:
        said = f"HTTP {status} {answer.reason}".rstrip()
        return FetchedPage(
            url, status, error=said, final=status in FINAL_STATUSES, wait=wait, delay=delay
        )
    if media_type.kind(answer.media_type, answer.body) != "html":
        said = f"It is no page but {answer.media_type or 'something else'}"
        return FetchedPage(url, status, error=said, final=True, delay=delay)
    return FetchedPage(url, status, storable_text(decode(answer.body, answer.charset)), delay=delay)


async def save_result(
    databases: FeedDatabases, asked: PageRequest, fetched: FetchedPage, *, now: datetime
) -> PageOutcome:
    """Write down what came, and what is to be done next."""
    if fetched.delay and fetched.url:
        async with databases.search.transaction() as conn, databases.queue(conn) as queue:
            await followup_jobs.raise_host_interval(
                queue, fetched.url.host, min(fetched.delay, MAX_RETRY_WAIT)
            )
    if fetched.error:
        return await save_failure(databases, asked, fetched, now)
    return await save_success(databases, asked, fetched, now)


async def save_failure(
    databases: FeedDatabases, asked: PageRequest, fetched: FetchedPage, now: datetime
) -> PageOutcome:
    """Why there is no page, and a job for another time, together; or never again."""
    again = None if fetched.final else retry_time(asked.errors + 1, fetched.wait, now)
    error = storable_text(fetched.error)[:MAX_ERROR_CHARS]
    async with databases.search.transaction() as conn:
        if again:
            errand = PageJob(asked.id, asked.errors + 1, again, full_pages.host_of(asked.link))
            async with databases.queue(conn) as queue:
                await followup_jobs.queue_page_jobs(queue, [errand])
        await full_pages.save_page_error(
            conn, asked.id, error, fetched.status, next_at=again, now=now
        )
    return PageOutcome(asked.id, "failed", f"{error}.", again)


async def save_success(
    databases: FeedDatabases, asked: PageRequest, fetched: FetchedPage, now: datetime
) -> PageOutcome:
    """The page, and what is made of it: a clean text soon, or words at once."""
    url, status = str(fetched.url), fetched.status or SUCCESS
    async with databases.search.transaction() as conn:
        kept = await full_pages.save_page(conn, asked, fetched.content, url, status, now=now)
        if kept and asked.cleanup and asked.feed is not None:
            async with databases.queue(conn) as queue:
                await followup_jobs.clean_soon(queue, [asked.feed], now=now)
    if not kept:
        return PageOutcome(asked.id, "off", "The item changed meanwhile, and wants its page still.")
    if not asked.cleanup:
        await item_texts.digest_feed(databases.search, asked.feed_id)
    return PageOutcome(asked.id, "fetched", "The page is kept.")


def retry_time(errors: int, wait: timedelta, now: datetime) -> datetime | None:
    """When to try again; never after so many errors."""
    if errors >= MAX_ATTEMPTS:
        return None
    growing: timedelta = FIRST_RETRY_WAIT * 2 ** (errors - 1)
    return now + max(min(growing, MAX_RETRY_WAIT), wait)
