"""Weeks of polls in simulated time: the period settles near half the publishing interval."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from usher.feeds.poll import interval
from usher.feeds.poll.interval import DEFAULT_PERIOD, MAX_PERIOD, MIN_PERIOD, PollFacts, next_poll

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
POLLS = 250

gaps = st.integers(2, 14 * 24 * 60).map(lambda minutes: minutes * MINUTE)
seeds = st.integers(0, 2**32)


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll of a simulated feed, and the period after it."""

    at: datetime
    new: int
    period: timedelta


def published(gaps: list[timedelta], spread: float, luck: Random) -> list[datetime]:
    """Items with these times between them, each off by a share of it."""
    moment, found = START - 60 * gaps[0], []
    for gap in gaps:
        moment += gap * (1 + spread * luck.uniform(-1, 1))
        found.append(moment)
    return found


def simulated(items: list[datetime], luck: Random, *, dated: bool = True) -> list[Poll]:
    """Polls of a feed, each when the one before said; the feed shows its latest twenty items."""
    now, period, seen, polls = START, DEFAULT_PERIOD, START, list[Poll]()
    while len(polls) < POLLS and now < items[-1]:
        there = [one for one in items if one <= now]
        new = sum(one > seen for one in there)
        times = there[-interval.MAX_ITEM_TIMES :] if dated else []
        found = next_poll(PollFacts(period=period, new=new), times, now=now, fraction=luck.random())
        seen, period = now, found.period
        polls.append(Poll(now, new, period))
        now = found.at
    return polls


def share(poll: Poll, gap: timedelta) -> float:
    """The period, of what it should be."""
    return poll.period / min(max(gap / 2, MIN_PERIOD), MAX_PERIOD)


@settings(max_examples=40, deadline=None)
@given(gap=gaps, spread=st.floats(0, 0.4), seed=seeds)
def test_the_period_settles_at_half_the_publishing_interval(
    gap: timedelta, spread: float, seed: int
) -> None:
    luck = Random(seed)  # noqa: S311 - repeatable
    polls = simulated(published([gap] * 400, spread, luck), luck)
    assert len(polls) > 30
    settled = polls[5:]
    assert all(MIN_PERIOD <= one.period <= MAX_PERIOD for one in polls)
    assert all(0.7 < share(one, gap) < 1.7 for one in settled)
    steps = [after.period / before.period for before, after in pairwise(settled)]
    assert all(0.5 < step < 2 for step in steps), "it jumps"
    mean = sum((one.period for one in settled), timedelta()) / len(settled)
    assert 0.8 < share(Poll(START, 0, mean), gap) < 1.3
    # Polled twice in the time of an item, no more than one in two polls brings something.
    if MIN_PERIOD < gap / 2 < MAX_PERIOD:
        assert 0.3 < sum(one.new > 0 for one in settled) / len(settled) < 0.7


@settings(max_examples=20, deadline=None)
@given(gap=st.integers(10, 20 * 60).map(lambda minutes: minutes * MINUTE), seed=seeds)
def test_without_dates_the_period_stays_near_the_interval(gap: timedelta, seed: int) -> None:
    luck = Random(seed)  # noqa: S311 - repeatable
    polls = simulated(published([gap] * 600, 0.1, luck), luck, dated=False)
    settled = polls[20:]
    assert len(settled) > 30
    assert all(MIN_PERIOD <= one.period <= MAX_PERIOD for one in polls)
    assert all(gap / 8 < one.period < 3 * gap for one in settled)
    assert sum((one.period for one in settled), timedelta()) / len(settled) < gap


@settings(max_examples=20, deadline=None)
@given(gap=st.integers(30, 6 * 60).map(lambda minutes: minutes * MINUTE), seed=seeds)
def test_the_period_follows_a_change_of_the_interval(gap: timedelta, seed: int) -> None:
    """Slower within the first long silence, faster within the items that count."""
    luck = Random(seed)  # noqa: S311 - repeatable
    slow = simulated(published([gap] * 80 + [8 * gap] * 60, 0.1, luck), luck)
    assert share(slow[-1], 8 * gap) > 0.7
    quick = simulated(published([8 * gap] * 62 + [gap] * 200, 0.1, luck), luck)
    assert 0.7 < share(quick[-1], gap) < 1.7


@settings(max_examples=20, deadline=None)
@given(gap=gaps, silence=st.integers(1, 60), seed=seeds)
def test_polls_of_a_feed_that_fell_silent_become_rarer(
    gap: timedelta, silence: int, seed: int
) -> None:
    luck = Random(seed)  # noqa: S311 - repeatable
    items = published([gap] * 60, 0, luck)
    end = [*items, items[-1] + silence * DAY]
    periods = [one.period for one in simulated(end, luck) if one.at > items[-1] + gap]
    assert periods == sorted(periods)
    assert all(one <= MAX_PERIOD for one in periods)
    assert len(periods) < 100, "it is asked in vain too often"
