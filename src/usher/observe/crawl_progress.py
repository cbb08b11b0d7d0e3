"""How far the crawl of some hosts is, cheap enough to be asked for again and again.

Comes from the guestbook and the chunks on their way; goes to whoever watches a crawl and waits for its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from usher.component_health import DISK_FULL
from usher.db.pool import Connection
from usher.db.statements import beside
from usher.observe.stages import MAX_COUNTED

store = beside(__file__)


@dataclass(frozen=True, slots=True)
class CrawlProgress:
    """Pages by state, those that can be found or will be (`indexed`), and chunks that are not everywhere yet."""

    waiting: int
    crawling: int
    crawled: int
    failed: int
    indexed: int
    chunks_open: int
    chunks_unbuilt: int
    chunks_unpropagated: int
    full_disk: str = ""  # which component stopped because its disk is full

    @property
    def known(self) -> int:
        return self.waiting + self.crawling + self.crawled + self.failed

    @property
    def fetched(self) -> bool:
        """Whether nothing is left to fetch, for now."""
        return not (self.waiting or self.crawling or self.chunks_open)

    @property
    def done(self) -> bool:
        """Whether all that was fetched is built and in every row, too; what was parked never will be."""
        return self.fetched and not (self.chunks_unbuilt or self.chunks_unpropagated)


async def read_progress(conn: Connection, hosts: Sequence[int]) -> CrawlProgress:
    """How far these hosts are, by their numbers: reads their pages once, so at best by index alone."""
    given = list(hosts)
    [pages] = await store.pages.tuples(conn, hosts=given)
    [chunks] = await store.chunks.tuples(conn, hosts=given, most=MAX_COUNTED)
    stopped = await store.full_disk.tuples(conn, prefix=f"{DISK_FULL}%")
    full_disk = "".join(f"{host} waits. {reason}" for host, reason in stopped)
    return replace(CrawlProgress(*pages, *chunks), full_disk=full_disk)
