"""What hosts said in their robots.txt, kept where every crawler looks for it.

Comes from whoever fetches pages of items; goes to MGMT's tables and back. Where those cannot be reached, or the role
that may write there cannot be taken on, each robots.txt is read anew.
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
from usher.messages.crawler import StoredRobots
from usher.mgmt import robots
from usher.urls import Refused, Url, parse

ROLE: Final = "usher_mgmt"


class RobotsCache:
    """As much of MGMT as manners ask for; to be entered, and left with no connection behind."""

    def __init__(self, databases: FeedDatabases) -> None:
        self._databases = databases
        self._stack = AsyncExitStack()
        self._conn: Connection | None = None

    async def __aenter__(self) -> Self:
        try:
            role = await available_role(
                self._databases.work_dsn, ROLE, self._databases.connect_timeout
            )
            conn = await connect(
                self._databases.work_dsn, patience=self._databases.connect_timeout, role=role
            )
            self._conn = await self._stack.enter_async_context(conn)
        except UsherError:
            self._conn = None  # then each is read anew
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def as_client(self) -> Client | None:
        """For manners, which call nothing but the two below."""
        return cast("Client", self) if self._conn is not None else None

    async def robots(self, origin: str) -> StoredRobots:
        url = parse(origin)
        if isinstance(url, Refused) or self._conn is None:
            return StoredRobots()
        try:
            return _told(await robots.find(self._conn, url.host, url.scheme))
        except psycopg.Error:
            return StoredRobots()

    async def set_robots(
        self,
        origin: str,
        *,
        status: int | None,
        body: str = "",
        error: str = "",
        crawl_delay: float | None = None,
        sitemaps: Sequence[str] = (),
    ) -> StoredRobots:
        url = parse(origin)
        if isinstance(url, Refused) or self._conn is None:
            return StoredRobots()
        delay = None if crawl_delay is None else timedelta(seconds=crawl_delay)
        told = robots.Told(status, body, error, delay)
        found = [one for one in map(parse, sitemaps) if isinstance(one, Url)]
        try:
            now = await server_time(self._conn)
            kept = await robots.keep(self._conn, url.host, url.scheme, told, now=now)
            if kept and found:
                await robots.add_sitemaps(self._conn, found, found_in="robots.txt", now=now)
        except psycopg.Error:
            return StoredRobots()
        return _told(kept)


def _told(kept: robots.Robots | None) -> StoredRobots:
    if kept is None:
        return StoredRobots()
    return StoredRobots(
        kept.status, kept.body, kept.fetched_at, kept.expires_at, kept.failures, kept.error
    )
