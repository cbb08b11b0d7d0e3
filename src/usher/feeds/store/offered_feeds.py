"""Finds out which feeds that crawlers discovered have no subscription yet."""

from collections.abc import Sequence

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt.offered_feeds import OfferedFeed

store = load_statements(__file__)


async def without_subscription(
    conn: Connection, offers: Sequence[OfferedFeed]
) -> list[OfferedFeed]:
    """The offers that have no subscription, in the same order."""
    rows = await store.subscribed_urls.tuples(conn, urls=[offer.url for offer in offers])
    subscribed = {url for (url,) in rows}
    return [offer for offer in offers if offer.url not in subscribed]
