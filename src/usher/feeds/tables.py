"""Which element of an item is of which kind.

Comes from the names of elements; goes to the walk through a feed. What is not in the table and means something to
feedparser makes the fast parser decline.
"""

from collections.abc import Callable, Container, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from usher.feeds import kinds, media
from usher.feeds.elements import Decline, Place, attributes, matters, plain
from usher.feeds.sketch import Sketch

Kind = Callable[[Place, Sketch, Element], object]

MEDIA_SCHEME: Final = "http://search.yahoo.com/mrss/category_schema"
_LANGUAGE: Final = frozenset({"lang", "xml:lang", "base", "xml:base"})


def text(field: str) -> Kind:
    """An element that feedparser reads as a text whatever its attributes."""

    def kind(_where: Place, draft: Sketch, element: Element) -> None:
        setattr(draft, field, plain(element))

    return kind


def bare(field: str, *, address: bool = False) -> Kind:
    """An element that feedparser has no rule for, and reads as a text only if it has no attributes."""

    def kind(where: Place, draft: Sketch, element: Element) -> None:
        if element.items():
            raise Decline
        setattr(draft, field, where.address(element) if address else plain(element))

    return kind


def ignored(_where: Place, _draft: Sketch, element: Element) -> None:
    """An element with a meaning that is not kept."""
    plain(element)


def _event(part: int) -> Kind:
    def kind(_where: Place, draft: Sketch, element: Element) -> None:
        if element.items():
            raise Decline
        said = list(draft.event or ("", "", ""))
        said[part] = plain(element)
        draft.event = (said[0], said[1], said[2])

    return kind


def geo_point(where: Place, draft: Sketch, element: Element) -> None:
    if element.items():
        raise Decline
    for part in element:
        kind = GEO.get(where.names.name(part.tag))
        if kind is None:
            raise Decline
        kind(where, draft, part)


def _media(name: str) -> Kind:
    def kind(where: Place, draft: Sketch, element: Element) -> None:
        if draft.media is None:
            draft.media = media.Media()
        _tell_media(where, draft, draft.media, element, name, 0)

    return kind


def _tell_media(
    where: Place, draft: Sketch, told: media.Media, element: Element, name: str, deep: int
) -> None:
    """One element of Media RSS with all inside."""
    given = attributes(element)
    if name in {"content", "group"}:
        if len(element) and not _LANGUAGE.isdisjoint(given):
            raise Decline
        told.start(name, given)
        for part in element:
            _inside_media(where, draft, told, part, deep + 1)
        told.end(name, "")
    elif deep:
        told.start(name, given)
        told.end(name, _said(where, draft, element, name, deep))
    else:
        told.tell(name, given, _said(where, draft, element, name, deep))


def _said(where: Place, draft: Sketch, element: Element, name: str, deep: int) -> str:
    """The text of an element of Media RSS; some are about the item too."""
    match name:
        case "title":
            return kinds.title(where, draft, element, deep=deep, media=True)
        case "description":
            return kinds.summary(where, draft, element, "text/html", deep=deep)
        case "category":
            return kinds.category(where, draft, element, MEDIA_SCHEME)
        case "keywords":
            return kinds.words(where, draft, element)
    return plain(element)


def _inside_media(
    where: Place, draft: Sketch, told: media.Media, element: Element, deep: int
) -> None:
    name = where.names.name(element.tag)
    inner = name.removeprefix("media_")
    if name.startswith("media_") and inner in media.NAMES:
        if deep > _MOST_DEEP:
            raise Decline
        _tell_media(where, draft, told, element, inner, deep)
    elif name != "media_player" and (name in ITEM or matters(name)):
        raise Decline
    else:
        passed_over(where, element, ITEM)


def passed_over(where: Place, element: Element, table: Container[str]) -> None:
    """See that nothing inside an element that is not understood would mean something to feedparser."""
    for inner in element.iter():
        name = where.names.name(inner.tag)
        if inner is not element and (name in table or matters(name)):
            raise Decline


_MOST_DEEP: Final = 20
GEO: Final[Mapping[str, Kind]] = {"geo_lat": bare("latitude"), "geo_long": bare("longitude")}
_EVENTS: Final = (
    ("ev_startdate", "xcal_dtstart"),
    ("ev_enddate", "xcal_dtend"),
    ("ev_location", "xcal_location"),
)
BOTH: Final[Mapping[str, Kind]] = {  # what items and feeds have alike
    "title": kinds.title,
    "dc_title": kinds.title,
    "link": kinds.link,
    "id": kinds.identity,
    "rights": kinds.rights,
    "copyright": kinds.rights,
    "dc_rights": kinds.rights,
    "cc_license": kinds.license_resource,
    "creativecommons_license": kinds.license_text,
    "author": kinds.written,
    "managingeditor": kinds.written,
    "dc_creator": kinds.written,
    "dc_author": kinds.written,
    "itunes_author": kinds.written,
    "contributor": kinds.contributor,
    "dc_contributor": kinds.dc_contributor,
    "category": kinds.category,
    "dc_subject": kinds.category,
    "itunes_category": kinds.itunes_category,
    "itunes_keywords": kinds.words,
    "itunes_image": kinds.picture,
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
    "georss_point": kinds.point,
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
ITEM: Final[Mapping[str, Kind]] = {
    **BOTH,
    **{f"media_{name}": _media(name) for name in media.NAMES},
    **{name: _event(part) for part, names in enumerate(_EVENTS) for name in names},
    "guid": kinds.guid,
    "description": kinds.description,
    "dc_description": kinds.description,
    "summary": kinds.summary,
    "itunes_summary": kinds.summary,
    "itunes_subtitle": ignored,
    "content": kinds.content,
    "content_encoded": kinds.encoded,
    "enclosure": kinds.enclosure,
    "source": kinds.source,
    "created": text("created"),
    "dcterms_created": text("created"),
    "comments": bare("comments", address=True),
    "wfw_commentrss": bare("comments_feed", address=True),
    "slash_comments": bare("comments_count"),
    "thr_total": bare("replies"),
    "itunes_duration": bare("duration"),
    "feedburner_origlink": bare("origin"),
}
