"""When a task runs next: by its period, its time of day or its cron expression. All results are in UTC."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from usher import durations
from usher.errors import BadInput

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
MIN_PERIOD: Final = SECOND
MAX_PERIOD: Final = timedelta(days=3650)

MAX_UNIT_VALUES: Final[Mapping[str, int]] = MappingProxyType(
    {"hour": 23, "minute": 59, "second": 59}
)
CRON_FIELDS: Final = 5
CRON_HINT: Final = (
    "Five fields (minute, hour, day, month, weekday), such as '30 2 * * MON-FRI', or @daily."
)
MACROS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
    }
)
MAX_CRON_CHARS: Final = 200
CHECK_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
CACHE_SIZE: Final = 16_384  # tasks that are due together often share their schedule


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """When a task runs: a period, optionally tied to a time of day, or a cron expression."""

    periodicity: timedelta | None = None
    hour: int | None = None
    minute: int | None = None
    second: int | None = None
    cron: str | None = None
    timezone: str = "UTC"

    @classmethod
    def read(
        cls,
        *,
        periodicity: timedelta | str | None = None,
        hour: int | None = None,
        minute: int | None = None,
        second: int | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
    ) -> Self:
        """Return a valid schedule, or raise BadInput. A time of day without a period recurs each time it comes."""
        schedule = cls(read_period(periodicity), hour, minute, second, read_cron(cron), timezone)
        time_zone(timezone)
        for unit, maximum in MAX_UNIT_VALUES.items():
            value = getattr(schedule, unit)
            if value is not None and not 0 <= value <= maximum:
                raise BadInput(f"There is no {unit} {value}.", hint=f"From 0 to {maximum}.")
        if schedule.cron is not None and (schedule.periodicity or schedule.cycle):
            raise BadInput("A cron expression goes with no periodicity, hour, minute or second.")
        if schedule.cron is None and schedule.periodicity is None:
            return replace(schedule, periodicity=schedule.period)
        return schedule

    @property
    def cycle(self) -> timedelta | None:
        """The time between two occurrences of its time of day; None if it has none."""
        units = ((self.hour, DAY), (self.minute, HOUR), (self.second, MINUTE))
        return next((cycle for value, cycle in units if value is not None), None)

    @property
    def period(self) -> timedelta:
        """The periodicity, or else the cycle; BadInput if both are missing."""
        period = self.periodicity or self.cycle
        if period is None:
            raise BadInput(
                "A task must know when it runs.",
                hint="Give it a periodicity, an hour, minute or second, or a cron expression.",
            )
        return period

    @property
    def time_of_day(self) -> time:
        """The time it is tied to; units smaller than the given one are 0."""
        return time(self.hour or 0, self.minute or 0, self.second or 0)


def first_run(schedule: TaskSchedule, now: datetime) -> datetime:
    """Return now, or the first time that matches the time of day or the cron expression."""
    if schedule.cron is not None:
        return next_cron_time(schedule.cron, schedule.timezone, now)
    if schedule.hour is not None:
        earliest = local_time(now, schedule.timezone)
        return next_time_of_day(schedule.time_of_day, schedule.timezone, earliest, now)
    if schedule.cycle is not None:
        earliest = next_second(now)
        return next_cycle_time(schedule.time_of_day, schedule.cycle, schedule.timezone, earliest)
    return now


def next_run(schedule: TaskSchedule, slot: datetime, now: datetime) -> datetime:
    """Return the run after the one that was due at `slot` and starts now. One run replaces all that were missed."""
    if schedule.cron is not None:
        return next_cron_time(schedule.cron, schedule.timezone, now)
    if schedule.hour is not None:
        return next_daily_run(schedule, slot, now)
    if schedule.cycle is not None:
        return next_cycle_run(schedule, schedule.cycle, slot, now)
    due = slot + schedule.period
    return due if due > now else now + schedule.period


@lru_cache(CACHE_SIZE)
def next_daily_run(schedule: TaskSchedule, slot: datetime, now: datetime) -> datetime:
    """Count in calendar days, which last 23 or 25 hours when the clocks change."""
    # The period counts from the intended time: jitter, an operator or a clock change may have made the slot late.
    local_slot = local_time(slot, schedule.timezone)
    intended = datetime.combine(local_slot, schedule.time_of_day)
    if intended > local_slot:
        intended -= DAY
    earliest = max(intended + schedule.period, local_time(now, schedule.timezone))
    return next_time_of_day(schedule.time_of_day, schedule.timezone, earliest, now)


@lru_cache(CACHE_SIZE)
def next_cycle_run(
    schedule: TaskSchedule, cycle: timedelta, slot: datetime, now: datetime
) -> datetime:
    """Count in elapsed hours, as cron does with `*`: a clock change removes and adds none."""
    intended = slot.replace(microsecond=0)
    intended -= time_since(local_time(intended, schedule.timezone), schedule.time_of_day, cycle)
    earliest = max(intended + schedule.period, next_second(now))
    return next_cycle_time(schedule.time_of_day, cycle, schedule.timezone, earliest)


def next_second(now: datetime) -> datetime:
    """Return the first whole second after now."""
    return now.replace(microsecond=0) + SECOND


def local_time(instant: datetime, timezone: str) -> datetime:
    """Return the local time in a time zone, without the zone."""
    return instant.astimezone(time_zone(timezone)).replace(tzinfo=None, fold=0)


def time_since(local: datetime, mark: time, cycle: timedelta) -> timedelta:
    """Return how long ago, by local time, the mark of the cycle was."""
    return (local - datetime.combine(local, mark)) % cycle


def next_time_of_day(mark: time, timezone: str, earliest: datetime, now: datetime) -> datetime:
    """Return the first such time after now that is, by local time, not before the earliest."""
    local = datetime.combine(earliest, mark)
    if local < earliest:
        local += DAY
    while (instant := utc_time(local, timezone)) <= now:
        local += DAY
    return instant


def next_cycle_time(mark: time, cycle: timedelta, timezone: str, earliest: datetime) -> datetime:
    """Return the first instant, not before the earliest, at which local time shows that minute or second."""
    instant = earliest.astimezone(UTC)
    # A second round is needed only after a clock change by half an hour.
    while late := time_since(local_time(instant, timezone), mark, cycle):
        instant += cycle - late
    return instant


@lru_cache(CACHE_SIZE)
def next_cron_time(cron: str, timezone: str, now: datetime) -> datetime:
    """Return the first match after now; BadInput if there is none."""
    for run in CronSim(cron, now.astimezone(time_zone(timezone))):
        # In the second of two equal hours, cronsim names times of the first.
        if (instant := run.astimezone(UTC)) > now:
            return instant
    raise BadInput(f"{cron!a} matches no time.", hint=CRON_HINT)


def utc_time(local: datetime, timezone: str) -> datetime:
    """Return when clocks show a local time: the first of two instants, or the end of the gap that it is in."""
    zoned = local.replace(tzinfo=time_zone(timezone))
    instant = zoned.astimezone(UTC)
    if local_time(instant, timezone) == local:
        return instant
    before = zoned.replace(fold=1).astimezone(UTC)
    seconds = range((instant - before) // SECOND)
    gap = bisect_left(
        seconds, local, key=lambda passed: local_time(before + passed * SECOND, timezone)
    )
    return before + gap * SECOND


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of that name; BadInput if there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise BadInput(
            f"{name[:80]!a} is not a time zone.",
            hint="Such as UTC, Europe/Amsterdam or America/New_York.",
        ) from error


def read_period(period: timedelta | str | None) -> timedelta | None:
    """Parse a period; BadInput if it is none or out of bounds."""
    if isinstance(period, str):
        text, period = period, durations.parse(period.strip())
        if period is None:
            raise BadInput(
                f"{text[:40]!a} is not a period.", hint="Such as 90s, 15m, 1h30m, 2d or 1w."
            )
    if period is not None and not MIN_PERIOD <= period <= MAX_PERIOD:
        raise BadInput(
            f"A periodicity is from {durations.show(MIN_PERIOD)} to {durations.show(MAX_PERIOD)}."
        )
    return period


def read_cron(text: str | None) -> str | None:
    """Return a cron expression that matches some time, with single blanks and without macros."""
    if text is None:
        return None
    fields = MACROS.get(text.strip().lower(), text).split()
    if len(fields) != CRON_FIELDS or len(text) > MAX_CRON_CHARS:
        raise BadInput(f"{text[:80]!a} is not a cron expression.", hint=CRON_HINT)
    cron = " ".join(fields)
    try:
        next_cron_time(cron, "UTC", CHECK_TIME)
    except (CronSimError, ValueError) as error:
        reason = str(error).lower()
        raise BadInput(f"{cron!a} is not a cron expression: {reason}.", hint=CRON_HINT) from error
    return cron
