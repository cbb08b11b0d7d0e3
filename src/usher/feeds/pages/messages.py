"""The queries and responses of the endpoints of feeds; pages show the same values as the JSON."""

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from usher.feeds.pages.queries import FeedCounts, FeedMetadata, HubStatus

MAX_ID: Final = 2**63 - 1
MAX_ITEMS_PER_PAGE: Final = 200
Show = Literal["all", "failing", "disabled", "gone"]
Condition = Literal["good", "new", "failing", "disabled", "gone"]


class FeedsQuery(Struct, frozen=True):
    """Which feeds to list; `after` is the number of the last feed of the previous page."""

    show: Show = "all"
    tag: str = ""
    contains: str = ""
    after: Annotated[int, Meta(ge=0, le=MAX_ID)] = 0


class ItemsQuery(Struct, frozen=True):
    """Which items to list; an empty condition does not count. Days are in UTC and inclusive."""

    words: str = ""
    feed: str = ""
    tag: str = ""
    since: str = ""
    until: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS_PER_PAGE)] = 30


class HubQuery(Struct, frozen=True):
    """The query of a hub's callback."""

    mode: Literal["subscribe", "unsubscribe", "denied"] = field(name="hub.mode")
    topic: str = field(name="hub.topic")
    challenge: str = field(name="hub.challenge", default="")
    lease_seconds: str = field(name="hub.lease_seconds", default="")
    reason: str = field(name="hub.reason", default="")


class FeedRow(Struct, frozen=True):
    """A feed in a list; `days` has the number of items of each of the last 14 days, today last."""

    id: int
    url: str
    title: str
    host: str
    site: str
    tags: list[str]
    condition: Condition
    reason: str
    errors: int
    error: str
    items: int
    more_items: bool  # the count stopped at its limit
    polled_at: datetime | None
    succeeded_at: datetime | None
    next_at: datetime | None
    why: str
    days: list[int]


class FeedList(Struct, frozen=True):
    """A page of feeds; `after` leads to the next one."""

    feeds: list[FeedRow]
    counts: FeedCounts
    after: int | None


class ItemRow(Struct, frozen=True):
    """An item in a list, with plain title and text."""

    id: int
    feed: int | None
    feed_title: str
    title: str
    link: str
    text: str
    published: datetime
    changed: datetime
    seen: datetime
    language: str
    tags: list[str]
    same_as: int | None


class ItemList(Struct, frozen=True):
    """A page of items, the newest first; `after` leads to the next one."""

    items: list[ItemRow]
    after: str | None


class FeedDetail(Struct, frozen=True):
    """A feed with its metadata, polls and latest items; periods in seconds."""

    feed: FeedRow
    about: FeedMetadata | None
    hub: HubStatus | None
    status: int | None
    polls: int
    unmodified: int
    every: float | None
    period: float | None
    knocks: bool
    added_at: datetime
    problems: list[str]
    latest: list[ItemRow]


class Person(Struct, frozen=True):
    name: str
    link: str = ""


class MediaFile(Struct, frozen=True):
    """A file that belongs to an item."""

    link: str
    title: str
    kind: str
    bytes: int | None = None
    seconds: int | None = None


class ItemDetail(Struct, frozen=True):
    """An item with its full plain text."""

    item: ItemRow
    text: str
    guid: str
    authors: list[Person]
    media: list[MediaFile]
    comments_url: str
    comments_count: int | None
    copyright: str
    copies: list[int]
