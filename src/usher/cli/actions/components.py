"""The work behind `usher components`: components read, drained, put into rows, and told in lines.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from usher.cli.app import App, confirm, run, show_json, show_table, tell
from usher.cli.area_access import opened
from usher.cli.queue_access import distance, within
from usher.cli.wording import display_time, plain, printable, when
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.mgmt import admin, components, placements, queries
from usher.mgmt.component_names import type_of
from usher.mgmt.components import Component, Event
from usher.mgmt.placements import Missing
from usher.mgmt.queries import MOST, Holding

ROLE = "usher_mgmt"
EVENTS = 10
HELD = ("crawling", "crawled", "building", "built", "wanted", "loaded", "leaving")


@asynccontextmanager
async def at_mgmt(app: App) -> AsyncIterator[Connection]:
    """A transaction, as MGMT has it."""
    async with opened(app, "work", ROLE) as db, within(db) as conn:
        yield conn


@dataclass(frozen=True, slots=True)
class Seen:
    """A component and what it has in hand."""

    component: Component
    holding: Holding
    events: Sequence[Event] = ()


async def find_components(app: App, *, limit: int, **wanted: Any) -> list[Seen]:  # noqa: ANN401
    async with at_mgmt(app) as conn:
        found = await components.list_components(conn, n=limit, **wanted)
        return await with_holdings(conn, found)


async def with_holdings(conn: Connection, found: Sequence[Component]) -> list[Seen]:
    held = await queries.holdings(conn, [one.id for one in found])
    return [Seen(one, held[one.id]) for one in found]


async def read_component(app: App, host: str, type_: str | None = None) -> Seen:
    kind = None if type_ is None else type_of(type_)
    async with at_mgmt(app) as conn:
        found = await components.show(conn, host, kind)
        [seen] = await with_holdings(conn, [found])
        return Seen(found, seen.holding, await components.events(conn, found.id, EVENTS))


async def set_drain(app: App, host: str, *, on: bool) -> Component:
    async with at_mgmt(app) as conn:
        return await components.drain(conn, host, on=on, now=await server_time(conn))


def seen_json(seen: Seen) -> dict[str, Any]:
    held = {name: getattr(seen.holding, name) for name in HELD}
    return plain({**asdict(seen.component), **held})


def show_components(app: App, found: Sequence[Seen], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([seen_json(one) for one in found])
        return
    now = display_time()
    rows = [
        (
            one.component.host,
            one.component.type or "-",
            one.component.state,
            one.component.health,
            distance(one.component.seen_at, now),
            one.component.row or "-",
            held_words(one),
            reason_of(one.component),
        )
        for one in found
    ]
    show_table(("HOST", "TYPE", "STATE", "HEALTH", "SEEN", "ROW", "HOLDS", "REASON"), rows)
    if len(found) >= limit:
        app.say(f"  → perhaps more: --after {found[-1].component.host}")


def reason_of(one: Component) -> str:
    """Why it is not as it should be, in a table."""
    failing = one.health_reason if one.health != "healthy" or one.misses else ""
    return printable(one.state_reason or failing or ("draining" if one.draining else ""))


def held_words(seen: Seen) -> str:
    """`2 crawling, 14 crawled`."""
    counts = [(name, getattr(seen.holding, name)) for name in HELD]
    return ", ".join(f"{bounded(count)} {name}" for name, count in counts if count) or "nothing"


def bounded(count: int) -> str:
    return f"≥ {MOST}" if count >= MOST else str(count)


def show_component(seen: Seen, *, as_json: bool) -> None:
    if as_json:
        show_json({**seen_json(seen), "events": [plain(asdict(one)) for one in seen.events]})
        return
    one, now = seen.component, display_time()
    tell("component", f"{one.host}, {one.type or 'of a type not known yet'}, number {one.id}")
    tell("state", since_words(one.state, one.state_since, one.state_reason, now))
    tell("health", since_words(one.health, one.health_since, one.health_reason, now))
    tell("seen", when(one.seen_at, now) if one.seen_at else "never")
    tell("called", when(one.called_at, now) if one.called_at else "never")
    tell("answers at", one.health_url or "not known: until it answers a ping, its calls count")
    tell("registered", when(one.registered_at, now))
    if one.row is not None:
        drained = ", draining" if one.draining else ""
        tell("row", f"{one.row} on machine {one.machine}, weight {one.weight}{drained}")
    tell("holds", held_words(seen))
    if seen.events:
        tell("events", *(event_words(event, now) for event in seen.events))


def since_words(word: str, since: datetime, reason: str, now: datetime) -> str:
    why = f": {printable(reason)}" if reason else ""
    return f"{word} since {when(since, now)}{why}"


def event_words(event: Event, now: datetime) -> str:
    change = " → ".join(word for word in (event.before, event.after) if word)
    words = (event.kind, change, printable(event.reason))
    return f"{when(event.at, now)}  {'  '.join(word for word in words if word)}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its index servers, and what it lacks."""

    missing: Missing
    servers: list[Seen]

    def lines(self) -> list[tuple[object, ...]]:
        """For a table."""
        number, lost = self.missing.row, self.missing.unseated
        found: list[tuple[object, ...]] = [
            (
                number,
                one.component.host,
                one.component.health,
                one.component.weight,
                held_words(one),
            )
            for one in self.servers
        ]
        if lost or not found:
            found.append((number, "nobody", "-", "-", f"{bounded(lost)} missing"))
        return found


async def read_rows(app: App) -> list[Row]:
    """Every row with its servers."""
    async with at_mgmt(app) as conn:
        found = await components.list_components(conn, type="index-server")
        servers = await with_holdings(conn, found)
        return [
            Row(lack, [one for one in servers if one.component.row == lack.row])
            for lack in await placements.missing(conn)
        ]


def change_rows(app: App, number: int, *, yes: bool) -> None:
    before = len(run(read_rows(app)))
    if number < before:
        confirm(f"Give up the copies in rows {max(number, 0) + 1} to {before}?", yes=yes)
    moved = run(set_rows(app, number))
    app.say(f"{number} rows")
    if moved:
        app.say(f"moved to other rows: {', '.join(moved)}")


async def set_rows(app: App, number: int) -> list[str]:
    async with at_mgmt(app) as conn:
        return await admin.set_rows(conn, number, now=await server_time(conn))


def show_rows(found: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        show_json(
            [
                {**asdict(row.missing), "servers": [seen_json(one) for one in row.servers]}
                for row in found
            ]
        )
        return
    lines = [line for row in found for line in row.lines()]
    show_table(("ROW", "SERVER", "HEALTH", "WEIGHT", "HOLDS"), lines)
