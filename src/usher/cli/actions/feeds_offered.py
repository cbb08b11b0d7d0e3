"""The work behind `usher feeds offered`: what crawlers came across, less what is subscribed to."""

from typing import Final

from usher.cli.actions.feeds import house_of
from usher.cli.app import App
from usher.cli.area_access import opened
from usher.cli.door_access import root_of
from usher.feeds.store.offered_feeds import without_subscription
from usher.mgmt.offered_feeds import Offer, list_offers

AT_ONCE: Final = 1_000
READER: Final = "usher_reader"


async def offered(app: App, *, host: str | None, limit: int) -> list[Offer]:
    """Feeds that pages offer and nobody has subscribed to, by URL."""
    name, found, after = root_of(host).host if host else None, list[Offer](), ""
    async with opened(app, "work", READER) as work, house_of(app) as house:
        while len(found) < limit:
            async with work.transaction() as conn:
                part = await list_offers(conn, host=name, after=after, n=AT_ONCE)
            async with house.search.transaction() as conn:
                found += await without_subscription(conn, part)
            if len(part) < AT_ONCE:
                break
            after = part[-1].url
    return found[:limit]
