# ruff: noqa: ANN401 - feedparser keeps anything under its names
"""A `Feed` with feedparser's names, to evaluate feedparser's own expectations.

A name of something that Usher does not store raises `NotKept`. Other names behave as feedparser's dictionaries do.
"""

import codecs
from datetime import datetime
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from usher.feeds.model import Author, Category, Enclosure, Feed, FeedLink, GeoPoint, Image, Item

ALIASES = {
    "guid": "id",
    "url": "href",
    "date_parsed": "updated_parsed",
    "modified_parsed": "updated_parsed",
    "issued_parsed": "published_parsed",
    "copyright": "rights",
    "copyright_detail": "rights_detail",
    "tagline": "subtitle",
    "tagline_detail": "subtitle_detail",
}


class NotKept(Exception):
    """The expectation is about something that Usher does not store."""


class Html(str):
    """A text that equals every other that a browser shows alike."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) or tree(str(self)) == tree(str(other))

    __hash__ = str.__hash__


def tree(html: str) -> str | None:
    return LexborHTMLParser(f"<body>{html}</body>").html


class Encoding(str):
    """A name that equals every other of the same encoding; ASCII is every encoding too."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        names = {codecs.lookup(str(one)).name for one in (self, other)}
        return len(names) == 1 or "ascii" in names

    __hash__ = str.__hash__


class Point(tuple[float, ...]):
    """A pair that equals a point of the same pair and any height."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(self) == other[:2]

    __hash__ = tuple.__hash__


class Said(dict[str, Any]):
    """A dictionary that knows which names it may have at all; an empty text is there, and not there."""

    def __init__(self, also: str = "", **said: Any) -> None:
        super().__init__(said)
        self.kept = {*also.split(), *said}

    def _real(self, key: str) -> str:
        key = ALIASES.get(key, key)
        if key in {"description", "description_detail"}:
            other = key.replace("description", "summary")
            key = other if other in self.kept else key.replace("description", "subtitle")
        if key not in self.kept:
            raise NotKept(key)
        return key

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(self._real(key))
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return super().get(self._real(str(key))) not in ("", None)

    def __eq__(self, other: object) -> bool:
        return {key: value for key, value in self.items() if value not in ("", None)} == other

    __hash__ = None

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    has_key = __contains__

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError as error:
            raise AttributeError(key) from error


def feed(one: Feed) -> Said:
    return Said(
        title=Html(one.title),
        title_detail=text(one.title),
        subtitle=Html(one.subtitle),
        subtitle_detail=text(one.subtitle),
        link=one.link,
        links=[link(each) for each in one.links],
        **identity(one.id),
        language=one.language,
        rights=Html(one.copyright),
        rights_detail=text(one.copyright),
        generator=one.generator,
        updated_parsed=time(one.updated),
        published_parsed=time(one.pub_date),
        image=image(next((each for each in one.images if each.kind == "image"), None)),
        icon=next((each.url for each in one.images if each.kind == "icon"), ""),
        logo=next((each.url for each in one.images if each.kind == "logo"), ""),
        newlocation=one.moved_to,
        where=where(one.places),
        cloud=cloud(one),
        ttl=str(int(one.hints.ttl.total_seconds() // 60)) if one.hints.ttl else "",
        **people(one.authors),
        **tags(one.categories),
    )


def entry(one: Item) -> Said:
    return Said(
        title=Html(one.title),
        title_detail=text(one.title, one.title_type),
        summary=Html(one.summary),
        summary_detail=text(one.summary, one.summary_type),
        content=[text(one.content, one.content_type)] if one.content_type else None,
        link=one.link,
        **links(one),
        enclosures=[enclosure(each) for each in one.enclosures],
        **identity(one.guid),
        comments=one.comments_url,
        rights=Html(one.copyright),
        rights_detail=text(one.copyright),
        license=next((each.href for each in one.links if each.rel == "license"), ""),
        updated_parsed=time(one.updated),
        published_parsed=time(one.pub_date),
        created_parsed=time(one.pub_date),
        where=where(one.places),
        wfw_commentrss=next((each.href for each in one.links if each.rel == "replies"), ""),
        source=source(one),
        **people(one.authors),
        **tags(one.categories),
        **media(one),
    )


def identity(value: str) -> dict[str, Any]:
    """As it is written; seen from somewhere, as feedparser sees it, it is not kept."""
    return {"id": value} if not value or ":" in value else {}


def text(value: str, kind: str | None = None) -> Said:
    return Said(value=Html(value), **({} if kind is None else {"type": kind}))


def time(value: datetime | None) -> Any:
    return tuple(value.utctimetuple()) if value else None


def link(one: FeedLink) -> Said:
    return Said(
        href=one.href,
        rel=one.rel,
        type=one.type,
        title=one.title,
        hreflang=one.language,
    )


def enclosure(one: Enclosure) -> Said:
    length = None if one.length is None else str(one.length)
    return Said(href=one.url, type=one.type, length=length, title=one.title)


def links(one: Item) -> dict[str, Any]:
    """The links, unless there are enclosures, among which their order is not kept."""
    return {} if one.enclosures else {"links": [link(each) for each in one.links]}


def source(one: Item) -> Said:
    """Kept as a link, so there must be an address."""
    found = next((each for each in one.links if each.rel == "source"), None)
    return Said(href=found.href, title=found.title) if found else Said()


def image(one: Image | None) -> Said | None:
    if one is None:
        return None
    return Said(
        href=one.url,
        title=one.title,
        link=one.link,
        width=one.width,
        height=one.height,
        subtitle=one.description,
    )


def person(one: Author) -> Said:
    return Said(name=one.name, email=one.email, href=one.href)


def people(authors: tuple[Author, ...]) -> dict[str, Any]:
    wrote = [one for one in authors if one.role == "author"]
    first = wrote[0] if wrote else Author()
    name = f"{first.name} ({first.email})" if first.name and first.email else first.name
    return {
        "author": name or first.email,
        "author_detail": person(first) if wrote else None,
        "authors": [person(one) for one in wrote],
        "contributors": [person(one) for one in authors if one.role == "contributor"],
    }


def tags(categories: tuple[Category, ...]) -> dict[str, Any]:
    words = dict.fromkeys((one.term, one.scheme, one.label) for one in categories)
    made = [Said(term=term, scheme=scheme, label=label) for term, scheme, label in words]
    return {"tags": made, "category": categories[0].term if categories else ""}


def where(places: tuple[GeoPoint, ...]) -> Said:
    if not places:
        return Said()
    place = places[0]
    return Said(coordinates=Point((place.longitude, place.latitude)))


def cloud(one: Feed) -> Said | None:
    if one.cloud is None:
        return None
    return Said(
        domain=one.cloud.domain,
        port=str(one.cloud.port),
        path=one.cloud.path,
        registerprocedure=one.cloud.procedure,
        protocol=one.cloud.protocol,
    )


def media(one: Item) -> dict[str, Any]:
    told = [each for medium in one.enclosures for each in medium.credits]
    thumbnails = [
        *one.thumbnails,
        *(each for medium in one.enclosures for each in medium.thumbnails),
    ]
    return {
        "media_credit": [
            Said(role=each.role, scheme=each.scheme, content=each.text) for each in told
        ],
        "media_thumbnail": [Said(href=each.url, url=each.url) for each in thumbnails],
    }
