"""Runs a crawler: serves its chunk files, registers at MGMT, crawls until it is stopped, and removes old files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from usher import __version__
from usher.background import background_tasks
from usher.chunk_store import (
    CONTENT_DIRECTORY,
    ChunkStore,
    directory_name,
    keep_files_private,
)
from usher.crawl.archiver import Archiver
from usher.crawl.crawler import MAX_REQUESTS_PER_HOST, Crawler, CrawlerLoad
from usher.crawl.http.fetch import Fetcher, FetchLimits
from usher.crawl.own_endpoints import own_endpoints
from usher.crawl.page_visit import PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.crawl.warc.archive import checked_archive
from usher.crawl.warc.writer import CrawlInfo
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.object_store.address import StoreAddress, store_authorities
from usher.private_hosts import parse_allow_list
from usher.settings import Settings
from usher.telemetry import Log

log = Log("crawl")
MGMT_PATIENCE_SECONDS: Final = 60.0  # how long a call to MGMT is retried
CLEANUP_SECONDS: Final = 30.0
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlerOptions:
    """The operator's options of a crawler; builders reach it at `host`, by default where it listens."""

    bind: Bind
    host: str = ""
    load: CrawlerLoad = field(default_factory=CrawlerLoad)
    keep_warc: Path | StoreAddress | None = None  # the archive
    insecure: bool = False


def user_agent(contact: str) -> str:
    """Return the User-Agent, with the address that complaints go to."""
    return f"Usher/{__version__} (+{contact})" if contact else f"Usher/{__version__}"


def make_fetcher(settings: Settings, own: Iterable[str] = ()) -> Fetcher:
    """Return an HTTP client with the limits of the settings; `own` are further addresses of Usher itself."""
    limits, total = FetchLimits(), settings.fetch_seconds
    return Fetcher(
        user_agent(settings.contact),
        limits=FetchLimits(
            lookup=min(limits.lookup, total),
            connect=min(limits.connect, total),
            idle=min(limits.idle, total),
            total=total,
            body=settings.fetch_bytes,
        ),
        allow=parse_allow_list(settings.allow_private),
        own=own_endpoints(settings, own),
        connections_per_host=MAX_REQUESTS_PER_HOST,
    )


async def run_crawler(
    settings: Settings, options: CrawlerOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run a crawler until it is stopped; open requests finish."""
    if not settings.contact:
        log.warning(
            "no_contact", hint="set contact to an address or a page that says who crawls, and why"
        )
    keep_files_private(settings.data)
    info = CrawlInfo(contact=settings.contact, user_agent=user_agent(settings.contact))
    authorities = store_authorities(settings)
    archive = await checked_archive(options.keep_warc, settings) if options.keep_warc else None
    async with (
        serve_chunks(settings, options) as (store, host),
        make_fetcher(settings, [host]) as fetcher,
    ):
        mgmt = Client(
            settings.mgmt_url, host=host, token=credential(settings), patience=MGMT_PATIENCE_SECONDS
        )
        async with mgmt:
            await mgmt.set_state("online", type="crawler", anew=True, renews_leases=True)
            async with PageVisitor(PolitenessPolicy(fetcher, mgmt)) as visitor:
                crawler = Crawler(
                    *(mgmt, visitor, store, options.load, info),
                    keeps_files=bool(archive),
                    authorities=authorities,
                )
                archiver = Archiver(archive, store, lambda: crawler.open) if archive else None
                ready(f"crawler at {host}")
                log.info("crawling", mgmt=settings.mgmt_url, host=host)
                await run_until(crawler, stop, archiver)
            with suppress(UsherError):
                await mgmt.set_state("waiting", reason="stopped in order")
    log.info("stopped", pages=crawler.pages)


@asynccontextmanager
async def serve_chunks(
    settings: Settings, options: CrawlerOptions
) -> AsyncIterator[tuple[ChunkStore, str]]:
    """Serve the crawler's files; each crawler has a directory of its own, named after its address."""
    store = ChunkStore(settings.data / CONTENT_DIRECTORY)
    async with serve_component(
        chunk_endpoints(store, "/get_chunk"),
        options.bind,
        options=guard_options(settings, options.host, insecure=options.insecure),
    ) as address:
        host = options.host or options.bind.public_host(address)
        store.directory /= directory_name(host)
        await asyncio.to_thread(store.remove_leftovers)
        yield store, host


async def run_until(crawler: Crawler, stop: asyncio.Event, archiver: Archiver | None) -> None:
    """Run the crawler until the event is set; archive its files and remove old ones meanwhile."""

    async def stop_crawler() -> None:
        await stop.wait()
        crawler.stop()

    works = [stop_crawler(), clean_up(crawler, archiver)]
    works += [archiver.run()] if archiver else []
    async with background_tasks(log, *works):
        await crawler.run()
    if archiver:
        await archiver.finish()


async def clean_up(crawler: Crawler, archiver: Archiver | None) -> None:
    """Remove the chunks that every row has, and the archive, again and again."""
    while True:
        await asyncio.sleep(CLEANUP_SECONDS)
        try:
            await remove_propagated(crawler, archiver)
        except UsherError as error:
            log.warning("not_tidied", error=str(error))


async def remove_propagated(crawler: Crawler, archiver: Archiver | None = None) -> None:
    # Listed before the call: files that appear during it stay, and so do chunks that are reported during it.
    stored = await asyncio.to_thread(crawler.store.chunks)
    busy = set(crawler.open)
    wanted = {*await crawler.mgmt.unpropagated(), *busy, *crawler.open}
    unneeded = [chunk for chunk in stored if chunk not in wanted]
    if archiver:
        unneeded = [chunk for chunk in unneeded if archiver.is_archived(chunk)]
    await asyncio.to_thread(crawler.store.drop, unneeded)
