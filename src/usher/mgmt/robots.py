"""What hosts ask of crawlers: their robots.txt and their sitemaps, for every crawler to know.

Comes from crawlers, which read them; goes back to crawlers, and to the pace of the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.urls import Scheme, Url

store = load_statements(__file__)
MAX_SITEMAPS_PER_HOST: Final = 10_000  # a batch may exceed it once
BROKEN, TOO_MANY = 500, 429


@dataclass(frozen=True, slots=True)
class StoredRobots:
    """What a host's robots.txt said, and until when that is good."""

    status: int | None
    body: str
    fetched_at: datetime
    expires_at: datetime
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class RobotsReport:
    """What a crawler read: no status where there was no answer."""

    status: int | None
    body: str = ""
    error: str = ""
    crawl_delay: timedelta | None = None

    @property
    def good(self) -> bool:
        """Whether this is an answer at all: one that says nothing else means that everything is allowed."""
        return self.status is not None and self.status < BROKEN and self.status != TOO_MANY


async def find_robots(conn: Connection, host: str, scheme: Scheme) -> StoredRobots | None:
    return await store.find_robots.row(conn, StoredRobots, host=host, scheme=scheme)


async def store_robots(
    conn: Connection, host: str, scheme: Scheme, told: RobotsReport, *, now: datetime
) -> StoredRobots | None:
    """Keep what was read, and the pace it asks for; None for a host that nobody knows."""
    return await store.store_robots.row(
        conn,
        StoredRobots,
        host=host,
        scheme=scheme,
        status=told.status,
        body=told.body,
        error=told.error,
        delay=told.crawl_delay,
        good=told.good,
        now=now,
    )


async def add_sitemaps(
    conn: Connection, urls: Sequence[Url], *, found_in: str, now: datetime
) -> int:
    """Sitemaps that somebody told of; returns how many are new. Those of hosts that we do not know are left."""
    found = await store.add_sitemaps.tuples(
        conn,
        hosts=[url.host for url in urls],
        paths=[url.path for url in urls],
        schemes=[int(url.scheme) for url in urls],
        found_in=found_in,
        most=MAX_SITEMAPS_PER_HOST,
        now=now,
    )
    return len(found)


async def record_sitemap_read(
    conn: Connection, url: Url, *, pages: int, sitemaps: int, problem: str, now: datetime
) -> bool:
    """What a sitemap named; a page that turned out to be one is one from now on."""
    found = await store.record_sitemap_read.tuples(
        conn,
        host=url.host,
        path=url.path,
        scheme=int(url.scheme),
        pages=pages,
        sitemaps=sitemaps,
        problem=problem,
        now=now,
    )
    return bool(found)


@dataclass(frozen=True, slots=True)
class StoredSitemap:
    """A sitemap as `usher hosts show` lists it."""

    scheme: int
    path: str
    found_in: str
    found_at: datetime
    read_at: datetime | None
    pages: int | None
    sitemaps: int | None
    problem: str


async def sitemaps_of(conn: Connection, domain64: int, *, n: int) -> list[StoredSitemap]:
    return await store.sitemaps_of.rows(conn, StoredSitemap, domain64=domain64, n=n)


async def robots_of(conn: Connection, domain64: int) -> list[StoredRobots]:
    return await store.robots_of.rows(conn, StoredRobots, domain64=domain64)
