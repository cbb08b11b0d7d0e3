"""Which element of an item is of which kind.

Comes from the names of elements; goes to the walk through a feed. What is not in the table and means something to
feedparser makes the fast parser decline.
"""

from collections.abc import Callable, Container, Mapping
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
_LANGUAGE: Final = frozenset({"lang", "xml:lang", "base", "xml:base"})


def text(field: str) -> ItemHandler:
    """An element that feedparser reads as a text whatever its attributes."""

    def kind(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
        setattr(draft, field, plain_text(element))

    return kind


def bare(field: str, *, address: bool = False) -> ItemHandler:
    """An element that feedparser has no rule for, and reads as a text only if it has no attributes."""

    def kind(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
        if element.items():
            raise UnprovenElement
        setattr(draft, field, where.address(element) if address else plain_text(element))

    return kind


def ignored(_where: ElementContext, _draft: FastItemBuilder, element: Element) -> None:
    """An element with a meaning that is not kept."""
    plain_text(element)


def _event(part: int) -> ItemHandler:
    def kind(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
        if element.items():
            raise UnprovenElement
        said = list(draft.event or ("", "", ""))
        said[part] = plain_text(element)
        draft.event = (said[0], said[1], said[2])

    return kind


def geo_point(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    if element.items():
        raise UnprovenElement
    for part in element:
        kind = GEO.get(where.names.name(part.tag))
        if kind is None:
            raise UnprovenElement
        kind(where, draft, part)


def _media(name: str) -> ItemHandler:
    def kind(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
        if draft.media is None:
            draft.media = media_rss.MediaElements()
        _tell_media(where, draft, draft.media, element, name, 0)

    return kind


def _tell_media(
    where: ElementContext,
    draft: FastItemBuilder,
    told: media_rss.MediaElements,
    element: Element,
    name: str,
    deep: int,
) -> None:
    """One element of Media RSS with all inside."""
    given = attributes(element)
    if name in {"content", "group"}:
        if len(element) and not _LANGUAGE.isdisjoint(given):
            raise UnprovenElement
        told.start(name, given)
        for part in element:
            _inside_media(where, draft, told, part, deep + 1)
        told.end(name, "")
    elif deep:
        told.start(name, given)
        told.end(name, _said(where, draft, element, name, deep))
    else:
        told.tell(name, given, _said(where, draft, element, name, deep))


def _said(
    where: ElementContext, draft: FastItemBuilder, element: Element, name: str, deep: int
) -> str:
    """The text of an element of Media RSS; some are about the item too."""
    match name:
        case "title":
            return element_handlers.title(where, draft, element, deep=deep, media=True)
        case "description":
            return element_handlers.summary(where, draft, element, "text/html", deep=deep)
        case "category":
            return element_handlers.category(where, draft, element, MEDIA_SCHEME)
        case "keywords":
            return element_handlers.words(where, draft, element)
    return plain_text(element)


def _inside_media(
    where: ElementContext,
    draft: FastItemBuilder,
    told: media_rss.MediaElements,
    element: Element,
    deep: int,
) -> None:
    name = where.names.name(element.tag)
    inner = name.removeprefix("media_")
    if name.startswith("media_") and inner in media_rss.NAMES:
        if deep > _MAX_DEPTH:
            raise UnprovenElement
        _tell_media(where, draft, told, element, inner, deep)
    elif name != "media_player" and (name in ITEM or handled_by_feedparser(name)):
        raise UnprovenElement
    else:
        skip_element(where, element, ITEM)


def skip_element(where: ElementContext, element: Element, table: Container[str]) -> None:
    """See that nothing inside an element that is not understood would mean something to feedparser."""
    for inner in element.iter():
        name = where.names.name(inner.tag)
        if inner is not element and (name in table or handled_by_feedparser(name)):
            raise UnprovenElement


_MAX_DEPTH: Final = 20
GEO: Final[Mapping[str, ItemHandler]] = {"geo_lat": bare("latitude"), "geo_long": bare("longitude")}
_EVENTS: Final = (
    ("ev_startdate", "xcal_dtstart"),
    ("ev_enddate", "xcal_dtend"),
    ("ev_location", "xcal_location"),
)
BOTH: Final[Mapping[str, ItemHandler]] = {  # what items and feeds have alike
    "title": element_handlers.title,
    "dc_title": element_handlers.title,
    "link": element_handlers.link,
    "id": element_handlers.identity,
    "rights": element_handlers.rights,
    "copyright": element_handlers.rights,
    "dc_rights": element_handlers.rights,
    "cc_license": element_handlers.license_resource,
    "creativecommons_license": element_handlers.license_text,
    "author": element_handlers.written,
    "managingeditor": element_handlers.written,
    "dc_creator": element_handlers.written,
    "dc_author": element_handlers.written,
    "itunes_author": element_handlers.written,
    "contributor": element_handlers.contributor,
    "dc_contributor": element_handlers.dc_contributor,
    "category": element_handlers.category,
    "dc_subject": element_handlers.category,
    "itunes_category": element_handlers.itunes_category,
    "itunes_keywords": element_handlers.words,
    "itunes_image": element_handlers.picture,
    "itunes_explicit": bare("explicit"),
    "pubdate": text("published"),
    "published": text("published"),
    "issued": text("published"),
    "dcterms_issued": text("published"),
    "updated": text("updated"),
    "modified": text("updated"),
    "lastbuilddate": text("updated"),
    "dc_date": text("updated"),
    "dcterms_modified": text("updated"),
    "language": text("language"),
    "dc_language": text("language"),
    "georss_point": element_handlers.point,
    "georss_featurename": bare("place_name"),
    "geo_point": geo_point,
    **GEO,
    "webmaster": ignored,
    "dc_publisher": ignored,
    "dcterms_valid": ignored,
    "itunes_block": ignored,
    "media_player": ignored,
    "feedburner_browserfriendly": ignored,
}
ITEM: Final[Mapping[str, ItemHandler]] = {
    **BOTH,
    **{f"media_{name}": _media(name) for name in media_rss.NAMES},
    **{name: _event(part) for part, names in enumerate(_EVENTS) for name in names},
    "guid": element_handlers.guid,
    "description": element_handlers.description,
    "dc_description": element_handlers.description,
    "summary": element_handlers.summary,
    "itunes_summary": element_handlers.summary,
    "itunes_subtitle": ignored,
    "content": element_handlers.content,
    "content_encoded": element_handlers.encoded,
    "enclosure": element_handlers.enclosure,
    "source": element_handlers.source,
    "created": text("created"),
    "dcterms_created": text("created"),
    "comments": bare("comments", address=True),
    "wfw_commentrss": bare("comments_feed", address=True),
    "slash_comments": bare("comments_count"),
    "thr_total": bare("replies"),
    "itunes_duration": bare("duration"),
    "feedburner_origlink": bare("origin"),
}
