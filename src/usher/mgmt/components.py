"""Components: our own processes, as they declare themselves and as the watchdog sees them.

Comes from whoever calls MGMT, from operators and from the watchdog; goes to work.component and work.event. A host is
one component for ever, whatever is restarted there; its type is learned once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db import Connection
from usher.errors import BadInput, Conflict, NotAllowed, NotFound
from usher.mgmt.health import Event as Transition
from usher.mgmt.health import Health, Patience, Record, condition
from usher.mgmt.names import State, Type, host_of, state_of, type_of, words
from usher.mgmt.seating import Server, machine, row_for
from usher.statements import beside

store = beside(__file__)
LOCK: Final = 0x7573_6865_7220  # "usher", 32: rows are given by one at a time
MOST_WEIGHT: Final = 1_000
LAST: Final = 2**63 - 1
PATIENCE: Final = Patience()
HINT: Final = "usher components list"


@dataclass(frozen=True, slots=True)
class Component:
    """One of our processes: what it declares (`state`) and what the watchdog found (`health`)."""

    id: int
    host: str
    type: Type | None
    state: State
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

    @property
    def record(self) -> Record:
        """What the watchdog judges by."""
        return Record(
            self.health, self.health_since, self.health_reason, self.misses, self.seen_at, self.down
        )


@dataclass(frozen=True, slots=True)
class Happening:
    """Something to write down about a component, a chunk or both."""

    at: datetime
    kind: str
    component_id: int | None = None
    before: str | None = None
    after: str | None = None
    reason: str = ""
    chunk_id: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
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


async def meet(
    conn: Connection,
    *,
    host: str,
    type: str | None = None,  # noqa: A002 - the name of the column, as the callers have it
    row: int | None = None,
    token_id: int | None = None,
    is_trusted: bool = False,
    now: datetime,
) -> Component:
    """The component of that host, registered if it is new, seen now.

    Another type than it had is a conflict. While its token is good, callers with another token or with none are not
    allowed, unless they are `is_trusted`: then they proved to be the operator.
    """
    name, kind = host_of(host), None if type is None else type_of(type)
    found = await store.meet.row(conn, Component, host=name, now=now)
    if found and found.token_id != token_id and not is_trusted:
        await _check_token(conn, found)
    if found and not _news(found, kind, row, token_id):
        return found
    async with conn.transaction():
        if found is None:
            await _register(conn, name, now)
        one = await show(conn, name)
        await _bind(conn, one, token_id)
        await _learn(conn, one, kind, now)
        return await join_row(conn, await show(conn, name), row, now)


def _news(found: Component, kind: Type | None, row: int | None, token_id: int | None) -> bool:
    return (
        (kind or found.type) != found.type
        or (token_id is not None and token_id != found.token_id)
        or (row is not None and row != found.row)
        or (found.type == "index-server" and found.row is None)
    )


async def _register(conn: Connection, host: str, now: datetime) -> None:
    for (id_,) in await store.register.tuples(conn, host=host, machine=machine(host), now=now):
        await event(conn, Happening(now, "registered", id_))


async def _check_token(conn: Connection, one: Component) -> None:
    """Raise if the component's own token is good: then only that one speaks for it."""
    if one.token_id is not None and await store.has_good_token.tuples(conn, id=one.id):
        raise not_its_token(one)


async def _bind(conn: Connection, one: Component, token_id: int | None) -> None:
    if token_id is None or token_id == one.token_id:
        return
    if not await store.bind.tuples(conn, id=one.id, token=token_id):
        raise not_its_token(one)


def not_its_token(one: Component) -> NotAllowed:
    return NotAllowed(
        f"{one.host} belongs to another token.",
        hint="Use its own, or revoke that with `usher tokens revoke`.",
    )


async def _learn(conn: Connection, one: Component, kind: Type | None, now: datetime) -> None:
    if kind is None or kind == one.type:
        return
    if await store.learn.tuples(conn, id=one.id, type=kind):
        await event(conn, Happening(now, "type", one.id, None, kind))
    elif (known := (await show(conn, one.host)).type) != kind:
        raise Conflict(
            f"{one.host} is a component of type {known}, not {kind}.",
            hint="Give every component a host and port of its own.",
        )


async def join_row(conn: Connection, one: Component, row: int | None, now: datetime) -> Component:
    """An index server in its row: the one it declares, or else the shortest; what it has in another it gives away."""
    if one.type != "index-server":
        if row is not None:
            raise BadInput(f"Only index servers sit in rows; {one.host} is none.", hint=HINT)
        return one
    await lock_rows(conn)
    one = await show(conn, one.host)  # another call of it may have been first
    if one.row is not None and row in (None, one.row):
        return one
    most = await row_count(conn)
    if row is not None and not 1 <= row <= most:
        raise BadInput(f"There are rows 1 to {most}.", hint="usher components rows")
    wanted = row or row_for(one.host, await servers(conn, now=now), most)
    await store.join_row.run(conn, id=one.id, row=wanted)
    before = None if one.row is None else str(one.row)
    await event(conn, Happening(now, "row", one.id, before, str(wanted)))
    return await show(conn, one.host)


async def lock_rows(conn: Connection) -> None:
    """Until the transaction ends nobody else gives rows."""
    await store.lock_rows.tuples(conn, lock=LOCK)


async def find(conn: Connection, host: str) -> Component | None:
    """The component of that host, however it is written."""
    return await store.find.row(conn, Component, host=host_of(host))


async def show(conn: Connection, host: str) -> Component:
    """The component of that host, which must be there."""
    if (found := await find(conn, host)) is None:
        raise NotFound(f"No component has the host {host_of(host)}.", hint=HINT)
    return found


async def known_hosts(conn: Connection, hosts: Sequence[str]) -> list[str]:
    """Those of the hosts that are components."""
    return [host for (host,) in await store.known_hosts.tuples(conn, hosts=list(hosts))]


async def list_components(
    conn: Connection,
    *,
    type: Type | None = None,  # noqa: A002 - the name of the column, as the callers have it
    health: Health | None = None,
    after: str = "",
    n: int | None = None,
) -> list[Component]:
    """Components by host; all of them unless n is given."""
    return await store.list_components.rows(
        conn, Component, type=type, health=health, after=after, n=n
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
) -> Component:
    """What a component says of itself, and how it is then."""
    if weight is not None and not 1 <= weight <= MOST_WEIGHT:
        raise BadInput(
            f"A weight is from 1 to {MOST_WEIGHT}.", hint="Twice the weight, twice the chunks."
        )
    after, why = state_of(state), words(reason)
    was = await store.declare.tuples(conn, id=id_, state=after, reason=why, weight=weight, now=now)
    for (before,) in was:
        if before != after:
            await event(conn, Happening(now, "state", id_, before, after, why))
    [one] = await store.of_id.rows(conn, Component, id=id_)
    if row is None or row == one.row:
        return one
    async with conn.transaction():
        return await join_row(conn, one, row, now)


async def drain(conn: Connection, host: str, *, on: bool, now: datetime) -> Component:
    """An index server gives its chunks to the others of its row, or takes its share again."""
    one = await show(conn, host)
    if one.type != "index-server":
        raise BadInput(
            f"Only index servers are drained; {one.host} is {one.type or 'of unknown type'}.",
            hint="A crawler or builder that is stopped loses nothing: its work is done again.",
        )
    if await store.drain.tuples(conn, host=one.host, draining=on):
        await event(conn, Happening(now, "drain" if on else "undrain", one.id))
    return await show(conn, host)


async def record_health(
    conn: Connection,
    records: Sequence[tuple[int, Record]],
    events: Iterable[tuple[int, Transition]],
) -> set[int]:
    """What the watchdog found; returns the components of which nothing newer was known."""
    found = await store.record_health.tuples(
        conn,
        ids=[id_ for id_, _ in records],
        healths=[one.health for _, one in records],
        sinces=[one.since for _, one in records],
        reasons=[words(one.reason) for _, one in records],
        misses=[one.misses for _, one in records],
        seens=[one.seen for _, one in records],
        downs=[one.down for _, one in records],
    )
    written = {id_ for (id_,) in found}
    happened = [
        Happening(one.at, "health", id_, one.before, one.after, one.reason)
        for id_, one in events
        if id_ in written
    ]
    await event(conn, *happened)
    return written


async def servers(
    conn: Connection, *, now: datetime, patience: Patience = PATIENCE
) -> list[Server]:
    """The index servers as seating sees them."""
    return [
        Server(
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


async def event(conn: Connection, *happened: Happening) -> None:
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
            reasons=[words(one.reason) for one in happened],
        )


async def events(
    conn: Connection, component: int | None = None, n: int = 100, *, before: int | None = None
) -> list[Event]:
    """The last events, of one component or all, the last first; `before` an id, for the next page."""
    given = {"n": n, "before": LAST if before is None else before}
    if component is None:
        return await store.events.rows(conn, Event, **given)
    return await store.events_of.rows(conn, Event, component=component, **given)
