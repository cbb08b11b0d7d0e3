"""Pauses grow and stay within the cadence; adapted cadences follow the page and stay near the host's."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.models.revisit import (
    MAX_FAILURES,
    RevisitResult,
    RevisitState,
    adapted,
    after,
    backoff,
)
from usher.door.cadence import LONGEST_CADENCE, SHORTEST_CADENCE

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
CADENCES = st.integers(SHORTEST_CADENCE // SECOND, LONGEST_CADENCE // SECOND).map(
    lambda seconds: seconds * SECOND
)
FAILURES = st.integers(1, MAX_FAILURES)
RESULTS = st.sampled_from(["success", "unchanged", "gone", "failure"])


@pytest.mark.parametrize(
    ("failures", "cadence", "pause"),
    [
        (1, 30 * DAY, HOUR),
        (2, 30 * DAY, 2 * HOUR),
        (5, 30 * DAY, 16 * HOUR),
        (10, 30 * DAY, 512 * HOUR),
        (11, 30 * DAY, 30 * DAY),
        (MAX_FAILURES, 30 * DAY, 30 * DAY),
        (1, 10 * SHORTEST_CADENCE, 10 * SHORTEST_CADENCE),
        (99, LONGEST_CADENCE, LONGEST_CADENCE),
    ],
)
def test_pauses(failures: int, cadence: timedelta, pause: timedelta) -> None:
    assert backoff(failures, cadence) == pause


@pytest.mark.parametrize("failures", [0, -1])
def test_without_a_failure_there_is_no_pause(failures: int) -> None:
    with pytest.raises(ValueError, match="no pause"):
        backoff(failures, DAY)


@given(FAILURES, CADENCES)
def test_pauses_grow_up_to_the_cadence(failures: int, cadence: timedelta) -> None:
    pause, longer = backoff(failures, cadence), backoff(failures + 1, cadence)
    assert min(HOUR, cadence) <= pause <= longer <= cadence
    assert longer in {2 * pause, cadence}


@pytest.mark.parametrize(
    ("current", "changed", "base", "expected"),
    [
        (30 * DAY, True, 30 * DAY, 15 * DAY),
        (30 * DAY, False, 30 * DAY, 45 * DAY),
        (7 * SECOND + DAY, True, DAY, 3 * SECOND + DAY / 2),
        (7 * SECOND + DAY, False, DAY, 10 * SECOND + 1.5 * DAY),
        (4 * DAY, True, 30 * DAY, 30 * DAY / 8),
        (100 * DAY, False, 30 * DAY, 120 * DAY),
        (HOUR, True, HOUR, HOUR),
        (2 * HOUR, True, 4 * HOUR, HOUR),
        (HOUR, False, 10 * SHORTEST_CADENCE, 40 * SHORTEST_CADENCE),
        (DAY, True, 8 * DAY + 7 * SECOND, DAY),
    ],
)
def test_adapted(
    current: timedelta, base: timedelta, expected: timedelta, *, changed: bool
) -> None:
    assert adapted(current, changed=changed, base=base) == expected


@given(CADENCES, CADENCES)
def test_adapted_cadences_are_whole_seconds_near_the_host(
    current: timedelta, base: timedelta
) -> None:
    for changed in (True, False):
        found = adapted(current, changed=changed, base=base)
        assert min(max(HOUR, base // (8 * SECOND) * SECOND), base * 4) <= found <= base * 4
        assert found.microseconds == 0


@given(CADENCES, CADENCES, CADENCES)
def test_a_change_never_makes_it_later(one: timedelta, other: timedelta, base: timedelta) -> None:
    short, long = sorted((one, other))
    for changed in (True, False):
        assert adapted(short, changed=changed, base=base) <= adapted(
            long, changed=changed, base=base
        )
    assert adapted(one, changed=True, base=base) <= adapted(one, changed=False, base=base)


@given(CADENCES, CADENCES)
def test_the_bounds_are_reached_and_kept(start: timedelta, base: timedelta) -> None:
    for changed, end in ((True, max(HOUR, base // (8 * SECOND) * SECOND)), (False, base * 4)):
        current = start
        for _ in range(60):
            current = adapted(current, changed=changed, base=base)
        assert current == min(end, base * 4)


@pytest.mark.parametrize(
    ("pace", "result", "changed", "adaptive", "expected"),
    [
        (RevisitState(NOW, None, 3), "success", True, False, RevisitState(NOW + 8 * DAY)),
        (RevisitState(NOW, DAY, 3), "success", True, False, RevisitState(NOW + DAY, DAY)),
        (RevisitState(NOW), "success", True, True, RevisitState(NOW + 4 * DAY, 4 * DAY)),
        (RevisitState(NOW), "success", False, True, RevisitState(NOW + 12 * DAY, 12 * DAY)),
        (RevisitState(NOW, 4 * DAY), "unchanged", True, True, RevisitState(NOW + 6 * DAY, 6 * DAY)),
        (RevisitState(NOW, DAY, 2), "gone", False, True, RevisitState(NOW + DAY, DAY, misses=1)),
        (RevisitState(NOW), "failure", False, True, RevisitState(NOW + HOUR, None, 1)),
        (RevisitState(NOW, DAY, 2), "failure", False, False, RevisitState(NOW + 4 * HOUR, DAY, 3)),
        (
            RevisitState(NOW, DAY, MAX_FAILURES),
            "failure",
            False,
            False,
            RevisitState(NOW + DAY, DAY, MAX_FAILURES),
        ),
    ],
)
def test_after_a_fetch(
    pace: RevisitState,
    result: RevisitResult,
    expected: RevisitState,
    *,
    changed: bool,
    adaptive: bool,
) -> None:
    assert (
        after(pace, result, changed=changed, base=8 * DAY, adaptive=adaptive, now=NOW) == expected
    )


@given(st.none() | CADENCES, st.integers(0, MAX_FAILURES), RESULTS, CADENCES)
def test_every_page_comes_again_within_its_cadence(
    own: timedelta | None, failures: int, result: RevisitResult, base: timedelta
) -> None:
    page = RevisitState(NOW, own, failures)
    for adaptive in (True, False):
        pace = after(page, result, changed=False, base=base, adaptive=adaptive, now=NOW)
        assert NOW < pace.next_fetch <= NOW + (pace.cadence or base)
        assert (pace.failures > 0) == (result == "failure")
