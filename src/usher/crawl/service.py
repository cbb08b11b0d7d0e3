"""A crawler as an actor: its face, its shelf, its client at MGMT; works until told to stop, and leaves in order.

Comes from settings and the command line; goes on until the event is set. What others still need of its files is kept.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from usher import __version__
from usher.chunk_store import ChunkStore, keep_files_private
from usher.crawl.crawler import MAX_REQUESTS_PER_HOST, Crawler, CrawlerLoad
from usher.crawl.http.fetch import Fetcher, FetchLimits
from usher.crawl.own_endpoints import own_endpoints
from usher.crawl.page_visit import PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.crawl.warc.writer import CrawlInfo
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.private_hosts import parse_allow_list
from usher.settings import Settings
from usher.telemetry import Log

log = Log("crawl")
PRODUCT: Final = "usher"  # as robots.txt calls us
MGMT_PATIENCE_SECONDS: Final = 60.0  # seconds that MGMT may be away
TIDY_SECONDS: Final = 30.0
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlerOptions:
    """What the operator asked of a crawler; `host` is where builders reach it, if not where it listens."""

    bind: Bind
    host: str = ""
    load: CrawlerLoad = field(default_factory=CrawlerLoad)
    keep: bool = False
    insecure: bool = False


def user_agent(contact: str) -> str:
    """Who we are, and whom to tell if we are not welcome."""
    return f"Usher/{__version__} (+{contact})" if contact else f"Usher/{__version__}"


def make_fetcher(settings: Settings, own: Iterable[str] = ()) -> Fetcher:
    """A client of the web as the settings have it; `own` are further addresses of Usher itself."""
    return Fetcher(
        user_agent(settings.contact),
        limits=fetch_limits(settings),
        allow=parse_allow_list(settings.allow_private),
        own=own_endpoints(settings, own),
        lines_per_host=MAX_REQUESTS_PER_HOST,
    )


def fetch_limits(settings: Settings) -> FetchLimits:
    """As the operator has them; no part of a fetch may take longer than the whole."""
    usual, total = FetchLimits(), settings.fetch_seconds
    return FetchLimits(
        lookup=min(usual.lookup, total),
        connect=min(usual.connect, total),
        idle=min(usual.idle, total),
        total=total,
        body=settings.fetch_bytes,
    )


async def run_crawler(
    settings: Settings, wish: CrawlerOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run a crawler until told to stop; then what is under way ends."""
    if not settings.contact:
        log.warning(
            "no_contact", hint="set contact to an address or a page that says who crawls, and why"
        )
    keep_files_private(settings.data)
    about = CrawlInfo(contact=settings.contact, user_agent=user_agent(settings.contact))
    async with serving(settings, wish) as (shelf, host), make_fetcher(settings, [host]) as fetcher:
        mgmt = Client(
            settings.mgmt_url, host=host, token=credential(settings), patience=MGMT_PATIENCE_SECONDS
        )
        async with mgmt:
            await mgmt.set_state("online", type="crawler", anew=True)
            async with PageVisitor(PolitenessPolicy(fetcher, PRODUCT, mgmt)) as visitor:
                crawler = Crawler(mgmt, visitor, shelf, wish.load, about)
                ready(f"crawler at {host}")
                log.info("crawling", mgmt=settings.mgmt_url, host=host)
                await until(crawler, stop, keep=wish.keep)
            with suppress(UsherError):
                await mgmt.set_state("waiting", reason="stopped in order")
    log.info("stopped", pages=crawler.pages)


@asynccontextmanager
async def serving(
    settings: Settings, wish: CrawlerOptions
) -> AsyncIterator[tuple[ChunkStore, str]]:
    """The crawler's files, served; a shelf belongs to one crawler, so each has its own, named as others reach it."""
    shelf = ChunkStore(settings.data / "content")
    async with serve_component(
        chunk_endpoints(shelf, "/get_chunk"),
        wish.bind,
        options=guard_options(settings, wish.host, insecure=wish.insecure),
    ) as address:
        host = wish.host or wish.bind.public_host(address)
        shelf.directory /= re.sub(r"[^A-Za-z0-9.-]+", "_", host)
        await asyncio.to_thread(shelf.remove_leftovers)
        yield shelf, host


async def until(crawler: Crawler, stop: asyncio.Event, *, keep: bool) -> None:
    """The crawler, which is told once somebody tells us, and its files tidied meanwhile unless they are kept."""

    async def told() -> None:
        await stop.wait()
        crawler.stop()

    beside = [asyncio.create_task(told())]
    if not keep:
        beside.append(asyncio.create_task(tidied(crawler)))
    try:
        await crawler.run()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


async def tidied(crawler: Crawler) -> None:
    """Drop what every row has, now and then."""
    while True:
        await asyncio.sleep(TIDY_SECONDS)
        try:
            await tidy(crawler)
        except UsherError as error:
            log.warning("not_tidied", error=str(error))


async def tidy(crawler: Crawler) -> None:
    # Before the question: what comes later stays, and so does what is reported while it is answered.
    here = await asyncio.to_thread(crawler.shelf.chunks)
    busy = set(crawler.open)
    wanted = {*await crawler.mgmt.unpropagated(), *busy, *crawler.open}
    gone = [chunk for chunk in here if chunk not in wanted]
    await asyncio.to_thread(crawler.shelf.drop, gone)
