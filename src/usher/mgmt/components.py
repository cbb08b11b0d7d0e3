"""Components: Usher's own processes, as they declare themselves and as the watchdog sees them.

A component is identified by its host and its type, so it stays the same over restarts. `caller_identity` finds the one
that calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import columns, load_statements
from usher.errors import BadInput, Conflict, NotFound
from usher.messages.components import EngineName
from usher.mgmt.component_names import (
    ComponentState,
    ComponentType,
    host_of,
    state_of,
    storable_reason,
)
from usher.mgmt.health import DEFAULT_LIMITS, Health, HealthLimits, HealthRecord, condition
from usher.mgmt.health import HealthChange as Transition
from usher.mgmt.placement_rules import PlacementServer, with_row_engines

store = load_statements(__file__)
ROWS_LOCK: Final = 0x7573_6865_7220  # "usher", 32: one transaction at a time assigns rows
MAX_WEIGHT: Final = 1_000
MAX_ID: Final = 2**63 - 1
HINT: Final = "usher components list"


@dataclass(frozen=True, slots=True)
class ComponentRecord:
    """The row of a component: what it declares (`state`) and what the watchdog found (`health`)."""

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
    version: str = ""
    engine: EngineName = "tantivy"  # of an index server

    @property
    def record(self) -> HealthRecord:
        """The part that the watchdog judges and updates."""
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
    """An event of a component, a chunk or both, to be stored; or what an `actor` did to a `subject` in the console."""

    at: datetime
    kind: str
    component_id: int | None = None
    before: str | None = None
    after: str | None = None
    reason: str = ""
    chunk_id: int | None = None
    actor: str | None = None
    subject: str | None = None
    command: str | None = None  # with the same effect


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A stored event."""

    id: int
    at: datetime
    component_id: int | None
    host: str | None
    chunk_id: int | None
    kind: str
    before: str | None
    after: str | None
    reason: str
    actor: str | None = None
    subject: str | None = None
    command: str | None = None


async def lock_rows(conn: Connection) -> None:
    """Until the transaction ends no other one assigns rows."""
    await store.lock_rows.tuples(conn, lock=ROWS_LOCK)


async def find(
    conn: Connection,
    host: str,
    type: ComponentType | None = None,  # noqa: A002 - the name of the column, as the callers have it
) -> ComponentRecord | None:
    """Find the component of a host in any spelling; raises Conflict if the host has several and `type` is None."""
    name = host_of(host)
    matches = await store.find.rows(conn, ComponentRecord, host=name, type=type)
    if len(matches) > 1:
        types = ", ".join(component.type or "unknown" for component in matches)
        raise Conflict(f"{name} has several components: {types}.", hint="Name one with --type.")
    return matches[0] if matches else None


async def show(
    conn: Connection,
    host: str,
    type: ComponentType | None = None,  # noqa: A002 - the name of the column, as the callers have it
) -> ComponentRecord:
    """Find the component of a host as `find` does; raises NotFound if there is none."""
    if (component := await find(conn, host, type)) is None:
        kind = f" and the type {type}" if type else ""
        raise NotFound(f"No component has the host {host_of(host)}{kind}.", hint=HINT)
    return component


async def of_id(conn: Connection, id_: int) -> ComponentRecord:
    return await store.of_id.only(conn, ComponentRecord, id=id_)


async def known_hosts(conn: Connection, hosts: Sequence[str]) -> list[str]:
    """The hosts among these that have a component."""
    return await store.known_hosts.column(conn, hosts=list(hosts))


async def list_components(
    conn: Connection,
    *,
    type: ComponentType | None = None,  # noqa: A002 - the name of the column, as the callers have it
    health: Health | None = None,
    state: ComponentState | None = None,
    contains: str | None = None,
    after: str = "",
    n: int | None = None,
) -> list[ComponentRecord]:
    """Components by host; all of them unless n is given."""
    return await store.list_components.rows(
        conn,
        ComponentRecord,
        type=type,
        health=health,
        state=state,
        contains=contains,
        after=after,
        n=n,
    )


async def declare(
    conn: Connection,
    id_: int,
    state: str,
    *,
    reason: str = "",
    weight: int | None = None,
    version: str | None = None,
    now: datetime,
) -> ComponentRecord:
    """Store the state that a component declares, and weight and version if given; returns the component."""
    if weight is not None and not 1 <= weight <= MAX_WEIGHT:
        raise BadInput(
            f"A weight is from 1 to {MAX_WEIGHT}.",
            hint="A server of twice the weight gets twice the chunks.",
        )
    after, why = state_of(state), storable_reason(reason)
    changed = await store.declare.tuples(
        conn, id=id_, state=after, reason=why, weight=weight, version=version, now=now
    )
    for before, version_before in changed:
        if before != after:
            await add_events(conn, NewEvent(now, "state", id_, before, after, why))
        if version and version_before and version != version_before:
            await add_events(conn, NewEvent(now, "version", id_, version_before, version))
    return await of_id(conn, id_)


async def drain(conn: Connection, host: str, *, on: bool, now: datetime) -> ComponentRecord:
    """Make an index server give its chunks to the others of its row, or take its share again."""
    component = await find(conn, host, "index-server") or await show(conn, host)
    if component.type != "index-server":
        raise BadInput(
            f"Only index servers are drained; {component.host} is {component.type or 'of unknown type'}.",
            hint="Crawlers and builders can be stopped at any time: others repeat their work.",
        )
    if await store.drain.tuples(conn, id=component.id, draining=on):
        await add_events(conn, NewEvent(now, "drain" if on else "undrain", component.id))
    return await of_id(conn, component.id)


async def set_renews_leases(conn: Connection, id_: int) -> None:
    """Note that a component names its chunks to POST /v1/lease: its other calls renew no lease from now on."""
    await store.set_renews_leases.run(conn, id=id_)


async def record_health(
    conn: Connection,
    records: Sequence[tuple[int, HealthRecord]],
    events: Iterable[tuple[int, Transition]],
) -> set[int]:
    """Store what the watchdog found; returns the components that had no newer record."""
    health_records = [record for _, record in records]
    written = set(
        await store.record_health.column(
            conn,
            id=[id_ for id_, _ in records],
            reason=[storable_reason(record.reason) for record in health_records],
            **columns(health_records, "health", "since", "misses", "seen", "down", "url"),
        )
    )
    new_events = [
        NewEvent(change.at, "health", id_, change.before, change.after, change.reason)
        for id_, change in events
        if id_ in written
    ]
    await add_events(conn, *new_events)
    return written


async def servers(
    conn: Connection, *, now: datetime, limits: HealthLimits = DEFAULT_LIMITS
) -> list[PlacementServer]:
    """The index servers as the placement rules see them."""
    return with_row_engines(
        PlacementServer(
            server.id,
            server.row,
            server.machine,
            server.weight,
            condition(server.record, now, limits, draining=server.draining),
            server.engine,
        )
        for server in await list_components(conn, type="index-server")
        if server.row is not None
    )


async def row_count(conn: Connection) -> int:
    """The number of rows; every chunk has a copy in each."""
    return int(await store.row_count.value(conn))


async def add_events(conn: Connection, *events: NewEvent) -> None:
    """Store events in one statement."""
    if events:
        await store.add_events.run(
            conn,
            reason=[storable_reason(event.reason) for event in events],
            **columns(events, "at", "component_id", "chunk_id", "kind", "before", "after"),
            **columns(events, "actor", "subject", "command"),
        )


async def events(
    conn: Connection, component: int | None = None, n: int = 100, *, before: int | None = None
) -> list[RecordedEvent]:
    """The latest events of one component or all, the newest first; `before` an id, for the next page."""
    given = {"n": n, "before": MAX_ID if before is None else before}
    if component is None:
        return await store.events.rows(conn, RecordedEvent, **given)
    return await store.events_of.rows(conn, RecordedEvent, component=component, **given)
