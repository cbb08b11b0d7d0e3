"""Resolves the links of a page to canonical URLs.

Most links are plain relative paths, which need no URL parser; that saves half of the time.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from usher.urls import MAX_PATH, Scheme, Url, UrlRefusal, parse

MAX_LINKS: Final = 10_000

_AROUND: Final = "".join(map(chr, range(0x21)))
# Paths with only one spelling, and no part that begins with a dot.
_PLAIN: Final = re.compile(
    r"(?:/|((?:\.\./)*+))((?:[\w~-][\w.~-]*+(?:/[\w~-][\w.~-]*+)*+/?)?)", re.ASCII
)
_SCHEME: Final = re.compile(r"(https?://)|(?!https?:)[a-z][a-z0-9+.-]*+:", re.IGNORECASE | re.ASCII)
_WEB: Final = frozenset({Scheme.HTTP, Scheme.HTTPS})


def _web(url: Url | UrlRefusal) -> str | None:
    return None if isinstance(url, UrlRefusal) or url.scheme not in _WEB else str(url)


@lru_cache(maxsize=8_192)
def _absolute(href: str) -> str | None:
    """Parse an absolute link; a site has the same ones on all its pages."""
    return _web(parse(href))


class ResolvedLinks(NamedTuple):
    """Canonical URLs, each once, how many links exceed the limit, and the URL of each href without its fragment."""

    links: list[str]
    dropped: int
    urls: dict[str, str]


class LinkResolver:
    """Resolves the links of one page with this base."""

    def __init__(self, base: Url) -> None:
        self._base = base
        self._site = f"{base.scheme.word}://{base.host}"
        parts = base.path.partition("?")[0].split("/")[:-1]
        # By the number of `../` at the start of a link.
        self._folders = ["/".join(parts[:count]) + "/" for count in range(len(parts), 0, -1)]
        self._top = len(parts) - 1
        self._is_web = base.scheme in _WEB
        self._max_length = len(self._site) + MAX_PATH

    def __call__(self, href: str) -> str | None:
        """Return the canonical URL of a link to a web page; None for any other link."""
        plain = _PLAIN.fullmatch(href)
        if plain and href and self._is_web:
            ups, path = plain.groups()
            folder = "/" if ups is None else self._folders[min(len(ups) // 3, self._top)]
            url = f"{self._site}{folder}{path}"
            return url if len(url) <= self._max_length else None
        if scheme := _SCHEME.match(href):
            return _absolute(href) if scheme[1] else None
        return _web(parse(href, self._base))


def resolve_links(hrefs: Iterable[str | None], resolver: LinkResolver, own: str) -> ResolvedLinks:
    """Resolve links in order, without those to the page itself."""
    links = {without_fragment(href): None for href in dict.fromkeys(hrefs) if href}
    links.pop("", None)
    by_href: dict[str, str] = {}
    urls: dict[str, None] = {}
    for count, href in enumerate(links, 1):
        url = resolver(href)
        if url and url != own:
            by_href[href] = url
            urls[url] = None
            if len(urls) == MAX_LINKS:
                return ResolvedLinks(list(urls), len(links) - count, by_href)
    return ResolvedLinks(list(urls), 0, by_href)


def without_fragment(href: str) -> str:
    return href.partition("#")[0].strip(_AROUND)
