"""The robots.txt and sitemaps of hosts, shared by all crawlers."""

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
class RobotsRow:
    """The stored robots.txt of a host, and when it expires."""

    status: int | None
    body: str
    fetched_at: datetime
    expires_at: datetime
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class RobotsReport:
    """The robots.txt that a crawler read; without a status if the host did not answer."""

    status: int | None
    body: str = ""
    error: str = ""
    crawl_delay: timedelta | None = None

    @property
    def good(self) -> bool:
        """Whether the host answered; 4xx except 429 means that everything is allowed."""
        return self.status is not None and self.status < BROKEN and self.status != TOO_MANY


async def find_robots(conn: Connection, host: str, scheme: Scheme) -> RobotsRow | None:
    return await store.find_robots.row(conn, RobotsRow, host=host, scheme=scheme)


async def store_robots(
    conn: Connection, host: str, scheme: Scheme, report: RobotsReport, *, now: datetime
) -> RobotsRow | None:
    """Store a robots.txt and its crawl delay; returns None if the host is not registered."""
    return await store.store_robots.row(
        conn,
        RobotsRow,
        host=host,
        scheme=scheme,
        status=report.status,
        body=report.body,
        error=report.error,
        delay=report.crawl_delay,
        good=report.good,
        now=now,
    )


async def add_sitemaps(
    conn: Connection, urls: Sequence[Url], *, found_in: str, now: datetime
) -> int:
    """Store the sitemaps of registered hosts; returns how many are new."""
    rows = await store.add_sitemaps.tuples(
        conn,
        hosts=[url.host for url in urls],
        paths=[url.path for url in urls],
        schemes=[int(url.scheme) for url in urls],
        found_in=found_in,
        most=MAX_SITEMAPS_PER_HOST,
        now=now,
    )
    return len(rows)


async def record_sitemap_read(
    conn: Connection, url: Url, *, pages: int, sitemaps: int, problem: str, now: datetime
) -> bool:
    """Store what a sitemap contained; returns False if its host is not registered."""
    rows = await store.record_sitemap_read.tuples(
        conn,
        host=url.host,
        path=url.path,
        scheme=int(url.scheme),
        pages=pages,
        sitemaps=sitemaps,
        problem=problem,
        now=now,
    )
    return bool(rows)


@dataclass(frozen=True, slots=True)
class SitemapRow:
    """A sitemap as `usher hosts show` lists it."""

    scheme: int
    path: str
    found_in: str
    found_at: datetime
    read_at: datetime | None
    pages: int | None
    sitemaps: int | None
    problem: str


async def sitemaps_of(conn: Connection, domain64: int, *, n: int) -> list[SitemapRow]:
    return await store.sitemaps_of.rows(conn, SitemapRow, domain64=domain64, n=n)


async def robots_of(conn: Connection, domain64: int) -> list[RobotsRow]:
    return await store.robots_of.rows(conn, RobotsRow, domain64=domain64)
