"""The progress of a crawl of some hosts; one reading is cheap enough to poll."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from usher.component_health import DISK_FULL
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.observe.stages import MAX_COUNTED

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class CrawlProgress:
    """Pages by state, pages that are or will be searchable (`indexed`), and chunks that are not in every row."""

    waiting: int
    crawling: int
    crawled: int
    failed: int
    indexed: int
    chunks_open: int
    chunks_unbuilt: int
    chunks_unpropagated: int
    full_disk: str = ""  # names a component that stopped because its disk is full

    @property
    def fetched(self) -> bool:
        """Whether no page waits or is being fetched."""
        return not (self.waiting or self.crawling or self.chunks_open)

    @property
    def done(self) -> bool:
        """Whether every fetched page is also built and in every row; parked chunks do not count."""
        return self.fetched and not (self.chunks_unbuilt or self.chunks_unpropagated)


async def read_progress(conn: Connection, hosts: Sequence[int]) -> CrawlProgress:
    """Count the pages and chunks of these hosts, given by their numbers."""
    numbers = list(hosts)
    [pages] = await store.pages.tuples(conn, hosts=numbers)
    [chunks] = await store.chunks.tuples(conn, hosts=numbers, most=MAX_COUNTED)
    stopped = await store.full_disk.tuples(conn, prefix=f"{DISK_FULL}%")
    full_disk = "".join(f"{host} waits. {reason}" for host, reason in stopped)
    return replace(CrawlProgress(*pages, *chunks), full_disk=full_disk)
