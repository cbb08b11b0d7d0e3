"""Parses JSON Feed, versions 1.0 and 1.1. Values of the wrong type are ignored."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from usher.feeds.model import Author, Category, Enclosure, Feed, FeedLink, Image, Item, NotAFeed
from usher.feeds.parse.feed_builder import FeedBuilder, build_feed, too_many_items
from usher.feeds.parse.item_builder import (
    Content,
    FeedSource,
    ItemBuilder,
    build_item,
    parse_author,
)
from usher.feeds.parse.media_rss import parse_int
from usher.feeds.parse.relative_urls import join

JsonObject = Mapping[str, Any]

_MAILTO: Final = re.compile(r"mailto:([^?]*)", re.IGNORECASE)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_DIALECTS: Final = {"1": "json10", "1.0": "json10", "1.1": "json11"}


def parse_json_feed(utf8: bytes, source: FeedSource, max_items: int) -> Feed | NotAFeed:
    """The feed in the bytes, or why they are no JSON Feed."""
    try:
        data = msgspec.json.decode(utf8)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return NotAFeed(f"It is not valid JSON: {str(error)[:100]}.")
    if not isinstance(data, dict) or not isinstance(data.get("items"), list):
        return NotAFeed("It is JSON, but no JSON Feed.")
    version = _text(data, "version").rpartition("/")[2]
    problems = [] if version in _DIALECTS else ["It does not say which version of JSON Feed it is."]
    if len(data["items"]) > max_items:
        problems.append(too_many_items(max_items))
    channel = _channel(data, source)
    items = tuple(_items(data["items"][:max_items], source, channel, problems))
    dialect = _DIALECTS.get(version, "json")
    return build_feed(channel, items, source, dialect=dialect, problems=problems)


def _items(
    entries: list[Any], source: FeedSource, channel: FeedBuilder, problems: list[str]
) -> Iterator[Item]:
    language = channel.language or source.language
    for number, data in enumerate(entries, 1):
        if isinstance(data, dict):
            yield build_item(_item(data, source), source, language)
        else:
            problems.append(f"Item {number} is not an object and was skipped.")


def _channel(data: JsonObject, source: FeedSource) -> FeedBuilder:
    channel = FeedBuilder()
    channel.title = Content(_text(data, "title"), "text/plain", "")
    channel.subtitle = Content(_text(data, "description"), "text/plain", "")
    channel.link = _url(data, "home_page_url", source)
    channel.guid = _url(data, "feed_url", source)
    channel.language = _text(data, "language")
    channel.authors = _authors(data, source)
    channel.images = [
        Image(_url(data, "icon", source), "logo"),
        Image(_url(data, "favicon", source), "icon"),
    ]
    if channel.link:
        channel.links.append(FeedLink(channel.link, "alternate", "text/html"))
    if channel.guid:
        channel.links.append(FeedLink(channel.guid, "self", "application/feed+json"))
    hubs = (_url(hub, "url", source) for hub in _maps(data, "hubs"))
    channel.links += [FeedLink(hub, "hub") for hub in hubs if hub]
    return channel


def _item(data: JsonObject, source: FeedSource) -> ItemBuilder:
    builder = ItemBuilder()
    builder.guid = _text(data, "id")
    builder.link = _url(data, "url", source)
    builder.title = Content(_text(data, "title"), "text/plain", "")
    builder.language = _text(data, "language")
    builder.published = _text(data, "date_published")
    builder.updated = _text(data, "date_modified")
    builder.image = _url(data, "image", source) or _url(data, "banner_image", source)
    _texts(builder, data, source)
    builder.authors = _authors(data, source)
    tags = data.get("tags")
    tags = tags if isinstance(tags, list) else []
    builder.categories = [Category(tag) for tag in tags if isinstance(tag, str) and tag]
    builder.enclosures = [
        Enclosure(
            url,
            _text(attachment, "mime_type"),
            parse_int(_text(attachment, "size_in_bytes")),
            _text(attachment, "title"),
            duration=parse_int(_text(attachment, "duration_in_seconds")),
        )
        for attachment in _maps(data, "attachments")
        if (url := _url(attachment, "url", source))
    ]
    if builder.link:
        builder.links.append(FeedLink(builder.link, "alternate", "text/html"))
    if external := _url(data, "external_url", source):
        builder.links.append(FeedLink(external, "related"))
        builder.link = builder.link or external
    return builder


def _texts(builder: ItemBuilder, data: JsonObject, source: FeedSource) -> None:
    """Set content and summary; HTML wins over plain text."""
    html, plain = _text(data, "content_html"), _text(data, "content_text")
    if html or plain:
        kind = "text/html" if html else "text/plain"
        builder.contents = [Content(html or plain, kind, source.url)]
    if summary := _text(data, "summary"):
        builder.summary = Content(summary, "text/plain", source.url)
    elif builder.contents:
        builder.summary = builder.contents[0]


def _authors(data: JsonObject, source: FeedSource) -> list[Author]:
    """The authors: a list since version 1.1, a single object before."""
    single = data.get("author")
    entries = _maps(data, "authors") or ([single] if isinstance(single, dict) else [])
    authors = [_author(entry, source) for entry in entries]
    return [author for author in authors if author.name or author.email or author.href]


def _author(data: JsonObject, source: FeedSource) -> Author:
    """An author; the URL may be `mailto:` and the name may contain an e-mail address."""
    name = _text(data, "name")
    person = parse_author(name) or Author(name)
    mail = _MAILTO.match(_text(data, "url"))
    if mail:
        return Author(person.name, unquote(mail[1]) or person.email)
    return Author(person.name, person.email, _url(data, "url", source))


def _maps(data: JsonObject, key: str) -> list[JsonObject]:
    value = data.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(data: JsonObject, key: str) -> str:
    """The text under a key; a number becomes text, because some ids are numbers."""
    value = data.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    return _CONTROLS.sub("", value).strip() if isinstance(value, str) else ""


def _url(data: JsonObject, key: str, source: FeedSource) -> str:
    text = _text(data, key)
    return join(source.url, text) if text else ""
