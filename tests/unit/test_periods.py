"""A task runs at its times: each once, none before, none lost for long, whatever the clocks on the wall do."""

import contextlib
import time as stopwatch
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.errors import BadInput
from usher.queue.periods import (
    MAX_PERIOD,
    MIN_PERIOD,
    TaskSchedule,
    first_run,
    next_run,
)

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
AMSTERDAM, NEW_YORK, LORD_HOWE = "Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(clock: TaskSchedule, since: str, n: int, *, lag: timedelta = timedelta()) -> list[str]:
    """The times of the first n runs as the wall there shows them, each made `lag` after it was due."""
    slot, found = first_run(clock, utc(since)), []
    for _ in range(n):
        found.append(slot.astimezone(ZoneInfo(clock.timezone)).strftime("%m-%d %H:%M:%S%z"))
        slot = next_run(clock, slot, slot + lag)
    return found


@pytest.mark.parametrize(
    ("slot", "periodicity", "due"),
    [
        ("2026-11-16 10:50", "15m", "2026-11-16 11:05"),
        ("2026-11-16 10:59", "59m", "2026-11-16 11:58"),
        ("2026-11-16 18:00", "12h", "2026-11-17 06:00"),
        ("2026-11-16 05:30", "24h", "2026-11-17 05:30"),
        ("2026-11-16 10:00", "99h", "2026-11-20 13:00"),
        ("2026-12-31 23:59", "1m", "2027-01-01 00:00"),
        ("2028-02-28 12:00", "1d", "2028-02-29 12:00"),
    ],
)
def test_periods_are_added_as_time(slot: str, periodicity: str, due: str) -> None:
    clock = TaskSchedule.read(periodicity=periodicity)
    assert next_run(clock, utc(slot), utc(slot)) == utc(due)


def test_a_period_counts_from_when_it_was_due_and_from_now_when_that_is_too_late() -> None:
    clock, slot = TaskSchedule(HOUR), utc("2026-11-16 10:00")
    assert next_run(clock, slot, slot + 59 * MINUTE) == slot + HOUR
    assert next_run(clock, slot, slot + HOUR) == slot + 2 * HOUR
    assert next_run(clock, slot, slot + 30 * DAY) == slot + 30 * DAY + HOUR


def test_a_plain_period_begins_at_once_and_other_clocks_at_their_time() -> None:
    now = utc("2026-11-16 10:00")
    assert first_run(TaskSchedule(HOUR), now) == now
    assert first_run(TaskSchedule.read(hour=10), now) == now + DAY
    assert first_run(TaskSchedule.read(minute=0), now) == now + HOUR
    assert first_run(TaskSchedule.read(second=30), now) == now + MINUTE / 2
    assert first_run(TaskSchedule.read(cron="0 10 * * *"), now) == now + DAY


@pytest.mark.parametrize(
    ("constraints", "times"),
    [
        ({"hour": 3}, ["11-17 03:00:00", "11-18 03:00:00"]),
        ({"hour": 12, "minute": 15}, ["11-16 12:15:00", "11-17 12:15:00"]),
        ({"hour": 3, "second": 30}, ["11-17 03:00:30", "11-18 03:00:30"]),
        ({"minute": 15}, ["11-16 10:15:00", "11-16 11:15:00"]),
        ({"minute": 0, "second": 1}, ["11-16 11:00:01", "11-16 12:00:01"]),
        ({"second": 30}, ["11-16 10:01:30", "11-16 10:02:30"]),
        ({"hour": 3, "periodicity": "3d"}, ["11-17 03:00:00", "11-20 03:00:00"]),
        ({"hour": 3, "periodicity": "36h"}, ["11-17 03:00:00", "11-19 03:00:00"]),
        ({"hour": 3, "periodicity": "1m"}, ["11-17 03:00:00", "11-18 03:00:00"]),
        ({"minute": 15, "periodicity": "4h"}, ["11-16 10:15:00", "11-16 14:15:00"]),
        ({"second": 5, "periodicity": "1s"}, ["11-16 10:02:05", "11-16 10:03:05"]),
    ],
)
def test_times_of_day(constraints: dict[str, Any], times: list[str]) -> None:
    clock = TaskSchedule.read(**constraints)
    found = runs(clock, "2026-11-16 10:01:07", 2)
    assert found == [f"{one}+0000" for one in times]
    assert found == runs(clock, "2026-11-16 10:01:07", 2, lag=timedelta(seconds=3.5))


def test_whoever_slept_through_the_minute_fires_once_and_is_back_in_time() -> None:
    for clock in (TaskSchedule.read(hour=3, minute=0), TaskSchedule.read(cron="0 3 * * *")):
        slot = utc("2026-11-16 03:00")
        assert next_run(clock, slot, slot + 5 * MINUTE) == slot + DAY
        assert next_run(clock, slot, slot + 3 * DAY + HOUR) == slot + 4 * DAY


def test_a_slot_beside_its_time_of_day_costs_no_day() -> None:
    # Late by jitter, or the moment of the insert of the task.
    clock = TaskSchedule.read(hour=3)
    for slot in (utc("2026-11-16 03:00:07.5"), utc("2026-11-16 14:00"), utc("2026-11-17 02:59")):
        assert next_run(clock, slot, slot) == utc("2026-11-17 03:00")
    slot = utc("2026-11-16 10:15:20.25")
    assert next_run(TaskSchedule.read(minute=15), slot, slot) == utc("2026-11-16 11:15")


@pytest.mark.parametrize(
    ("zone", "since", "times"),
    [
        (AMSTERDAM, "2026-03-27 12:00", ["03-28 02:30:00+0100", "03-29 03:00:00+0200", "03-30 02:30:00+0200"]),
        (AMSTERDAM, "2026-10-23 12:00", ["10-24 02:30:00+0200", "10-25 02:30:00+0200", "10-26 02:30:00+0100"]),
        (NEW_YORK, "2026-03-06 12:00", ["03-07 02:30:00-0500", "03-08 03:00:00-0400", "03-09 02:30:00-0400"]),
        (NEW_YORK, "2026-10-30 12:00", ["10-31 02:30:00-0400", "11-01 02:30:00-0500", "11-02 02:30:00-0500"]),
        (LORD_HOWE, "2026-10-02 12:00", ["10-03 02:30:00+1030", "10-04 02:30:00+1100", "10-05 02:30:00+1100"]),
    ],
)  # fmt: skip
def test_daily_stays_daily_when_clocks_are_changed(zone: str, since: str, times: list[str]) -> None:
    for clock in (
        TaskSchedule.read(hour=2, minute=30, timezone=zone),
        TaskSchedule.read(hour=2, minute=30, periodicity="1h", timezone=zone),
        TaskSchedule.read(cron="30 2 * * *", timezone=zone),
    ):
        assert runs(clock, since, 3) == times
        assert runs(clock, since, 3, lag=MINUTE) == times


def test_a_time_that_comes_twice_runs_the_first_time_only() -> None:
    times = ["11-01 01:30:00-0400", "11-02 01:30:00-0500"]
    for clock in (
        TaskSchedule.read(hour=1, minute=30, timezone=NEW_YORK),
        TaskSchedule.read(cron="30 1 * * *", timezone=NEW_YORK),
    ):
        assert runs(clock, "2026-11-01 04:00", 2) == times
        # A run so late that the wall shows 01:15 again does not lead back to 01:30.
        assert runs(clock, "2026-11-01 04:00", 2, lag=45 * MINUTE) == times
        assert first_run(clock, utc("2026-11-01 06:15")) == utc("2026-11-02 06:30")


def test_every_third_day_over_a_change_of_clocks() -> None:
    clock = TaskSchedule.read(hour=3, periodicity="3d", timezone=AMSTERDAM)
    times = ["03-27 03:00:00+0100", "03-30 03:00:00+0200", "04-02 03:00:00+0200"]
    assert runs(clock, "2026-03-26 12:00", 3) == times


@pytest.mark.parametrize("start", ["2026-03-28 23:10", "2026-10-24 22:10"])
@pytest.mark.parametrize("zone", [AMSTERDAM, NEW_YORK])
def test_hourly_and_every_minute_follow_the_time_that_passes(zone: str, start: str) -> None:
    for clock, step in (
        (TaskSchedule.read(minute=15, timezone=zone), HOUR),
        (TaskSchedule.read(cron="15 * * * *", timezone=zone), HOUR),
        (TaskSchedule.read(second=0, timezone=zone), MINUTE),
        (TaskSchedule.read(cron="* * * * *", timezone=zone), MINUTE),
    ):
        slot = first_run(clock, utc(start))
        for _ in range(400):
            later = next_run(clock, slot, slot)
            assert later - slot == step
            slot = later


def test_cron() -> None:
    weekdays = TaskSchedule.read(cron=" 30  2 * * MON-FRI ")
    assert weekdays.cron == "30 2 * * MON-FRI"
    friday, monday = utc("2026-11-13 02:30"), utc("2026-11-16 02:30")
    assert next_run(weekdays, friday, friday) == monday
    last_day = TaskSchedule.read(cron="0 0 L * *")
    assert first_run(last_day, utc("2028-02-01 00:00")) == utc("2028-02-29 00:00")
    assert TaskSchedule.read(cron="@Daily").cron == "0 0 * * *"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "must know when"),
        ({"timezone": "Europe/Amsterdam"}, "must know when"),
        ({"periodicity": "0s"}, "from 1s to 3650d"),
        ({"periodicity": timedelta(days=3651)}, "from 1s to 3650d"),
        ({"periodicity": timedelta(seconds=-1)}, "from 1s to 3650d"),
        ({"periodicity": "999999999w"}, "from 1s to 3650d"),
        ({"periodicity": "often"}, "'often' is not a period"),
        ({"hour": 25}, "no hour 25"),
        ({"hour": -1, "periodicity": "1d"}, "no hour -1"),
        ({"minute": 60}, "no minute 60"),
        ({"second": 60}, "no second 60"),
        ({"cron": "* * * * *", "periodicity": "1h"}, "no periodicity"),
        ({"cron": "* * * * *", "hour": 0}, "no periodicity"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": "* * */20 * 1L"}, "matches no time"),
        ({"cron": ""}, "not a cron"),
        ({"cron": "@reboot"}, "not a cron"),
        ({"cron": "0 0 0 * * *"}, "not a cron"),
        ({"cron": "9" * 5000 + " * * * *"}, "not a cron"),
        ({"cron": "1," * 100 + "1 * * * *"}, "not a cron"),
        ({"minute": 1, "timezone": "Mars/Olympus"}, "'Mars/Olympus' is not a time zone"),
        ({"minute": 1, "timezone": ""}, "not a time zone"),
        ({"minute": 1, "timezone": "Europe"}, "not a time zone"),
        ({"minute": 1, "timezone": "../../../etc/passwd"}, "not a time zone"),
        ({"minute": 1, "timezone": "/etc/localtime"}, "not a time zone"),
        ({"minute": 1, "timezone": "a\0b"}, "not a time zone"),
        ({"minute": 1, "timezone": "x" * 5000}, "not a time zone"),
        ({"minute": 1, "timezone": "\ud800"}, "not a time zone"),
    ],
)
def test_clocks_that_cannot_run(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TaskSchedule.read(**given)


def test_periods_from_least_to_most() -> None:
    assert TaskSchedule.read(periodicity="1s").periodicity == MIN_PERIOD
    assert TaskSchedule.read(periodicity="3650d").periodicity == MAX_PERIOD
    assert TaskSchedule.read(periodicity="2M").periodicity == 60 * DAY
    assert TaskSchedule.read(hour=3).periodicity == DAY


FIELD = st.text("0123456789*/-,#LW", min_size=1, max_size=4) | st.sampled_from(
    ["*", "1", "*/2", "1-5", "L", "5#2", "MON"]
)


@given(st.text() | st.lists(FIELD, min_size=4, max_size=6).map(" ".join))
def test_any_text_is_cron_or_bad_input(text: str) -> None:
    try:
        clock = TaskSchedule.read(cron=text)
    except BadInput:
        return
    assert first_run(clock, utc("2026-11-16 10:00")) > utc("2026-11-16 10:00")


@given(st.text(max_size=20))
def test_any_text_is_a_zone_or_bad_input(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert TaskSchedule.read(minute=0, timezone=text).timezone == text


ZONES = st.sampled_from([AMSTERDAM, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kathmandu", "America/Havana"])
PERIODS = st.timedeltas(MIN_PERIOD, 40 * DAY)


def maybe(most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, most)


CRONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "15 * * * *", "30 */2 * * *", "30 2 * * *", "*/10 2 * * *", "0 0 1 * *", "59 23 L * 1",
     "30 1,2,3 * * *", "0 0 * * SUN#1"]
)  # fmt: skip
TIED = st.builds(TaskSchedule, PERIODS, maybe(23), maybe(59), maybe(59), timezone=ZONES)
CLOCKS = (
    TIED | st.builds(TaskSchedule, PERIODS) | st.builds(TaskSchedule, cron=CRONS, timezone=ZONES)
)
# Many of the times are near a change of clocks.
CHANGES = ["2026-03-08 07:00", "2026-03-29 01:00", "2026-10-25 01:00", "2026-11-01 06:00",
           "2026-04-04 15:00", "2026-10-03 15:30", "2026-03-08 05:00", "2026-11-01 05:00"]  # fmt: skip
TIMES = st.builds(
    lambda moment, off: moment + off,
    st.sampled_from(CHANGES).map(utc)
    | st.integers(0, 2**31).map(lambda s: datetime.fromtimestamp(s, UTC)),
    st.timedeltas(-DAY, DAY),
)
LATE = (
    st.just(timedelta()) | st.timedeltas(timedelta(), HOUR) | st.timedeltas(timedelta(), 30 * DAY)
)


@given(CLOCKS, TIMES, LATE)
def test_the_next_run_is_after_now(clock: TaskSchedule, slot: datetime, late: timedelta) -> None:
    now = slot + late
    assert now < next_run(clock, slot, now)
    assert now <= first_run(clock, now)


@given(CLOCKS, TIMES, st.lists(LATE, min_size=3, max_size=6))
def test_no_slot_runs_twice(clock: TaskSchedule, since: datetime, lags: list[timedelta]) -> None:
    slot, seen = first_run(clock, since), []
    for lag in lags:
        seen.append(slot)
        slot = next_run(clock, slot, slot + lag)
    assert all(one < other for one, other in pairwise(seen))
    if clock.hour is not None:
        walls = [one.astimezone(ZoneInfo(clock.timezone)).date() for one in seen]
        assert len(set(walls)) == len(walls)


@given(TIED, TIMES, LATE)
def test_a_tied_clock_shows_its_time_unless_that_is_left_out(
    clock: TaskSchedule, since: datetime, late: timedelta
) -> None:
    slot = first_run(clock, since)
    found = next_run(clock, slot, slot + late).astimezone(ZoneInfo(clock.timezone))
    before = (found.astimezone(UTC) - timedelta(seconds=1)).astimezone(found.tzinfo)
    left_out = clock.hour is not None and before.utcoffset() != found.utcoffset()
    shown = (found.hour, found.minute, found.second)
    for wanted, value in zip((clock.hour, clock.minute, clock.second), shown, strict=True):
        assert wanted in {None, value} or left_out


@given(TIED.filter(lambda clock: clock.cycle is not None), TIMES, LATE)
def test_a_tied_clock_keeps_its_period(
    clock: TaskSchedule, since: datetime, late: timedelta
) -> None:
    slot = first_run(clock, since)
    found = next_run(clock, slot, slot + late)
    if clock.hour is None:
        assert clock.cycle is not None
        assert found - slot >= clock.period
        assert late or found - slot < clock.period + 2 * clock.cycle
    else:
        zone = ZoneInfo(clock.timezone)
        days = (found.astimezone(zone).date() - slot.astimezone(zone).date()).days
        assert days >= -(-clock.period // DAY)
        assert late or days == -(-clock.period // DAY)


def test_a_day_that_is_left_out_runs_when_the_next_begins() -> None:
    # Samoa went to bed on the 29th and got up on the 31st.
    clock = TaskSchedule.read(hour=3, timezone="Pacific/Apia")
    times = ["12-29 03:00:00-1000", "12-31 00:00:00+1400", "12-31 03:00:00+1400"]
    assert runs(clock, "2011-12-29 12:00", 3) == times


def test_a_hundred_thousand_tasks_are_told_their_time_in_a_second_or_two() -> None:
    now = utc("2026-11-16 03:00:01")
    clocks = [
        TaskSchedule(DAY, hour, minute, timezone=AMSTERDAM)
        for hour in range(24)
        for minute in range(60)
    ]
    clocks += [
        TaskSchedule(cron=f"{minute} {hour} * * *") for hour in range(24) for minute in range(60)
    ]
    slot, begin = utc("2026-11-16 03:00"), stopwatch.perf_counter()
    for number in range(100_000):
        next_run(clocks[number % len(clocks)], slot, now)
    assert stopwatch.perf_counter() - begin < 5  # on a busy machine; alone it takes less than one
