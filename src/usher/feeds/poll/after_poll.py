"""Starts what follows a poll: digests items and queues jobs that fetch pages and clean items.

A process that is killed leaves rows that say so, and the next poll of the feed completes the work.
"""

from datetime import datetime

from usher.feeds.items import followup_jobs, full_pages
from usher.feeds.store import item_texts
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.subscriptions import FeedSubscription


async def run_followups(
    databases: FeedDatabases,
    subscription: FeedSubscription,
    feed_id: int | None,
    *,
    news: bool,
    now: datetime,
    digest: bool = True,
) -> None:
    """Process what this poll or an earlier one stored; without `digest` another job digests the items."""
    if feed_id is None or not (news or subscription.undone):
        return
    if digest:
        await item_texts.digest_feed(databases.search, feed_id)
    if subscription.partial:
        await full_pages.queue_wanted_pages(databases, feed_id)
    if subscription.cleans:
        async with databases.search.transaction() as conn, databases.queue(conn) as queue:
            await followup_jobs.clean_soon(queue, [subscription.id], now=now)
