"""`usher components`: list and drain components, and show and set the rows of index servers."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from usher.cli.app import App, confirm, show_field, show_json, show_list
from usher.cli.area_access import call_in, call_now, mgmt_transaction
from usher.cli.output import display_time
from usher.cli.queue_access import parse_since
from usher.db.pool import Connection
from usher.mgmt import admin, components, event_list, placements
from usher.mgmt.component_chunks import HOLDING_FIELDS, ComponentView, with_holdings
from usher.mgmt.component_names import type_of
from usher.mgmt.components import ComponentRecord, RecordedEvent
from usher.mgmt.event_list import EventConditions, EventListing
from usher.mgmt.placements import RowShortage
from usher.mgmt.queries import MAX_COUNTED
from usher.wording import (
    capped_count,
    json_fields,
    printable,
    records_json,
    relative_time,
    time_text,
)

MAX_EVENTS = 10
MAX_EVENT_CHARACTERS = 1_000


async def find_components(conn: Connection, /, **conditions: Any) -> list[ComponentView]:  # noqa: ANN401
    return await with_holdings(conn, await components.list_components(conn, **conditions))


async def find_component(conn: Connection, host: str, type_: str | None) -> ComponentView:
    kind = None if type_ is None else type_of(type_)
    component = await components.show(conn, host, kind)
    [view] = await with_holdings(conn, [component])
    events = await components.events(conn, component.id, MAX_EVENTS)
    return ComponentView(component, view.holding, events)


def drain(app: App, host: str) -> None:
    component = call_now(mgmt_transaction(app), components.drain, host, on=True)
    app.say(f"draining {component.host}: usher components show {component.host}")


def undrain(app: App, host: str) -> None:
    component = call_now(mgmt_transaction(app), components.drain, host, on=False)
    app.say(f"not draining {component.host}")


def component_json(view: ComponentView) -> dict[str, Any]:
    held = {name: getattr(view.holding, name) for name in HOLDING_FIELDS}
    return json_fields({**asdict(view.component), **held})


def list_components(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    views = call_in(mgmt_transaction(app), find_components, n=limit, **conditions)
    now = display_time()
    rows = [
        (
            view.component.host,
            view.component.type or "-",
            view.component.state,
            view.component.health,
            relative_time(view.component.seen_at, now),
            view.component.row or "-",
            printable(view.component.version) or "-",
            holding_text(view),
            problem_text(view.component),
        )
        for view in views
    ]
    headings = ("HOST", "TYPE", "STATE", "HEALTH", "SEEN", "ROW", "VERSION", "HOLDS", "REASON")
    page: dict[str, Any] = {"limit": limit, "after": "component.host"}
    show_list(app, views, headings, rows, as_json=as_json, to_json=component_json, **page)


def problem_text(component: ComponentRecord) -> str:
    failing = component.health != "healthy" or component.misses
    reason = component.state_reason or (component.health_reason if failing else "")
    return printable(reason or ("draining" if component.draining else ""))


def holding_text(view: ComponentView) -> str:
    """`2 crawling, 14 crawled`."""
    counts = [(name, getattr(view.holding, name)) for name in HOLDING_FIELDS]
    texts = [f"{capped_count(count, MAX_COUNTED)} {name}" for name, count in counts if count]
    return ", ".join(texts) or "nothing"


def show_component(app: App, host: str, type_: str | None, *, as_json: bool) -> None:
    view = call_in(mgmt_transaction(app), find_component, host, type_)
    if as_json:
        show_json({**component_json(view), "events": records_json(view.events)})
        return
    component, now = view.component, display_time()
    type_ = component.type or "type not known yet"
    show_field("component", f"{component.host}, {type_}, number {component.id}")
    for name in ("state", "health"):
        since, reason = getattr(component, f"{name}_since"), getattr(component, f"{name}_reason")
        why = f": {printable(reason)}" if reason else ""
        show_field(name, f"{getattr(component, name)} since {time_text(since, now)}{why}")
    show_field("seen", time_text(component.seen_at, now) if component.seen_at else "never")
    show_field("called", time_text(component.called_at, now) if component.called_at else "never")
    unknown = "unknown; until it answers a ping, its calls count as signs of life"
    show_field("answers at", component.health_url or unknown)
    show_field("registered", time_text(component.registered_at, now))
    show_field("version", printable(component.version) or "unknown")
    if component.row is not None:
        drained = ", draining" if component.draining else ""
        place = f"{component.row} on machine {component.machine}, weight {component.weight}"
        show_field("row", f"{place}{drained}")
    show_field("holds", holding_text(view))
    if view.events:
        show_field("events", *(event_text(event, now) for event in view.events))


async def find_events(
    conn: Connection,
    since: str | None,
    before: int | None,
    n: int,
    now: datetime,
    **texts: Any,  # noqa: ANN401 - as click read them
) -> EventListing:
    conditions = EventConditions(since=parse_since(since, now) if since else None, **texts)
    return await event_list.list_events(conn, conditions, before=before, n=n)


def list_events(
    app: App,
    *,
    limit: int,
    after: int | None,
    since: str | None,
    as_json: bool,
    **texts: Any,  # noqa: ANN401 - as click read them
) -> None:
    listing = call_now(mgmt_transaction(app), find_events, since, after, limit, **texts)
    now, events = display_time(), listing.events
    rows = [
        (
            event.id,
            relative_time(event.at, now),
            event.kind,
            printable(event.subject or event.host or "-"),
            event.chunk_id or "-",
            " → ".join(map(printable, filter(None, (event.before, event.after)))) or "-",
            printable(event.reason, MAX_EVENT_CHARACTERS),
            printable(event.actor or "-"),
        )
        for event in events
    ]
    headings = ("ID", "AT", "KIND", "OF", "CHUNK", "CHANGE", "REASON", "BY")
    show_list(app, events, headings, rows, as_json=as_json)
    if listing.next_after and not as_json:
        app.say(f"  → more may follow: --after {listing.next_after}")


def event_text(event: RecordedEvent, now: datetime) -> str:
    change = " → ".join(filter(None, (event.before, event.after)))
    parts = filter(None, (event.kind, change, printable(event.reason)))
    return f"{time_text(event.at, now)}  {'  '.join(parts)}"


@dataclass(frozen=True, slots=True)
class RowView:
    """A row with its index servers and its missing chunks."""

    missing: RowShortage
    servers: list[ComponentView]

    def table_rows(self) -> list[tuple[object, ...]]:
        number, lost = self.missing.row, self.missing.unseated
        rows: list[tuple[object, ...]] = [
            (number, component.host, component.health, component.weight, holding_text(view))
            for view in self.servers
            for component in [view.component]
        ]
        if lost or not rows:
            missing = f"{capped_count(lost, MAX_COUNTED)} missing"
            rows.append((number, "no server", "-", "-", missing))
        return rows


async def find_rows(conn: Connection) -> list[RowView]:
    servers = await find_components(conn, type="index-server")
    return [
        RowView(missing, [view for view in servers if view.component.row == missing.row])
        for missing in await placements.row_shortages(conn)
    ]


def change_rows(app: App, number: int, *, yes: bool) -> None:
    before = len(call_in(mgmt_transaction(app), find_rows))
    if number < before:
        confirm(f"Remove the copies in rows {max(number, 0) + 1} to {before}?", yes=yes)
    moved = call_now(mgmt_transaction(app), admin.set_rows, number)
    app.say(f"{number} rows")
    if moved:
        app.say(f"moved to other rows: {', '.join(moved)}")


def remove_row(app: App, row: int, *, yes: bool) -> None:
    confirm(f"Remove row {row} and all copies in it?", yes=yes)
    servers = call_now(mgmt_transaction(app), admin.remove_row, row)
    app.say(f"row {row} is removed; the last row, if it was another one, has its number now")
    if servers:
        app.say(f"in no row any more, stop them: {', '.join(servers)}")


def row_json(row: RowView) -> dict[str, Any]:
    return {**asdict(row.missing), "servers": [component_json(view) for view in row.servers]}


def show_rows(app: App, *, as_json: bool) -> None:
    rows = call_in(mgmt_transaction(app), find_rows)
    lines = [line for row in rows for line in row.table_rows()]
    headings = ("ROW", "SERVER", "HEALTH", "WEIGHT", "HOLDS")
    show_list(app, rows, headings, lines, as_json=as_json, to_json=row_json)
