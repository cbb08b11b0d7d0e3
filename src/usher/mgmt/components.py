"""Components: our own processes, as they declare themselves and as the watchdog sees them.

A component is identified by its host and its type, so it stays the same over restarts.
`identity` finds the one that calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict, NotFound
from usher.mgmt.component_names import (
    ComponentState,
    ComponentType,
    host_of,
    state_of,
    storable_text,
)
from usher.mgmt.health import Health, HealthLimits, HealthRecord, condition
from usher.mgmt.health import HealthChange as Transition
from usher.mgmt.placement_rules import PlacementServer, row_for

store = load_statements(__file__)
ROWS_LOCK: Final = 0x7573_6865_7220  # "usher", 32: rows are given by one at a time
MAX_WEIGHT: Final = 1_000
MAX_ID: Final = 2**63 - 1
DEFAULT_LIMITS: Final = HealthLimits()
HINT: Final = "usher components list"


@dataclass(frozen=True, slots=True)
class ComponentRecord:
    """One of our processes: what it declares (`state`) and what the watchdog found (`health`)."""

    id: int
    host: str
    type: ComponentType | None
    state: ComponentState
    state_reason: str
    health: Health
    health_since: datetime
    health_reason: str
    misses: int
    down: timedelta
    seen_at: datetime | None
    registered_at: datetime
    row: int | None
    machine: str
    weight: int
    draining: bool
    token_id: int | None
    state_since: datetime
    called_at: datetime | None = None
    health_url: str | None = None
    renews_leases: bool = False

    @property
    def record(self) -> HealthRecord:
        """What the watchdog judges by."""
        return HealthRecord(
            self.health,
            self.health_since,
            self.health_reason,
            self.misses,
            self.seen_at,
            self.down,
            self.health_url,
        )


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something to write down about a component, a chunk or both."""

    at: datetime
    kind: str
    component_id: int | None = None
    before: str | None = None
    after: str | None = None
    reason: str = ""
    chunk_id: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """Something that was written down."""

    id: int
    at: datetime
    component_id: int | None
    host: str | None
    chunk_id: int | None
    kind: str
    before: str | None
    after: str | None
    reason: str


async def join_row(
    conn: Connection, one: ComponentRecord, row: int | None, now: datetime
) -> ComponentRecord:
    """An index server in its row: the one it declares, or else the shortest; what it has in another it gives away."""
    if one.type != "index-server":
        if row is not None:
            raise BadInput(f"Only index servers sit in rows; {one.host} is none.", hint=HINT)
        return one
    await lock_rows(conn)
    one = await of_id(conn, one.id)  # another call of it may have been first
    if one.row is not None and row in (None, one.row):
        return one
    most = await row_count(conn)
    if row is not None and not 1 <= row <= most:
        raise BadInput(f"There are rows 1 to {most}.", hint="usher components rows")
    wanted = row or row_for(one.host, await servers(conn, now=now), most)
    await store.join_row.run(conn, id=one.id, row=wanted)
    before = None if one.row is None else str(one.row)
    await add_events(conn, NewEvent(now, "row", one.id, before, str(wanted)))
    return await of_id(conn, one.id)


async def lock_rows(conn: Connection) -> None:
    """Until the transaction ends nobody else gives rows."""
    await store.lock_rows.tuples(conn, lock=ROWS_LOCK)


async def find(
    conn: Connection,
    host: str,
    type: ComponentType | None = None,  # noqa: A002 - the name of the column, as the callers have it
) -> ComponentRecord | None:
    """The component of that host, however it is written; raise Conflict if it has several and no type is named."""
    name = host_of(host)
    known = await store.find.rows(conn, ComponentRecord, host=name, type=type)
    if len(known) > 1:
        types = ", ".join(component.type or "unknown" for component in known)
        raise Conflict(f"{name} has several components: {types}.", hint="Name one with --type.")
    return known[0] if known else None


async def show(
    conn: Connection,
    host: str,
    type: ComponentType | None = None,  # noqa: A002 - the name of the column, as the callers have it
) -> ComponentRecord:
    """The component of that host, which must be there; see `find`."""
    if (found := await find(conn, host, type)) is None:
        kind = f" and the type {type}" if type else ""
        raise NotFound(f"No component has the host {host_of(host)}{kind}.", hint=HINT)
    return found


async def of_id(conn: Connection, id_: int) -> ComponentRecord:
    [component] = await store.of_id.rows(conn, ComponentRecord, id=id_)
    return component


async def known_hosts(conn: Connection, hosts: Sequence[str]) -> list[str]:
    """Those of the hosts that are components."""
    return [host for (host,) in await store.known_hosts.tuples(conn, hosts=list(hosts))]


async def list_components(
    conn: Connection,
    *,
    type: ComponentType | None = None,  # noqa: A002 - the name of the column, as the callers have it
    health: Health | None = None,
    after: str = "",
    n: int | None = None,
) -> list[ComponentRecord]:
    """Components by host; all of them unless n is given."""
    return await store.list_components.rows(
        conn, ComponentRecord, type=type, health=health, after=after, n=n
    )


async def declare(
    conn: Connection,
    id_: int,
    state: str,
    *,
    reason: str = "",
    row: int | None = None,
    weight: int | None = None,
    now: datetime,
) -> ComponentRecord:
    """What a component says of itself, and how it is then."""
    if weight is not None and not 1 <= weight <= MAX_WEIGHT:
        raise BadInput(
            f"A weight is from 1 to {MAX_WEIGHT}.", hint="Twice the weight, twice the chunks."
        )
    after, why = state_of(state), storable_text(reason)
    was = await store.declare.tuples(conn, id=id_, state=after, reason=why, weight=weight, now=now)
    for (before,) in was:
        if before != after:
            await add_events(conn, NewEvent(now, "state", id_, before, after, why))
    one = await of_id(conn, id_)
    if row is None or row == one.row:
        return one
    async with conn.transaction():
        return await join_row(conn, one, row, now)


async def drain(conn: Connection, host: str, *, on: bool, now: datetime) -> ComponentRecord:
    """An index server gives its chunks to the others of its row, or takes its share again."""
    one = await find(conn, host, "index-server") or await show(conn, host)
    if one.type != "index-server":
        raise BadInput(
            f"Only index servers are drained; {one.host} is {one.type or 'of unknown type'}.",
            hint="A crawler or builder that is stopped loses nothing: its work is done again.",
        )
    if await store.drain.tuples(conn, id=one.id, draining=on):
        await add_events(conn, NewEvent(now, "drain" if on else "undrain", one.id))
    return await of_id(conn, one.id)


async def set_renews_leases(conn: Connection, id_: int) -> None:
    """Note that a component names its chunks to POST /v1/lease: its other calls renew no lease from now on."""
    await store.set_renews_leases.run(conn, id=id_)


async def record_health(
    conn: Connection,
    records: Sequence[tuple[int, HealthRecord]],
    events: Iterable[tuple[int, Transition]],
) -> set[int]:
    """What the watchdog found; returns the components of which nothing newer was known."""
    found = await store.record_health.tuples(
        conn,
        ids=[id_ for id_, _ in records],
        healths=[one.health for _, one in records],
        sinces=[one.since for _, one in records],
        reasons=[storable_text(one.reason) for _, one in records],
        misses=[one.misses for _, one in records],
        seens=[one.seen for _, one in records],
        downs=[one.down for _, one in records],
        urls=[one.url for _, one in records],
    )
    written = {id_ for (id_,) in found}
    happened = [
        NewEvent(one.at, "health", id_, one.before, one.after, one.reason)
        for id_, one in events
        if id_ in written
    ]
    await add_events(conn, *happened)
    return written


async def servers(
    conn: Connection, *, now: datetime, patience: HealthLimits = DEFAULT_LIMITS
) -> list[PlacementServer]:
    """The index servers as seating sees them."""
    return [
        PlacementServer(
            one.id,
            one.row,
            one.machine,
            one.weight,
            condition(one.record, now, patience, draining=one.draining),
        )
        for one in await list_components(conn, type="index-server")
        if one.row is not None
    ]


async def row_count(conn: Connection) -> int:
    """How many rows there are; every chunk has a copy in each."""
    [(rows,)] = await store.row_count.tuples(conn)
    return int(rows)


async def add_events(conn: Connection, *happened: NewEvent) -> None:
    """Write down what happened, in one statement."""
    if happened:
        await store.add_events.run(
            conn,
            ats=[one.at for one in happened],
            components=[one.component_id for one in happened],
            chunks=[one.chunk_id for one in happened],
            kinds=[one.kind for one in happened],
            befores=[one.before for one in happened],
            afters=[one.after for one in happened],
            reasons=[storable_text(one.reason) for one in happened],
        )


async def events(
    conn: Connection, component: int | None = None, n: int = 100, *, before: int | None = None
) -> list[RecordedEvent]:
    """The last events, of one component or all, the last first; `before` an id, for the next page."""
    given = {"n": n, "before": MAX_ID if before is None else before}
    if component is None:
        return await store.events.rows(conn, RecordedEvent, **given)
    return await store.events_of.rows(conn, RecordedEvent, component=component, **given)
