"""Items and feeds in the making, and the rules that finish them, the same for every parser.

Comes from the fast parser, from feedparser or from JSON, as words; goes to `Item` and `Feed`. The rules: of several
contents HTML is taken before text, text before files, and the longest of a kind; the summary is the summary or the
content, whichever the feed gives first; links in HTML are seen from xml:base, else from the item, else from the feed; a
date that cannot be read is not there.
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

CLOCK_TOLERANCE: Final = timedelta(days=1)  # by which a clock or a zone may be wrong
XHTML: Final = "application/xhtml+xml"
_HTML: Final = frozenset({"text/html", XHTML})
_TEXT: Final = frozenset({"text/plain", ""})
_ITUNES: Final = "urn:itunes"
MAX_NAME_CHARS: Final = 500  # characters of an author; more is no name, and slow to take apart
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9_.+-]+@(?:\[(?:[0-9]{1,3}\.){3}|(?:[A-Za-z0-9-]+\.)+)(?:[A-Za-z]{2,63}|[0-9]{1,3})\]?"
    r"(?:\?subject=\S+)?"
)


class FeedSource(NamedTuple):
    """Where and when a feed was read, and the language that the server says it is in."""

    url: str
    now: datetime
    language: str = ""


class Content(Struct, frozen=True, gc=False):
    """A text with its type, and where its links are seen from."""

    value: str
    type: str
    base: str


NO_CONTENT: Final = Content("", "", "")


class ItemBuilder:
    """What a parser has found about one item; what it has not found costs nothing."""

    guid = ""
    permalink = False
    link: str | None = None
    origin = ""  # feedburner's word for the link before it made it its own
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
    event: tuple[str, str, str] | None = None  # from, to, where

    def __init__(self) -> None:
        self.contents: list[Content] = []
        self.links: list[FeedLink] = []
        self.authors: list[Author] = []
        self.categories: list[Category] = []
        self.enclosures: list[Enclosure] = []
        self.places: list[GeoPoint] = []


def build_item(draft: ItemBuilder, page: FeedSource, language: str) -> Item:
    """The item that a draft describes."""
    link = link_of(draft)
    content = _best(draft.contents) if draft.contents else NO_CONTENT
    summary = draft.summary or NO_CONTENT
    text = with_absolute_links(content, link, page)
    updated = dates.parse_date(draft.updated, page.now) if draft.updated else None
    has_media = draft.media is not None or bool(draft.enclosures)
    enclosures, thumbnails = _enclosed(draft, page) if has_media else ((), ())
    return Item(
        guid=draft.guid,
        permalink=draft.permalink and is_web_url(draft.guid),
        link=link,
        title=with_absolute_links(draft.title, link, page),
        title_type=draft.title.type,
        summary=text if summary is content else with_absolute_links(summary, link, page),
        summary_type=summary.type,
        content=text,
        content_type=content.type,
        language=draft.language or language,
        pub_date=_published(draft, page) or updated,
        updated=updated,
        comments_url=draft.comments,
        comments_count=parse_int(draft.comments_count) if draft.comments_count else None,
        copyright=copyright_of(draft, page),
        image=draft.image,
        links=_links(draft),
        authors=unique(draft.authors),
        categories=unique_categories(draft.categories),
        enclosures=enclosures,
        thumbnails=thumbnails,
        places=geo_points(draft) if draft.places or draft.latitude else (),
        ratings=_ratings(draft) if draft.explicit or draft.media else (),
        events=_events(draft, page) if draft.event else (),
    )


def _best(contents: list[Content]) -> Content:
    return contents[0] if len(contents) == 1 else max(contents, key=_preference)


def _preference(content: Content) -> tuple[bool, int, int]:
    """HTML before text before files; of one kind the longest; an empty content last."""
    readable = 2 if content.type in _HTML else int(content.type in _TEXT)
    return bool(content.value), readable, len(content.value)


def unique(things: Sequence[T]) -> tuple[T, ...]:
    return tuple(things) if len(things) < 2 else tuple(dict.fromkeys(things))  # noqa: PLR2004


def unique_categories(found: list[Category]) -> tuple[Category, ...]:
    """Each once; a keyword that repeats a category adds nothing."""
    terms = {one.term for one in found if not one.keyword}
    if len(terms) == len(found):
        return tuple(found)
    return unique([one for one in found if not one.keyword or one.term not in terms])


def parse_author(text: str) -> Author | None:
    """Who is meant by `Jane Doe (jane@example.org)`, `jane@example.org (Jane Doe)` and the like."""
    if not text or len(text) > MAX_NAME_CHARS:
        return None
    found = _EMAIL.search(text) if "@" in text else None
    if found is None:
        return Author(text)
    name = text.replace(found[0], "")
    for empty in ("()", "<>", "&lt;&gt;"):
        name = name.replace(empty, "")
    name = name.strip().removeprefix("(").removesuffix(")").strip()
    return Author(name, found[0])


def copyright_of(draft: ItemBuilder, page: FeedSource) -> str:
    licenses = [one.href for one in draft.links if one.rel == "license"]
    if not licenses and draft.rights is NO_CONTENT:
        return ""
    rights = with_absolute_links(draft.rights, "", page)
    return " - ".join(unique([rights, *licenses] if rights else licenses))


def geo_points(draft: ItemBuilder) -> tuple[GeoPoint, ...]:
    """Where an item plays: its points, or the pair of numbers it has instead."""
    found = draft.places
    if not found and draft.latitude and draft.longitude:
        found = [*filter(None, [geo_point(draft.latitude, draft.longitude)])]
    if draft.place_name:
        found = [GeoPoint(one.latitude, one.longitude, draft.place_name) for one in found]
    return unique(found)


def geo_point(latitude: str | float, longitude: str | float) -> GeoPoint | None:
    try:
        north, east = float(latitude), float(longitude)
    except ValueError:
        return None
    return GeoPoint(north, east) if abs(north) <= 90 and abs(east) <= 180 else None  # noqa: PLR2004


def _published(draft: ItemBuilder, page: FeedSource) -> datetime | None:
    return _time(draft.published, page) or _time(draft.created, page)


def _time(text: str, page: FeedSource) -> datetime | None:
    return dates.parse_date(text, page.now) if text else None


def link_of(draft: ItemBuilder) -> str:
    """The link: before feedburner made it its own, as the feed has it, or the guid if that is an address."""
    if draft.origin and is_web_url(draft.origin):
        return draft.origin
    return draft.link or ""


def is_address(guid: str) -> bool:
    """Whether a guid that is called a permalink may really be one; many are not."""
    return is_web_url(guid) or guid.startswith("/")


def _links(draft: ItemBuilder) -> tuple[FeedLink, ...]:
    if draft.comments_feed:
        replies = FeedLink(draft.comments_feed, "replies", "application/rss+xml")
        return unique([*draft.links, replies])
    return unique(draft.links)


def with_absolute_links(content: Content, link: str, page: FeedSource) -> str:
    """A text with its links made absolute, if it is HTML."""
    value = content.value
    if "<" not in value or content.type not in _HTML:
        return value
    if content.type == XHTML:
        value = close_void_elements(value)
    base = content.base
    return make_links_absolute(value, base if base != page.url or not is_web_url(link) else link)


def _enclosed(
    draft: ItemBuilder, page: FeedSource
) -> tuple[tuple[Enclosure, ...], tuple[Thumbnail, ...]]:
    """The media, each once: what Media RSS says of one adds to what the enclosure of the same address says."""
    made: dict[str, Enclosure] = {}
    thumbnails: tuple[Thumbnail, ...] = ()
    if draft.media is not None:
        for medium in draft.media.enclosures(page.url):
            made.setdefault(medium.url, medium)
        thumbnails = draft.media.thumbnails(page.url)
    for one in draft.enclosures:
        url = join(page.url, one.url)
        if other := made.get(url):
            kind, length = other.type or one.type, other.length or one.length
            made[url] = replace(other, type=kind, length=length)
        else:
            made[url] = one if url == one.url else replace(one, url=url)
    if draft.duration and len(made) == 1:
        url, one = made.popitem()
        lasts = one.duration if one.duration is not None else parse_whole_seconds(draft.duration)
        made[url] = replace(one, duration=lasts)
    return tuple(made.values()), thumbnails


def _ratings(draft: ItemBuilder) -> tuple[Rating, ...]:
    found = list(draft.media.item.ratings) if draft.media else []
    if draft.explicit:
        found.append(Rating(_ITUNES, draft.explicit))
    return unique(found)


def _events(draft: ItemBuilder, page: FeedSource) -> tuple[ItemEvent, ...]:
    if draft.event is None:
        return ()
    start, end, where = draft.event
    event = ItemEvent(_time(start, page), _time(end, page), draft.title.value, where)
    return (event,) if event.start or event.end else ()
