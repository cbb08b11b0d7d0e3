"""A parsed feed, in one form for every dialect.

A missing text is "", a missing number or time is None. Times are aware and in UTC. HTML is the feed's own with absolute
links, so sanitize it before you show it. No value can contain itself, so the garbage collector may skip them.
"""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct


class FeedLink(Struct, frozen=True, gc=False):
    """A link of a feed or an item; `rel` is alternate, self, hub, replies, via, license, source ..."""

    href: str
    rel: str = "alternate"
    type: str = ""
    title: str = ""
    language: str = ""


class Author(Struct, frozen=True, gc=False):
    name: str = ""
    email: str = ""
    href: str = ""
    role: Literal["author", "contributor"] = "author"


class Category(Struct, frozen=True, gc=False):
    """A category, or a keyword from a list of search words."""

    term: str
    scheme: str = ""
    label: str = ""
    keyword: bool = False


class Image(Struct, frozen=True, gc=False):
    url: str
    kind: Literal["image", "logo", "icon"] = "image"
    title: str = ""
    link: str = ""
    description: str = ""
    width: int | None = None
    height: int | None = None


class GeoPoint(Struct, frozen=True, gc=False):
    """A point in degrees; for a line or an area its middle."""

    latitude: float
    longitude: float
    name: str = ""


class Rating(Struct, frozen=True, gc=False):
    scheme: str
    value: str


class ItemEvent(Struct, frozen=True, gc=False):
    """An event that an item announces."""

    start: datetime | None
    end: datetime | None = None
    title: str = ""
    location: str = ""


class Caption(Struct, frozen=True, gc=False):
    """A part of the transcript of a medium; `start` and `end` in seconds."""

    text: str
    type: str = "plain"
    language: str = ""
    start: float | None = None
    end: float | None = None


class Credit(Struct, frozen=True, gc=False):
    text: str
    role: str = ""
    scheme: str = ""


class Restriction(Struct, frozen=True, gc=False):
    """Where a medium may (`allow`) or may not (`deny`) be shown: countries, URLs, or free text."""

    text: str
    relationship: Literal["allow", "deny"]
    type: str = ""


class Thumbnail(Struct, frozen=True, gc=False):
    url: str
    width: int | None = None
    height: int | None = None
    time: float | None = None


class Enclosure(Struct, frozen=True, gc=False):
    """A medium of an item, from RSS, an Atom link or Media RSS."""

    url: str
    type: str = ""
    length: int | None = None
    title: str = ""
    description: str = ""
    medium: str = ""
    expression: str = ""
    language: str = ""
    duration: int | None = None
    width: int | None = None
    height: int | None = None
    bit_rate: float | None = None
    frame_rate: float | None = None
    sampling_rate: float | None = None
    channels: int | None = None
    copyright: str = ""
    copyright_url: str = ""
    thumbnails: tuple[Thumbnail, ...] = ()
    credits: tuple[Credit, ...] = ()
    captions: tuple[Caption, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    ratings: tuple[Rating, ...] = ()
    categories: tuple[Category, ...] = ()


class Cloud(Struct, frozen=True, gc=False):
    """The cloud element of RSS, a predecessor of WebSub."""

    domain: str
    port: int | None = None
    path: str = ""
    procedure: str = ""
    protocol: str = ""


class PollHints(Struct, frozen=True, gc=False):
    """How often the feed asks to be polled; hours and days in UTC, days from 0 (Monday) to 6."""

    ttl: timedelta | None = None
    period: timedelta | None = None
    skip_hours: frozenset[int] = frozenset()
    skip_days: frozenset[int] = frozenset()


class Item(Struct, frozen=True, gc=False):
    """An item; `language` may be that of the feed."""

    guid: str = ""
    permalink: bool = False  # the guid is the item's URL
    link: str = ""
    title: str = ""
    title_type: str = ""
    summary: str = ""
    summary_type: str = ""
    content: str = ""
    content_type: str = ""
    language: str = ""
    pub_date: datetime | None = None
    updated: datetime | None = None
    comments_url: str = ""
    comments_count: int | None = None
    copyright: str = ""
    image: str = ""
    links: tuple[FeedLink, ...] = ()
    authors: tuple[Author, ...] = ()
    categories: tuple[Category, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    thumbnails: tuple[Thumbnail, ...] = ()
    places: tuple[GeoPoint, ...] = ()
    ratings: tuple[Rating, ...] = ()
    events: tuple[ItemEvent, ...] = ()


class Feed(Struct, frozen=True, gc=False):
    """A feed; `problems` says what was wrong with the document."""

    dialect: str
    encoding: str
    title: str = ""
    subtitle: str = ""
    link: str = ""
    id: str = ""
    language: str = ""
    copyright: str = ""
    generator: str = ""
    pub_date: datetime | None = None
    updated: datetime | None = None
    moved_to: str = ""
    links: tuple[FeedLink, ...] = ()
    images: tuple[Image, ...] = ()
    authors: tuple[Author, ...] = ()
    categories: tuple[Category, ...] = ()
    places: tuple[GeoPoint, ...] = ()
    ratings: tuple[Rating, ...] = ()
    hubs: tuple[str, ...] = ()
    self_link: str = ""
    cloud: Cloud | None = None
    hints: PollHints = PollHints()
    items: tuple[Item, ...] = ()
    problems: tuple[str, ...] = ()


class NotAFeed(Struct, frozen=True, gc=False):
    """Why a document is no feed, as a sentence for people."""

    reason: str
