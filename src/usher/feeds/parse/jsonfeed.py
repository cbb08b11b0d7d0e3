"""JSON Feed, versions 1.0 and 1.1.

Comes from UTF-8 bytes; goes to the drafts that become a `Feed`, or to the reason why there is none. What is of the
wrong kind is as if it were not there.
"""

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


def parse_json_feed(utf8: bytes, page: FeedSource, most_items: int) -> Feed | NotAFeed:
    try:
        said = msgspec.json.decode(utf8)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return NotAFeed(f"It is not valid JSON: {str(error)[:100]}.")
    if not isinstance(said, dict) or not isinstance(said.get("items"), list):
        return NotAFeed("It is JSON, but no JSON Feed.")
    version = _text(said, "version").rpartition("/")[2]
    problems = [] if version in _DIALECTS else ["It does not say which version of JSON Feed it is."]
    if len(said["items"]) > most_items:
        problems.append(too_many_items(most_items))
    channel = _channel(said, page)
    items = tuple(_items(said["items"][:most_items], page, channel, problems))
    dialect = _DIALECTS.get(version, "json")
    return build_feed(channel, items, page, dialect=dialect, problems=problems)


def _items(
    given: list[Any], page: FeedSource, channel: FeedBuilder, problems: list[str]
) -> Iterator[Item]:
    language = channel.language or page.language
    for number, said in enumerate(given, 1):
        if isinstance(said, dict):
            yield build_item(_item(said, page), page, language)
        else:
            problems.append(f"Item {number} is not an object, and was passed over.")


def _channel(said: JsonObject, page: FeedSource) -> FeedBuilder:
    channel = FeedBuilder()
    channel.title = Content(_text(said, "title"), "text/plain", "")
    channel.subtitle = Content(_text(said, "description"), "text/plain", "")
    channel.link = _address(said, "home_page_url", page)
    channel.guid = _address(said, "feed_url", page)
    channel.language = _text(said, "language")
    channel.authors = _authors(said, page)
    channel.images = [
        Image(_address(said, "icon", page), "logo"),
        Image(_address(said, "favicon", page), "icon"),
    ]
    if channel.link:
        channel.links.append(FeedLink(channel.link, "alternate", "text/html"))
    if channel.guid:
        channel.links.append(FeedLink(channel.guid, "self", "application/feed+json"))
    hubs = (_address(one, "url", page) for one in _maps(said, "hubs"))
    channel.links += [FeedLink(hub, "hub") for hub in hubs if hub]
    return channel


def _item(said: JsonObject, page: FeedSource) -> ItemBuilder:
    draft = ItemBuilder()
    draft.guid = _text(said, "id")
    draft.link = _address(said, "url", page)
    draft.title = Content(_text(said, "title"), "text/plain", "")
    draft.language = _text(said, "language")
    draft.published = _text(said, "date_published")
    draft.updated = _text(said, "date_modified")
    draft.image = _address(said, "image", page) or _address(said, "banner_image", page)
    _texts(draft, said, page)
    draft.authors = _authors(said, page)
    tags = said.get("tags")
    words = tags if isinstance(tags, list) else []
    draft.categories = [Category(one) for one in words if isinstance(one, str) and one]
    draft.enclosures = [
        Enclosure(
            url,
            _text(one, "mime_type"),
            parse_int(_number(one, "size_in_bytes")),
            _text(one, "title"),
            duration=parse_int(_number(one, "duration_in_seconds")),
        )
        for one in _maps(said, "attachments")
        if (url := _address(one, "url", page))
    ]
    if draft.link:
        draft.links.append(FeedLink(draft.link, "alternate", "text/html"))
    if external := _address(said, "external_url", page):
        draft.links.append(FeedLink(external, "related"))
        draft.link = draft.link or external
    return draft


def _texts(draft: ItemBuilder, said: JsonObject, page: FeedSource) -> None:
    """HTML is taken before the plain text of the same."""
    html, plain = _text(said, "content_html"), _text(said, "content_text")
    if html or plain:
        kind = "text/html" if html else "text/plain"
        draft.contents = [Content(html or plain, kind, page.url)]
    if summary := _text(said, "summary"):
        draft.summary = Content(summary, "text/plain", page.url)
    elif draft.contents:
        draft.summary = draft.contents[0]


def _authors(said: JsonObject, page: FeedSource) -> list[Author]:
    """A list since 1.1, one before."""
    given = _maps(said, "authors")
    one = said.get("author")
    if not given and isinstance(one, dict):
        given = [one]
    made = [_author(one, page) for one in given]
    return [one for one in made if one.name or one.email or one.href]


def _author(said: JsonObject, page: FeedSource) -> Author:
    """An author; the URL may be `mailto:`, and the name may contain an e-mail address."""
    name = _text(said, "name")
    person = parse_author(name) or Author(name)
    mail = _MAILTO.match(_text(said, "url"))
    if mail:
        return Author(person.name, unquote(mail[1]) or person.email)
    return Author(person.name, person.email, _address(said, "url", page))


def _maps(said: JsonObject, key: str) -> list[JsonObject]:
    value = said.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(said: JsonObject, key: str) -> str:
    """A text, or a number as one, for there are ids that are numbers."""
    value = said.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    return _CONTROLS.sub("", value).strip() if isinstance(value, str) else ""


_number = _text


def _address(said: JsonObject, key: str, page: FeedSource) -> str:
    text = _text(said, key)
    return join(page.url, text) if text else ""
