"""The fast parser's handlers for the elements of a feed outside its items, by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element

from usher.feeds.model import Image
from usher.feeds.parse import element_handlers
from usher.feeds.parse.element_reader import ElementContext, UnprovenElement, attributes, plain_text
from usher.feeds.parse.fast_builder import FastFeedBuilder
from usher.feeds.parse.item_elements import (
    MEDIA_SCHEME,
    SHARED_HANDLERS,
    ignore,
    text_without_attributes,
)
from usher.feeds.parse.relative_urls import join

FeedHandler = Callable[[ElementContext, FastFeedBuilder, Element], object]

_IMAGE: Final = frozenset({"url", "title", "link", "description", "width", "height"})
_INPUT: Final = frozenset({"title", "link", "description", "name"})
_OWNER: Final = frozenset({"itunes_name", "itunes_email"})


def _content(field: str, default: str) -> FeedHandler:
    """A handler for an element whose text may be HTML."""

    def handler(context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
        setattr(feed, field, context.content(element, attributes(element), default))

    return handler


def _generator(context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    attrs = attributes(element)
    href = element_handlers.url_attribute(attrs)
    feed.generator = plain_text(element)
    feed.generator_page = join(context.base_in(attrs), href) if href else ""


def _generator_agent(_context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    feed.generator_agent = attributes(element).get("rdf:resource", "")
    plain_text(element)


def _cloud(_context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    plain_text(element)
    feed.cloud = attributes(element)


def _skip(field: str, name: str) -> FeedHandler:
    """A handler for an element with hours or days in which the feed is not polled."""

    def handler(context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
        parts = _parts(context, element, frozenset({name})).get(name, ())
        getattr(feed, field).extend(map(plain_text, parts))

    return handler


def _parts(
    context: ElementContext, element: Element, names: frozenset[str]
) -> dict[str, list[Element]]:
    """The children of an element, by name; UnprovenElement if it has others than these."""
    if attributes(element).keys() - {"rdf:about"}:
        raise UnprovenElement
    parts: dict[str, list[Element]] = {}
    for part in element:
        name = context.names.name(part.tag)
        if name not in names or part.items() or len(part):
            raise UnprovenElement
        parts.setdefault(name, []).append(part)
    return parts


def _image(context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    if not len(element):  # in RDF, a reference to the image
        feed.titled = -1
        return
    parts = _parts(context, element, _IMAGE)
    if any(len(same) > 1 for same in parts.values()):
        raise UnprovenElement
    if any(image.kind == "image" for image in feed.images):
        raise UnprovenElement
    texts = {name: plain_text(same[0]) for name, same in parts.items()}
    address = {name: context.address(parts[name][0]) for name in ("url", "link") if name in parts}
    image = Image(
        address.get("url", ""),
        title=texts.get("title", ""),
        link=element_handlers.repair_entities(address.get("link", "")),
        description=texts.get("description", ""),
        width=_size(texts.get("width", "")),
        height=_size(texts.get("height", "")),
    )
    feed.images.insert(0, image)
    feed.titled = 1 if image.title else -1


def _size(text: str) -> int | None:
    try:
        return int(text) or None
    except ValueError:
        return None


def _text_input(context: ElementContext, feed: FastFeedBuilder, element: Element) -> None:
    parts = _parts(context, element, _INPUT) if len(element) else {}
    feed.titled = 1 if any(map(plain_text, parts.get("title", ()))) else -1


def _owner(context: ElementContext, _feed: FastFeedBuilder, element: Element) -> None:
    _parts(context, element, _OWNER)


FEED_HANDLERS: Final[Mapping[str, FeedHandler]] = {
    **SHARED_HANDLERS,
    "guid": element_handlers.guid,
    **dict.fromkeys(
        ("description", "dc_description", "media_description"), _content("subtitle", "text/html")
    ),
    "subtitle": _content("subtitle", "text/plain"),
    "itunes_subtitle": _content("subtitle", "text/plain"),
    "itunes_summary": _content("about", "text/plain"),
    "generator": _generator,
    "admin_generatoragent": _generator_agent,
    "cloud": _cloud,
    "skiphours": _skip("hours", "hour"),
    "skipdays": _skip("days", "day"),
    "image": _image,
    "textinput": _text_input,
    "itunes_owner": _owner,
    "itunes_new-feed-url": text_without_attributes("moved_to"),
    "ttl": text_without_attributes("ttl"),
    "sy_updateperiod": text_without_attributes("period"),
    "sy_updatefrequency": text_without_attributes("frequency"),
    "icon": text_without_attributes("icon", address=True),
    "logo": text_without_attributes("logo", address=True),
    "media_title": partial(element_handlers.title, media=True),
    "media_category": partial(element_handlers.category, scheme=MEDIA_SCHEME),
    "media_keywords": element_handlers.keywords,
    **{
        f"media_{name}": ignore
        for name in ("credit", "copyright", "license", "rating", "restriction", "thumbnail", "text")
    },
}
