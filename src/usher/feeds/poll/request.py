"""Asking for a feed, wherever it is by now.

Comes from a URL and what the server said last time; goes to the web, step by step past the guard, and back as the last
answer, with where the feed is for good.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from usher.crawl.fetch_outcome import MOVED, PERMANENT
from usher.crawl.http.fetch import Answer, Fetcher
from usher.urls import Url

MAX_REDIRECTS: Final = 8
ACCEPT: Final = (
    "application/atom+xml,application/rss+xml,application/feed+json,application/rdf+xml;q=0.9,"
    "application/xml;q=0.8,text/xml;q=0.8,application/json;q=0.7,*/*;q=0.5"
)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The last answer, and the URL that the first one, for good, became; `error` where the way led nowhere."""

    answer: Answer
    home: Url
    error: str = ""


async def fetch_feed(
    fetcher: Fetcher, url: Url, *, etag: str = "", lastmod: str = "", source: Url | None = None
) -> FetchResult:
    """Follow redirects; only those for good that come before any other say that the feed has moved.

    `source` is the page or feed that names the URL, None if the operator does.
    """
    headers = request_headers(etag, lastmod)
    home, here, permanent = url, url, True
    for _ in range(MAX_REDIRECTS + 1):
        answer = await fetcher.get(here, headers, source=source)
        if answer.status not in MOVED:
            return FetchResult(answer, home)
        if answer.location is None:
            return FetchResult(
                answer, home, f"HTTP {answer.status} that does not say where it leads"
            )
        source, here = here, answer.location
        permanent = permanent and answer.status in PERMANENT
        home = here if permanent else home
    return FetchResult(answer, url, f"It sends us on more than {MAX_REDIRECTS} times")


def request_headers(etag: str, lastmod: str) -> Mapping[str, str]:
    """What makes an answer short if nothing changed."""
    given = {"Accept": ACCEPT, "If-None-Match": etag, "If-Modified-Since": lastmod}
    return {name: value for name, value in given.items() if value and value.isprintable()}
