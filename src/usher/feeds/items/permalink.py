"""The page of one item, fetched as a crawler would: past the guard, by the host's robots.txt, at its pace.

Comes from the queue, as a job whose resource is the page's host; goes to the item's content, and its host's robots.txt
to where every crawler looks for it. A page that cannot be had is tried again later and later, then given up, with the
reason; it is wanted again when its item changes.
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
from usher.crawl.politeness import HostRules, PolitenessPolicy
from usher.feeds.items import followup_jobs, full_pages
from usher.feeds.items.followup_jobs import Errand
from usher.feeds.items.full_pages import Asked
from usher.feeds.items.robots import Shelf
from usher.feeds.store import item_texts
from usher.feeds.store.databases import House
from usher.feeds.store.save_feed import clean
from usher.private_hosts import PrivateAllowList, may_lead
from usher.urls import Url, UrlRefusal, parse

MOST_HOPS: Final = 8
TRIES: Final = 5
FIRST: Final = timedelta(hours=1)  # after the first error; each time twice as long
LONGEST: Final = timedelta(days=1)
PATIENCE: Final = (
    600.0  # seconds that all requests for one page may take, with the rests between them
)
LONGEST_ERROR: Final = 500
SUCCESS: Final = 200
# What another time may bring: all that is not the host's last word.
FINAL: Final = GONE_STATUSES | {401, 402, 403, 405, 406, 414, 451}


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page, or why there is none; `final` if there never will be one."""

    url: Url | None
    status: int | None = None
    content: str = ""
    error: str = ""
    final: bool = False
    wait: timedelta = timedelta()
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a job for a page."""

    item: int
    kind: Literal["fetched", "failed", "off"]
    words: str
    next_at: datetime | None = None

    @property
    def good(self) -> bool:
        return self.kind != "failed"


async def permalink(
    house: House, fetcher: Fetcher, id_: int, *, now: datetime | None = None
) -> Told:
    """Fetch the page of an item, if it is wanted."""
    async with house.search.connection() as conn:
        asked = await full_pages.find(conn, id_)
    if asked.state != "wanted" or not asked.asked:
        return Told(id_, "off", "Its page is not wanted any more.")
    url, feed = parse(asked.link), parse(asked.feed_url)
    if isinstance(url, UrlRefusal):
        fetched = Fetched(None, error=f"It has no address: {url.detail}", final=True)
    else:
        source = "" if isinstance(feed, UrlRefusal) else feed.host
        async with Shelf(house) as shelf:
            manners = PolitenessPolicy(fetcher, shelf.as_client())
            fetched = await fetch(manners, url, source=source, allowed=fetcher.allow)
    return await settle(house, asked, fetched, now=now or house.search.clock.now())


async def fetch(
    manners: PolitenessPolicy, url: Url, *, source: str, allowed: PrivateAllowList
) -> Fetched:
    """Ask for a page, and follow where it leads, as far as each host allows it.

    `source` is the host of the feed. Neither it nor a redirect leads to a private host of another name.
    """
    lease = ChunkLease(asyncio.get_running_loop().time() + PATIENCE)
    here = url
    for _ in range(MOST_HOPS + 1):
        if not may_lead(allowed, source, here.host):
            words = f"{source} must not lead to the private host {here.host}"
            return Fetched(here, error=words, final=True)
        rules = await manners.rules(here, delay=0, lease=lease)
        if (barred := judged(rules, here)) or rules is None:
            return barred or Fetched(here, error="Its turn did not come.")
        delay = rules.robots.crawl_delay or 0.0
        answer = await manners.request(here, {}, delay=delay, lease=lease)
        if answer is None:
            return Fetched(here, error="Its turn did not come.")
        if answer.status not in REDIRECT_STATUSES:
            return read(answer, timedelta(seconds=delay))
        if answer.location is None:
            said = f"HTTP {answer.status} that does not say where it leads"
            return Fetched(here, answer.status, error=said)
        source, here = here.host, answer.location
    return Fetched(here, error=f"It sends us on more than {MOST_HOPS} times")


def judged(rules: HostRules | None, url: Url) -> Fetched | None:
    """Why a page may not be asked for."""
    if rules is None:
        return None
    if rules.robots.unavailable:
        return Fetched(url, error=f"robots.txt cannot be had ({rules.why})")
    if not rules.robots.allows(str(url)):
        rule = rules.robots.explain(str(url))
        return Fetched(url, error=f"robots.txt does not allow it: {rule}", final=True)
    return None


def read(answer: FetchResponse, delay: timedelta) -> Fetched:
    """What an answer means: only a whole page is one."""
    rest = answer.retry_after(datetime.now(UTC))
    wait = timedelta(seconds=min(rest or 0.0, 30 * LONGEST.total_seconds()))
    url, status = answer.url, answer.status
    if answer.error or status is None:
        final = answer.kind in ("body", "private", "port", "own")
        return Fetched(url, status, error=answer.error, final=final, wait=wait, delay=delay)
    if status // 100 != SUCCESS // 100:
        said = f"HTTP {status} {answer.reason}".rstrip()
        return Fetched(url, status, error=said, final=status in FINAL, wait=wait, delay=delay)
    if media_type.content_kind(answer.media_type, answer.body) != "html":
        said = f"It is no page but {answer.media_type or 'something else'}"
        return Fetched(url, status, error=said, final=True, delay=delay)
    return Fetched(url, status, clean(decode(answer.body, answer.charset)), delay=delay)


async def settle(house: House, asked: Asked, fetched: Fetched, *, now: datetime) -> Told:
    """Write down what came, and what is to be done next."""
    if fetched.delay and fetched.url:
        async with house.search.transaction() as conn, house.queue(conn) as queue:
            await followup_jobs.slow_down(queue, fetched.url.host, min(fetched.delay, LONGEST))
    if fetched.error:
        return await put_off(house, asked, fetched, now)
    return await keep(house, asked, fetched, now)


async def put_off(house: House, asked: Asked, fetched: Fetched, now: datetime) -> Told:
    """Why there is no page, and a job for another time, together; or never again."""
    again = None if fetched.final else later(asked.errors + 1, fetched.wait, now)
    error = clean(fetched.error)[:LONGEST_ERROR]
    async with house.search.transaction() as conn:
        if again:
            errand = Errand(asked.id, asked.errors + 1, again, full_pages.host_of(asked.link))
            async with house.queue(conn) as queue:
                await followup_jobs.send_pages(queue, [errand])
        await full_pages.put_error(conn, asked.id, error, fetched.status, next_at=again, now=now)
    return Told(asked.id, "failed", f"{error}.", again)


async def keep(house: House, asked: Asked, fetched: Fetched, now: datetime) -> Told:
    """The page, and what is made of it: a clean text soon, or words at once."""
    url, status = str(fetched.url), fetched.status or SUCCESS
    async with house.search.transaction() as conn:
        kept = await full_pages.put_page(conn, asked, fetched.content, url, status, now=now)
        if kept and asked.cleanup and asked.feed is not None:
            async with house.queue(conn) as queue:
                await followup_jobs.clean_soon(queue, [asked.feed], now=now)
    if not kept:
        return Told(asked.id, "off", "The item changed meanwhile, and wants its page still.")
    if not asked.cleanup:
        await item_texts.digest_feed(house.search, asked.feed_id)
    return Told(asked.id, "fetched", "The page is kept.")


def later(errors: int, wait: timedelta, now: datetime) -> datetime | None:
    """When to try again; never after so many errors."""
    if errors >= TRIES:
        return None
    growing: timedelta = FIRST * 2 ** (errors - 1)
    return now + max(min(growing, LONGEST), wait)
