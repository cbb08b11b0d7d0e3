"""What the response to a poll means, what the poll changed, and when to poll again."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import random
from typing import Final, Literal

from usher.feeds.model import Feed
from usher.feeds.poll import interval
from usher.feeds.store.save_feed import CacheValidators
from usher.feeds.store.subscriptions import FeedSubscription
from usher.urls import Url

MAX_ERROR_WAIT: Final = timedelta(days=1)


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
