"""What a page says about itself and others: base, canonical, robots, refresh, feeds, and what no reader sees.

Comes from the trees of a page; goes to the walk and to the reader. Elements of the head count wherever they are: many
pages lose half their head to an image in a `noscript`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from usher.crawl.page.links import LinkResolver
from usher.crawl.robots import Directives, directives
from usher.urls import MAX_TEXT, Scheme, Url, UrlRefusal, parse

AGENT: Final = "usher"
MAX_REFRESH_SECONDS: Final = 10  # seconds; a refresh after more is a link

_QUERY: Final = (
    "link[href],meta[content],base[href],script,style,noscript,iframe,[hidden],[style*=none i]"
)
_UNSEEN: Final = frozenset({"script", "style", "noscript", "iframe"})
_ROOTS: Final = frozenset({"html", "body", "head"})
_NONE: Final = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_REFRESH: Final = re.compile(  # `5; url='there'`, and what browsers make of less
    r"([0-9]{0,9})[0-9.]*\s*[;,\s]\s*(?:url\s*=\s*)?(?:\"([^\"]*)|'([^']*)|(.*))",
    re.IGNORECASE | re.DOTALL,
)
_NOTHING_SAID: Final = Directives()
_FEEDS: Final = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml"}
)


@dataclass(slots=True)
class PageHead:
    """As written, in order; nothing is resolved yet."""

    base: str | None = None
    canonicals: list[str] = field(default_factory=list)
    refresh: tuple[int, str] | None = None
    robots: set[str] = field(default_factory=set)
    feeds: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    unseen: list[LexborNode] = field(default_factory=list)

    def resolver(self, url: Url) -> LinkResolver:
        """The page's URL, or its base element if that is on the web."""
        base = parse(self.base, url) if self.base else url
        is_web = isinstance(base, Url) and base.scheme in {Scheme.HTTP, Scheme.HTTPS}
        return LinkResolver(base if is_web and not isinstance(base, UrlRefusal) else url)

    def canonical(self, resolve: LinkResolver) -> str | None:
        """Where the page wants to be found; one that names several does not know."""
        found = {resolve(href.partition("#")[0].strip()) for href in self.canonicals}
        return found.pop() if len(found) == 1 else None

    def directives(self, headers: Iterable[str]) -> Directives:
        said = [*headers, *self.robots]
        return directives(said, AGENT) if said else _NOTHING_SAID

    def remove_unseen(self) -> None:
        """Take out of the trees what no reader sees; links must be out by then."""
        for node in self.unseen:
            node.decompose()


def parse_head(trees: Iterable[LexborHTMLParser]) -> PageHead:
    head = PageHead()
    for tree in trees:
        for node in tree.css(_QUERY):
            tag = node.tag
            if tag in _UNSEEN:
                head.unseen.append(node)
            elif tag == "meta":
                _meta(head, node.attributes)
            elif tag == "link":
                _link(head, node.attributes)
            elif tag == "base":
                _base(head, node.attrs.get("href"))
            elif tag not in _ROOTS and _is_hidden(node.attributes):
                head.unseen.append(node)
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
        if kind in _FEEDS:
            head.feeds.append(href)
        elif "hreflang" in attributes:
            head.links.append(href)
    elif not {"next", "prev"}.isdisjoint(words):
        head.links.append(href)


def _base(head: PageHead, href: str | None) -> None:
    if head.base is None:
        head.base = href or ""


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    return "hidden" in attributes or bool(_NONE.search(attributes.get("style") or ""))
