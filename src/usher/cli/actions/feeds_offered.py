"""`usher feeds offered`: feeds that crawled pages link to and that are not subscribed to."""

from typing import Final

from usher.cli.actions.feeds import open_feeds
from usher.cli.app import App
from usher.cli.area_access import READER, open_database
from usher.cli.door_access import host_root
from usher.feeds.store.offered_feeds import without_subscription
from usher.mgmt.offered_feeds import OfferedFeed, list_offers

PAGE_SIZE: Final = 1_000


async def find_offered(app: App, *, host: str | None, limit: int) -> list[OfferedFeed]:
    """Offered feeds without a subscription, ordered by URL."""
    name, offers, after = host_root(host).host if host else None, list[OfferedFeed](), ""
    async with open_database(app, "work", READER) as work, open_feeds(app) as feeds:
        while len(offers) < limit:
            async with work.transaction() as conn:
                page = await list_offers(conn, host=name, after=after, n=PAGE_SIZE)
            async with feeds.search.transaction() as conn:
                offers += await without_subscription(conn, page)
            if len(page) < PAGE_SIZE:
                break
            after = page[-1].url
    return offers[:limit]
