"""News for the door: the links and the sitemaps that the pages of a chunk lead to, and the feeds they offer.

Comes from visits; goes to MGMT in large batches, before the chunk is reported: who has a page has its links too.
"""

import asyncio
from collections import defaultdict
from typing import Final

from usher.crawl.fetch_outcome import url_of
from usher.crawl.page_visit import PageVisit
from usher.crawl.recent_links import RecentLinks
from usher.crawl.sitemap import ParsedSitemap
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import SitemapLink
from usher.telemetry import LINKS_FOUND
from usher.urls import UrlRefusal

MAX_LINKS_PER_CALL: Final = 10_000  # in one call
MAX_SITEMAPS_PER_CALL: Final = 1_000
MAX_FEEDS_PER_PAGE: Final = 20  # of one page
# The host that links were found on, how deep they are, and whether they are where a seed moved to.
LinkSource = tuple[str, int, bool]


class LinkReporter:
    """What was found in one chunk and is still to be told; what was told lately is left out."""

    def __init__(self, mgmt: Client, heard: RecentLinks) -> None:
        self._mgmt, self._heard = mgmt, heard
        self._groups: dict[LinkSource, dict[str, None]] = defaultdict(dict)
        self._feeds: dict[str, dict[str, None]] = defaultdict(dict)
        self._links = 0
        self._turn = asyncio.Lock()

    async def add(self, seen: PageVisit) -> None:
        """What a page leads to; sent at once where it is much."""
        if seen.sitemap is not None:
            await self._send_sitemap(seen.link.link, seen.sitemap)
        where, depth, moved = source_of(seen)
        if where and seen.outcome.feeds:
            offered = self._heard.fresh(
                f"feeds {where}", 0, seen.outcome.feeds[:MAX_FEEDS_PER_PAGE]
            )
            self._feeds[where].update(dict.fromkeys(offered))
        group = self._groups[where, depth, moved]
        before = len(group)
        group.update(dict.fromkeys(self._heard.fresh(where, depth, seen.outcome.links)))
        self._links += len(group) - before
        if self._links >= MAX_LINKS_PER_CALL:
            await self.send()

    async def send(self) -> None:
        """All that is known so far; when this returns without an error, the door has it."""
        async with self._turn:
            while self._groups:
                place, group = self._groups.popitem()
                self._links -= len(group)
                try:
                    await self._send(place, list(group))
                except BaseException:
                    self._groups[place].update(group)  # for the next time
                    self._links += len(group)
                    raise
            while self._feeds:
                where, feeds = self._feeds.popitem()
                await self._offer(where, list(feeds))

    async def _send(self, place: LinkSource, links: list[str]) -> None:
        where, depth, moved = place
        source = "moved_from" if moved else "found_on"
        for first in range(0, len(links), MAX_LINKS_PER_CALL):
            part = links[first : first + MAX_LINKS_PER_CALL]
            await self._mgmt.add_links(part, depth=depth, **{source: where or None})
        self._heard.remember(where, depth, links)
        LINKS_FOUND.inc(len(links))

    async def _offer(self, where: str, feeds: list[str]) -> None:
        """Feeds are told of on the way: one that is forgotten is met again with the page's next change."""
        for first in range(0, len(feeds), MAX_SITEMAPS_PER_CALL):
            await self._mgmt.feeds_offered(where, feeds[first : first + MAX_SITEMAPS_PER_CALL])
        self._heard.remember(f"feeds {where}", 0, feeds)

    async def _send_sitemap(self, link: str, named: ParsedSitemap) -> None:
        pages = [SitemapLink(entry.url, entry.lastmod) for entry in named.pages]
        others = [entry.url for entry in named.sitemaps][:MAX_SITEMAPS_PER_CALL]
        for first in range(0, len(pages) or 1, MAX_LINKS_PER_CALL):
            await self._mgmt.sitemap(
                link,
                pages[first : first + MAX_LINKS_PER_CALL],
                sitemaps=others if first == 0 else (),
                pages=len(pages),
                problem=named.problem,
            )


def source_of(seen: PageVisit) -> LinkSource:
    """Whose scope decides about the links of a page, and how deep they are: where it moved to takes its place.

    No scope limits where a seed moved to.
    """
    url = url_of(seen.link.link)
    moved, depth = seen.outcome.moved_to is not None, seen.link.depth
    if isinstance(url, UrlRefusal):
        return "", depth, False
    origin = f"{url.scheme.word}://{url.host}/"
    return origin, depth if moved else depth + 1, moved and depth == 0
