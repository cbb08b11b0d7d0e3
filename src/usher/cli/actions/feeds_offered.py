"""The work behind `usher feeds offered`: what crawlers came across, less what is subscribed to."""

from typing import Final

from usher.cli.actions.feeds import open_feeds
from usher.cli.app import App
from usher.cli.area_access import open_database
from usher.cli.door_access import host_root
from usher.feeds.store.offered_feeds import without_subscription
from usher.mgmt.offered_feeds import Offer, list_offers

PAGE_SIZE: Final = 1_000
READER: Final = "usher_reader"


async def find_offered(app: App, *, host: str | None, limit: int) -> list[Offer]:
    """Feeds that pages offer and nobody has subscribed to, by URL."""
    name, found, after = host_root(host).host if host else None, list[Offer](), ""
    async with open_database(app, "work", READER) as work, open_feeds(app) as house:
        while len(found) < limit:
            async with work.transaction() as conn:
                part = await list_offers(conn, host=name, after=after, n=PAGE_SIZE)
            async with house.search.transaction() as conn:
                found += await without_subscription(conn, part)
            if len(part) < PAGE_SIZE:
                break
            after = part[-1].url
    return found[:limit]
