"""Health: what the watchdog concludes from the answers and silences of a component.

    healthy ──3 misses, or it declares an error──▶ failure ──answers──▶ probation ──no error for a while──▶ healthy
                                                      ▲                     │
                                                      └──────any error──────┘

A call to MGMT is a sign of life as a good answer is: a component is silent only if it neither answers nor calls. A good
answer takes back one miss, so that a component that is silent most of the time fails too. The grace period counts all
time in failure since the component was last healthy, but not its time on probation.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, NamedTuple, get_args

from usher.mgmt.component_names import MAX_REASON
from usher.mgmt.placement_rules import Condition
from usher.wording import shortened

Health = Literal["healthy", "failure", "probation"]
DeclaredState = Literal["online", "error", "waiting", "paused"]
HEALTHS: Final = frozenset(get_args(Health))
ALIVE_STATES: Final = frozenset({"healthy", "probation"})  # what a component may answer of itself
IDLE_STATES: Final = frozenset({"waiting", "paused"})


class Action(StrEnum):
    """What to do while a failure lasts; each action may be repeated."""

    END_LEASES = "end_leases"
    LEAVE_MAP = "leave_map"
    RESEAT = "reseat"
    REDO = "redo"  # crawl or build again what only this component held


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """How many misses are a failure, how long probation lasts, and after which grace period others take over.

    A call counts as a sign of life for `call`, or for `lease` if the component has no known health address.
    """

    misses: int = 3
    probation: timedelta = timedelta(minutes=1)
    grace: timedelta = timedelta(minutes=5)
    call: timedelta = timedelta(seconds=5)
    lease: timedelta = timedelta(minutes=5)


DEFAULT_LIMITS: Final = HealthLimits()


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """The health of a component, since when and why, and its last sign of life."""

    health: Health
    since: datetime
    reason: str = ""
    misses: int = 0
    seen: datetime | None = None
    down: timedelta = timedelta(0)  # in earlier failures since it was last healthy
    url: str | None = None  # where it last answered with its health


@dataclass(frozen=True, slots=True)
class Ping:
    """The answer to one ping, or None and the reason, with the state that the component declared.

    `url` is where it answered with its health. `has_called` means that it called MGMT recently.
    """

    status: str | None
    reason: str = ""
    declared: DeclaredState = "online"
    url: str | None = None
    has_called: bool = False

    @property
    def is_silent(self) -> bool:
        return self.status is None and not self.has_called

    @property
    def is_health(self) -> bool:
        """Whether the answer is a health status; another server may listen at this address."""
        return self.status in HEALTHS


class HealthChange(NamedTuple):
    """A change of health."""

    at: datetime
    before: Health
    after: Health
    reason: str


class Judgement(NamedTuple):
    record: HealthRecord
    events: list[HealthChange]


def complaint(ping: Ping) -> str:
    """What is wrong, or an empty text; a component that waits or is paused need not be able to work.

    A component that calls is alive, unless it declares an error or answers that it fails.
    """
    if ping.is_silent:
        return shortened(ping.reason or "no answer", MAX_REASON)
    if ping.declared == "error":
        return "it declared an error"
    if (
        ping.status in ALIVE_STATES
        or ping.declared in IDLE_STATES
        or (ping.has_called and not ping.is_health)
    ):
        return ""
    return f"it answered {str(ping.status)[:40]!a}"


def measured_health(declared: str, health: Health) -> str:
    """The health for the metric: a silent component that declared its end is `stopped`, not a failure."""
    return "stopped" if declared == "waiting" and health == "failure" else health


def judge(record: HealthRecord, ping: Ping, now: datetime, limits: HealthLimits) -> Judgement:
    """Return the record after a ping, with an event if the health changed."""
    now = max(now, record.since)  # the clock of another watchdog may be ahead
    wrong = complaint(ping)
    seen = record.seen if ping.status is None else now
    misses = record.misses + 1 if wrong else max(0, record.misses - 1)
    old_reason = record.reason if misses or record.health != "healthy" else ""
    url = ping.url or record.url
    updated = replace(record, misses=misses, seen=seen, reason=wrong or old_reason, url=url)
    after = _health(updated, ping, wrong, now, limits)
    return (
        Judgement(updated, []) if after == record.health else _changed(updated, after, wrong, now)
    )


def _health(
    updated: HealthRecord, ping: Ping, wrong: str, now: datetime, limits: HealthLimits
) -> Health:
    if wrong:
        sure = updated.health != "healthy" or ping.declared == "error"
        return "failure" if sure or updated.misses >= limits.misses else "healthy"
    if updated.health == "failure":
        return "probation"
    is_over = now - updated.since >= limits.probation
    return "probation" if updated.health == "probation" and not is_over else "healthy"


def _changed(updated: HealthRecord, after: Health, wrong: str, now: datetime) -> Judgement:
    reason = wrong or (
        "it answers or calls again" if after == "probation" else "no error on probation"
    )
    earlier = now - updated.since if updated.health == "failure" else timedelta(0)
    record = replace(
        updated,
        health=after,
        since=now,
        reason=reason,
        misses=updated.misses if wrong else 0,
        down=timedelta(0) if after == "healthy" else updated.down + earlier,
    )
    return Judgement(record, [HealthChange(now, updated.health, after, reason)])


def suspect_self(pings: Iterable[Ping]) -> bool:
    """Whether all of several components are silent: then the watchdog's own network is probably at fault.

    If it is not, waiting costs little: no component is left to take over, and leases end by themselves.
    """
    silent = [ping.is_silent for ping in pings]
    return len(silent) > 1 and all(silent)


def overdue(record: HealthRecord, now: datetime, limits: HealthLimits) -> bool:
    """Whether a failure has lasted longer than the grace."""
    down = record.down + max(now - record.since, timedelta(0))
    return record.health == "failure" and down >= limits.grace


def due_actions(record: HealthRecord, now: datetime, limits: HealthLimits) -> list[Action]:
    """What to do now; call it after the ping of the same round, so that a component that is back loses nothing."""
    if record.health != "failure":
        return []
    return [
        Action.END_LEASES,
        Action.LEAVE_MAP,
        *([Action.RESEAT, Action.REDO] if overdue(record, now, limits) else []),
    ]


def condition(
    record: HealthRecord, now: datetime, limits: HealthLimits, *, draining: bool = False
) -> Condition:
    """The condition of an index server: on probation it keeps its chunks and gets no new ones."""
    if record.health == "healthy":
        return "draining" if draining else "fit"
    return "gone" if overdue(record, now, limits) else "unsure"
