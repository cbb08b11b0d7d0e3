"""Feeds that pages offer, as crawlers come across them.

Comes from crawlers; goes to whoever looks for feeds to subscribe to. Nothing is subscribed to by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.urls import Url

store = load_statements(__file__)
MAX_FEEDS_PER_HOST: Final = 200


@dataclass(frozen=True, slots=True)
class OfferedFeed:
    """A feed, and the host whose pages offer it."""

    host: str
    url: str
    found_at: datetime
    seen_at: datetime


async def add_offers(
    conn: Connection, host: str, urls: Sequence[Url], *, now: datetime
) -> list[str]:
    """Keep what a page of that host offers; those that are new. Of a host that nobody knows nothing is kept."""
    given = [str(url) for url in urls]
    found = await store.add_offers.tuples(
        conn, host=host, urls=given, most=MAX_FEEDS_PER_HOST, now=now
    )
    return [url for (url,) in found]


async def list_offers(
    conn: Connection, *, host: str | None = None, after: str = "", n: int = 1_000
) -> list[OfferedFeed]:
    return await store.list_offers.rows(conn, OfferedFeed, host=host, after=after, n=n)
