"""When a page is fetched again: a Python model of schema/work/functions/revisit_time.sql and removal_after_404.sql.

Seconds are whole and divisions round down, so that both agree exactly.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

RevisitResult = Literal["success", "unchanged", "gone", "failure"]

FIRST_PAUSE: Final = timedelta(
    hours=1
)  # the pause after one failure, and the shortest adapted cadence
MAX_DOUBLINGS: Final = 20  # 120 years, longer than any cadence
NOT_FOUND: Final = 404
MAX_FAILURES: Final = 32_000  # what the column holds


@dataclass(frozen=True, slots=True)
class RevisitState:
    """When a page is fetched next, its own cadence if it has one, its failures and its 404s in a row."""

    next_fetch: datetime
    cadence: timedelta | None = None
    failures: int = 0
    misses: int = 0


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


def is_gone(result: RevisitResult, *, status: int | None, is_indexed: bool, misses: int) -> bool:
    """Whether the page leaves the index: the first 404 of an indexed page does not remove it."""
    return result == "gone" and (status != NOT_FOUND or not is_indexed or misses > 0)


def after(
    page: RevisitState,
    result: RevisitResult,
    *,
    changed: bool,
    base: timedelta,
    adaptive: bool,
    now: datetime,
    status: int | None = None,
    is_indexed: bool = False,
) -> RevisitState:
    """The state after a fetch; `base` is the cadence of the host. Only a page that was there adapts its cadence."""
    cadence = page.cadence or base
    if result == "failure":
        failures = min(page.failures + 1, MAX_FAILURES)
        return RevisitState(now + backoff(failures, cadence), page.cadence, failures, page.misses)
    if result == "gone":
        gone = is_gone(result, status=status, is_indexed=is_indexed, misses=page.misses)
        pause = cadence if gone else min(cadence, FIRST_PAUSE)
        return RevisitState(now + pause, page.cadence, misses=min(page.misses + 1, MAX_FAILURES))
    if adaptive:
        cadence = adapted(cadence, changed=changed and result == "success", base=base)
        return RevisitState(now + cadence, cadence)
    return RevisitState(now + cadence, page.cadence)
