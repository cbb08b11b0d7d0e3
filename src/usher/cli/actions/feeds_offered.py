"""`usher feeds offered`: feeds that crawled pages link to and that are not subscribed to."""

from typing import Final

from usher.cli.actions.feeds import open_feeds
from usher.cli.app import App, show_json
from usher.cli.area_access import READER, open_database
from usher.cli.output import echo
from usher.door.host_lookup import host_root
from usher.feeds.store.subscriptions import subscribed_urls
from usher.mgmt.offered_feeds import OfferedFeed, list_offers

PAGE_SIZE: Final = 1_000


async def list_offered(app: App, *, host: str | None, limit: int, as_json: bool) -> None:
    """Show offered feeds without a subscription, ordered by URL."""
    name, offers, after = host_root(host).host if host else None, list[OfferedFeed](), ""
    async with open_database(app, "work", READER) as work, open_feeds(app) as feeds:
        while len(offers) < limit:
            async with work.transaction() as conn:
                page = await list_offers(conn, host=name, after=after, n=PAGE_SIZE)
            async with feeds.search.transaction() as conn:
                subscribed = await subscribed_urls(conn, [offer.url for offer in page])
            offers += [offer for offer in page if offer.url not in subscribed]
            if len(page) < PAGE_SIZE:
                break
            after = page[-1].url
    if as_json:
        shown = offers[:limit]
        show_json(
            [{"host": offer.host, "url": offer.url, "seen": offer.seen_at} for offer in shown]
        )
        return
    for offer in offers[:limit]:
        echo(offer.url)
    if not offers:
        app.say("No crawled page links to a feed without a subscription.")
