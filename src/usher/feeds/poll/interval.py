"""Computes when to poll a feed again. Pure.

The publishing interval is the mean time between items, or the time since the last one if that is longer, so polls of a
silent feed become rarer, down to one a day. A feed is polled twice per publishing interval. Without dates, the period
halves after a poll with new items and grows by half after one without. Hints of the feed and the server lengthen the
period, errors double it. The caller passes a random fraction that spreads the polls of many feeds.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from usher.feeds.model import PollHints
from usher.feeds.parse import dates
from usher.wording import duration_text

MIN_WAIT: Final = timedelta(seconds=1)  # between two polls, even if the operator sets the period
MIN_PERIOD: Final = timedelta(minutes=1)
MAX_PERIOD: Final = timedelta(days=1)  # of automatic periods
MAX_RETRY_AFTER: Final = timedelta(hours=99)
DEFAULT_PERIOD: Final = timedelta(hours=1)
MAX_ERROR_WAIT: Final = timedelta(days=1)
MAX_ITEM_TIMES: Final = 50  # the newest items, which show the current interval
JITTER: Final = 0.1

_MAX_DOUBLINGS: Final = 12  # make every period longer than a day
_FASTER_FACTOR: Final = 0.5
_SLOWER_FACTOR: Final = 1.5
_HOUR: Final = timedelta(hours=1)
_NO_HINTS: Final = PollHints()
_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,10})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PollFacts:
    """The facts after a poll: the period so far, the number of new items, the errors in a row."""

    period: timedelta = DEFAULT_PERIOD
    new: int = 0
    errors: int = 0
    hints: PollHints = _NO_HINTS
    cache_lifetime: timedelta | None = None  # according to the server's cache headers
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NextPoll:
    """The time of the next poll, the period to store, and the reason."""

    at: datetime
    period: timedelta
    why: str


def next_poll(
    facts: PollFacts, times: Iterable[datetime], *, now: datetime, fraction: float
) -> NextPoll:
    """The next poll; `times` are those of the items, `fraction` is random from 0 to 1."""
    if facts.errors > 0:
        return _after_error(facts, now, fraction)
    past = [time for time in times if time <= now]
    silence = now - max(past) if past else None
    period, why = _natural_period(facts, publishing_interval(past, now), silence)
    requested, reason = _requested_period(facts)
    if requested > period:
        period, why = _bounded(requested), reason
    at = now + min(period * (1 + JITTER * _unit(fraction)), MAX_PERIOD)
    return NextPoll(_not_skipped(at, facts.hints, now), period, why)


def publishing_interval(times: Iterable[datetime], now: datetime) -> timedelta | None:
    """The time between items; None if fewer than two have a date in the past."""
    past = sorted({time for time in times if time <= now})[-MAX_ITEM_TIMES:]
    if len(past) < 2:  # noqa: PLR2004 - a gap has two ends
        return None
    mean = (past[-1] - past[0]) / (len(past) - 1)
    return max(mean, now - past[-1])


def cache_lifetime(cache_control: str, expires: str, now: datetime) -> timedelta | None:
    """How long a response stays fresh, from its Cache-Control and Expires headers."""
    if "no-cache" in cache_control.lower() or "no-store" in cache_control.lower():
        return None
    if match := _MAX_AGE.search(cache_control):
        return min(timedelta(seconds=int(match[1])), MAX_PERIOD)
    until = dates.parse_date(expires.strip(), now) if expires else None
    return min(until - now, MAX_PERIOD) if until and until > now else None


def _natural_period(
    facts: PollFacts, gap: timedelta | None, silence: timedelta | None
) -> tuple[timedelta, str]:
    """The period that follows from the items alone, and the reason; `silence` is the age of the latest item."""
    if gap is not None and gap == silence:
        return _bounded(gap / 2), f"Its latest item is {duration_text(gap)} old."
    if gap is not None:
        return _bounded(gap / 2), f"It publishes about every {duration_text(gap)}."
    factor = _FASTER_FACTOR if facts.new else _SLOWER_FACTOR
    why = "It had new items." if facts.new else "It had nothing new."
    return _bounded(_bounded(facts.period) * factor), why


def _requested_period(facts: PollFacts) -> tuple[timedelta, str]:
    """The longest period that the feed or its server requests, and the reason."""
    requests = (
        (facts.hints.ttl, "Its ttl requests this."),
        (facts.hints.period, "Its update period requests this."),
        (facts.cache_lifetime, "The server's cache headers request this."),
        (facts.retry_after, "The server asks to wait."),
    )
    return max(((time, why) for time, why in requests if time), default=(timedelta(), ""))


def _after_error(facts: PollFacts, now: datetime, fraction: float) -> NextPoll:
    """The poll after an error: each error doubles the wait up to a day, and Retry-After is respected."""
    period = _bounded(facts.period)
    wait = max(period, min(period * 2 ** min(facts.errors, _MAX_DOUBLINGS), MAX_ERROR_WAIT))
    jitter = 1 + JITTER * _unit(fraction)
    requested = min((facts.retry_after or MIN_PERIOD) * jitter, MAX_RETRY_AFTER)
    wait = max(min(wait * jitter, MAX_PERIOD), requested)
    times = "once" if facts.errors == 1 else f"{facts.errors} times in a row"
    return NextPoll(now + wait, period, f"It failed {times}.")


def _not_skipped(at: datetime, hints: PollHints, now: datetime) -> datetime:
    """The first time from `at` on that the feed does not ask to skip, at most a day from now."""
    if not hints.skip_hours and not hints.skip_days:
        return at
    latest = now + MAX_PERIOD
    moment = at.astimezone(UTC)
    while moment.hour in hints.skip_hours or moment.weekday() in hints.skip_days:
        moment = moment.replace(minute=0, second=0, microsecond=0) + _HOUR
        if moment > latest:
            return latest
    return moment


def _bounded(period: timedelta) -> timedelta:
    return min(max(period, MIN_PERIOD), MAX_PERIOD)


def _unit(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
