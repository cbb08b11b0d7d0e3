"""Media RSS: what an item says of its pictures, sounds and films.

Comes from the elements of one item, one start and one end at a time, by whichever parser; goes to enclosures and
thumbnails. What is said inside a medium is of that medium, what is said around it of all inside that say nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

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
Get = Any  # of attributes: a text, or the other that is given, or None
T = TypeVar("T")

MAX_NUMBER: Final = 2**63 - 1
MAX_MEDIA: Final = 500  # in one item
_CATEGORIES: Final = "http://search.yahoo.com/mrss/category_schema"
_SIMPLE: Final = "urn:simple"
_EBU: Final = "urn:ebu"


class MediaScope:
    """What is said at one place: of the item, of a group, of a medium."""

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
    """The media elements of one item, as they come; ends that miss or are too many do no harm."""

    def __init__(self) -> None:
        self.item = MediaScope({})
        self.contents: list[tuple[MediaScope, ...]] = []
        self._open: list[tuple[str, Attributes, MediaScope]] = []
        self._told = 0

    def start(self, name: str, attributes: Attributes) -> None:
        scope = self._open[-1][2] if self._open else self.item
        if name in {"content", "group"}:
            scope = MediaScope(attributes)
        self._open.append((name, attributes, scope))
        if name == "content" and len(self.contents) < MAX_MEDIA:
            scopes = dict.fromkeys(one for _, _, one in reversed(self._open))
            self.contents.append((*scopes, self.item))

    def end(self, name: str, text: str) -> None:
        while self._open:
            opened, attributes, scope = self._open.pop()
            if opened == name:
                self.tell(name, attributes, text, scope)
                return

    def tell(
        self, name: str, attributes: Attributes, text: str, scope: MediaScope | None = None
    ) -> None:
        """Note what one element says, of the item unless of something else."""
        self._told += 1
        if self._told > MAX_MEDIA:
            return
        if says := _HANDLERS.get(name):
            says(scope or self.item, attributes.get, text)
        elif name == "group" and scope and not any(scope in one for one in self.contents):
            self.item.thumbnails += scope.thumbnails  # a group of nothing is about the item
            self.item.ratings += scope.ratings

    def enclosures(self, base: str) -> list[Enclosure]:
        made = [_enclosure(scopes, base) for scopes in self.contents]
        return [one for one in made if one.url]

    def thumbnails(self, base: str) -> tuple[Thumbnail, ...]:
        """Those that belong to no medium."""
        return _seen(self.item.thumbnails, base)


def _title(scope: MediaScope, _get: Get, text: str) -> None:
    scope.title = scope.title or text


def _description(scope: MediaScope, _get: Get, text: str) -> None:
    scope.description = scope.description or text


def _copyright(scope: MediaScope, get: Get, text: str) -> None:
    scope.copyright = scope.copyright or text
    scope.copyright_url = scope.copyright_url or get("url", get("href", ""))


def _thumbnail(scope: MediaScope, get: Get, text: str) -> None:
    if url := get("url", text):
        one = Thumbnail(
            url, parse_int(get("width")), parse_int(get("height")), parse_seconds(get("time"))
        )
        scope.thumbnails += (one,)


def _credit(scope: MediaScope, get: Get, text: str) -> None:
    if text:
        scope.credits += (Credit(text, get("role", ""), get("scheme", _EBU)),)


def _caption(scope: MediaScope, get: Get, text: str) -> None:
    if text:
        start, end = parse_seconds(get("start")), parse_seconds(get("end"))
        one = Caption(text, get("type", "plain"), get("lang", ""), start, end)
        scope.captions += (one,)


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
    """The words of a list."""
    words = filter(None, map(str.strip, text.split(",")))
    return [Category(word, keyword=True) for word in words]


def _enclosure(scopes: tuple[MediaScope, ...], base: str) -> Enclosure:
    """The medium of the innermost scope; its title and description are never those of the item."""
    get = scopes[0].attributes.get
    url = get("url", "").strip()
    return Enclosure(
        url=join(base, url) if url else "",
        type=get("type", ""),
        length=parse_int(get("filesize")),
        title=_first(one.title for one in scopes[:-1]),
        description=_first(one.description for one in scopes[:-1]),
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
        copyright=_first(one.copyright for one in scopes),
        copyright_url=_first(one.copyright_url for one in scopes),
        thumbnails=_seen(_nearest(one.thumbnails for one in scopes), base),
        credits=_nearest(one.credits for one in scopes),
        captions=_nearest(one.captions for one in scopes),
        restrictions=_nearest(one.restrictions for one in scopes),
        ratings=_nearest(one.ratings for one in scopes),
        categories=_nearest(one.categories for one in scopes),
    )


def _first(said: Iterable[str]) -> str:
    return next(filter(None, said), "")


def _nearest(said: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(next(filter(None, said), ())))


def _seen(thumbnails: Iterable[Thumbnail], base: str) -> tuple[Thumbnail, ...]:
    made = [_seen_from(base, one) for one in thumbnails]
    return tuple(made) if len(made) < 2 else tuple(dict.fromkeys(made))  # noqa: PLR2004


def _seen_from(base: str, one: Thumbnail) -> Thumbnail:
    url = join(base, one.url.strip())
    return one if url == one.url else Thumbnail(url, one.width, one.height, one.time)


def parse_number(text: str | None) -> float | None:
    """A number that is not below zero and not beyond all bounds."""
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
    """A time in a medium: seconds, h:m:s, `now`, or the beginning of a range."""
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
