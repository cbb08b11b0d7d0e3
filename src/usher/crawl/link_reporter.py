"""Reports the links, feeds and sitemaps of a chunk's pages to MGMT, in large batches and before the chunk itself."""

import asyncio
from collections import defaultdict
from itertools import islice
from typing import Final, NamedTuple

from usher.crawl.fetch_outcome import url_of
from usher.crawl.page_visit import PageVisit
from usher.crawl.recent_links import RecentLinks
from usher.crawl.sitemap import ParsedSitemap
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import SitemapLink
from usher.telemetry import LINKS_FOUND
from usher.urls import UrlRefusal

MAX_LINKS_PER_CALL: Final = 10_000
MAX_SITEMAPS_PER_CALL: Final = 1_000
MAX_FEEDS_PER_CALL: Final = 1_000
MAX_FEEDS_PER_PAGE: Final = 20


class LinkSource(NamedTuple):
    """Where links come from: the host whose scope applies, their depth, and whether a seed moved to them."""

    origin: str
    depth: int
    is_moved_seed: bool


class LinkReporter:
    """The links of one chunk that are not reported yet, without those that were reported recently."""

    def __init__(self, mgmt: Client, recent: RecentLinks) -> None:
        self._mgmt, self._recent = mgmt, recent
        self._links: dict[LinkSource, dict[str, None]] = defaultdict(dict)
        self._feeds: dict[str, dict[str, None]] = defaultdict(dict)
        self._count = 0
        self._turn = asyncio.Lock()

    async def add(self, visit: PageVisit) -> None:
        """Take the links of a page; send all if there are many."""
        if visit.sitemap is not None:
            await self._send_sitemap(visit.link.link, visit.sitemap)
        source = source_of(visit)
        if source.origin and visit.outcome.feeds:
            feeds = islice(visit.outcome.feeds, MAX_FEEDS_PER_PAGE)
            fresh = self._recent.fresh(f"feeds {source.origin}", 0, feeds)
            self._feeds[source.origin].update(dict.fromkeys(fresh))
        links = self._links[source]
        before = len(links)
        fresh = self._recent.fresh(source.origin, source.depth, visit.outcome.links)
        links.update(dict.fromkeys(fresh))
        self._count += len(links) - before
        if self._count >= MAX_LINKS_PER_CALL:
            await self.send()

    async def send(self) -> None:
        """Send all links; when this returns without an error, the door has them."""
        async with self._turn:
            while self._links:
                source, links = self._links.popitem()
                self._count -= len(links)
                try:
                    await self._send_links(source, list(links))
                except BaseException:
                    self._links[source].update(links)  # for the next call
                    self._count += len(links)
                    raise
            while self._feeds:
                origin, feeds = self._feeds.popitem()
                await self._send_feeds(origin, list(feeds))

    async def _send_links(self, source: LinkSource, links: list[str]) -> None:
        name = "moved_from" if source.is_moved_seed else "found_on"
        for first in range(0, len(links), MAX_LINKS_PER_CALL):
            part = links[first : first + MAX_LINKS_PER_CALL]
            await self._mgmt.add_links(part, depth=source.depth, **{name: source.origin or None})
        self._recent.remember(source.origin, source.depth, links)
        LINKS_FOUND.inc(len(links))

    async def _send_feeds(self, origin: str, feeds: list[str]) -> None:
        """Report feeds once: a feed that is lost here is found again when its page changes."""
        for first in range(0, len(feeds), MAX_FEEDS_PER_CALL):
            await self._mgmt.feeds_offered(origin, feeds[first : first + MAX_FEEDS_PER_CALL])
        self._recent.remember(f"feeds {origin}", 0, feeds)

    async def _send_sitemap(self, link: str, sitemap: ParsedSitemap) -> None:
        pages = [SitemapLink(entry.url, entry.lastmod) for entry in sitemap.pages]
        others = [entry.url for entry in sitemap.sitemaps][:MAX_SITEMAPS_PER_CALL]
        for first in range(0, len(pages) or 1, MAX_LINKS_PER_CALL):
            await self._mgmt.sitemap(
                link,
                pages[first : first + MAX_LINKS_PER_CALL],
                sitemaps=others if first == 0 else (),
                pages=len(pages),
                problem=sitemap.problem,
            )


def source_of(visit: PageVisit) -> LinkSource:
    """Return the host whose scope decides about the links of a page, and their depth.

    A redirect's target takes the page's place, so it has the page's depth. No scope limits where a seed moves to.
    """
    url = url_of(visit.link.link)
    moved, depth = visit.outcome.moved_to is not None, visit.link.depth
    if isinstance(url, UrlRefusal):
        return LinkSource("", depth, is_moved_seed=False)
    origin = f"{url.scheme.word}://{url.host}/"
    return LinkSource(origin, depth if moved else depth + 1, is_moved_seed=moved and depth == 0)
