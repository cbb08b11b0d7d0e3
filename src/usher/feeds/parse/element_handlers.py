"""What each kind of element says about an item or a feed.

Comes from one element at a time, chosen by `tables`; goes to the draft. Where two elements say the same, the one wins
that wins in feedparser.
"""

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

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
    where: ElementContext,
    draft: FastItemBuilder,
    element: Element,
    *,
    deep: int = 0,
    media: bool = False,
) -> str:
    given = attributes(element)
    found = where.content(element, given, "text/plain")
    if -1 < draft.titled <= deep:
        return found.value
    if deep <= draft.title_at or isinstance(draft, FastFeedBuilder):
        draft.title, draft.title_at = found, deep
    else:
        draft.title = Content(draft.title.value, found.type, found.base)
    draft.speaks(0, where.language_in(given))
    if found.value and not media:
        draft.titled = deep
    return found.value


def summary(
    where: ElementContext,
    draft: FastItemBuilder,
    element: Element,
    default: str = "text/plain",
    *,
    deep: int = 0,
) -> str:
    """A summary; if there is one already, and no content, then it is the content."""
    if draft.summary is not None and not draft.has_content:
        return content(where, draft, element)
    given = attributes(element)
    found = where.content(element, given, default)
    if draft.summary is None or deep <= draft.summary_at:
        draft.summary, draft.summary_at = found, deep
    else:
        draft.summary = Content(draft.summary.value, found.type, found.base)
    draft.speaks(1, where.language_in(given))
    return found.value


def description(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    summary(where, draft, element, "text/html")


def content(
    where: ElementContext, draft: FastItemBuilder, element: Element, default: str = "text/plain"
) -> str:
    given = attributes(element)
    found = where.content(element, given, default)
    draft.has_content = True
    if not draft.contents:
        draft.speaks(2, where.language_in(given))
    draft.contents.append(found)
    if draft.summary is None:
        draft.summary = found
    return found.value


def encoded(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    content(where, draft, element, "text/html")


def rights(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    draft.rights = where.content(element, attributes(element), "text/plain")


def guid(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    given = attributes(element)
    draft.permalink = given.get("ispermalink", "true") == "true"
    _identify(where, draft, element, given, stands_in=draft.permalink)


def identity(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    """Atom's, which is no permalink, though it stands in for a link."""
    given = attributes(element)
    draft.permalink = False
    _identify(where, draft, element, given, stands_in=given.get("ispermalink", "true") == "true")


def _identify(
    where: ElementContext,
    draft: FastItemBuilder,
    element: Element,
    given: Mapping[str, str],
    *,
    stands_in: bool,
) -> None:
    """An identity is kept as it is written, so that it stays the same when the feed moves."""
    draft.guid = plain_text(element)
    if stands_in and draft.link is None and is_address(draft.guid):
        draft.link = join(where.base_in(given), draft.guid)


def link(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    """RSS has the address inside, Atom in an attribute; in RSS an address inside wins."""
    given = attributes(element)
    href = address_in(given) if given else None
    if href is None or _text_wins(where, element, given):
        href = where.address(element, given)
        if ";" in href:
            href = unstrayed(
                href if isinstance(draft, FastFeedBuilder) else href.replace("&amp;", "&")
            )
        draft.link = href
    elif len(element):
        raise UnprovenElement
    else:
        href = join(where.base_in(given), href)
    if given:
        _linked_as(draft, href, given)
    elif href:
        draft.links.append(FeedLink(href, "alternate", "text/html"))


def _linked_as(draft: FastItemBuilder, href: str, given: Mapping[str, str]) -> None:
    rel = given.get("rel", "alternate")
    kind = given.get("type", "application/atom+xml" if rel == "self" else "text/html")
    if rel == "alternate" and kind in _HTML and address_in(given) is not None:
        draft.link = href
    if href:
        one = FeedLink(href, rel, kind, given.get("title", ""), given.get("hreflang", ""))
        _linked(draft, one, given)


def _text_wins(where: ElementContext, element: Element, given: Mapping[str, str]) -> bool:
    """Whether the text of a link is its address although an attribute has one, as in RSS."""
    if where.atom or len(element) or given.get("rel", "alternate") != "alternate":
        return False
    return is_web_url((element.text or "").strip())


def unstrayed(address: str) -> str:
    """An address without the semicolons that make parameters look like entities."""
    return _STRAY.sub(r"&\1", address)


def address_in(given: Mapping[str, str]) -> str | None:
    """The address in the attributes of an element, under any of its names."""
    href = given.get("url", given.get("uri", given.get("href"))) or given.get("href")
    return href.strip() if href else href


def _linked(draft: FastItemBuilder, one: FeedLink, given: Mapping[str, str]) -> None:
    if one.rel == "enclosure" and not isinstance(draft, FastFeedBuilder):
        made = Enclosure(one.href, one.type, parse_int(given.get("length")), one.title)
        draft.enclosures.append(made)
    else:
        draft.links.append(one)


def enclosure(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    given = attributes(element)
    if len(element):
        raise UnprovenElement
    if href := address_in(given):
        _linked(
            draft, FeedLink(href, "enclosure", given.get("type", ""), given.get("title", "")), given
        )


def source(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    """RSS's own; Atom's is a whole feed inside an item."""
    given = attributes(element)
    if "url" not in given:
        raise UnprovenElement
    name = plain_text(element)
    if given["url"]:
        draft.links.append(FeedLink(given["url"], "source", title=name))


def written(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    """An author: in RSS by a text, in Atom by elements."""
    one = person(where, element) if len(element) else parse_author(plain_text(element))
    if one:
        draft.authors.append(one)


def contributor(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    if len(element):
        one = person(where, element)
        draft.contributors += (Author(one.name, one.email, one.href, "contributor"),)


def dc_contributor(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    plain_text(element)
    if name := (element.text or "").strip():
        draft.contributors += (Author(name, role="contributor"),)


def person(where: ElementContext, element: Element) -> Author:
    """A person by name, address and page; elements of others' namespaces are passed over."""
    before = where.enter(attributes(element))
    said = dict.fromkeys(("name", "email", "href"), "")
    for part in element:
        name = where.names.name(part.tag)
        if name in {"uri", "url", "homepage"}:
            said["href"] = where.address(part, attributes(part))
        elif name in {"name", "email"}:
            plain_text(part)
            said[name] = (part.text or "").strip()
        elif len(part) or (name and handled_by_feedparser(name)):
            raise UnprovenElement
    where.leave(before)
    if not any(said.values()):
        raise UnprovenElement
    return Author(said["name"], said["email"], said["href"])


def category(
    _where: ElementContext, draft: FastItemBuilder, element: Element, scheme: str = ""
) -> str:
    given = attributes(element)
    text = plain_text(element)
    if not given and not scheme:
        if text:
            draft.categories.append(Category(text))
        return text
    term, label = given.get("term", ""), given.get("label", "")
    scheme = given.get("scheme", scheme or given.get("domain", ""))
    if not term and not text:
        if label:
            draft.categories.append(Category(label, scheme, label))
        return text
    if term:
        draft.categories.append(Category(term, scheme, label))
        scheme = label = ""
    if text:
        draft.categories.append(Category(text, scheme, label))
    return text


def itunes_category(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    term = attributes(element).get("text", "")
    if not term or (element.text or "").strip():
        raise UnprovenElement
    draft.categories.append(Category(term, _ITUNES))
    for inner in element:
        if where.names.name(inner.tag) != "itunes_category" or (inner.tail or "").strip():
            raise UnprovenElement
        itunes_category(where, draft, inner)


def words(_where: ElementContext, draft: FastItemBuilder, element: Element) -> str:
    if attributes(element):
        raise UnprovenElement
    text = plain_text(element)
    draft.keywords += tuple(parse_keywords(text))
    return text


def picture(where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    given = attributes(element)
    plain_text(element)
    href = given.get("href") or given.get("url") or ""
    draft.image = join(where.base_in(given), href) if href else ""


def license_text(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    if href := plain_text(element):
        draft.links.append(FeedLink(href, "license"))


def license_resource(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    plain_text(element)
    if href := attributes(element).get("rdf:resource"):
        draft.links.append(FeedLink(href, "license"))


def point(_where: ElementContext, draft: FastItemBuilder, element: Element) -> None:
    """`latitude longitude`; whatever follows must be numbers too."""
    try:
        numbers = [float(one) for one in plain_text(element).replace(",", " ").split()]
    except ValueError:
        numbers = []
    found = geo_point(numbers[0], numbers[1]) if len(numbers) > 1 else None
    draft.places = [found] if found else []
