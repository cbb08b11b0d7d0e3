"""The progress of a crawl of some hosts: pages by state, chunks in progress, problems by kind, and each host's pace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from usher.component_health import DISK_FULL
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.observe.stages import MAX_COUNTED
from usher.urls import url_text

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class CrawlProgress:
    """Pages by state, pages that are or will be searchable (`indexed`), and chunks that are not in every row."""

    waiting: int
    crawling: int
    crawled: int  # without the blocked ones
    blocked: int  # by robots.txt
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


@dataclass(frozen=True, slots=True)
class PageProblem:
    """Why pages failed or were blocked by robots.txt, how many, and the first of them."""

    reason: str
    pages: int
    example: str


@dataclass(frozen=True, slots=True)
class HostPaceView:
    """The pause between two requests to a host that is being crawled, and what sets it."""

    host: str
    delay: timedelta
    set_by: Literal["host", "robots", "group", "settings"]


async def read_progress(conn: Connection, hosts: Sequence[int]) -> CrawlProgress:
    """Count the pages and chunks of these hosts, given by their numbers."""
    numbers = list(hosts)
    [pages] = await store.pages.tuples(conn, hosts=numbers)
    [chunks] = await store.chunks.tuples(conn, hosts=numbers, most=MAX_COUNTED)
    stopped = await store.full_disk.tuples(conn, prefix=f"{DISK_FULL}%")
    full_disk = "".join(f"{host} waits. {reason}" for host, reason in stopped)
    return replace(CrawlProgress(*pages, *chunks), full_disk=full_disk)


async def page_problems(conn: Connection, hosts: Sequence[int], *, n: int) -> list[PageProblem]:
    """The most common problems of the pages of these hosts."""
    rows = await store.page_problems.tuples(conn, hosts=list(hosts), n=n)
    return [
        PageProblem(reason, pages, url_text(scheme, host, path))
        for reason, pages, scheme, host, path in rows
    ]


async def paces(conn: Connection, hosts: Sequence[int]) -> list[HostPaceView]:
    """The hosts among these that are being crawled now, the slowest first."""
    return await store.paces.rows(conn, HostPaceView, hosts=list(hosts))
