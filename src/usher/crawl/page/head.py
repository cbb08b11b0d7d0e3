"""Reads the head elements of a page: base, canonical, robots, refresh, feeds; and finds its hidden elements.

Head elements count anywhere in the page: on many pages an image in a `noscript` ends the head early.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from usher.crawl.page.links import LinkResolver
from usher.crawl.robots import AGENT, Directives, directives
from usher.urls import MAX_TEXT, Scheme, Url, UrlRefusal, parse

MAX_REFRESH_SECONDS: Final = 10  # a refresh after more is a link

_QUERY: Final = (
    "link[href],meta[content],base[href],script,style,noscript,iframe,[hidden],[style*=none i]"
)
_HIDDEN_TAGS: Final = frozenset({"script", "style", "noscript", "iframe"})
_ROOTS: Final = frozenset({"html", "body", "head"})
_DISPLAY_NONE: Final = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_REFRESH: Final = re.compile(  # `5; url='there'`, and the variants that browsers accept
    r"([0-9]{0,9})[0-9.]*\s*[;,\s]\s*(?:url\s*=\s*)?(?:\"([^\"]*)|'([^']*)|(.*))",
    re.IGNORECASE | re.DOTALL,
)
_NO_DIRECTIVES: Final = Directives()
_FEED_TYPES: Final = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml"}
)


@dataclass(slots=True)
class PageHead:
    """The head elements as written, in order; URLs are not resolved."""

    base: str | None = None
    canonicals: list[str] = field(default_factory=list)
    refresh: tuple[int, str] | None = None
    robots: set[str] = field(default_factory=set)
    feeds: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    hidden: list[LexborNode] = field(default_factory=list)

    def resolver(self, url: Url) -> LinkResolver:
        """Return a resolver for the base element, or for the page's URL without a valid one."""
        base = parse(self.base, url) if self.base else url
        if isinstance(base, UrlRefusal) or base.scheme not in {Scheme.HTTP, Scheme.HTTPS}:
            return LinkResolver(url)
        return LinkResolver(base)

    def canonical(self, resolve: LinkResolver) -> str | None:
        """Return the canonical URL; None if the page names several."""
        urls = {resolve(href.partition("#")[0].strip()) for href in self.canonicals}
        return urls.pop() if len(urls) == 1 else None

    def directives(self, headers: Iterable[str]) -> Directives:
        values = [*headers, *self.robots]
        return directives(values, AGENT) if values else _NO_DIRECTIVES

    def remove_hidden(self) -> None:
        """Remove hidden elements from the trees; the caller has already collected the links."""
        for node in self.hidden:
            node.decompose()


def parse_head(trees: Iterable[LexborHTMLParser]) -> PageHead:
    head = PageHead()
    for tree in trees:
        for node in tree.css(_QUERY):
            tag = node.tag
            if tag in _HIDDEN_TAGS:
                head.hidden.append(node)
            elif tag == "meta":
                _meta(head, node.attributes)
            elif tag == "link":
                _link(head, node.attributes)
            elif tag == "base":
                if head.base is None:
                    head.base = node.attrs.get("href") or ""
            elif tag not in _ROOTS and _is_hidden(node.attributes):
                head.hidden.append(node)
    return head


def _meta(head: PageHead, attributes: dict[str, str | None]) -> None:
    content = attributes.get("content") or ""
    name = (attributes.get("name") or "").strip().lower()
    if name == "robots":
        head.robots.add(content)
    elif name == AGENT:
        head.robots.add(f"{AGENT}: {content}")
    elif (attributes.get("http-equiv") or "").strip().lower() == "refresh" and not head.refresh:
        match = _REFRESH.match(content[:MAX_TEXT].strip())
        target = match and (match[2] or match[3] or match[4])
        head.refresh = (int(match[1] or 0), target.strip()) if match and target else None


def _link(head: PageHead, attributes: dict[str, str | None]) -> None:
    href = attributes.get("href")
    words = (attributes.get("rel") or "").lower().split()
    if not href or "nofollow" in words:
        return
    if "canonical" in words:
        head.canonicals.append(href)
    elif "alternate" in words and "stylesheet" not in words:
        kind = (attributes.get("type") or "").partition(";")[0].strip().lower()
        if kind in _FEED_TYPES:
            head.feeds.append(href)
        elif "hreflang" in attributes:
            head.links.append(href)
    elif not {"next", "prev"}.isdisjoint(words):
        head.links.append(href)


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    return "hidden" in attributes or bool(_DISPLAY_NONE.search(attributes.get("style") or ""))
