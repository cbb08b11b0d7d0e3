"""The poll interval follows the publishing interval, respects hints and stays within its bounds."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.feeds.model import PollHints
from usher.feeds.poll.interval import (
    DEFAULT_PERIOD,
    MAX_PERIOD,
    MAX_RETRY_AFTER,
    MIN_PERIOD,
    PollFacts,
    cache_lifetime,
    next_poll,
    publishing_interval,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def steady(gap: timedelta, count: int = 20, now: datetime = NOW) -> list[datetime]:
    return [now - gap * number for number in range(count)]


@pytest.mark.parametrize("gap", [10 * MINUTE, HOUR, DAY, 3 * DAY])
def test_a_steady_feed_is_polled_twice_per_interval(gap: timedelta) -> None:
    found = next_poll(PollFacts(), steady(gap), now=NOW, fraction=0)
    assert found.period == min(gap / 2, DAY)
    assert found.at == NOW + min(gap / 2, DAY)
    assert "It publishes about every" in found.why


def test_the_reason_names_a_rounded_time() -> None:
    gap = HOUR + timedelta(seconds=51)
    steadily = next_poll(PollFacts(), steady(gap), now=NOW, fraction=0).why
    assert steadily == "It publishes about every 61 minutes."
    silent = next_poll(PollFacts(), steady(HOUR), now=NOW + 22 * HOUR + MINUTE, fraction=0).why
    assert silent == "Its latest item is 22 hours old."


def test_whole_days_count() -> None:
    """The ancestor dropped them: one item each two days and a second was every second to it."""
    gap = 2 * DAY + timedelta(seconds=1)
    assert publishing_interval(steady(gap), NOW) == gap


def test_items_of_one_moment_are_one() -> None:
    assert publishing_interval([NOW] * 50, NOW) is None
    assert publishing_interval([NOW, NOW - HOUR] * 50, NOW) == HOUR


def test_polls_of_a_silent_feed_become_rarer() -> None:
    times = steady(HOUR)
    periods = [
        next_poll(PollFacts(), times, now=NOW + n * DAY, fraction=0).period for n in range(12)
    ]
    assert periods == sorted(periods)
    assert periods[-1] == MAX_PERIOD


def test_dates_in_the_future_do_not_count() -> None:
    assert publishing_interval([NOW + DAY, NOW + 2 * DAY], NOW) is None
    assert publishing_interval([*steady(HOUR), NOW + 1000 * DAY], NOW) == HOUR


def test_a_feed_without_dates_is_polled_more_often_while_it_has_news() -> None:
    assert next_poll(PollFacts(HOUR, new=3), [], now=NOW, fraction=0).period == HOUR / 2
    assert next_poll(PollFacts(HOUR, new=0), [], now=NOW, fraction=0).period == 1.5 * HOUR
    assert next_poll(PollFacts(), [], now=NOW, fraction=0).period == 1.5 * DEFAULT_PERIOD


@pytest.mark.parametrize("gap", [5 * MINUTE, HOUR, 7 * HOUR, DAY])
@pytest.mark.parametrize("start", [MIN_PERIOD, DEFAULT_PERIOD, MAX_PERIOD])
def test_it_converges_without_dates(gap: timedelta, start: timedelta) -> None:
    """Simulated: an item comes every gap, and only what the polls bring is known."""
    now, period, seen, periods = NOW, start, 0, []
    for _ in range(200):
        there = int((now - NOW) / gap)
        found = next_poll(PollFacts(period, new=there - seen), [], now=now, fraction=0.5)
        seen, period, now = there, found.period, found.at
        periods.append(period)
    settled = periods[100:]
    assert max(settled) <= 3 * gap
    assert min(settled) >= gap / 8


@pytest.mark.parametrize(
    "polled",
    [
        PollFacts(hints=PollHints(ttl=6 * HOUR)),
        PollFacts(hints=PollHints(period=6 * HOUR)),
        PollFacts(cache_lifetime=6 * HOUR),
        PollFacts(retry_after=6 * HOUR),
        PollFacts(hints=PollHints(ttl=2 * HOUR, period=6 * HOUR), cache_lifetime=HOUR),
    ],
)
def test_hints_of_feed_and_server_are_respected(polled: PollFacts) -> None:
    found = next_poll(polled, steady(HOUR), now=NOW, fraction=0)
    assert found.period == 6 * HOUR
    assert "rhythm" not in found.why
    slower = next_poll(polled, steady(3 * DAY), now=NOW, fraction=0)
    assert slower.period == DAY


@pytest.mark.parametrize(
    "polled",
    [
        PollFacts(99 * HOUR),
        PollFacts(hints=PollHints(ttl=365 * DAY)),
        PollFacts(hints=PollHints(period=30 * DAY)),
        PollFacts(cache_lifetime=7 * DAY),
        PollFacts(hints=PollHints(skip_days=frozenset({0, 1, 2, 3, 4, 5}))),
        PollFacts(hints=PollHints(skip_hours=frozenset(range(24)))),
        PollFacts(99 * HOUR, errors=4),
    ],
)
@pytest.mark.parametrize("gap", [HOUR, 40 * DAY])
def test_every_feed_is_polled_at_least_daily(polled: PollFacts, gap: timedelta) -> None:
    found = next_poll(polled, steady(gap), now=NOW, fraction=0.9)
    assert NOW + HOUR / 2 < found.at <= NOW + DAY
    assert found.period <= DAY


def test_a_retry_after_of_more_than_a_day_is_respected() -> None:
    found = next_poll(PollFacts(errors=1, retry_after=60 * HOUR), [], now=NOW, fraction=0)
    assert found.at == NOW + 60 * HOUR
    endless = next_poll(PollFacts(errors=1, retry_after=365 * DAY), [], now=NOW, fraction=0)
    assert endless.at == NOW + MAX_RETRY_AFTER


def test_hours_and_days_to_skip_are_skipped() -> None:
    evening = PollHints(skip_hours=frozenset({12, 13, 14}))
    assert (
        next_poll(PollFacts(hints=evening), steady(HOUR), now=NOW, fraction=0).at == NOW + 3 * HOUR
    )
    tuesday = PollHints(skip_days=frozenset({0}))
    assert (
        next_poll(PollFacts(hints=tuesday), steady(HOUR), now=NOW, fraction=0).at == NOW + 12 * HOUR
    )
    always = PollHints(skip_hours=frozenset(range(24)))
    assert next_poll(PollFacts(hints=always), steady(HOUR), now=NOW, fraction=0).at == NOW + DAY


def test_failures_double_the_wait_up_to_a_day() -> None:
    waits = [
        next_poll(PollFacts(HOUR, errors=n), [], now=NOW, fraction=0).at - NOW
        for n in (1, 2, 3, 50)
    ]
    assert waits == [2 * HOUR, 4 * HOUR, 8 * HOUR, DAY]
    assert next_poll(PollFacts(HOUR, errors=3), [], now=NOW, fraction=0).period == HOUR
    assert (
        next_poll(PollFacts(MAX_PERIOD, errors=3), [], now=NOW, fraction=0).at == NOW + MAX_PERIOD
    )
    assert (
        next_poll(PollFacts(errors=1, retry_after=30 * HOUR), [], now=NOW, fraction=0).at
        == NOW + 30 * HOUR
    )
    assert (
        next_poll(PollFacts(errors=2), [], now=NOW, fraction=0).why == "It failed 2 times in a row."
    )


SPANS = st.timedeltas(timedelta(0), timedelta(days=4000))
HINTS = st.builds(
    PollHints,
    st.none() | SPANS,
    st.none() | SPANS,
    st.frozensets(st.integers(0, 23)),
    st.frozensets(st.integers(0, 6)),
)
POLLED = st.builds(
    PollFacts,
    SPANS,
    st.integers(0, 100),
    st.integers(0, 1000),
    HINTS,
    st.none() | SPANS,
    st.none() | SPANS,
)
TIMES = st.lists(
    st.timedeltas(timedelta(days=-4000), timedelta(days=4000)).map(lambda span: NOW + span),
    max_size=60,
)


@given(POLLED, TIMES, st.floats(0, 1, exclude_max=True))
def test_the_next_poll_is_never_outside_the_bounds(
    polled: PollFacts, times: list[datetime], fraction: float
) -> None:
    found = next_poll(polled, times, now=NOW, fraction=fraction)
    assert MIN_PERIOD <= found.period <= MAX_PERIOD
    latest = MAX_RETRY_AFTER if polled.errors and polled.retry_after else MAX_PERIOD
    assert NOW + MIN_PERIOD <= found.at <= NOW + latest
    assert found.why.endswith(".")


@given(POLLED, st.floats(0, 1), st.integers(0, 50))
def test_more_failures_never_mean_an_earlier_poll(
    polled: PollFacts, fraction: float, more: int
) -> None:
    def wait(errors: int) -> datetime:
        given = PollFacts(
            polled.period, 0, errors, polled.hints, polled.cache_lifetime, polled.retry_after
        )
        return next_poll(given, [], now=NOW, fraction=fraction).at

    errors = max(polled.errors, 1)
    assert wait(errors) <= wait(errors + more)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_jitter_adds_at_most_a_tenth(fractions: list[float]) -> None:
    waits = [
        next_poll(PollFacts(), steady(HOUR), now=NOW, fraction=one).at - NOW for one in fractions
    ]
    assert all(HOUR / 2 <= one <= HOUR / 2 * 1.1 for one in waits)


@pytest.mark.parametrize(
    ("cache_control", "expires", "fresh"),
    [
        ("max-age=600", "", 10 * MINUTE),
        ("public, MAX-AGE = 600", "", 10 * MINUTE),
        ("s-maxage=5, max-age=600", "", 10 * MINUTE),
        ("no-cache, max-age=600", "", None),
        ("", "Mon, 16 Nov 2026 13:00:00 GMT", HOUR),
        ("", "Mon, 16 Nov 2020 13:00:00 GMT", None),
        ("", "0", None),
        ("", "", None),
        ("max-age=99999999999999", "", MAX_PERIOD),
        ("max-age=0", "Mon, 16 Nov 2026 13:00:00 GMT", timedelta(0)),
    ],
)
def test_cache_lifetime(cache_control: str, expires: str, fresh: timedelta | None) -> None:
    assert cache_lifetime(cache_control, expires, NOW) == fresh
