"""Links as written on a page to canonical URLs.

Comes from the attributes of a page's elements, each as its author wrote it; goes to the door. Most links of most pages
are plain relative paths, whose place is known without a parser: that is half of all the time a link needs.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from usher.urls import MAX_PATH, Scheme, Url, UrlRefusal, parse

MAX_LINKS: Final = 10_000

_AROUND: Final = "".join(map(chr, range(0x21)))
# Nothing in here has a second spelling, and no part of it begins with a dot.
_PLAIN: Final = re.compile(
    r"(?:/|((?:\.\./)*+))((?:[\w~-][\w.~-]*+(?:/[\w~-][\w.~-]*+)*+/?)?)", re.ASCII
)
_SCHEME: Final = re.compile(r"(https?://)|(?!https?:)[a-z][a-z0-9+.-]*+:", re.IGNORECASE | re.ASCII)
_WEB: Final = frozenset({Scheme.HTTP, Scheme.HTTPS})


def _web(url: Url | UrlRefusal) -> str | None:
    return None if isinstance(url, UrlRefusal) or url.scheme not in _WEB else str(url)


@lru_cache(maxsize=8_192)
def _absolute(href: str) -> str | None:
    """Read a link that says all by itself; a site has the same ones on all its pages."""
    return _web(parse(href))


class ResolvedLinks(NamedTuple):
    """Canonical URLs, each once, and how many more there were."""

    links: list[str]
    dropped: int


class LinkResolver:
    """Reads what is written on one page, whose base this is."""

    def __init__(self, base: Url) -> None:
        self._base = base
        self._site = f"{base.scheme.word}://{base.host}"
        parts = base.path.partition("?")[0].split("/")[:-1]
        # By how many `../` a link begins with.
        self._places = ["/".join(parts[:count]) + "/" for count in range(len(parts), 0, -1)]
        self._top = len(parts) - 1
        self._is_web = base.scheme in _WEB
        self._longest = len(self._site) + MAX_PATH

    def __call__(self, href: str) -> str | None:
        """The canonical URL of a link to a web page; None for anything else."""
        plain = _PLAIN.fullmatch(href)
        if plain and href and self._is_web:
            ups, path = plain.groups()
            place = "/" if ups is None else self._places[min(len(ups) // 3, self._top)]
            url = f"{self._site}{place}{path}"
            return url if len(url) <= self._longest else None
        if scheme := _SCHEME.match(href):
            return _absolute(href) if scheme[1] else None
        return self._parsed(href)

    def _parsed(self, href: str) -> str | None:
        return _web(parse(href, self._base))


def resolve_links(hrefs: Iterable[str | None], resolver: LinkResolver, own: str) -> ResolvedLinks:
    """Turn what is written into URLs in order; links within the page are none."""
    written = {href.partition("#")[0].strip(_AROUND): None for href in dict.fromkeys(hrefs) if href}
    written.pop("", None)
    found: dict[str, None] = {}
    for used, href in enumerate(written, 1):
        url = resolver(href)
        if url and url != own:
            found[url] = None
            if len(found) == MAX_LINKS:
                return ResolvedLinks(list(found), len(written) - used)
    return ResolvedLinks(list(found), 0)
