"""Feeds that pages link to, as crawlers report them; the operator chooses which to subscribe to."""

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
    """A feed, and the host whose pages link to it."""

    host: str
    url: str
    found_at: datetime
    seen_at: datetime


async def add_offers(
    conn: Connection, host: str, urls: Sequence[Url], *, now: datetime
) -> list[str]:
    """Store the feeds that a page of this host links to; returns the new ones, none if the host is not registered."""
    return await store.add_offers.column(
        conn, host=host, urls=[str(url) for url in urls], most=MAX_FEEDS_PER_HOST, now=now
    )


async def list_offers(
    conn: Connection, *, host: str | None = None, after: str = "", n: int = 1_000
) -> list[OfferedFeed]:
    return await store.list_offers.rows(conn, OfferedFeed, host=host, after=after, n=n)
