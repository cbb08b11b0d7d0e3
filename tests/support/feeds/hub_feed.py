"""A feed with a hub, the polls of it, and its subscription in the database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from support.feeds.hub import Hub
from support.site.website import Response, Website
from usher import private_hosts
from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Database, connect
from usher.feeds.opml import Subscription
from usher.feeds.poll import tasks as rounds
from usher.feeds.poll.feed_poll import poll
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.store import subscriptions
from usher.feeds.store.databases import FeedDatabases

HOUR = timedelta(hours=1)
ROLES = ("usher_feeds", "usher_manager")


def atom(*titles: str, hub: str = "", own: str = "") -> Response:
    links = f'<link rel="hub" href="{hub}"/>' if hub else ""
    links += f'<link rel="self" href="{own}"/>' if own else ""
    entries = "".join(
        f"<entry><id>urn:{one}</id><title>{one}</title><updated>2026-11-15T00:00:00Z</updated></entry>"
        for one in titles
    )
    text = f'<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><id>urn:n</id>{links}{entries}</feed>'
    return Response(text.encode(), content_type="application/atom+xml")


class Room:
    """A feed with a hub, and MGMT, which the hub calls back."""

    def __init__(self, databases: FeedDatabases, fetcher: Fetcher, site: Website, hub: Hub) -> None:
        self.databases, self.fetcher, self.site, self.hub = databases, fetcher, site, hub
        self.now = datetime.now(UTC)

    async def add(self, *titles: str, hub: str | None = None, **more: timedelta) -> int:
        there = self.hub.url if hub is None else hub
        url = self.site.add("/feed", atom(*titles, hub=there, own="https://topic.example/feed"))
        async with self.databases.search.transaction() as conn:
            new = await subscriptions.add(conn, [Subscription(url)], now=self.now, **more)  # type: ignore[arg-type]
            host = url.split("/")[2]
            async with self.databases.queue(conn) as queue:
                tasks = await rounds.add(queue, {new[url]: host}, period=HOUR, now=self.now)
            await subscriptions.give_tasks(conn, tasks)
        return new[url]

    def change(self, *titles: str) -> None:
        self.site.add("/feed", atom(*titles, hub=self.hub.url, own="https://topic.example/feed"))

    async def poll(self, id_: int, after: timedelta = timedelta()) -> PollOutcome:
        self.now += after
        told = await poll(self.databases, self.fetcher, id_, now=self.now)
        await self.hub.settled()
        return told

    async def ask(self, query: str) -> list[tuple[object, ...]]:
        async with await connect(self.databases.work_dsn) as conn:
            return await (await conn.execute(query.encode())).fetchall()

    async def run(self, statement: str) -> None:
        async with await connect(self.databases.work_dsn) as conn:
            await conn.execute(statement.encode())


@asynccontextmanager
async def opened(dsn: str, callback: str) -> AsyncIterator[tuple[FeedDatabases, Fetcher]]:
    fetcher = Fetcher("t", allow=private_hosts.parse_allow_list("127.0.0.0/8"))
    async with Database(dsn, role=ROLES[0]) as db, fetcher:
        yield FeedDatabases(db, None, ROLES, dsn, 5, callback), fetcher
