"""What follows a poll: words taken, copies marked, jobs for pages and for cleaning sent.

Comes from polls, once what they brought is stored; goes to texts and to the queue. Whoever is killed before leaves rows
that say so, and the next poll of the feed, also one that brings nothing, does what was left.
"""

from datetime import datetime

from usher.feeds.items import followup_jobs, full_pages
from usher.feeds.store import item_texts
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.subscriptions import FeedSubscription


async def run_followups(
    databases: FeedDatabases,
    known: FeedSubscription,
    feed_id: int | None,
    *,
    news: bool,
    now: datetime,
    digests: bool = True,
) -> None:
    """Do what is to be done with what a poll brought, or an earlier one left; words may be left to another job."""
    if feed_id is None or not (news or known.undone):
        return
    if digests:
        await item_texts.digest_feed(databases.search, feed_id)
    if known.partial:
        await full_pages.queue_wanted_pages(databases, feed_id)
    if known.cleans:
        async with databases.search.transaction() as conn, databases.queue(conn) as queue:
            await followup_jobs.clean_soon(queue, [known.id], now=now)
