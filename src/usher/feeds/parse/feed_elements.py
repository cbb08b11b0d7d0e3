"""Which element of a feed, outside its items, is of which kind.

Comes from the names of elements; goes to the walk through a feed, as `tables` does for items.
"""

from collections.abc import Callable, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from usher.feeds.model import Image
from usher.feeds.parse import element_handlers
from usher.feeds.parse.element_reader import ElementContext, UnprovenElement, attributes, plain_text
from usher.feeds.parse.fast_builder import FastFeedBuilder
from usher.feeds.parse.item_elements import BOTH, MEDIA_SCHEME, bare, ignored
from usher.feeds.parse.relative_urls import join

FeedHandler = Callable[[ElementContext, FastFeedBuilder, Element], object]

_IMAGE: Final = frozenset({"url", "title", "link", "description", "width", "height"})
_INPUT: Final = frozenset({"title", "link", "description", "name"})
_OWNER: Final = frozenset({"itunes_name", "itunes_email"})


def _subtitle(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    feed.subtitle = where.content(element, attributes(element), "text/html")


def _tagline(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    feed.subtitle = where.content(element, attributes(element), "text/plain")


def _about(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    feed.about = where.content(element, attributes(element), "text/plain")


def _generator(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    given = attributes(element)
    href = element_handlers.address_in(given)
    feed.generator = plain_text(element)
    feed.generator_page = join(where.base_in(given), href) if href else ""


def _generator_agent(_where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    feed.generator_agent = attributes(element).get("rdf:resource", "")
    plain_text(element)


def _cloud(_where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    plain_text(element)
    feed.cloud = attributes(element)


def _skipped(hours: bool) -> FeedHandler:  # noqa: FBT001 - made twice, below
    name = "hour" if hours else "day"

    def kind(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
        for part in _parts(where, element, frozenset({name})).get(name, ()):
            (feed.hours if hours else feed.days).append(plain_text(part))

    return kind


def _parts(
    where: ElementContext, element: Element, names: frozenset[str]
) -> dict[str, list[Element]]:
    """What is inside an element that may have only these inside."""
    if attributes(element).keys() - {"rdf:about"}:
        raise UnprovenElement
    made: dict[str, list[Element]] = {}
    for part in element:
        name = where.names.name(part.tag)
        if name not in names or part.items() or len(part):
            raise UnprovenElement
        made.setdefault(name, []).append(part)
    return made


def _image(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    if not len(element):  # only a reference to one elsewhere, as in RDF
        feed.titled = -1
        return
    parts = _parts(where, element, _IMAGE)
    if any(len(given) > 1 for given in parts.values()) or any(
        one.kind == "image" for one in feed.images
    ):
        raise UnprovenElement
    said = {name: plain_text(given[0]) for name, given in parts.items()}
    address = {name: where.address(parts[name][0]) for name in ("url", "link") if name in parts}
    image = Image(
        address.get("url", ""),
        title=said.get("title", ""),
        link=element_handlers.unstrayed(address.get("link", "")),
        description=said.get("description", ""),
        width=_size(said.get("width", "")),
        height=_size(said.get("height", "")),
    )
    feed.images.insert(0, image)
    feed.titled = 1 if image.title else -1


def _size(text: str) -> int | None:
    try:
        return int(text) or None
    except ValueError:
        return None


def _text_input(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    parts = _parts(where, element, _INPUT) if len(element) else {}
    feed.titled = 1 if any(map(plain_text, parts.get("title", ()))) else -1


def _owner(where: ElementContext, _feed: FastFeedBuilder, element: Element) -> None:
    _parts(where, element, _OWNER)


def _category(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    element_handlers.category(where, feed, element, MEDIA_SCHEME)


def _media_title(where: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    element_handlers.title(where, feed, element, media=True)


CHANNEL: Final[Mapping[str, FeedHandler]] = {
    **BOTH,
    "guid": element_handlers.guid,
    "description": _subtitle,
    "dc_description": _subtitle,
    "media_description": _subtitle,
    "subtitle": _tagline,
    "itunes_subtitle": _tagline,
    "itunes_summary": _about,
    "generator": _generator,
    "admin_generatoragent": _generator_agent,
    "cloud": _cloud,
    "skiphours": _skipped(hours=True),
    "skipdays": _skipped(hours=False),
    "image": _image,
    "textinput": _text_input,
    "itunes_owner": _owner,
    "itunes_new-feed-url": bare("moved_to"),
    "ttl": bare("ttl"),
    "sy_updateperiod": bare("period"),
    "sy_updatefrequency": bare("frequency"),
    "rating": bare("rating"),
    "icon": bare("icon", address=True),
    "logo": bare("logo", address=True),
    "media_title": _media_title,
    "media_category": _category,
    "media_keywords": element_handlers.words,
    **{
        f"media_{name}": ignored
        for name in ("credit", "copyright", "license", "rating", "restriction", "thumbnail", "text")
    },
}
