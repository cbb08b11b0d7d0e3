"""The pace follows the rhythm of a feed, heeds what it asks for, and never leaves its bounds."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.feeds.model import Hints
from usher.feeds.poll.interval import (
    DEFAULT,
    LEAST,
    MOST,
    MOST_RETRY_AFTER,
    Polled,
    after,
    freshness,
    rhythm,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def steady(gap: timedelta, count: int = 20, now: datetime = NOW) -> list[datetime]:
    return [now - gap * number for number in range(count)]


@pytest.mark.parametrize("gap", [10 * MINUTE, HOUR, DAY, 3 * DAY])
def test_a_steady_feed_is_read_twice_in_its_gap(gap: timedelta) -> None:
    found = after(Polled(), steady(gap), now=NOW, fraction=0)
    assert found.period == min(gap / 2, DAY)
    assert found.at == NOW + min(gap / 2, DAY)
    assert "It brings something about every" in found.why


def test_whole_days_count() -> None:
    """The ancestor dropped them: one item each two days and a second was every second to it."""
    gap = 2 * DAY + timedelta(seconds=1)
    assert rhythm(steady(gap), NOW) == gap


def test_items_of_one_moment_are_one() -> None:
    assert rhythm([NOW] * 50, NOW) is None
    assert rhythm([NOW, NOW - HOUR] * 50, NOW) == HOUR


def test_a_feed_that_falls_silent_is_left_alone_more_and_more() -> None:
    times = steady(HOUR)
    periods = [after(Polled(), times, now=NOW + n * DAY, fraction=0).period for n in range(12)]
    assert periods == sorted(periods)
    assert periods[-1] == MOST


def test_dates_to_come_tell_nothing() -> None:
    assert rhythm([NOW + DAY, NOW + 2 * DAY], NOW) is None
    assert rhythm([*steady(HOUR), NOW + 1000 * DAY], NOW) == HOUR


def test_a_feed_without_dates_is_read_more_often_while_it_brings_something() -> None:
    assert after(Polled(HOUR, new=3), [], now=NOW, fraction=0).period == HOUR / 2
    assert after(Polled(HOUR, new=0), [], now=NOW, fraction=0).period == 1.5 * HOUR
    assert after(Polled(), [], now=NOW, fraction=0).period == 1.5 * DEFAULT


@pytest.mark.parametrize("gap", [5 * MINUTE, HOUR, 7 * HOUR, DAY])
@pytest.mark.parametrize("start", [LEAST, DEFAULT, MOST])
def test_it_converges_without_dates(gap: timedelta, start: timedelta) -> None:
    """Simulated: an item comes every gap, and only what the polls bring is known."""
    now, period, seen, periods = NOW, start, 0, []
    for _ in range(200):
        there = int((now - NOW) / gap)
        found = after(Polled(period, new=there - seen), [], now=now, fraction=0.5)
        seen, period, now = there, found.period, found.at
        periods.append(period)
    settled = periods[100:]
    assert max(settled) <= 3 * gap
    assert min(settled) >= gap / 8


@pytest.mark.parametrize(
    "polled",
    [
        Polled(hints=Hints(ttl=6 * HOUR)),
        Polled(hints=Hints(period=6 * HOUR)),
        Polled(fresh=6 * HOUR),
        Polled(retry_after=6 * HOUR),
        Polled(hints=Hints(ttl=2 * HOUR, period=6 * HOUR), fresh=HOUR),
    ],
)
def test_what_feed_and_server_ask_for_is_heeded(polled: Polled) -> None:
    found = after(polled, steady(HOUR), now=NOW, fraction=0)
    assert found.period == 6 * HOUR
    assert "rhythm" not in found.why
    slower = after(polled, steady(3 * DAY), now=NOW, fraction=0)
    assert slower.period == DAY


@pytest.mark.parametrize(
    "polled",
    [
        Polled(99 * HOUR),
        Polled(hints=Hints(ttl=365 * DAY)),
        Polled(hints=Hints(period=30 * DAY)),
        Polled(fresh=7 * DAY),
        Polled(hints=Hints(skip_days=frozenset({0, 1, 2, 3, 4, 5}))),
        Polled(hints=Hints(skip_hours=frozenset(range(24)))),
        Polled(99 * HOUR, errors=4),
    ],
)
@pytest.mark.parametrize("gap", [HOUR, 40 * DAY])
def test_no_feed_is_left_alone_for_more_than_a_day(polled: Polled, gap: timedelta) -> None:
    found = after(polled, steady(gap), now=NOW, fraction=0.9)
    assert NOW + HOUR / 2 < found.at <= NOW + DAY
    assert found.period <= DAY


def test_a_server_that_asks_to_wait_for_longer_than_a_day_is_obeyed() -> None:
    found = after(Polled(errors=1, retry_after=60 * HOUR), [], now=NOW, fraction=0)
    assert found.at == NOW + 60 * HOUR
    endless = after(Polled(errors=1, retry_after=365 * DAY), [], now=NOW, fraction=0)
    assert endless.at == NOW + MOST_RETRY_AFTER


def test_hours_and_days_to_skip_are_skipped() -> None:
    evening = Hints(skip_hours=frozenset({12, 13, 14}))
    assert after(Polled(hints=evening), steady(HOUR), now=NOW, fraction=0).at == NOW + 3 * HOUR
    tuesday = Hints(skip_days=frozenset({0}))
    assert after(Polled(hints=tuesday), steady(HOUR), now=NOW, fraction=0).at == NOW + 12 * HOUR
    always = Hints(skip_hours=frozenset(range(24)))
    assert after(Polled(hints=always), steady(HOUR), now=NOW, fraction=0).at == NOW + DAY


def test_failures_double_the_wait_up_to_a_day() -> None:
    waits = [after(Polled(HOUR, errors=n), [], now=NOW, fraction=0).at - NOW for n in (1, 2, 3, 50)]
    assert waits == [2 * HOUR, 4 * HOUR, 8 * HOUR, DAY]
    assert after(Polled(HOUR, errors=3), [], now=NOW, fraction=0).period == HOUR
    assert after(Polled(MOST, errors=3), [], now=NOW, fraction=0).at == NOW + MOST
    assert (
        after(Polled(errors=1, retry_after=30 * HOUR), [], now=NOW, fraction=0).at
        == NOW + 30 * HOUR
    )
    assert after(Polled(errors=2), [], now=NOW, fraction=0).why == "It failed 2 times in a row."


SPANS = st.timedeltas(timedelta(0), timedelta(days=4000))
HINTS = st.builds(
    Hints,
    st.none() | SPANS,
    st.none() | SPANS,
    st.frozensets(st.integers(0, 23)),
    st.frozensets(st.integers(0, 6)),
)
POLLED = st.builds(
    Polled,
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
    polled: Polled, times: list[datetime], fraction: float
) -> None:
    found = after(polled, times, now=NOW, fraction=fraction)
    assert LEAST <= found.period <= MOST
    latest = MOST_RETRY_AFTER if polled.errors and polled.retry_after else MOST
    assert NOW + LEAST <= found.at <= NOW + latest
    assert found.why.endswith(".")


@given(POLLED, st.floats(0, 1), st.integers(0, 50))
def test_more_failures_never_mean_an_earlier_poll(
    polled: Polled, fraction: float, more: int
) -> None:
    def wait(errors: int) -> datetime:
        given = Polled(polled.period, 0, errors, polled.hints, polled.fresh, polled.retry_after)
        return after(given, [], now=NOW, fraction=fraction).at

    errors = max(polled.errors, 1)
    assert wait(errors) <= wait(errors + more)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_chance_only_adds_a_tenth(fractions: list[float]) -> None:
    waits = [after(Polled(), steady(HOUR), now=NOW, fraction=one).at - NOW for one in fractions]
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
        ("max-age=99999999999999", "", MOST),
        ("max-age=0", "Mon, 16 Nov 2026 13:00:00 GMT", timedelta(0)),
    ],
)
def test_how_long_an_answer_is_good(
    cache_control: str, expires: str, fresh: timedelta | None
) -> None:
    assert freshness(cache_control, expires, NOW) == fresh
