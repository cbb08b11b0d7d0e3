"""Health: what the watchdog makes of the answers and silences of a component.

Comes from a component's record, what it declares, and one ping; goes to its next record, the events to write down, and
what must be done about it.

    healthy ──3 misses, or it declares an error──▶ failure ──answers──▶ probation ──no error for a while──▶ healthy
                                                      ▲                     │
                                                      └──────any error──────┘

A call to MGMT is a sign of life as a good answer is: a component is silent only if it neither answers nor calls.

A good answer takes one miss back, so that a component that is silent most of the time fails as well. The grace counts
all time in failure since it was last healthy, so that one that comes and goes cannot put off its end, while its time on
probation is not held against it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, NamedTuple, get_args

from usher.mgmt.placement_rules import Condition

Health = Literal["healthy", "failure", "probation"]
DeclaredState = Literal["online", "error", "waiting", "paused"]
HEALTHS: Final = frozenset(get_args(Health))
ALIVE_STATES: Final = frozenset({"healthy", "probation"})  # what a component may answer of itself
IDLE_STATES: Final = frozenset({"waiting", "paused"})
MAX_REASON: Final = 200


class Action(StrEnum):
    """What a failure asks for as long as it lasts; each is harmless to repeat."""

    END_LEASES = "end_leases"
    LEAVE_MAP = "leave_map"
    RESEAT = "reseat"
    REDO = "redo"  # crawl or build again what only this component held


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """How many misses are a failure, how long probation is, and how long a failure may last before others take over.

    A call is a sign of life for `call`, and for `lease` if the component has no known health address.
    """

    misses: int = 3
    probation: timedelta = timedelta(minutes=1)
    grace: timedelta = timedelta(minutes=5)
    call: timedelta = timedelta(seconds=5)
    lease: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """What is known of a component: its health and since when, why, and its last sign of life."""

    health: Health
    since: datetime
    reason: str = ""
    misses: int = 0
    seen: datetime | None = None
    down: timedelta = timedelta(0)  # in earlier failures since it was last healthy
    url: str | None = None  # where it last answered with its health


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping: what the component said, or nothing and why, beside the state it declared before.

    `url` is where it answered with its health. `has_called` says that it called MGMT lately.
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
        """Whether the component said how it is; any other answer is that of a server that knows nothing of health."""
        return self.status in HEALTHS


class HealthChange(NamedTuple):
    """A transition."""

    at: datetime
    before: Health
    after: Health
    reason: str


class Judgement(NamedTuple):
    record: HealthRecord
    events: list[HealthChange]


def complaint(ping: Ping) -> str:
    """What is wrong, empty if nothing is; a component may well be unable to work while it waits or is paused.

    One that calls is alive, unless it declares an error or answers that it fails.
    """
    if ping.is_silent:
        return (ping.reason or "no answer")[:MAX_REASON]
    if ping.declared == "error":
        return "it declared an error"
    if (
        ping.status in ALIVE_STATES
        or ping.declared in IDLE_STATES
        or (ping.has_called and not ping.is_health)
    ):
        return ""
    return f"it answered {str(ping.status)[:40]!a}"


def judge(record: HealthRecord, ping: Ping, now: datetime, patience: HealthLimits) -> Judgement:
    """The record after a ping, with an event if its health changed."""
    now = max(now, record.since)  # another watchdog's clock may be ahead
    wrong = complaint(ping)
    seen = record.seen if ping.status is None else now
    misses = record.misses + 1 if wrong else max(0, record.misses - 1)
    kept = record.reason if misses or record.health != "healthy" else ""
    url = ping.url or record.url
    heard = replace(record, misses=misses, seen=seen, reason=wrong or kept, url=url)
    after = _health(heard, ping, wrong, now, patience)
    return Judgement(heard, []) if after == record.health else _changed(heard, after, wrong, now)


def _health(
    heard: HealthRecord, ping: Ping, wrong: str, now: datetime, patience: HealthLimits
) -> Health:
    if wrong:
        sure = heard.health != "healthy" or ping.declared == "error"
        return "failure" if sure or heard.misses >= patience.misses else "healthy"
    if heard.health == "failure":
        return "probation"
    long = now - heard.since >= patience.probation
    return "probation" if heard.health == "probation" and not long else "healthy"


def _changed(heard: HealthRecord, after: Health, wrong: str, now: datetime) -> Judgement:
    reason = wrong or (
        "it answers or calls again" if after == "probation" else "no error on probation"
    )
    earlier = now - heard.since if heard.health == "failure" else timedelta(0)
    record = replace(
        heard,
        health=after,
        since=now,
        reason=reason,
        misses=heard.misses if wrong else 0,
        down=timedelta(0) if after == "healthy" else heard.down + earlier,
    )
    return Judgement(record, [HealthChange(now, heard.health, after, reason)])


def suspect_self(pings: Iterable[Ping]) -> bool:
    """Whether all of several components are silent: then the fault is likely here. It is recorded, and nothing is done.

    Were it theirs, waiting would cost little: nobody is left to take over, and leases end by themselves.
    """
    silent = [ping.is_silent for ping in pings]
    return len(silent) > 1 and all(silent)


def overdue(record: HealthRecord, now: datetime, patience: HealthLimits) -> bool:
    """Whether a failure has lasted longer than the grace."""
    down = record.down + max(now - record.since, timedelta(0))
    return record.health == "failure" and down >= patience.grace


def due_actions(record: HealthRecord, now: datetime, patience: HealthLimits) -> list[Action]:
    """What must be done now; asked after the ping of the same round, so that whoever is back loses nothing."""
    if record.health != "failure":
        return []
    return [
        Action.END_LEASES,
        Action.LEAVE_MAP,
        *([Action.RESEAT, Action.REDO] if overdue(record, now, patience) else []),
    ]


def condition(
    record: HealthRecord, now: datetime, patience: HealthLimits, *, draining: bool = False
) -> Condition:
    """An index server as seating sees it: on probation it keeps what it has, and gets more only when it is healthy."""
    if record.health == "healthy":
        return "draining" if draining else "fit"
    return "gone" if overdue(record, now, patience) else "unsure"
