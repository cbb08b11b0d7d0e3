"""What the response to a poll means, what the poll changed, and when to poll again."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import random
from typing import Final, Literal

from usher.crawl.http.fetch import FetchResponse
from usher.feeds.model import Feed, NotAFeed
from usher.feeds.parse.parser import parse
from usher.feeds.poll import interval
from usher.feeds.poll.request import FetchResult
from usher.feeds.store.item_identity import hash_parts
from usher.feeds.store.save_feed import CacheValidators, storable_text
from usher.feeds.store.subscriptions import FeedSubscription
from usher.feeds.websub.rules import with_link_headers
from usher.urls import Url

MAX_ERROR_WAIT: Final = timedelta(days=1)
# Part of the body's hash; a new edition makes polls parse every document again.
PARSER_EDITION: Final = b"2"
OUTAGE_KINDS: Final = frozenset({"dns", "connect", "timeout"})  # errors that our own outage causes
STATUS_GONE, STATUS_NOT_MODIFIED = 410, 304


@dataclass(frozen=True, slots=True)
class FeedResponse:
    """The meaning of a response."""

    kind: Literal["fresh", "same", "gone", "failed"]
    url: Url  # the permanent URL of the feed; unchanged if the poll failed
    status: int | None
    reason: str = ""
    feed: Feed | None = None
    validators: CacheValidators = field(default_factory=CacheValidators)
    retry_after: timedelta | None = None
    cache_lifetime: timedelta | None = None
    silent: bool = False  # the host did not answer at all
    began: datetime | None = None


@dataclass(slots=True)
class PollOutcome:
    """The result of a poll, for people and programs."""

    feed: int
    kind: Literal["fresh", "same", "gone", "failed", "off", "moved", "ours"]
    words: str
    new: list[int] = field(default_factory=list)
    changed: int = 0
    unchanged: int = 0
    knocked: int = 0
    next_at: datetime | None = None
    why: str = ""
    problems: list[str] = field(default_factory=list)
    stored_in: int | None = None

    @property
    def good(self) -> bool:
        return self.kind in ("fresh", "same", "off")


def interpret(result: FetchResult, subscription: FeedSubscription, now: datetime) -> FeedResponse:
    """The meaning of a response; a response that is no feed never replaces what is stored."""
    answer, url = result.answer, result.url
    if answer.status == STATUS_NOT_MODIFIED and (subscription.etag or subscription.lastmod):
        return FeedResponse("same", url, answer.status, cache_lifetime=_cache_lifetime(answer, now))
    if answer.status == STATUS_GONE and answer.url == url:  # not after a temporary redirect
        return FeedResponse("gone", url, STATUS_GONE, "HTTP 410: the feed is gone.")
    error = result.error or answer.error
    if error or answer.status is None or answer.status // 100 != 2:  # noqa: PLR2004 - success
        reason = error or f"HTTP {answer.status} {answer.reason}".rstrip()
        silent = answer.status is None and answer.kind in OUTAGE_KINDS
        wait = _retry_after(answer, now)
        return FeedResponse(
            "failed", url, answer.status, f"{reason}.", retry_after=wait, silent=silent
        )
    return _interpret_document(answer, url, subscription, now)


def _interpret_document(
    answer: FetchResponse, url: Url, subscription: FeedSubscription, now: datetime
) -> FeedResponse:
    lifetime = _cache_lifetime(answer, now)
    validators = CacheValidators(
        storable_text(answer.first("etag")),
        storable_text(answer.first("last-modified")),
        hash_parts(PARSER_EDITION, answer.body),
    )
    same = FeedResponse("same", url, answer.status, validators=validators, cache_lifetime=lifetime)
    if validators.body == subscription.body_hash:
        return same
    feed = parse(
        answer.body,
        url=str(answer.url),
        content_type=answer.first("content-type"),
        language=answer.first("content-language"),
        now=now,
    )
    if isinstance(feed, NotAFeed):
        wait = _retry_after(answer, now)
        return FeedResponse("failed", url, answer.status, feed.reason, retry_after=wait)
    feed = with_link_headers(feed, answer.headers_of("link"), str(answer.url))
    return replace(same, kind="fresh", feed=feed)


def _retry_after(answer: FetchResponse, now: datetime) -> timedelta | None:
    seconds = answer.retry_after(now)
    if seconds is None:
        return None
    return timedelta(seconds=min(seconds, interval.MAX_RETRY_AFTER.total_seconds()))


def _cache_lifetime(answer: FetchResponse, now: datetime) -> timedelta | None:
    return interval.cache_lifetime(answer.header("cache-control"), answer.first("expires"), now)


def next_poll_of(
    subscription: FeedSubscription,
    response: FeedResponse,
    times: list[datetime],
    *,
    new: int,
    errors: int = 0,
    outage: bool = False,
    now: datetime,
) -> interval.NextPoll:
    """The next poll, at the operator's period if there is one, else at the feed's own pace."""
    period = subscription.fixed or subscription.period or interval.DEFAULT_PERIOD
    if outage:
        at = now + min(period, interval.MIN_PERIOD)
        return interval.NextPoll(at, period, "No host answered.")
    if subscription.fixed is None:
        facts = interval.PollFacts(
            period=period,
            new=new,
            errors=errors,
            hints=response.feed.hints if response.feed else subscription.hints,
            cache_lifetime=response.cache_lifetime,
            retry_after=response.retry_after,
        )
        fraction = random()  # noqa: S311 - only to spread
        return interval.next_poll(facts, times, now=now, fraction=fraction)
    wait = min(period * 2 ** min(errors, 20), max(MAX_ERROR_WAIT, period)) if errors else period
    wait = max(wait, response.retry_after or timedelta())
    why = f"It failed {errors} times in a row." if errors else "The operator set this period."
    return interval.NextPoll(now + wait, period, why)
