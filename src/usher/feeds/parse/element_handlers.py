"""The fast parser's handlers: each reads one element into a builder.

Where two elements compete for a field, the one wins that wins in feedparser.
"""

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from usher.feeds.model import Author, Category, Enclosure, FeedLink
from usher.feeds.parse.element_reader import (
    ElementContext,
    UnprovenElement,
    attributes,
    handled_by_feedparser,
    plain_text,
)
from usher.feeds.parse.fast_builder import FastFeedBuilder, FastItemBuilder
from usher.feeds.parse.item_builder import Content, geo_point, is_address, parse_author
from usher.feeds.parse.media_rss import parse_int, parse_keywords
from usher.feeds.parse.relative_urls import is_web_url, join

_ITUNES: Final = "http://www.itunes.com/"
_HTML: Final = frozenset({"text/html", "html", "application/xhtml+xml", "xhtml"})
_STRAY: Final = re.compile(r"&([A-Za-z0-9_]+);")


def title(
    context: ElementContext,
    builder: FastItemBuilder,
    element: Element,
    *,
    deep: int = 0,
    media: bool = False,
) -> str:
    attrs = attributes(element)
    text = context.content(element, attrs, "text/plain")
    if -1 < builder.titled <= deep:
        return text.value
    if deep <= builder.title_at or isinstance(builder, FastFeedBuilder):
        builder.title, builder.title_at = text, deep
    else:
        builder.title = Content(builder.title.value, text.type, text.base)
    builder.set_language(0, context.language_in(attrs))
    if text.value and not media:
        builder.titled = deep
    return text.value


def summary(
    context: ElementContext,
    builder: FastItemBuilder,
    element: Element,
    default: str = "text/plain",
    *,
    deep: int = 0,
) -> str:
    """A summary; a second one is the content if there is none."""
    if builder.summary is not None and not builder.has_content:
        return content(context, builder, element)
    attrs = attributes(element)
    text = context.content(element, attrs, default)
    if builder.summary is None or deep <= builder.summary_at:
        builder.summary, builder.summary_at = text, deep
    else:
        builder.summary = Content(builder.summary.value, text.type, text.base)
    builder.set_language(1, context.language_in(attrs))
    return text.value


def content(
    context: ElementContext, builder: FastItemBuilder, element: Element, default: str = "text/plain"
) -> str:
    attrs = attributes(element)
    text = context.content(element, attrs, default)
    builder.has_content = True
    if not builder.contents:
        builder.set_language(2, context.language_in(attrs))
    builder.contents.append(text)
    if builder.summary is None:
        builder.summary = text
    return text.value


def rights(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    builder.rights = context.content(element, attributes(element), "text/plain")


def guid(
    context: ElementContext, builder: FastItemBuilder, element: Element, *, permalink: bool = True
) -> None:
    """The guid as it is written, so that it stays the same when the feed moves; the link if there is no other."""
    attrs = attributes(element)
    is_link = attrs.get("ispermalink", "true") == "true"
    builder.permalink = permalink and is_link
    builder.guid = plain_text(element)
    if is_link and builder.link is None and is_address(builder.guid):
        builder.link = join(context.base_in(attrs), builder.guid)


def link(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    """A link: RSS has the URL as text, Atom as an attribute; in RSS the text wins."""
    attrs = attributes(element)
    href = url_attribute(attrs) if attrs else None
    if href is None or _text_wins(context, element, attrs):
        href = context.address(element, attrs)
        if ";" in href:
            href = repair_entities(
                href if isinstance(builder, FastFeedBuilder) else href.replace("&amp;", "&")
            )
        builder.link = href
    elif len(element):
        raise UnprovenElement
    else:
        href = join(context.base_in(attrs), href)
    if attrs:
        _add_link_of(builder, href, attrs)
    elif href:
        builder.links.append(FeedLink(href, "alternate", "text/html"))


def _add_link_of(builder: FastItemBuilder, href: str, attrs: Mapping[str, str]) -> None:
    rel = attrs.get("rel", "alternate")
    kind = attrs.get("type", "application/atom+xml" if rel == "self" else "text/html")
    if rel == "alternate" and kind in _HTML and url_attribute(attrs) is not None:
        builder.link = href
    if href:
        title_, language = attrs.get("title", ""), attrs.get("hreflang", "")
        _add_link(builder, FeedLink(href, rel, kind, title_, language), attrs)


def _text_wins(context: ElementContext, element: Element, attrs: Mapping[str, str]) -> bool:
    """Whether the text of a link wins over its attribute."""
    if context.atom or len(element) or attrs.get("rel", "alternate") != "alternate":
        return False
    return is_web_url((element.text or "").strip())


def repair_entities(address: str) -> str:
    """A URL without the semicolons that make its parameters look like entities."""
    return _STRAY.sub(r"&\1", address)


def url_attribute(attrs: Mapping[str, str]) -> str | None:
    """The URL in the attributes of an element, under any of its names."""
    href = attrs.get("url", attrs.get("uri", attrs.get("href"))) or attrs.get("href")
    return href.strip() if href else href


def _add_link(builder: FastItemBuilder, added: FeedLink, attrs: Mapping[str, str]) -> None:
    if added.rel == "enclosure" and not isinstance(builder, FastFeedBuilder):
        length = parse_int(attrs.get("length"))
        builder.enclosures.append(Enclosure(added.href, added.type, length, added.title))
    else:
        builder.links.append(added)


def enclosure(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    attrs = attributes(element)
    if len(element):
        raise UnprovenElement
    if href := url_attribute(attrs):
        _add_link(
            builder,
            FeedLink(href, "enclosure", attrs.get("type", ""), attrs.get("title", "")),
            attrs,
        )


def source(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    """The source of RSS; that of Atom is a whole feed, which feedparser reads."""
    attrs = attributes(element)
    if "url" not in attrs:
        raise UnprovenElement
    name = plain_text(element)
    if attrs["url"]:
        builder.links.append(FeedLink(attrs["url"], "source", title=name))


def author(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    """An author: in RSS a text, in Atom elements."""
    added = person(context, element) if len(element) else parse_author(plain_text(element))
    if added:
        builder.authors.append(added)


def contributor(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    if len(element):
        builder.contributors += (replace(person(context, element), role="contributor"),)


def dc_contributor(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    plain_text(element)
    if name := (element.text or "").strip():
        builder.contributors += (Author(name, role="contributor"),)


def person(context: ElementContext, element: Element) -> Author:
    """A person with name, email and page; elements of other namespaces are ignored."""
    before = context.enter(attributes(element))
    fields = dict.fromkeys(("name", "email", "href"), "")
    for part in element:
        name = context.names.name(part.tag)
        if name in {"uri", "url", "homepage"}:
            fields["href"] = context.address(part, attributes(part))
        elif name in {"name", "email"}:
            plain_text(part)
            fields[name] = (part.text or "").strip()
        elif len(part) or (name and handled_by_feedparser(name)):
            raise UnprovenElement
    context.leave(before)
    if not any(fields.values()):
        raise UnprovenElement
    return Author(fields["name"], fields["email"], fields["href"])


def category(
    _context: ElementContext, builder: FastItemBuilder, element: Element, scheme: str = ""
) -> str:
    attrs = attributes(element)
    text = plain_text(element)
    if not attrs and not scheme:
        if text:
            builder.categories.append(Category(text))
        return text
    term, label = attrs.get("term", ""), attrs.get("label", "")
    scheme = attrs.get("scheme", scheme or attrs.get("domain", ""))
    if not term and not text:
        if label:
            builder.categories.append(Category(label, scheme, label))
        return text
    if term:
        builder.categories.append(Category(term, scheme, label))
        scheme = label = ""
    if text:
        builder.categories.append(Category(text, scheme, label))
    return text


def itunes_category(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    term = attributes(element).get("text", "")
    if not term or (element.text or "").strip():
        raise UnprovenElement
    builder.categories.append(Category(term, _ITUNES))
    for inner in element:
        if context.names.name(inner.tag) != "itunes_category" or (inner.tail or "").strip():
            raise UnprovenElement
        itunes_category(context, builder, inner)


def keywords(_context: ElementContext, builder: FastItemBuilder, element: Element) -> str:
    if attributes(element):
        raise UnprovenElement
    text = plain_text(element)
    builder.keywords += tuple(parse_keywords(text))
    return text


def itunes_image(context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    attrs = attributes(element)
    plain_text(element)
    href = attrs.get("href") or attrs.get("url") or ""
    builder.image = join(context.base_in(attrs), href) if href else ""


def license_text(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    if href := plain_text(element):
        builder.links.append(FeedLink(href, "license"))


def license_resource(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    plain_text(element)
    if href := attributes(element).get("rdf:resource"):
        builder.links.append(FeedLink(href, "license"))


def georss_point(_context: ElementContext, builder: FastItemBuilder, element: Element) -> None:
    """`latitude longitude`; anything after it must be numbers too."""
    try:
        numbers = [float(word) for word in plain_text(element).replace(",", " ").split()]
    except ValueError:
        numbers = []
    point = geo_point(numbers[0], numbers[1]) if len(numbers) > 1 else None
    builder.places = [point] if point else []
