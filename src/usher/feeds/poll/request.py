"""Requests a feed and follows its redirects."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from usher.crawl.fetch_outcome import PERMANENT_REDIRECT_STATUSES
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.crawl.http.response import REDIRECT_STATUSES
from usher.private_hosts import HostPermission
from usher.urls import Url

PermissionLookup = Callable[[Url], Awaitable[HostPermission | None]]

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
    fetcher: Fetcher,
    url: Url,
    permission: PermissionLookup,
    *,
    etag: str = "",
    lastmod: str = "",
    source: Url | None = None,
) -> FetchResult:
    """Fetch a URL and follow redirects; only leading permanent redirects change the feed's URL.

    `source` is the page or feed that names the URL, None if the operator does. `permission` looks up the operator's
    permission for a private host.
    """
    headers = request_headers(etag, lastmod)
    feed_url, here, permanent = url, url, True
    for _ in range(MAX_REDIRECTS + 1):
        answer = await get_permitted(fetcher, here, headers, permission, source)
        if answer.status not in REDIRECT_STATUSES:
            return FetchResult(answer, feed_url)
        if answer.location is None:
            return FetchResult(answer, feed_url, f"HTTP {answer.status} without a Location")
        source, here = here, answer.location
        permanent = permanent and answer.status in PERMANENT_REDIRECT_STATUSES
        feed_url = here if permanent else feed_url
    return FetchResult(answer, url, f"More than {MAX_REDIRECTS} redirects")


async def get_permitted(
    fetcher: Fetcher,
    url: Url,
    headers: Mapping[str, str],
    permission: PermissionLookup,
    source: Url | None,
) -> FetchResponse:
    """Request a URL; a private host with the operator's permission, unless another host leads to it."""
    answer = await fetcher.get(url, headers, source=source)
    if answer.kind != "private" or (source is not None and source.host != url.host):
        return answer
    # Only a request that was refused before it was sent costs a lookup.
    granted = await permission(url)
    if granted is None:
        return answer
    return await fetcher.get(url, headers, source=source, permission=granted)


def request_headers(etag: str, lastmod: str) -> Mapping[str, str]:
    """The request headers; with validators the server may answer 304."""
    headers = {"Accept": ACCEPT, "If-None-Match": etag, "If-Modified-Since": lastmod}
    return {name: value for name, value in headers.items() if value and value.isprintable()}
