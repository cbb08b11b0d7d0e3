"""Reports the links of a chunk's pages with their texts, feeds and sitemaps, in large batches and before the chunk."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from usher.anchor_text import Anchor
from usher.crawl.fetch_outcome import url_of
from usher.crawl.page_visit import PageVisit
from usher.crawl.recent_anchors import RecentAnchors
from usher.crawl.recent_links import RecentLinks
from usher.crawl.sitemap import ParsedSitemap
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import PageAnchors, SitemapLink
from usher.telemetry import LINKS_FOUND
from usher.urls import UrlRefusal

MAX_LINKS_PER_CALL: Final = 10_000
MAX_ANCHORS_PER_CALL: Final = 5_000
MAX_SITEMAPS_PER_CALL: Final = 1_000
MAX_FEEDS_PER_CALL: Final = 1_000
MAX_FEEDS_PER_PAGE: Final = 20


class LinkSource(NamedTuple):
    """Where links come from: the host whose scope applies, their depth, and whether a seed moved to them."""

    origin: str
    depth: int
    is_moved_seed: bool


class UnreportedLinks:
    """The links and anchor texts of one source that are not reported yet."""

    def __init__(self) -> None:
        self.links: dict[str, None] = {}
        self.anchors: list[PageAnchors] = []

    def __len__(self) -> int:
        return len(self.links) + sum(len(page.links) for page in self.anchors)

    def add(self, links: Sequence[str], anchors: Sequence[PageAnchors]) -> int:
        """Add links; return how many were added."""
        before = len(self.links)
        self.links.update(dict.fromkeys(links))
        self.anchors.extend(anchors)
        return len(self.links) - before + sum(len(page.links) for page in anchors)

    def batches(self) -> Iterator[tuple[list[str], list[PageAnchors]]]:
        """Yield what each call reports; anchors come after all links, because their pages must exist."""
        links = list(self.links)
        parts = [
            links[first : first + MAX_LINKS_PER_CALL]
            for first in range(0, len(links), MAX_LINKS_PER_CALL)
        ]
        yield from ((part, []) for part in parts[:-1])
        last = parts[-1] if parts else []
        for anchors in anchor_batches(self.anchors):
            yield last, anchors
            last = []
        if last:
            yield last, []


class LinkReporter:
    """The links of one chunk that are not reported yet, without those that were reported recently."""

    def __init__(self, mgmt: Client, recent: RecentLinks, anchors: RecentAnchors) -> None:
        self._mgmt, self._recent, self._recent_anchors = mgmt, recent, anchors
        self._links: dict[LinkSource, UnreportedLinks] = defaultdict(UnreportedLinks)
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
        fresh = self._recent.fresh(source.origin, source.depth, visit.outcome.links)
        anchors = self._recent_anchors.take(source.origin, visit.outcome.anchors)
        if fresh or anchors:
            self._count += self._links[source].add(fresh, page_anchors(visit, anchors))
        if self._count >= MAX_LINKS_PER_CALL:
            await self.send()

    async def send(self) -> None:
        """Send all links; when this returns without an error, the door has them."""
        async with self._turn:
            while self._links:
                source, links = self._links.popitem()
                self._count -= len(links)
                try:
                    await self._send_links(source, links)
                except BaseException:
                    # For the next call; MGMT counts a repeated anchor once.
                    self._count += self._links[source].add(list(links.links), links.anchors)
                    raise
            while self._feeds:
                origin, feeds = self._feeds.popitem()
                await self._send_feeds(origin, list(feeds))

    async def _send_links(self, source: LinkSource, links: UnreportedLinks) -> None:
        origin = source.origin or None
        found_on, moved_from = (None, origin) if source.is_moved_seed else (origin, None)
        for part, anchors in links.batches():
            await self._mgmt.add_links(
                part,
                depth=source.depth,
                found_on=found_on,
                moved_from=moved_from,
                anchors=anchors if found_on else (),
            )
        self._recent.remember(source.origin, source.depth, links.links)
        LINKS_FOUND.inc(len(links.links))

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


def page_anchors(visit: PageVisit, anchors: Sequence[Anchor]) -> list[PageAnchors]:
    """Return the anchors of a page as a message; none without anchors."""
    return [PageAnchors(visit.link.link, [(*anchor,) for anchor in anchors])] if anchors else []


def anchor_batches(anchors: Sequence[PageAnchors]) -> Iterator[list[PageAnchors]]:
    """Split the anchors of pages into batches that fit into one call."""
    batch: list[PageAnchors] = []
    count = 0
    for page in anchors:
        if batch and count + len(page.links) > MAX_ANCHORS_PER_CALL:
            yield batch
            batch, count = [], 0
        batch.append(page)
        count += len(page.links)
    if batch:
        yield batch


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
