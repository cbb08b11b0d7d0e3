"""Feeds of every other kind, read by feedparser: old dialects, broken XML, whatever the fast parser declines.

Comes from UTF-8 bytes; goes to the drafts that become a `Feed`, or to the reason why there is none.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from usher.feeds.model import Author, Category, Enclosure, Feed, FeedLink, GeoPoint, Image, NotAFeed
from usher.feeds.parse import feedparser_input, feedparser_patches
from usher.feeds.parse.feed_builder import FeedBuilder, build_feed, too_many_items
from usher.feeds.parse.item_builder import Content, FeedSource, ItemBuilder, build_item, geo_point
from usher.feeds.parse.media_rss import parse_int, parse_keywords

FeedparserDict = Mapping[str, Any]  # one of feedparser's dictionaries, without its aliases

_NONE: Final[FeedparserDict] = {}


def parse_with_feedparser(utf8: bytes, page: FeedSource, most_items: int) -> Feed | NotAFeed:
    """What feedparser makes of the bytes."""
    try:
        return _read(utf8, page, most_items)
    except Exception as error:  # noqa: BLE001 - whatever it trips over, a feed is only text
        return NotAFeed(f"It cannot be read as a feed ({type(error).__name__}).")


def _read(utf8: bytes, page: FeedSource, most_items: int) -> Feed | NotAFeed:
    utf8, controls = feedparser_input.without_controls(utf8)
    utf8, cut = feedparser_input.bounded(utf8)
    if not utf8 or feedparser_input.too_many_prefixes(utf8):
        return NotAFeed("It has more tags or more namespaces than a feed can have.")
    parser, version, problem = feedparser_input.run_feedparser(utf8, page.url, most_items)
    if not version and not parser.entries:
        return NotAFeed(problem or "It is XML, but no kind of feed.")
    channel = _channel(dict(parser.feeddata), parser)
    language = channel.language or page.language
    drafts = map(_item, map(dict, parser.entries), parser.notes)
    items = tuple(build_item(draft, page, language) for draft in drafts)
    problems = [one for one in (problem, controls, cut) if one]
    if parser.full:
        problems.append(too_many_items(most_items))
    return build_feed(channel, items, page, dialect=version or "rss", problems=problems)


def _item(said: FeedparserDict, notes: feedparser_patches.ParserNotes) -> ItemBuilder:
    draft = ItemBuilder()
    _both(draft, said, notes)
    draft.media = notes.media
    draft.permalink = notes.permalink
    draft.contents = [_content(one) for one in _list(said, "content")]
    draft.summary = _summary(said, draft.contents)
    draft.language = draft.language or _language(said)
    draft.origin = _text(said, "feedburner_origlink")
    draft.created = _text(said, "created")
    draft.comments = _text(said, "comments")
    draft.comments_count = _text(said, "slash_comments") or _text(said, "thr_total")
    draft.comments_feed = _text(said, "wfw_commentrss")
    draft.image = notes.picture
    draft.duration = _text(said, "itunes_duration")
    _event(draft, said)
    return draft


def _both(draft: ItemBuilder, said: FeedparserDict, notes: feedparser_patches.ParserNotes) -> None:
    """What items and feeds have alike."""
    draft.guid = _text(said, "id")
    draft.link = _text(said, "link")
    draft.title = _titled(said, "title")
    draft.language = _text(said, "language")
    draft.published = _text(said, "published")
    draft.updated = _text(said, "updated")
    draft.rights = _titled(said, "rights")
    draft.explicit = notes.explicit
    _links(draft, _list(said, "links"))
    _source(draft, _map(said, "source"))
    draft.authors = _authors(said)
    draft.categories = _categories(_list(said, "tags"))
    draft.categories += [one for words in notes.words for one in parse_keywords(words)]
    _where(draft, said)


def _channel(said: FeedparserDict, parser: Any) -> FeedBuilder:  # noqa: ANN401 - feedparser has no types
    channel = FeedBuilder()
    _both(channel, said, parser.own)
    channel.subtitle = _titled(said, "subtitle")
    channel.about = _titled(said, "summary")
    channel.generator = _generator(said)
    channel.moved_to = _text(said, "newlocation") or _text(said, "itunes_new-feed-url")
    channel.ttl = _text(said, "ttl")
    channel.period = _text(said, "sy_updateperiod")
    channel.frequency = _text(said, "sy_updatefrequency")
    channel.rating = _text(said, "rating")
    channel.cloud = _map(said, "cloud")
    channel.hours, channel.days = parser.hours, parser.days
    channel.images = _images(said, parser.own)
    return channel


def _text(said: FeedparserDict, key: str) -> str:
    """A text, or nothing where feedparser keeps attributes instead."""
    value = said.get(key)
    return value if isinstance(value, str) else ""


def _list(said: FeedparserDict, key: str) -> list[Any]:
    """A list of feedparser's, unless an element of that name has overwritten it."""
    value = said.get(key)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _map(said: FeedparserDict, key: str) -> FeedparserDict:
    value = said.get(key)
    return dict(value) if isinstance(value, Mapping) else _NONE


def _detail(said: FeedparserDict, key: str) -> FeedparserDict:
    return _map(said, f"{key}_detail")


def _titled(said: FeedparserDict, key: str) -> Content:
    detail = _detail(said, key)
    return Content(_text(said, key), detail.get("type") or "", detail.get("base") or "")


def _content(said: FeedparserDict) -> Content:
    return Content(said.get("value") or "", said.get("type") or "", said.get("base") or "")


def _summary(said: FeedparserDict, contents: list[Content]) -> Content | None:
    if "summary" not in said:
        return None
    if not _detail(said, "summary") and contents:
        return Content(_text(said, "summary"), contents[0].type, contents[0].base)
    return _titled(said, "summary")


def _language(said: FeedparserDict) -> str:
    """The xml:lang of the texts of an item, of which feedparser tells with each."""
    contents = _list(said, "content") or [_NONE]
    for detail in (_detail(said, "title"), _detail(said, "summary"), contents[0]):
        if detail.get("language"):
            return str(detail["language"])
    return ""


def _generator(said: FeedparserDict) -> str:
    agent = _map(said, "admin_generatoragent")
    detail = _detail(said, "generator")
    return _text(said, "generator") or detail.get("href") or agent.get("rdf:resource") or ""


def _links(draft: ItemBuilder, links: Iterable[FeedparserDict]) -> None:
    for said in map(dict, links):
        href, rel = said.get("href") or "", said.get("rel") or "alternate"
        kind, title = said.get("type") or "", said.get("title") or ""
        if not href:
            continue
        if rel == "enclosure" and not isinstance(draft, FeedBuilder):
            one = Enclosure(href, kind, parse_int(said.get("length")), title)
            draft.enclosures.append(one)
        else:
            draft.links.append(FeedLink(href, rel, kind, title, said.get("hreflang") or ""))


def _source(draft: ItemBuilder, source: FeedparserDict) -> None:
    href = _text(source, "href") or _text(source, "link")
    if href:
        draft.links.append(FeedLink(href, "source", title=_text(source, "title")))


def _authors(said: FeedparserDict) -> list[Author]:
    made = [_author(one) for one in _list(said, "authors")]
    made += [
        Author(one.name, one.email, one.href, "contributor")
        for one in map(_author, _list(said, "contributors"))
    ]
    return [one for one in made if one.name or one.email or one.href]


def _author(said: FeedparserDict) -> Author:
    return Author(_text(said, "name"), _text(said, "email"), _text(dict(said), "href"))


def _categories(tags: Iterable[FeedparserDict]) -> list[Category]:
    return [
        Category(one["term"], one.get("scheme") or "", one.get("label") or "")
        for one in tags
        if one.get("term")
    ]


def _images(said: FeedparserDict, notes: feedparser_patches.ParserNotes) -> list[Image]:
    made = [Image(_text(said, kind), kind) for kind in _KINDS]
    image = _map(said, "image")
    full = Image(
        _text(image, "href"),
        title=_text(image, "title"),
        link=_text(image, "link"),
        description=_text(image, "subtitle"),
        width=image.get("width") or None,
        height=image.get("height") or None,
    )
    return [full, Image(notes.picture), *made]


_KINDS: Final = ("logo", "icon")


def _where(draft: ItemBuilder, said: FeedparserDict) -> None:
    where = _map(said, "where")
    if where.get("coordinates") and (found := _middle(where["coordinates"])):
        draft.places.append(found)
    draft.latitude, draft.longitude = _text(said, "geo_lat"), _text(said, "geo_long")
    draft.place_name = _text(said, "georss_featurename")


def _middle(coordinates: Any) -> GeoPoint | None:  # noqa: ANN401 - points as deep as the shape needs
    """The middle of a shape given as (longitude, latitude)."""
    while isinstance(coordinates[0], (list, tuple)) and isinstance(
        coordinates[0][0], (list, tuple)
    ):
        coordinates = coordinates[0]
    points = coordinates if isinstance(coordinates[0], (list, tuple)) else [coordinates]
    east, north = ([point[axis] for point in points] for axis in (0, 1))
    return geo_point((min(north) + max(north)) / 2, (min(east) + max(east)) / 2)


def _event(draft: ItemBuilder, said: FeedparserDict) -> None:
    start = _text(said, "ev_startdate") or _text(said, "xcal_dtstart")
    end = _text(said, "ev_enddate") or _text(said, "xcal_dtend")
    if start or end:
        where = _text(said, "ev_location") or _text(said, "xcal_location")
        draft.event = (start, end, where)
