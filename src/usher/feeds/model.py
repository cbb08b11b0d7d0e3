"""What a feed says, in one shape for every dialect.

Comes from `parse`; goes to the store. A text that is not there is "", a number or a time that is not there is None.
Times are aware and in UTC. HTML is as the feed has it, save that its links are absolute: clean it before you show it.
None of these can hold itself, so the garbage collector need not look at them.
"""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct


class FeedLink(Struct, frozen=True, gc=False):
    """A link of a feed or an item, by what it is to it: alternate, self, hub, replies, via, license, source ..."""

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
    """A category, or a keyword: a word of a list that the feed gives for searching."""

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
    """A point in degrees; of a line or an area its middle."""

    latitude: float
    longitude: float
    name: str = ""


class Rating(Struct, frozen=True, gc=False):
    scheme: str
    value: str


class ItemEvent(Struct, frozen=True, gc=False):
    """What an item announces: when, and where."""

    start: datetime | None
    end: datetime | None = None
    title: str = ""
    location: str = ""


class Caption(Struct, frozen=True, gc=False):
    """A part of what is said in a medium; `start` and `end` in seconds."""

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
    """Where a medium may (`allow`) or may not (`deny`) be shown: countries, URLs, or words of the publisher."""

    text: str
    relationship: Literal["allow", "deny"]
    type: str = ""


class Thumbnail(Struct, frozen=True, gc=False):
    url: str
    width: int | None = None
    height: int | None = None
    time: float | None = None


class Enclosure(Struct, frozen=True, gc=False):
    """A medium of an item: from RSS, from an Atom link, or from Media RSS with all it says about it."""

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
    """The old way to be told of news."""

    domain: str
    port: int | None = None
    path: str = ""
    procedure: str = ""
    protocol: str = ""


class PollHints(Struct, frozen=True, gc=False):
    """How often the feed asks to be read; hours and days are of UTC, a day from 0 (Monday) to 6."""

    ttl: timedelta | None = None
    period: timedelta | None = None
    skip_hours: frozenset[int] = frozenset()
    skip_days: frozenset[int] = frozenset()


class Item(Struct, frozen=True, gc=False):
    """One entry; `guid` may be missing, `pub_date` is what the feed says or None, `language` may be the feed's."""

    guid: str = ""
    permalink: bool = False  # the guid is the address of the item
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
    """A whole feed as read once; `problems` says in words what was wrong with it, `dialect` what it was."""

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
    """Why the bytes are no feed, in a sentence for people."""

    reason: str
