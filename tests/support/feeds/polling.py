"""Feeds on a real site, polled into a real database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import escape

from support.site.website import Response
from usher import private_hosts
from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Database, connect
from usher.feeds.items import clean_job, followup_jobs, full_pages, permalink
from usher.feeds.opml import Subscription
from usher.feeds.poll import tasks as rounds
from usher.feeds.poll.feed_poll import poll
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.store import subscriptions
from usher.feeds.store.databases import FeedDatabases

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROLES = ("usher_feeds", "usher_manager")


def rss(*items: str, more: str = "") -> Response:
    text = "<rss version='2.0' xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'><channel><title>News</title>"
    return Response(
        f"{text}{more}{''.join(items)}</channel></rss>".encode(), content_type="application/rss+xml"
    )


def item(name: str, link: str = "", text: str = "") -> str:
    return (
        f"<item><guid isPermaLink='false'>{name}</guid><title>{name}</title><link>{escape(link)}</link>"
        f"<description>{escape(text)}</description></item>"
    )


class PollingSetup:
    """Databases and a fetcher; the clock advances by an hour with every poll."""

    def __init__(self, databases: FeedDatabases, fetcher: Fetcher) -> None:
        self.databases, self.fetcher, self.now = databases, fetcher, NOW

    async def add(self, url: str, *, is_partial: bool = False, clean: bool = False) -> int:
        async with self.databases.search.transaction() as conn:
            made = await subscriptions.add(conn, [Subscription(url)], knocks=False, now=NOW)
            [id_] = made.values()
            if is_partial:
                await full_pages.set_partial(conn, [id_], partial=True, now=NOW)
            if clean:
                await clean_job.set_cleaning(conn, [id_], cleanup=True)
            async with self.databases.queue(conn) as queue:
                hosts = {id_: url.split("/")[2]}
                tasks = await rounds.add(queue, hosts, period=HOUR, now=NOW)
                if clean:
                    await followup_jobs.enable_cleaning(queue, [id_], now=NOW)
            await subscriptions.give_tasks(conn, tasks)
        return id_

    async def poll(self, id_: int, after: timedelta = HOUR) -> PollOutcome:
        self.now += after
        return await poll(self.databases, self.fetcher, id_, now=self.now)

    async def page(self, id_: int) -> permalink.PageOutcome:
        return await permalink.fetch_item_page(self.databases, self.fetcher, id_, now=self.now)

    async def clean(self, id_: int) -> clean_job.CleanOutcome:
        return await clean_job.clean_feed(self.databases, id_, now=self.now)

    async def ask(self, query: str) -> list[tuple[object, ...]]:
        async with await connect(self.databases.work_dsn) as conn:
            return await (await conn.execute(query.encode())).fetchall()

    async def run(self, query: str) -> None:
        async with await connect(self.databases.work_dsn) as conn:
            await conn.execute(query.encode())


@asynccontextmanager
async def polling_setup(database: str) -> AsyncIterator[PollingSetup]:
    fetcher = Fetcher("t", allow=private_hosts.parse_allow_list("127.0.0.0/8"))
    async with Database(database, role=ROLES[0]) as db, fetcher:
        yield PollingSetup(FeedDatabases(db, None, ROLES, database, 5), fetcher)
