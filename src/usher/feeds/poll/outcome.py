"""What the answer to a poll means, what came of it, and when to come again.

Comes from `poll.judge`; goes to whoever writes it down, alone or with others, and to people.
"""

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
    """What an answer means."""

    kind: Literal["fresh", "same", "gone", "failed"]
    home: Url  # where the feed is for good; where it was, if there is none
    status: int | None
    reason: str = ""
    feed: Feed | None = None
    stamp: CacheValidators = field(default_factory=CacheValidators)
    retry_after: timedelta | None = None
    fresh: timedelta | None = None
    silent: bool = False
    began: datetime | None = None


@dataclass(slots=True)
class PollOutcome:
    """What came of a poll, for people and programs."""

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
    known: FeedSubscription,
    outcome: FeedResponse,
    times: list[datetime],
    *,
    new: int,
    errors: int = 0,
    ours: bool = False,
    now: datetime,
) -> interval.NextPoll:
    """By the feed's own pace, or by the operator's, which no hint shortens or stretches."""
    period = known.fixed or known.period or interval.DEFAULT_PERIOD
    if ours:
        return interval.NextPoll(now + min(period, interval.MIN_PERIOD), period, "Nobody answered.")
    if known.fixed is None:
        polled = interval.PollFacts(
            period=period,
            new=new,
            errors=errors,
            hints=outcome.feed.hints if outcome.feed else known.hints,
            fresh=outcome.fresh,
            retry_after=outcome.retry_after,
        )
        return interval.next_poll(polled, times, now=now, fraction=random())  # noqa: S311 - only to spread
    wait = min(period * 2 ** min(errors, 20), max(MAX_ERROR_WAIT, period)) if errors else period
    wait = max(wait, outcome.retry_after or timedelta())
    why = f"It failed {errors} times in a row." if errors else "The operator wants it so."
    return interval.NextPoll(now + wait, period, why)
