"""Collects the Media RSS elements of an item and builds its enclosures and thumbnails.

An element inside `media:content` describes that medium. An element of a group or the item describes all media in it
that have no such element of their own.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from usher.feeds.model import (
    Caption,
    Category,
    Credit,
    Enclosure,
    Rating,
    Restriction,
    Thumbnail,
)
from usher.feeds.parse.relative_urls import join

Attributes = Mapping[str, str]
Get = Any  # the `get` method of attributes
T = TypeVar("T")

MAX_NUMBER: Final = 2**63 - 1
MAX_MEDIA: Final = 500  # in one item
_CATEGORIES: Final = "http://search.yahoo.com/mrss/category_schema"
_SIMPLE: Final = "urn:simple"
_EBU: Final = "urn:ebu"


class MediaScope:
    """The elements of the item, a group or a medium."""

    title = description = copyright = copyright_url = ""
    thumbnails: tuple[Thumbnail, ...] = ()
    credits: tuple[Credit, ...] = ()
    captions: tuple[Caption, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    ratings: tuple[Rating, ...] = ()
    categories: tuple[Category, ...] = ()

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes


class MediaElements:
    """The media elements of one item, in document order; missing or extra end tags do no harm."""

    def __init__(self) -> None:
        self.item = MediaScope({})
        self.contents: list[tuple[MediaScope, ...]] = []
        self._open: list[tuple[str, Attributes, MediaScope]] = []
        self._count = 0

    def start(self, name: str, attributes: Attributes) -> None:
        scope = self._open[-1][2] if self._open else self.item
        if name in {"content", "group"}:
            scope = MediaScope(attributes)
        self._open.append((name, attributes, scope))
        if name == "content" and len(self.contents) < MAX_MEDIA:
            scopes = dict.fromkeys(outer for _, _, outer in reversed(self._open))
            self.contents.append((*scopes, self.item))

    def end(self, name: str, text: str) -> None:
        while self._open:
            opened, attributes, scope = self._open.pop()
            if opened == name:
                self.add(name, attributes, text, scope)
                return

    def add(
        self, name: str, attributes: Attributes, text: str, scope: MediaScope | None = None
    ) -> None:
        """Add one element to a scope, by default the item's."""
        self._count += 1
        if self._count > MAX_MEDIA:
            return
        if handler := _HANDLERS.get(name):
            handler(scope or self.item, attributes.get, text)
        elif name == "group" and scope and not any(scope in scopes for scopes in self.contents):
            self.item.thumbnails += scope.thumbnails  # an empty group describes the item
            self.item.ratings += scope.ratings

    def enclosures(self, base: str) -> list[Enclosure]:
        enclosures = [_enclosure(scopes, base) for scopes in self.contents]
        return [enclosure for enclosure in enclosures if enclosure.url]

    def thumbnails(self, base: str) -> tuple[Thumbnail, ...]:
        """The thumbnails that belong to no medium."""
        return _absolute_thumbnails(self.item.thumbnails, base)


def _title(scope: MediaScope, _get: Get, text: str) -> None:
    scope.title = scope.title or text


def _description(scope: MediaScope, _get: Get, text: str) -> None:
    scope.description = scope.description or text


def _copyright(scope: MediaScope, get: Get, text: str) -> None:
    scope.copyright = scope.copyright or text
    scope.copyright_url = scope.copyright_url or get("url", get("href", ""))


def _thumbnail(scope: MediaScope, get: Get, text: str) -> None:
    if url := get("url", text):
        width, height = parse_int(get("width")), parse_int(get("height"))
        scope.thumbnails += (Thumbnail(url, width, height, parse_seconds(get("time"))),)


def _credit(scope: MediaScope, get: Get, text: str) -> None:
    if text:
        scope.credits += (Credit(text, get("role", ""), get("scheme", _EBU)),)


def _caption(scope: MediaScope, get: Get, text: str) -> None:
    if text:
        start, end = parse_seconds(get("start")), parse_seconds(get("end"))
        scope.captions += (Caption(text, get("type", "plain"), get("lang", ""), start, end),)


def _restriction(scope: MediaScope, get: Get, text: str) -> None:
    relation = get("relationship", "")
    if relation == "allow" or relation == "deny":  # noqa: PLR1714 - so mypy sees which it is
        scope.restrictions += (Restriction(text, relation, get("type", "")),)


def _rating(scope: MediaScope, get: Get, text: str) -> None:
    if text:
        scope.ratings += (Rating(get("scheme", _SIMPLE), text),)


def _category(scope: MediaScope, get: Get, text: str) -> None:
    if text:
        scope.categories += (Category(text, get("scheme", _CATEGORIES), get("label", "")),)


def _keywords(scope: MediaScope, _get: Get, text: str) -> None:
    scope.categories += tuple(parse_keywords(text))


_HANDLERS: Final[Mapping[str, Callable[[MediaScope, Get, str], None]]] = {
    "title": _title,
    "description": _description,
    "copyright": _copyright,
    "license": _copyright,
    "thumbnail": _thumbnail,
    "credit": _credit,
    "text": _caption,
    "restriction": _restriction,
    "rating": _rating,
    "category": _category,
    "keywords": _keywords,
}
NAMES: Final = frozenset({"content", "group", *_HANDLERS})


def parse_keywords(text: str) -> list[Category]:
    """The keywords of a comma-separated list."""
    words = filter(None, map(str.strip, text.split(",")))
    return [Category(word, keyword=True) for word in words]


def _enclosure(scopes: tuple[MediaScope, ...], base: str) -> Enclosure:
    """The medium of the innermost scope; the item's title and description do not count."""
    get = scopes[0].attributes.get
    url = get("url", "").strip()
    return Enclosure(
        url=join(base, url) if url else "",
        type=get("type", ""),
        length=parse_int(get("filesize")),
        title=_first(scope.title for scope in scopes[:-1]),
        description=_first(scope.description for scope in scopes[:-1]),
        medium=get("medium", ""),
        expression=get("expression", ""),
        language=get("lang", ""),
        duration=parse_int(get("duration")),
        width=parse_int(get("width")),
        height=parse_int(get("height")),
        bit_rate=parse_number(get("bitrate")),
        frame_rate=parse_number(get("framerate")),
        sampling_rate=parse_number(get("samplingrate")),
        channels=parse_int(get("channels")),
        copyright=_first(scope.copyright for scope in scopes),
        copyright_url=_first(scope.copyright_url for scope in scopes),
        thumbnails=_absolute_thumbnails(_nearest(scope.thumbnails for scope in scopes), base),
        credits=_nearest(scope.credits for scope in scopes),
        captions=_nearest(scope.captions for scope in scopes),
        restrictions=_nearest(scope.restrictions for scope in scopes),
        ratings=_nearest(scope.ratings for scope in scopes),
        categories=_nearest(scope.categories for scope in scopes),
    )


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")


def _nearest(values: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(next(filter(None, values), ())))


def _absolute_thumbnails(thumbnails: Iterable[Thumbnail], base: str) -> tuple[Thumbnail, ...]:
    absolute = (replace(each, url=join(base, each.url.strip())) for each in thumbnails)
    return tuple(dict.fromkeys(absolute))


def parse_number(text: str | None) -> float | None:
    """A number from 0 to MAX_NUMBER; None for any other text."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= MAX_NUMBER else None


def parse_int(text: str | None) -> int | None:
    if text is not None and text.isascii() and text.isdigit() and len(text) < 18:  # noqa: PLR2004
        return int(text)
    value = parse_number(text)
    return None if value is None else int(value)


def parse_seconds(text: str | None) -> float | None:
    """A time in a medium: seconds, h:m:s, `now`, or the start of a range."""
    if not text:
        return None
    text = text.strip().removeprefix("npt=").partition("-")[0].strip()
    if text == "now":
        return 0.0
    total = 0.0
    for part in text.split(":"):
        value = parse_number(part)
        if value is None:
            return None
        total = total * 60 + value
    return total if total <= MAX_NUMBER else None


def parse_whole_seconds(text: str) -> int | None:
    value = parse_seconds(text)
    return None if value is None else int(value)
