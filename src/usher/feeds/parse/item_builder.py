"""Builds items from what a parser found, by the same rules for every parser.

Of several contents HTML wins over text, text over files, and the longest of a kind. The summary is the summary or the
content, whichever the feed has first. Links in HTML are relative to xml:base, else to the item, else to the feed. An
unreadable date is None.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from usher.feeds.model import (
    Author,
    Category,
    Enclosure,
    FeedLink,
    GeoPoint,
    Item,
    ItemEvent,
    Rating,
    Thumbnail,
)
from usher.feeds.parse import dates
from usher.feeds.parse.media_rss import MediaElements, parse_int, parse_whole_seconds
from usher.feeds.parse.relative_urls import (
    close_void_elements,
    is_web_url,
    join,
    make_links_absolute,
)

T = TypeVar("T")

CLOCK_TOLERANCE: Final = timedelta(days=1)  # for wrong clocks and zones
XHTML: Final = "application/xhtml+xml"
_HTML: Final = frozenset({"text/html", XHTML})
_TEXT: Final = frozenset({"text/plain", ""})
_ITUNES: Final = "urn:itunes"
MAX_NAME_CHARS: Final = 500  # a longer text is no author, and slow to match
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9_.+-]+@(?:\[(?:[0-9]{1,3}\.){3}|(?:[A-Za-z0-9-]+\.)+)(?:[A-Za-z]{2,63}|[0-9]{1,3})\]?"
    r"(?:\?subject=\S+)?"
)


class FeedSource(NamedTuple):
    """The URL and time of a download, and the server's Content-Language."""

    url: str
    now: datetime
    language: str = ""


class Content(Struct, frozen=True, gc=False):
    """A text with its type and the base of its links."""

    value: str
    type: str
    base: str


NO_CONTENT: Final = Content("", "", "")


class ItemBuilder:
    """What a parser found about one item. Defaults are class attributes, so that absent fields cost nothing."""

    guid = ""
    permalink = False
    link: str | None = None
    origin = ""  # the original link of an item from FeedBurner
    title = NO_CONTENT
    rights = NO_CONTENT
    language = ""
    published = ""
    updated = ""
    created = ""
    comments = ""
    comments_count = ""
    comments_feed = ""
    image = ""
    duration = ""
    explicit = ""
    latitude = ""
    longitude = ""
    place_name = ""
    summary: Content | None = None
    media: MediaElements | None = None
    event: tuple[str, str, str] | None = None  # start, end, location

    def __init__(self) -> None:
        self.contents: list[Content] = []
        self.links: list[FeedLink] = []
        self.authors: list[Author] = []
        self.categories: list[Category] = []
        self.enclosures: list[Enclosure] = []
        self.places: list[GeoPoint] = []


def build_item(builder: ItemBuilder, source: FeedSource, language: str) -> Item:
    """The finished item; `language` is that of the feed."""
    link = link_of(builder)
    content = _best(builder.contents) if builder.contents else NO_CONTENT
    summary = builder.summary or NO_CONTENT
    text = with_absolute_links(content, link, source)
    updated = _time(builder.updated, source)
    has_media = builder.media is not None or bool(builder.enclosures)
    enclosures, thumbnails = _enclosed(builder, source) if has_media else ((), ())
    return Item(
        guid=builder.guid,
        permalink=builder.permalink and is_web_url(builder.guid),
        link=link,
        title=with_absolute_links(builder.title, link, source),
        title_type=builder.title.type,
        summary=text if summary is content else with_absolute_links(summary, link, source),
        summary_type=summary.type,
        content=text,
        content_type=content.type,
        language=builder.language or language,
        pub_date=_time(builder.published, source) or _time(builder.created, source) or updated,
        updated=updated,
        comments_url=builder.comments,
        comments_count=parse_int(builder.comments_count) if builder.comments_count else None,
        copyright=copyright_of(builder, source),
        image=builder.image,
        links=_links(builder),
        authors=unique(builder.authors),
        categories=unique_categories(builder.categories),
        enclosures=enclosures,
        thumbnails=thumbnails,
        places=geo_points(builder) if builder.places or builder.latitude else (),
        ratings=_ratings(builder) if builder.explicit or builder.media else (),
        events=_events(builder, source) if builder.event else (),
    )


def _best(contents: list[Content]) -> Content:
    return contents[0] if len(contents) == 1 else max(contents, key=_preference)


def _preference(content: Content) -> tuple[bool, int, int]:
    """A sort key: HTML wins over text, text over files, the longer of a kind; an empty content loses."""
    readable = 2 if content.type in _HTML else int(content.type in _TEXT)
    return bool(content.value), readable, len(content.value)


def unique(things: Sequence[T]) -> tuple[T, ...]:
    return tuple(things) if len(things) < 2 else tuple(dict.fromkeys(things))  # noqa: PLR2004


def unique_categories(categories: list[Category]) -> tuple[Category, ...]:
    """Each category once, without keywords that repeat a category."""
    terms = {category.term for category in categories if not category.keyword}
    if len(terms) == len(categories):
        return tuple(categories)
    return unique([each for each in categories if not each.keyword or each.term not in terms])


def parse_author(text: str) -> Author | None:
    """The author in `Jane Doe (jane@example.org)`, `jane@example.org (Jane Doe)` and similar texts."""
    if not text or len(text) > MAX_NAME_CHARS:
        return None
    email = _EMAIL.search(text) if "@" in text else None
    if email is None:
        return Author(text)
    name = text.replace(email[0], "")
    for empty in ("()", "<>", "&lt;&gt;"):
        name = name.replace(empty, "")
    name = name.strip().removeprefix("(").removesuffix(")").strip()
    return Author(name, email[0])


def copyright_of(builder: ItemBuilder, source: FeedSource) -> str:
    licenses = [link.href for link in builder.links if link.rel == "license"]
    if not licenses and builder.rights is NO_CONTENT:
        return ""
    rights = with_absolute_links(builder.rights, "", source)
    return " - ".join(unique([rights, *licenses] if rights else licenses))


def geo_points(builder: ItemBuilder) -> tuple[GeoPoint, ...]:
    """The location of an item: its points, or its latitude and longitude."""
    points = builder.places
    if not points and builder.latitude and builder.longitude:
        points = [*filter(None, [geo_point(builder.latitude, builder.longitude)])]
    if builder.place_name:
        points = [replace(point, name=builder.place_name) for point in points]
    return unique(points)


def geo_point(latitude: str | float, longitude: str | float) -> GeoPoint | None:
    try:
        north, east = float(latitude), float(longitude)
    except ValueError:
        return None
    return GeoPoint(north, east) if abs(north) <= 90 and abs(east) <= 180 else None  # noqa: PLR2004


def _time(text: str, source: FeedSource) -> datetime | None:
    return dates.parse_date(text, source.now) if text else None


def link_of(builder: ItemBuilder) -> str:
    """The link of an item or a feed, without FeedBurner's redirect."""
    if builder.origin and is_web_url(builder.origin):
        return builder.origin
    return builder.link or ""


def is_address(guid: str) -> bool:
    """Whether a guid is a URL; many guids that claim to be permalinks are not."""
    return is_web_url(guid) or guid.startswith("/")


def _links(builder: ItemBuilder) -> tuple[FeedLink, ...]:
    if builder.comments_feed:
        replies = FeedLink(builder.comments_feed, "replies", "application/rss+xml")
        return unique([*builder.links, replies])
    return unique(builder.links)


def with_absolute_links(content: Content, link: str, source: FeedSource) -> str:
    """The text of a content; in HTML with absolute links."""
    value = content.value
    if "<" not in value or content.type not in _HTML:
        return value
    if content.type == XHTML:
        value = close_void_elements(value)
    base = content.base
    return make_links_absolute(value, base if base != source.url or not is_web_url(link) else link)


def _enclosed(
    builder: ItemBuilder, source: FeedSource
) -> tuple[tuple[Enclosure, ...], tuple[Thumbnail, ...]]:
    """The media of an item, each URL once, and its thumbnails; enclosures complete Media RSS."""
    media: dict[str, Enclosure] = {}
    thumbnails: tuple[Thumbnail, ...] = ()
    if builder.media is not None:
        for medium in builder.media.enclosures(source.url):
            media.setdefault(medium.url, medium)
        thumbnails = builder.media.thumbnails(source.url)
    for enclosure in builder.enclosures:
        url = join(source.url, enclosure.url)
        if same := media.get(url):
            kind, length = same.type or enclosure.type, same.length or enclosure.length
            media[url] = replace(same, type=kind, length=length)
        else:
            media[url] = enclosure if url == enclosure.url else replace(enclosure, url=url)
    if builder.duration and len(media) == 1:
        url, medium = media.popitem()
        if medium.duration is None:
            medium = replace(medium, duration=parse_whole_seconds(builder.duration))
        media[url] = medium
    return tuple(media.values()), thumbnails


def _ratings(builder: ItemBuilder) -> tuple[Rating, ...]:
    ratings = list(builder.media.item.ratings) if builder.media else []
    if builder.explicit:
        ratings.append(Rating(_ITUNES, builder.explicit))
    return unique(ratings)


def _events(builder: ItemBuilder, source: FeedSource) -> tuple[ItemEvent, ...]:
    if builder.event is None:
        return ()
    start, end, where = builder.event
    event = ItemEvent(_time(start, source), _time(end, source), builder.title.value, where)
    return (event,) if event.start or event.end else ()
