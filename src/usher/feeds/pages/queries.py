"""Reads what the pages of feeds show: counts, tags, the metadata of a feed and its hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.feeds.websub.rules import HubState

store = load_statements(__file__)

MAX_COUNTED_ITEMS: Final = 1_000  # per feed in a list
MAX_TAGS: Final = 100


@dataclass(frozen=True, slots=True)
class FeedCounts:
    all: int
    failing: int
    disabled: int
    gone: int


@dataclass(frozen=True, slots=True)
class FeedMetadata:
    """The feed's own fields, and when it was first and last read."""

    title: str
    description: str
    link: str
    language: str
    copyright: str
    generator: str
    type: str
    encoding: str
    pub_date: datetime | None
    first_date: datetime
    mod_date: datetime
    hub: str
    categories: list[str]
    authors: list[str]


@dataclass(frozen=True, slots=True)
class HubStatus:
    """A subscription at a hub, without its secrets."""

    hub: str
    topic: str
    state: HubState
    reason: str
    lease_until: datetime | None
    pinged_at: datetime | None
    pings: int
    ignored: int
    trusted: bool


async def counts(conn: Connection) -> FeedCounts:
    [row] = await store.counts.tuples(conn)
    return FeedCounts(*row)


async def tags(conn: Connection) -> list[str]:
    return await store.tags.column(conn, n=MAX_TAGS)


async def sizes(conn: Connection, feeds: Sequence[int]) -> dict[int, int]:
    """The number of items of feeds, up to MAX_COUNTED_ITEMS + 1."""
    rows = await store.sizes.tuples(conn, feeds=list(feeds), most=MAX_COUNTED_ITEMS + 1)
    return {id_: number for id_, number in rows}  # noqa: C416 - typed


async def about(conn: Connection, feed: int) -> FeedMetadata | None:
    return await store.about.row(conn, FeedMetadata, feed=feed)


async def hub(conn: Connection, id_: int) -> HubStatus | None:
    return await store.hub.row(conn, HubStatus, id=id_)
