"""When to read a feed again: by its own rhythm, by what it asks for, and later when it fails.

Comes from the times of its items, what the last polls brought and the hints of feed and server; goes to the time of
the next poll with the reason. Chance comes in as a fraction, so that thousands of feeds do not wake at once.

The rhythm is the mean time between items, or the silence since the last one if that is longer, so that a feed that
falls silent is left alone more and more, up to a day. It is read twice in that time. A feed without dates is read more
often as long as it brings something, and less often as long as it does not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from usher import durations
from usher.feeds.model import PollHints
from usher.feeds.parse import dates

MIN_WAIT: Final = timedelta(seconds=1)  # between two polls, also where the operator decides
MIN_PERIOD: Final = timedelta(minutes=1)
MAX_PERIOD: Final = timedelta(days=1)  # no automatic period is longer; the operator's may be
MAX_RETRY_AFTER: Final = timedelta(hours=99)  # for which a server may ask to be left alone
DEFAULT_PERIOD: Final = timedelta(hours=1)
MAX_ERROR_WAIT: Final = timedelta(days=1)  # a feed that comes back is seen within a day
MAX_ITEM_TIMES: Final = 50  # of the newest items, which say what the rhythm is now
JITTER: Final = 0.1

_MAX_DOUBLINGS: Final = 12  # which make more than a day of every period
_FASTER_FACTOR: Final = 0.5
_SLOWER_FACTOR: Final = 1.5
_HOUR: Final = timedelta(hours=1)
_NO_HINTS: Final = PollHints()
_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,10})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PollFacts:
    """What is known after a poll: the period until now, how many items were new, how often it failed in a row."""

    period: timedelta = DEFAULT_PERIOD
    new: int = 0
    errors: int = 0
    hints: PollHints = _NO_HINTS
    fresh: timedelta | None = None  # how long the server says that its answer is good
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NextPoll:
    """When to come again, the period to keep until then, and why."""

    at: datetime
    period: timedelta
    why: str


def next_poll(
    polled: PollFacts, times: Iterable[datetime], *, now: datetime, fraction: float
) -> NextPoll:
    """The next poll; `times` are those of the items, `fraction` is chance from 0 up to 1."""
    if polled.errors > 0:
        return _after_error(polled, now, fraction)
    found = publishing_interval(times, now)
    period, why = _natural(polled, found)
    asked, by = _asked(polled)
    if asked > period:
        period, why = _bounded(asked), by
    at = now + min(period * (1 + JITTER * _unit(fraction)), MAX_PERIOD)
    return NextPoll(_not_skipped(at, polled.hints, now), period, why)


def publishing_interval(times: Iterable[datetime], now: datetime) -> timedelta | None:
    """The time between items, as far as their dates tell; dates to come tell nothing."""
    past = sorted({one for one in times if one <= now})[-MAX_ITEM_TIMES:]
    if len(past) < 2:  # noqa: PLR2004 - a gap has two ends
        return None
    mean = (past[-1] - past[0]) / (len(past) - 1)
    return max(mean, now - past[-1])


def cache_lifetime(cache_control: str, expires: str, now: datetime) -> timedelta | None:
    """How long the server says that its answer is good."""
    if "no-cache" in cache_control.lower() or "no-store" in cache_control.lower():
        return None
    if found := _MAX_AGE.search(cache_control):
        return min(timedelta(seconds=int(found[1])), MAX_PERIOD)
    until = dates.parse_date(expires.strip(), now) if expires else None
    return min(until - now, MAX_PERIOD) if until and until > now else None


def _natural(polled: PollFacts, found: timedelta | None) -> tuple[timedelta, str]:
    if found is not None:
        return _bounded(
            found / 2
        ), f"It brings something about every {durations.show(_whole(found))}."
    step = _FASTER_FACTOR if polled.new else _SLOWER_FACTOR
    why = "It brought something new." if polled.new else "It brought nothing new."
    return _bounded(_bounded(polled.period) * step), why


def _asked(polled: PollFacts) -> tuple[timedelta, str]:
    """The longest time for which feed or server ask to be left alone."""
    said = (
        (polled.hints.ttl, "It asks so by its ttl."),
        (polled.hints.period, "It says how often it changes."),
        (polled.fresh, "The server says how long its answer is good."),
        (polled.retry_after, "The server asks to wait."),
    )
    return max(((time, why) for time, why in said if time), default=(timedelta(), ""))


def _after_error(polled: PollFacts, now: datetime, fraction: float) -> NextPoll:
    """Twice as long after each failure, up to a day, or until the server says."""
    period = _bounded(polled.period)
    wait = max(period, min(period * 2 ** min(polled.errors, _MAX_DOUBLINGS), MAX_ERROR_WAIT))
    later = 1 + JITTER * _unit(fraction)
    asked = min((polled.retry_after or MIN_PERIOD) * later, MAX_RETRY_AFTER)
    wait = max(min(wait * later, MAX_PERIOD), asked)
    times = "once" if polled.errors == 1 else f"{polled.errors} times in a row"
    return NextPoll(now + wait, period, f"It failed {times}.")


def _not_skipped(at: datetime, hints: PollHints, now: datetime) -> datetime:
    """The first moment from then on in no hour and on no day that the feed asks to skip, or a day from now."""
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


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=max(1, round(span.total_seconds())))


def _unit(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
