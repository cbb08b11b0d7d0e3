"""A feed that says in its own words that it is elsewhere from now on (`itunes:new-feed-url`, `newLocation`).

Comes from a poll that brought such a feed; goes to the web, and back as what was found there, as if a server had sent
us on for good. Nobody moves to where there is no feed, nor in a circle.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from usher.crawl.http.fetch import Fetcher
from usher.feeds.poll.outcome import FeedResponse
from usher.feeds.poll.request import FetchResult, fetch_feed
from usher.feeds.store.save_feed import CacheValidators
from usher.feeds.store.subscriptions import FeedSubscription
from usher.urls import Refused, Url, parse

MAX_MOVES: Final = 4  # one after the other
Judge = Callable[[FetchResult, FeedSubscription, datetime], FeedResponse]


def declared_url(outcome: FeedResponse) -> Url | None:
    """Where a feed says that it is, if that is not where it was found."""
    if outcome.kind != "fresh" or outcome.feed is None or not outcome.feed.moved_to:
        return None
    url = parse(outcome.feed.moved_to)
    return None if isinstance(url, Refused) or url == outcome.home else url


async def follow_declared_move(
    fetcher: Fetcher, known: FeedSubscription, outcome: FeedResponse, now: datetime, judge: Judge
) -> FeedResponse:
    """What is where the feed says it is; without a feed there, what it said here, to be read again next time."""
    anew = replace(known, etag="", lastmod="", body_hash=None)
    found, been = outcome, {outcome.home}
    for _ in range(MAX_MOVES):
        url = declared_url(found)
        if url is None:
            return found
        if url in been:  # each says that it is with the other
            return outcome
        found = judge(await fetch_feed(fetcher, url, source=found.home), anew, now)
        if found.kind != "fresh" or found.home in been:
            return replace(outcome, stamp=CacheValidators())
        been |= {url, found.home}
    return outcome
