"""Lists of events for the operator, by what happened, to what, by whom and when; each reads a bounded number."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt.components import RecordedEvent

store = load_statements(__file__)
MAX_EVENTS_READ: Final = 10_000  # for one list, so that it takes less than 50 ms
MAX_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventConditions:
    """Which events to list; None matches all. Each text is a part of what it is compared with."""

    only_actions: bool = False  # of operators in the console
    kind: str | None = None
    subject: str | None = None  # the component, or what the operator acted on
    actor: str | None = None
    contains: str | None = None  # in the values before and after, the reason or the command
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventListing:
    """Events, and the number of the event after which the next ones follow; None if there are no more."""

    events: list[RecordedEvent]
    next_after: int | None


async def list_events(
    conn: Connection, conditions: EventConditions, *, before: int | None = None, n: int = 100
) -> EventListing:
    """The latest events that match, the newest first; `before` a number, for the next ones."""
    latest = MAX_ID if before is None else before
    events = await store.list_events.rows(
        conn, RecordedEvent, **asdict(conditions), before=latest, most=MAX_EVENTS_READ, n=n
    )
    if len(events) >= n:
        return EventListing(events, events[-1].id)
    given = {"only_actions": conditions.only_actions, "before": latest, "most": MAX_EVENTS_READ}
    ends = await store.scan_end.column(conn, **given)
    return EventListing(events, ends[0] if ends else None)
