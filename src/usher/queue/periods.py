"""When a task runs next, and on which machines a job may run.

Comes from the columns of a task and whoever sets them; goes to the scheduler, as instants in UTC, and to the claim.
"""

import re
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
CACHE_SIZE: Final = 16_384  # answers: tasks that are due together often share their clock

MAX_RULE_CHARS: Final = 1000  # it is part of an index, whose rows have an end
RULE_HINT: Final = "A machine's name, allow:one,other or deny:one,other; nothing for any machine."
RULE: Final = re.compile("(allow|deny):([a-z0-9_.-]+(?:,[a-z0-9_.-]+)*)|[a-z0-9_.-]+")
SEPARATOR_BLANKS: Final = re.compile(r"\s*([:,])\s*")


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """What of a task says when it runs: a period, also tied to a time of day, or a cron expression."""

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
        """A clock that works, or BadInput; a time of day without a period recurs whenever it comes round."""
        clock = cls(read_period(periodicity), hour, minute, second, read_cron(cron), timezone)
        time_zone(timezone)
        for unit, most in MAX_UNIT_VALUES.items():
            value = getattr(clock, unit)
            if value is not None and not 0 <= value <= most:
                raise BadInput(f"There is no {unit} {value}.", hint=f"From 0 to {most}.")
        if clock.cron is not None and (clock.periodicity or clock.cycle):
            raise BadInput("A cron expression goes with no periodicity, hour, minute or second.")
        if clock.cron is None and clock.periodicity is None:
            return replace(clock, periodicity=clock.period)
        return clock

    @property
    def cycle(self) -> timedelta | None:
        """How often its time of day comes round, None if it is tied to none."""
        units = ((self.hour, DAY), (self.minute, HOUR), (self.second, MINUTE))
        return next((cycle for value, cycle in units if value is not None), None)

    @property
    def period(self) -> timedelta:
        period = self.periodicity or self.cycle
        if period is None:
            raise BadInput(
                "A task must know when it runs.",
                hint="Give it a periodicity, an hour, minute or second, or a cron expression.",
            )
        return period


def first_run(clock: TaskSchedule, now: datetime) -> datetime:
    """At once, or at the first time that matches."""
    if clock.cron is not None:
        return next_cron_time(clock.cron, clock.timezone, now)
    if clock.hour is not None:
        return next_time_of_day(
            time_of_day(clock), clock.timezone, local_time(now, clock.timezone), now
        )
    if clock.cycle is not None:
        return next_cycle_time(time_of_day(clock), clock.cycle, clock.timezone, next_second(now))
    return now


def next_run(clock: TaskSchedule, slot: datetime, now: datetime) -> datetime:
    """After the run that was due at `slot` and is made now; however late that is, one run makes up for all missed."""
    if clock.cron is not None:
        return next_cron_time(clock.cron, clock.timezone, now)
    if clock.hour is not None:
        return next_daily_run(clock, slot, now)
    if clock.cycle is not None:
        return next_cycle_run(clock, clock.cycle, slot, now)
    due = slot + clock.period
    return due if due > now else now + clock.period


@lru_cache(CACHE_SIZE)
def next_daily_run(clock: TaskSchedule, slot: datetime, now: datetime) -> datetime:
    """Counts in days of the calendar, which last 23 or 25 hours where clocks are changed."""
    # The period counts from the time that was meant: a slot may be late by jitter, by hand or by a gap of the clock.
    here = local_time(slot, clock.timezone)
    meant = datetime.combine(here, time_of_day(clock))
    if meant > here:
        meant -= DAY
    earliest = max(meant + clock.period, local_time(now, clock.timezone))
    return next_time_of_day(time_of_day(clock), clock.timezone, earliest, now)


@lru_cache(CACHE_SIZE)
def next_cycle_run(
    clock: TaskSchedule, cycle: timedelta, slot: datetime, now: datetime
) -> datetime:
    """Counts in hours that pass, as cron does with `*`: changed clocks take none away and add none."""
    meant = slot.replace(microsecond=0)
    meant -= time_since(local_time(meant, clock.timezone), time_of_day(clock), cycle)
    return next_cycle_time(
        time_of_day(clock), cycle, clock.timezone, max(meant + clock.period, next_second(now))
    )


def time_of_day(clock: TaskSchedule) -> time:
    """The time of day it is tied to; what is smaller than the unit given is 0."""
    return time(clock.hour or 0, clock.minute or 0, clock.second or 0)


def next_second(now: datetime) -> datetime:
    """The first whole second of the future."""
    return now.replace(microsecond=0) + SECOND


def local_time(instant: datetime, timezone: str) -> datetime:
    """What clocks on the wall show there."""
    return instant.astimezone(time_zone(timezone)).replace(tzinfo=None, fold=0)


def time_since(shown: datetime, mark: time, cycle: timedelta) -> timedelta:
    """How long ago the mark was, by the clock on the wall."""
    return (shown - datetime.combine(shown, mark)) % cycle


def next_time_of_day(mark: time, timezone: str, earliest: datetime, now: datetime) -> datetime:
    """The first such time of a day that is after now and, on the local_time, not before the earliest."""
    meant = datetime.combine(earliest, mark)
    if meant < earliest:
        meant += DAY
    while (found := utc_time(meant, timezone)) <= now:
        meant += DAY
    return found


def next_cycle_time(mark: time, cycle: timedelta, timezone: str, earliest: datetime) -> datetime:
    """The first utc_time from the earliest time_of_day which the local_time shows that minute or second."""
    found = earliest.astimezone(UTC)
    # Again only where a change of the clock by half an hour came between.
    while late := time_since(local_time(found, timezone), mark, cycle):
        found += cycle - late
    return found


@lru_cache(CACHE_SIZE)
def next_cron_time(cron: str, timezone: str, now: datetime) -> datetime:
    for run in CronSim(cron, now.astimezone(time_zone(timezone))):
        # In the second of two equal hours it names times of the first.
        if (found := run.astimezone(UTC)) > now:
            return found
    raise BadInput(f"{cron!a} matches no time.", hint=CRON_HINT)


def utc_time(shown: datetime, timezone: str) -> datetime:
    """When clocks on the wall show it: the first of two times, or the end of the gap that it is in."""
    there = shown.replace(tzinfo=time_zone(timezone))
    found = there.astimezone(UTC)
    if local_time(found, timezone) == shown:
        return found
    before = there.replace(fold=1).astimezone(UTC)
    seconds = range((found - before) // SECOND)
    gap = bisect_left(
        seconds, shown, key=lambda passed: local_time(before + passed * SECOND, timezone)
    )
    return before + gap * SECOND


def time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise BadInput(
            f"{name[:80]!a} is not a time zone.",
            hint="Such as UTC, Europe/Amsterdam or America/New_York.",
        ) from error


def read_period(period: timedelta | str | None) -> timedelta | None:
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
    """With single blanks and without macros, known to match some time."""
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


def normalize_host_rule(text: str) -> str:
    """As the database keeps it: small letters, no blanks, the names of a list once each and in order."""
    rule = SEPARATOR_BLANKS.sub(r"\1", text[: MAX_RULE_CHARS + 1].strip().lower())
    if not rule:
        return ""
    match = RULE.fullmatch(rule)
    if match is None or len(text) > MAX_RULE_CHARS:
        raise BadInput(f"{text[:80]!a} does not say which machines.", hint=RULE_HINT)
    kind, names = match.groups()
    return f"{kind}:{','.join(sorted(set(names.split(','))))}" if kind else rule


def may_run(rule: str, host: str) -> bool:
    """Whether a machine may run a job of that rule; the twin of control.may_run."""
    kind, colon, rest = rule.partition(":")
    names = rest.split(",") if rest else []
    match kind + colon:
        case "":
            return True
        case "allow:":
            return host in names
        case "deny:":
            return host not in names
    return host == rule
