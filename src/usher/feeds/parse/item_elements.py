"""The fast parser's handlers for the elements of an item, by name.

A feed with an element that is not in the table, but that feedparser handles, is left to feedparser.
"""

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element

from usher.feeds.parse import element_handlers, media_rss
from usher.feeds.parse.element_reader import (
    ElementContext,
    UnprovenElement,
    attributes,
    handled_by_feedparser,
    plain_text,
)
from usher.feeds.parse.fast_builder import FastItemBuilder

ItemHandler = Callable[[ElementContext, FastItemBuilder, Element], object]

MEDIA_SCHEME: Final = "http://search.yahoo.com/mrss/category_schema"
_MAX_DEPTH: Final = 20
_LANGUAGE: Final = frozenset({"lang", "xml:lang", "base", "xml:base"})


def text(field: str) -> ItemHandler:
    """A handler for an element that feedparser reads as text with any attributes."""

    def handler(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
        setattr(builder, field, plain_text(element))

    return handler


def text_without_attributes(field: str, *, address: bool = False) -> ItemHandler:
    """A handler for an element that feedparser reads as text only if it has no attributes."""

    def handler(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
        if element.items():
            raise UnprovenElement
        setattr(builder, field, context.address(element) if address else plain_text(element))

    return handler


def ignore(_context: ElementContext, _builder: FastItemBuilder, element: Element) -> None:
    """Read nothing, but check that the element has only text."""
    plain_text(element)


def _media(name: str) -> ItemHandler:
    def handler(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
        if builder.media is None:
            builder.media = media_rss.MediaElements()
        _add_media(context, builder, builder.media, element, name, 0)

    return handler


def _add_media(
    context: ElementContext,
    builder: FastItemBuilder,
    media: media_rss.MediaElements,
    element: Element,
    name: str,
    deep: int,
) -> None:
    """Add an element of Media RSS with its children."""
    attrs = attributes(element)
    if name in {"content", "group"}:
        if len(element) and not _LANGUAGE.isdisjoint(attrs):
            raise UnprovenElement
        media.start(name, attrs)
        for part in element:
            _add_media_child(context, builder, media, part, deep + 1)
        media.end(name, "")
    elif deep:
        media.start(name, attrs)
        media.end(name, _media_text(context, builder, element, name, deep))
    else:
        media.add(name, attrs, _media_text(context, builder, element, name, deep))


def _media_text(
    context: ElementContext, builder: FastItemBuilder, element: Element, name: str, deep: int
) -> str:
    """The text of an element of Media RSS; some elements also describe the item."""
    match name:
        case "title":
            return element_handlers.title(context, builder, element, deep=deep, media=True)
        case "description":
            return element_handlers.summary(context, builder, element, "text/html", deep=deep)
        case "category":
            return element_handlers.category(context, builder, element, MEDIA_SCHEME)
        case "keywords":
            return element_handlers.keywords(context, builder, element)
    return plain_text(element)


def _add_media_child(
    context: ElementContext,
    builder: FastItemBuilder,
    media: media_rss.MediaElements,
    element: Element,
    deep: int,
) -> None:
    name = context.names.name(element.tag)
    inner = name.removeprefix("media_")
    if name.startswith("media_") and inner in media_rss.NAMES:
        if deep > _MAX_DEPTH:
            raise UnprovenElement
        _add_media(context, builder, media, element, inner, deep)
    elif name != "media_player" and (name in ITEM_HANDLERS or handled_by_feedparser(name)):
        raise UnprovenElement
    else:
        skip_element(context, element, ITEM_HANDLERS)


def skip_element(context: ElementContext, element: Element, table: Container[str]) -> None:
    """Skip an unknown element; UnprovenElement if feedparser handles an element inside it."""
    for inner in element.iter():
        name = context.names.name(inner.tag)
        if inner is not element and (name in table or handled_by_feedparser(name)):
            raise UnprovenElement


SHARED_HANDLERS: Final[Mapping[str, ItemHandler]] = {  # for items and feeds
    "title": element_handlers.title,
    "dc_title": element_handlers.title,
    "link": element_handlers.link,
    "id": partial(element_handlers.guid, permalink=False),  # the id of Atom is no permalink
    "rights": element_handlers.rights,
    "copyright": element_handlers.rights,
    "dc_rights": element_handlers.rights,
    "cc_license": element_handlers.license_resource,
    "creativecommons_license": element_handlers.license_text,
    "author": element_handlers.author,
    "managingeditor": element_handlers.author,
    "dc_creator": element_handlers.author,
    "dc_author": element_handlers.author,
    "itunes_author": element_handlers.author,
    "contributor": element_handlers.contributor,
    "dc_contributor": element_handlers.dc_contributor,
    "category": element_handlers.category,
    "dc_subject": element_handlers.category,
    "itunes_category": element_handlers.itunes_category,
    "itunes_keywords": element_handlers.keywords,
    "itunes_image": element_handlers.itunes_image,
    "itunes_explicit": text_without_attributes("explicit"),
    "pubdate": text("published"),
    "published": text("published"),
    "dcterms_issued": text("published"),
    "updated": text("updated"),
    "lastbuilddate": text("updated"),
    "dc_date": text("updated"),
    "dcterms_modified": text("updated"),
    "language": text("language"),
    "dc_language": text("language"),
    "georss_point": element_handlers.georss_point,
    "georss_featurename": text_without_attributes("place_name"),
    "geo_lat": text_without_attributes("latitude"),
    "geo_long": text_without_attributes("longitude"),
    "webmaster": ignore,
    "dc_publisher": ignore,
    "dcterms_valid": ignore,
    "itunes_block": ignore,
    "media_player": ignore,
    "feedburner_browserfriendly": ignore,
}
ITEM_HANDLERS: Final[Mapping[str, ItemHandler]] = {
    **SHARED_HANDLERS,
    **{f"media_{name}": _media(name) for name in media_rss.NAMES},
    "guid": element_handlers.guid,
    "description": partial(element_handlers.summary, default="text/html"),
    "dc_description": partial(element_handlers.summary, default="text/html"),
    "summary": element_handlers.summary,
    "itunes_summary": element_handlers.summary,
    "itunes_subtitle": ignore,
    "content": element_handlers.content,
    "content_encoded": partial(element_handlers.content, default="text/html"),
    "enclosure": element_handlers.enclosure,
    "source": element_handlers.source,
    "dcterms_created": text("created"),
    "comments": text_without_attributes("comments", address=True),
    "wfw_commentrss": text_without_attributes("comments_feed", address=True),
    "slash_comments": text_without_attributes("comments_count"),
    "thr_total": text_without_attributes("replies"),
    "itunes_duration": text_without_attributes("duration"),
    "feedburner_origlink": text_without_attributes("origin"),
}
