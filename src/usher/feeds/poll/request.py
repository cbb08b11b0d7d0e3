"""Requests a feed and follows its redirects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from usher.crawl.fetch_outcome import PERMANENT_REDIRECT_STATUSES
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.crawl.http.response import REDIRECT_STATUSES
from usher.urls import Url

MAX_REDIRECTS: Final = 8
ACCEPT: Final = (
    "application/atom+xml,application/rss+xml,application/feed+json,application/rdf+xml;q=0.9,"
    "application/xml;q=0.8,text/xml;q=0.8,application/json;q=0.7,*/*;q=0.5"
)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The last response and the permanent URL of the feed; `error` if a redirect led nowhere."""

    answer: FetchResponse
    url: Url
    error: str = ""


async def fetch_feed(
    fetcher: Fetcher, url: Url, *, etag: str = "", lastmod: str = "", source: Url | None = None
) -> FetchResult:
    """Fetch a URL and follow redirects; only leading permanent redirects change the feed's URL.

    `source` is the page or feed that names the URL, None if the operator does.
    """
    headers = request_headers(etag, lastmod)
    feed_url, here, permanent = url, url, True
    for _ in range(MAX_REDIRECTS + 1):
        answer = await fetcher.get(here, headers, source=source)
        if answer.status not in REDIRECT_STATUSES:
            return FetchResult(answer, feed_url)
        if answer.location is None:
            return FetchResult(answer, feed_url, f"HTTP {answer.status} without a Location")
        source, here = here, answer.location
        permanent = permanent and answer.status in PERMANENT_REDIRECT_STATUSES
        feed_url = here if permanent else feed_url
    return FetchResult(answer, url, f"More than {MAX_REDIRECTS} redirects")


def request_headers(etag: str, lastmod: str) -> Mapping[str, str]:
    """The request headers; with validators the server may answer 304."""
    headers = {"Accept": ACCEPT, "If-None-Match": etag, "If-Modified-Since": lastmod}
    return {name: value for name, value in headers.items() if value and value.isprintable()}
