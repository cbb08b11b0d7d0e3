"""Parses every feed that the fast parser declines, such as old dialects and broken XML, with feedparser."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from usher.feeds.model import Author, Category, Enclosure, Feed, FeedLink, GeoPoint, Image, NotAFeed
from usher.feeds.parse import feedparser_input, feedparser_patches
from usher.feeds.parse.feed_builder import FeedBuilder, build_feed, too_many_items
from usher.feeds.parse.item_builder import Content, FeedSource, ItemBuilder, build_item, geo_point
from usher.feeds.parse.media_rss import parse_int, parse_keywords

FeedparserDict = Mapping[str, Any]  # a plain copy, without feedparser's aliases

_NONE: Final[FeedparserDict] = {}


def parse_with_feedparser(utf8: bytes, source: FeedSource, max_items: int) -> Feed | NotAFeed:
    """The feed in the bytes; any error of feedparser means that they are no feed."""
    try:
        return _parse(utf8, source, max_items)
    except Exception as error:  # noqa: BLE001 - feedparser may raise anything
        return NotAFeed(f"It cannot be read as a feed ({type(error).__name__}).")


def _parse(utf8: bytes, source: FeedSource, max_items: int) -> Feed | NotAFeed:
    utf8, controls = feedparser_input.without_controls(utf8)
    utf8, cut = feedparser_input.bounded(utf8)
    if not utf8 or feedparser_input.too_many_prefixes(utf8):
        return NotAFeed("It has too many tags or namespaces for a feed.")
    parser, version, problem = feedparser_input.run_feedparser(utf8, source.url, max_items)
    if not version and not parser.entries:
        return NotAFeed(problem or "It is XML, but no kind of feed.")
    channel = _channel(dict(parser.feeddata), parser)
    language = channel.language or source.language
    builders = map(_item, map(dict, parser.entries), parser.notes)
    items = tuple(build_item(builder, source, language) for builder in builders)
    problems = [text for text in (problem, controls, cut) if text]
    if parser.full:
        problems.append(too_many_items(max_items))
    return build_feed(channel, items, source, dialect=version or "rss", problems=problems)


def _item(data: FeedparserDict, notes: feedparser_patches.ParserNotes) -> ItemBuilder:
    builder = ItemBuilder()
    _set_shared_fields(builder, data, notes)
    builder.media = notes.media
    builder.permalink = notes.permalink
    builder.contents = [_content(content) for content in _list(data, "content")]
    builder.summary = _summary(data, builder.contents)
    builder.language = builder.language or _language(data)
    builder.origin = _text(data, "feedburner_origlink")
    builder.created = _text(data, "created")
    builder.comments = _text(data, "comments")
    builder.comments_count = _text(data, "slash_comments") or _text(data, "thr_total")
    builder.comments_feed = _text(data, "wfw_commentrss")
    builder.image = notes.image
    builder.duration = _text(data, "itunes_duration")
    _set_event(builder, data)
    return builder


def _set_shared_fields(
    builder: ItemBuilder, data: FeedparserDict, notes: feedparser_patches.ParserNotes
) -> None:
    """Set the fields that items and feeds have in common."""
    builder.guid = _text(data, "id")
    builder.link = _text(data, "link")
    builder.title = _titled(data, "title")
    builder.language = _text(data, "language")
    builder.published = _text(data, "published")
    builder.updated = _text(data, "updated")
    builder.rights = _titled(data, "rights")
    builder.explicit = notes.explicit
    _links(builder, _list(data, "links"))
    _source(builder, _map(data, "source"))
    builder.authors = _authors(data)
    builder.categories = _categories(_list(data, "tags"))
    for text in notes.keywords:
        builder.categories += parse_keywords(text)
    _set_location(builder, data)


def _channel(data: FeedparserDict, parser: Any) -> FeedBuilder:  # noqa: ANN401 - feedparser has no types
    channel = FeedBuilder()
    _set_shared_fields(channel, data, parser.own)
    channel.subtitle = _titled(data, "subtitle")
    channel.about = _titled(data, "summary")
    channel.generator = _generator(data)
    channel.moved_to = _text(data, "newlocation") or _text(data, "itunes_new-feed-url")
    channel.ttl = _text(data, "ttl")
    channel.period = _text(data, "sy_updateperiod")
    channel.frequency = _text(data, "sy_updatefrequency")
    channel.rating = _text(data, "rating")
    channel.cloud = _map(data, "cloud")
    channel.hours, channel.days = parser.hours, parser.days
    channel.images = _images(data, parser.own)
    return channel


def _text(data: FeedparserDict, key: str) -> str:
    """The text under a key; empty if feedparser stores attributes there."""
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _list(data: FeedparserDict, key: str) -> list[Any]:
    """The dictionaries under a key; empty if an element of that name has overwritten the list."""
    value = data.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _map(data: FeedparserDict, key: str) -> FeedparserDict:
    value = data.get(key)
    return dict(value) if isinstance(value, Mapping) else _NONE


def _detail(data: FeedparserDict, key: str) -> FeedparserDict:
    return _map(data, f"{key}_detail")


def _titled(data: FeedparserDict, key: str) -> Content:
    detail = _detail(data, key)
    return Content(_text(data, key), detail.get("type") or "", detail.get("base") or "")


def _content(data: FeedparserDict) -> Content:
    return Content(data.get("value") or "", data.get("type") or "", data.get("base") or "")


def _summary(data: FeedparserDict, contents: list[Content]) -> Content | None:
    if "summary" not in data:
        return None
    if not _detail(data, "summary") and contents:
        return Content(_text(data, "summary"), contents[0].type, contents[0].base)
    return _titled(data, "summary")


def _language(data: FeedparserDict) -> str:
    """The xml:lang of the first text of an item that has one."""
    contents = _list(data, "content") or [_NONE]
    for detail in (_detail(data, "title"), _detail(data, "summary"), contents[0]):
        if detail.get("language"):
            return str(detail["language"])
    return ""


def _generator(data: FeedparserDict) -> str:
    agent = _map(data, "admin_generatoragent")
    detail = _detail(data, "generator")
    return _text(data, "generator") or detail.get("href") or agent.get("rdf:resource") or ""


def _links(builder: ItemBuilder, links: Iterable[FeedparserDict]) -> None:
    for data in map(dict, links):
        href, rel = data.get("href") or "", data.get("rel") or "alternate"
        kind, title = data.get("type") or "", data.get("title") or ""
        if not href:
            continue
        if rel == "enclosure" and not isinstance(builder, FeedBuilder):
            builder.enclosures.append(Enclosure(href, kind, parse_int(data.get("length")), title))
        else:
            builder.links.append(FeedLink(href, rel, kind, title, data.get("hreflang") or ""))


def _source(builder: ItemBuilder, feed_source: FeedparserDict) -> None:
    href = _text(feed_source, "href") or _text(feed_source, "link")
    if href:
        builder.links.append(FeedLink(href, "source", title=_text(feed_source, "title")))


def _authors(data: FeedparserDict) -> list[Author]:
    authors = [_author(each) for each in _list(data, "authors")]
    authors += [
        Author(author.name, author.email, author.href, "contributor")
        for author in map(_author, _list(data, "contributors"))
    ]
    return [author for author in authors if author.name or author.email or author.href]


def _author(data: FeedparserDict) -> Author:
    return Author(_text(data, "name"), _text(data, "email"), _text(dict(data), "href"))


def _categories(tags: Iterable[FeedparserDict]) -> list[Category]:
    return [
        Category(tag["term"], tag.get("scheme") or "", tag.get("label") or "")
        for tag in tags
        if tag.get("term")
    ]


def _images(data: FeedparserDict, notes: feedparser_patches.ParserNotes) -> list[Image]:
    image = _map(data, "image")
    full = Image(
        _text(image, "href"),
        title=_text(image, "title"),
        link=_text(image, "link"),
        description=_text(image, "subtitle"),
        width=image.get("width") or None,
        height=image.get("height") or None,
    )
    logo, icon = Image(_text(data, "logo"), "logo"), Image(_text(data, "icon"), "icon")
    return [full, Image(notes.image), logo, icon]


def _set_location(builder: ItemBuilder, data: FeedparserDict) -> None:
    where = _map(data, "where")
    if where.get("coordinates") and (point := _middle(where["coordinates"])):
        builder.places.append(point)
    builder.latitude, builder.longitude = _text(data, "geo_lat"), _text(data, "geo_long")
    builder.place_name = _text(data, "georss_featurename")


def _middle(coordinates: Any) -> GeoPoint | None:  # noqa: ANN401 - points as deep as the shape needs
    """The middle of a shape of (longitude, latitude) pairs."""
    while isinstance(coordinates[0], (list, tuple)) and isinstance(
        coordinates[0][0], (list, tuple)
    ):
        coordinates = coordinates[0]
    points = coordinates if isinstance(coordinates[0], (list, tuple)) else [coordinates]
    east, north = ([point[axis] for point in points] for axis in (0, 1))
    return geo_point((min(north) + max(north)) / 2, (min(east) + max(east)) / 2)


def _set_event(builder: ItemBuilder, data: FeedparserDict) -> None:
    start = _text(data, "ev_startdate") or _text(data, "xcal_dtstart")
    end = _text(data, "ev_enddate") or _text(data, "xcal_dtend")
    if start or end:
        where = _text(data, "ev_location") or _text(data, "xcal_location")
        builder.event = (start, end, where)
