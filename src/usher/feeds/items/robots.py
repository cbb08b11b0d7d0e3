"""Reads and writes robots.txt in MGMT's tables, which all crawlers share.

If the tables cannot be reached or written, each robots.txt is fetched again.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final, Self, cast

import psycopg

from usher.db.clock import server_time
from usher.db.pool import Connection, connect
from usher.errors import UsherError
from usher.feeds.store.databases import FeedDatabases, available_role
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import RobotsAnswer
from usher.mgmt import robots
from usher.urls import Url, UrlRefusal, parse

ROLE: Final = "usher_mgmt"


class RobotsCache:
    """The two methods of MGMT's client that the politeness rules call, on a connection to the database."""

    def __init__(self, databases: FeedDatabases) -> None:
        self._databases = databases
        self._stack = AsyncExitStack()
        self._conn: Connection | None = None

    async def __aenter__(self) -> Self:
        dsn, timeout = self._databases.work_dsn, self._databases.connect_timeout
        try:
            role = await available_role(dsn, ROLE, timeout)
            conn = await connect(dsn, patience=timeout, role=role)
            self._conn = await self._stack.enter_async_context(conn)
        except UsherError:
            self._conn = None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def as_client(self) -> Client | None:
        """The cache as a client of MGMT; None if the tables cannot be reached."""
        return cast("Client", self) if self._conn is not None else None

    async def robots(self, origin: str) -> RobotsAnswer:
        url = parse(origin)
        if isinstance(url, UrlRefusal) or self._conn is None:
            return RobotsAnswer()
        try:
            return _message(await robots.find_robots(self._conn, url.host, url.scheme))
        except psycopg.Error:
            return RobotsAnswer()

    async def set_robots(
        self,
        origin: str,
        *,
        status: int | None,
        body: str = "",
        error: str = "",
        crawl_delay: float | None = None,
        sitemaps: Sequence[str] = (),
    ) -> RobotsAnswer:
        url = parse(origin)
        if isinstance(url, UrlRefusal) or self._conn is None:
            return RobotsAnswer()
        delay = None if crawl_delay is None else timedelta(seconds=crawl_delay)
        report = robots.RobotsReport(status, body, error, delay)
        urls = [sitemap for sitemap in map(parse, sitemaps) if isinstance(sitemap, Url)]
        try:
            now = await server_time(self._conn)
            stored = await robots.store_robots(self._conn, url.host, url.scheme, report, now=now)
            if stored and urls:
                await robots.add_sitemaps(self._conn, urls, found_in="robots.txt", now=now)
        except psycopg.Error:
            return RobotsAnswer()
        return _message(stored)


def _message(row: robots.RobotsRow | None) -> RobotsAnswer:
    if row is None:
        return RobotsAnswer()
    return RobotsAnswer(
        row.status, row.body, row.fetched_at, row.expires_at, row.failures, row.error
    )
