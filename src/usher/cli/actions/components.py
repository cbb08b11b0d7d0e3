"""The work behind `usher components`: components read, drained, put into rows, and told in lines.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from usher.cli.app import App, confirm, run, show_field, show_json, show_table
from usher.cli.area_access import open_database
from usher.cli.queue_access import checked_transaction, relative_time
from usher.cli.wording import display_time, json_fields, printable, time_text
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.mgmt import admin, components, placements, queries
from usher.mgmt.component_names import type_of
from usher.mgmt.components import Component, Event
from usher.mgmt.placements import Missing
from usher.mgmt.queries import MOST, Holding

ROLE = "usher_mgmt"
MAX_EVENTS = 10
HOLDING_FIELDS = ("crawling", "crawled", "building", "built", "wanted", "loaded", "leaving")


@asynccontextmanager
async def mgmt_transaction(app: App) -> AsyncIterator[Connection]:
    """A transaction, as MGMT has it."""
    async with open_database(app, "work", ROLE) as db, checked_transaction(db) as conn:
        yield conn


@dataclass(frozen=True, slots=True)
class ComponentView:
    """A component and what it has in hand."""

    component: Component
    holding: Holding
    events: Sequence[Event] = ()


async def find_components(app: App, *, limit: int, **wanted: Any) -> list[ComponentView]:  # noqa: ANN401
    async with mgmt_transaction(app) as conn:
        found = await components.list_components(conn, n=limit, **wanted)
        return await with_holdings(conn, found)


async def with_holdings(conn: Connection, found: Sequence[Component]) -> list[ComponentView]:
    held = await queries.holdings(conn, [one.id for one in found])
    return [ComponentView(one, held[one.id]) for one in found]


async def read_component(app: App, host: str, type_: str | None = None) -> ComponentView:
    kind = None if type_ is None else type_of(type_)
    async with mgmt_transaction(app) as conn:
        found = await components.show(conn, host, kind)
        [seen] = await with_holdings(conn, [found])
        return ComponentView(
            found, seen.holding, await components.events(conn, found.id, MAX_EVENTS)
        )


async def set_drain(app: App, host: str, *, on: bool) -> Component:
    async with mgmt_transaction(app) as conn:
        return await components.drain(conn, host, on=on, now=await server_time(conn))


def component_json(seen: ComponentView) -> dict[str, Any]:
    held = {name: getattr(seen.holding, name) for name in HOLDING_FIELDS}
    return json_fields({**asdict(seen.component), **held})


def show_components(app: App, found: Sequence[ComponentView], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([component_json(one) for one in found])
        return
    now = display_time()
    rows = [
        (
            one.component.host,
            one.component.type or "-",
            one.component.state,
            one.component.health,
            relative_time(one.component.seen_at, now),
            one.component.row or "-",
            holding_text(one),
            problem_text(one.component),
        )
        for one in found
    ]
    show_table(("HOST", "TYPE", "STATE", "HEALTH", "SEEN", "ROW", "HOLDS", "REASON"), rows)
    if len(found) >= limit:
        app.say(f"  → perhaps more: --after {found[-1].component.host}")


def problem_text(one: Component) -> str:
    """Why it is not as it should be, in a table."""
    failing = one.health_reason if one.health != "healthy" or one.misses else ""
    return printable(one.state_reason or failing or ("draining" if one.draining else ""))


def holding_text(seen: ComponentView) -> str:
    """`2 crawling, 14 crawled`."""
    counts = [(name, getattr(seen.holding, name)) for name in HOLDING_FIELDS]
    return (
        ", ".join(f"{capped_count(count)} {name}" for name, count in counts if count) or "nothing"
    )


def capped_count(count: int) -> str:
    return f"≥ {MOST}" if count >= MOST else str(count)


def show_component(seen: ComponentView, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {**component_json(seen), "events": [json_fields(asdict(one)) for one in seen.events]}
        )
        return
    one, now = seen.component, display_time()
    show_field("component", f"{one.host}, {one.type or 'of a type not known yet'}, number {one.id}")
    show_field("state", since_text(one.state, one.state_since, one.state_reason, now))
    show_field("health", since_text(one.health, one.health_since, one.health_reason, now))
    show_field("seen", time_text(one.seen_at, now) if one.seen_at else "never")
    show_field("called", time_text(one.called_at, now) if one.called_at else "never")
    show_field(
        "answers at", one.health_url or "not known: until it answers a ping, its calls count"
    )
    show_field("registered", time_text(one.registered_at, now))
    if one.row is not None:
        drained = ", draining" if one.draining else ""
        show_field("row", f"{one.row} on machine {one.machine}, weight {one.weight}{drained}")
    show_field("holds", holding_text(seen))
    if seen.events:
        show_field("events", *(event_text(event, now) for event in seen.events))


def since_text(word: str, since: datetime, reason: str, now: datetime) -> str:
    why = f": {printable(reason)}" if reason else ""
    return f"{word} since {time_text(since, now)}{why}"


def event_text(event: Event, now: datetime) -> str:
    change = " → ".join(word for word in (event.before, event.after) if word)
    words = (event.kind, change, printable(event.reason))
    return f"{time_text(event.at, now)}  {'  '.join(word for word in words if word)}"


@dataclass(frozen=True, slots=True)
class RowView:
    """A row: its index servers, and what it lacks."""

    missing: Missing
    servers: list[ComponentView]

    def lines(self) -> list[tuple[object, ...]]:
        """For a table."""
        number, lost = self.missing.row, self.missing.unseated
        found: list[tuple[object, ...]] = [
            (
                number,
                one.component.host,
                one.component.health,
                one.component.weight,
                holding_text(one),
            )
            for one in self.servers
        ]
        if lost or not found:
            found.append((number, "nobody", "-", "-", f"{capped_count(lost)} missing"))
        return found


async def read_rows(app: App) -> list[RowView]:
    """Every row with its servers."""
    async with mgmt_transaction(app) as conn:
        found = await components.list_components(conn, type="index-server")
        servers = await with_holdings(conn, found)
        return [
            RowView(lack, [one for one in servers if one.component.row == lack.row])
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
    async with mgmt_transaction(app) as conn:
        return await admin.set_rows(conn, number, now=await server_time(conn))


def show_rows(found: Sequence[RowView], *, as_json: bool) -> None:
    if as_json:
        show_json(
            [
                {**asdict(row.missing), "servers": [component_json(one) for one in row.servers]}
                for row in found
            ]
        )
        return
    lines = [line for row in found for line in row.lines()]
    show_table(("ROW", "SERVER", "HEALTH", "WEIGHT", "HOLDS"), lines)
