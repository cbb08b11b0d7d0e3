"""Follows a feed that declares a new address in its document (`itunes:new-feed-url`, `newLocation`).

The move counts like a permanent redirect, but only if there is a feed at the new address and the moves form no loop.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from usher.crawl.http.fetch import Fetcher
from usher.feeds.poll.outcome import FeedResponse, interpret
from usher.feeds.poll.request import PermissionLookup, fetch_feed
from usher.feeds.store.save_feed import CacheValidators
from usher.feeds.store.subscriptions import FeedSubscription
from usher.urls import Url, UrlRefusal, parse

MAX_MOVES: Final = 4


def declared_url(response: FeedResponse) -> Url | None:
    """The new address that a feed declares; None if there is none or the feed is there already."""
    if response.kind != "fresh" or response.feed is None or not response.feed.moved_to:
        return None
    url = parse(response.feed.moved_to)
    return None if isinstance(url, UrlRefusal) or url == response.url else url


async def follow_declared_move(
    fetcher: Fetcher,
    subscription: FeedSubscription,
    response: FeedResponse,
    permission: PermissionLookup,
    now: datetime,
) -> FeedResponse:
    """The response at the declared address; the original one if there is no feed or the moves form a loop."""
    unread = replace(subscription, etag="", lastmod="", body_hash=None)
    latest, visited = response, {response.url}
    for _ in range(MAX_MOVES):
        url = declared_url(latest)
        if url is None:
            return latest
        if url in visited:
            return response
        result = await fetch_feed(fetcher, url, permission, source=latest.url)
        latest = interpret(result, unread, now)
        if latest.kind != "fresh" or latest.url in visited:
            # The next poll reads it again.
            return replace(response, validators=CacheValidators())
        visited |= {url, latest.url}
    return response
