"""Cadences are read by name and as intervals, and written as they are read."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.door.cadence import LONGEST_CADENCE, NAMES, SHORTEST_CADENCE, parse, show
from usher.errors import BadInput

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)

READ = {
    "daily": DAY,
    "WEEKLY": 7 * DAY,
    "bi-weekly": 14 * DAY,
    "biweekly": 14 * DAY,
    "monthly": 30 * DAY,
    "Quarterly": 91 * DAY,
    "bi-annually": 182 * DAY,
    "BiAnnually": 182 * DAY,
    " annually\n": 365 * DAY,
    "36h": 36 * HOUR,
    "10d": 10 * DAY,
    "2w": 14 * DAY,
    "90m": 1.5 * HOUR,
    "60s": HOUR / 60,
    "1d12h": 36 * HOUR,
    "1D 12H": 36 * HOUR,
    "1w1d1h1m1s": timedelta(days=8, seconds=3661),
    "0d6h": 6 * HOUR,
    "P1D": DAY,
    "p2w": 14 * DAY,
    "PT6H": 6 * HOUR,
    "PT90M": 1.5 * HOUR,
    "P1DT12H": 36 * HOUR,
    "1m": SHORTEST_CADENCE,
    "3650d": LONGEST_CADENCE,
}
UNREADABLE = [
    "", " ", "d", "1", "-1d", "1.5h", "d1", "1h1d", "1d1d", "1y", "1 d", "b-iweekly", "hourly", "P", "PT", "P1",
    "P1M", "P1Y", "PT1D", "P1H", "P1DT", "T6H", "1d\x00", "\u0663d", "9" * 10 + "d", "weekly weekly", "never",
]  # fmt: skip
OUTSIDE = ["0d", "59s", "PT0S", "3650d1s", "999999999w", "522w"]
WHOLE = st.integers(60, int(LONGEST_CADENCE.total_seconds())).map(
    lambda seconds: timedelta(seconds=seconds)
)


@pytest.mark.parametrize(("text", "cadence"), READ.items())
def test_cadences_are_read(text: str, cadence: timedelta) -> None:
    assert parse(text) == cadence


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_cadence_is_answered_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match="is not a cadence") as caught:
        parse(text)
    assert "monthly" in caught.value.hint
    assert "36h" in caught.value.hint


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_cadence_out_of_bounds_is_answered_with_the_bounds(text: str) -> None:
    with pytest.raises(BadInput, match="from 1m to 3650d"):
        parse(text)


@pytest.mark.parametrize(("name", "cadence"), NAMES.items())
def test_names_stay_names(name: str, cadence: timedelta) -> None:
    assert show(cadence) == name
    assert parse(name) == parse(name.replace("-", "").upper()) == cadence


@pytest.mark.parametrize(
    ("cadence", "text"),
    [
        (36 * HOUR, "1d12h"),
        (60 * DAY, "60d"),
        (timedelta(seconds=61), "1m1s"),
        (timedelta(days=1, minutes=1), "1d1m"),
        (timedelta(0), "0s"),
    ],
)
def test_intervals_are_shown_short(cadence: timedelta, text: str) -> None:
    assert show(cadence) == text


@given(
    st.one_of(
        WHOLE,
        st.sampled_from(list(NAMES.values())),
        st.integers(1, 3650).map(lambda days: days * DAY),
    )
)
def test_what_is_shown_is_read_back(cadence: timedelta) -> None:
    assert parse(show(cadence)) == parse(show(cadence).upper()) == cadence


@given(st.one_of(st.text(), st.from_regex(r"[pP]?[0-9]{0,10}[wdhmsT]?[0-9]{0,3}[wdhms ]?")))
def test_any_text_is_a_cadence_within_bounds_or_bad_input(text: str) -> None:
    try:
        cadence = parse(text)
    except BadInput:
        return
    assert SHORTEST_CADENCE <= cadence <= LONGEST_CADENCE
    assert cadence.microseconds == 0
    assert parse(show(cadence)) == cadence
