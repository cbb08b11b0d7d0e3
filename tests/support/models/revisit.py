"""Revisits: when a page is fetched again after what its last fetch brought.

Comes from the outcome of a fetch, or from what its site says meanwhile; goes to the page's next_fetch, cadence and
failures. The statements `settle` and `hint` of guestbook.sql are the same for a batch: seconds are whole and divisions
round down, so that both agree exactly.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

RevisitResult = Literal["success", "unchanged", "gone", "failure"]

FIRST_PAUSE: Final = timedelta(
    hours=1
)  # the pause after one failure, and the shortest adapted cadence
MAX_DOUBLINGS: Final = 20  # 120 years, longer than any cadence
MAX_FAILURES: Final = 32_000  # what the column holds


@dataclass(frozen=True, slots=True)
class RevisitState:
    """When a page is fetched next, its own cadence unless it goes by its host's, and its failures in a row."""

    next_fetch: datetime
    cadence: timedelta | None = None
    failures: int = 0


def backoff(failures: int, cadence: timedelta) -> timedelta:
    """The pause after so many failures in a row: least(cadence, 1 hour * 2^least(failures - 1, 20))."""
    if failures < 1:
        raise ValueError(f"there is no pause after {failures} failures")
    return min(cadence, FIRST_PAUSE * (1 << min(failures - 1, MAX_DOUBLINGS)))


def adapted(current: timedelta, *, changed: bool, base: timedelta) -> timedelta:
    """A page's next cadence: half as long if it changed, half as long again if not, near that of its host.

    In seconds: least(greatest(wanted, 3600, div(base, 8)), base * 4), where wanted is div(current, 2) if changed, else
    div(current * 3, 2). For a base under 15 minutes, base * 4 wins over the hour.
    """
    wanted = (current if changed else current * 3) // timedelta(seconds=2)
    eighth = base // timedelta(seconds=8)
    return min(max(timedelta(seconds=max(wanted, eighth)), FIRST_PAUSE), base * 4)


def hinted(
    next_fetch: datetime, last_visit: datetime, changed: datetime, *, base: timedelta, now: datetime
) -> datetime:
    """A page that its site says has changed comes now, yet an hour or an eighth of `base` after its last visit.

    A time that is to come says nothing, nor does one before the last visit.
    """
    if not last_visit < changed <= now:
        return next_fetch
    pause = max(FIRST_PAUSE, timedelta(seconds=base // timedelta(seconds=8)))
    return min(next_fetch, max(now, last_visit + pause))


def after(
    pace: RevisitState,
    result: RevisitResult,
    *,
    changed: bool,
    base: timedelta,
    adaptive: bool,
    now: datetime,
) -> RevisitState:
    """The pace after a fetch; `base` is the host's cadence, and only a page that was there adapts."""
    cadence = pace.cadence or base
    if result == "failure":
        failures = min(pace.failures + 1, MAX_FAILURES)
        return RevisitState(now + backoff(failures, cadence), pace.cadence, failures)
    if adaptive and result != "gone":
        cadence = adapted(cadence, changed=changed and result == "success", base=base)
        return RevisitState(now + cadence, cadence)
    return RevisitState(now + cadence, pace.cadence)
