"""Components with the rows of index servers, and chunks."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.api.queue_calls import path_id
from usher.console.actions.registry import ACTIONS
from usher.console.component_rows import component_row, holding_text
from usher.console.event_rows import EVENT_HEADINGS, event_row
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href, number
from usher.console.page import (
    REFRESH_SECONDS,
    ActionLink,
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.db.pool import Connection
from usher.mgmt import components, placements, queries
from usher.mgmt.chunks import Chunk
from usher.mgmt.component_chunks import with_holdings
from usher.mgmt.component_names import STATES, TYPES, ComponentType
from usher.mgmt.health import Health
from usher.mgmt.placement_rules import PlacementServer
from usher.mgmt.placements import RowShortage
from usher.mgmt.queries import STAGES, ChunkDetails, Stage
from usher.observe.status_report import read_transaction
from usher.wording import counted, relative_time, time_text

HEALTHS: Final[tuple[Health, ...]] = ("healthy", "probation", "failure")
CHUNK_STAGES: Final[tuple[Stage | Literal["failed"], ...]] = (*STAGES, "failed")
COMPONENT_HEADINGS: Final = (
    "Component",
    "Type",
    "State",
    "Health",
    "Last contact",
    "Version",
    "Holds",
)
MAX_EVENTS: Final = 20


async def components_page(call: MgmtCall[Any]) -> ConsolePage:
    """Components by host."""
    given = {name: condition(call, name) for name in ("contains", "type", "state", "health")}
    now = database_time(call)
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await components.list_components(
            conn,
            type=choice(call, "type", TYPES),
            health=choice(call, "health", HEALTHS),
            state=choice(call, "state", STATES),
            contains=given["contains"] or None,
            after=condition(call, "after"),
            n=ROWS_PER_PAGE,
        )
        views = await with_holdings(conn, listed)
        shortages = await placements.row_shortages(conn)
        servers = await components.servers(conn, now=now)
    after = listed[-1].host if len(listed) >= ROWS_PER_PAGE else None
    table = ConsoleTable(
        COMPONENT_HEADINGS,
        [component_row(view, now, with_actions=True) for view in views],
        component_filters(given),
        path="/components",
        next_href=next_href("/components", given, after),
        empty="No component matches.",
    )
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    page = list_page(
        "Components",
        table,
        views,
        shlex.join(["usher", "components", "list", *options]),
        more=[("Rows", rows_table(shortages, servers))],
        live_seconds=REFRESH_SECONDS,
    )
    return replace(page, data={**page.data, "rows": shortages})


def component_filters(given: Mapping[str, str]) -> tuple[FilterField, ...]:
    return (
        FilterField("contains", "Host or reason contains", given["contains"]),
        FilterField("type", "Type", given["type"], TYPES),
        FilterField("state", "State", given["state"], STATES),
        FilterField("health", "Health", given["health"], HEALTHS),
    )


def rows_table(
    shortages: Sequence[RowShortage], servers: Sequence[PlacementServer]
) -> ConsoleTable:
    """The rows of index servers with the chunks that they lack."""
    rows = []
    for shortage in shortages:
        own = [server for server in servers if server.row == shortage.row]
        missing = shortage.wanted + shortage.unseated
        cells = (
            TableCell(f"Row {shortage.row}"),
            TableCell(counted(len(own), "server")),
            TableCell(f"{max(shortage.seats - shortage.wanted, 0):,}", kind="number"),
            TableCell(f"{missing:,}", kind="number"),
            TableCell("incomplete" if missing else "complete", kind="bad" if missing else "good"),
        )
        rows.append(TableRow(cells))
    headings = ("Row", "Servers", "Chunks loaded", "Chunks missing", "Coverage")
    return ConsoleTable(headings, rows, empty="There is no row.")


async def component_page(call: MgmtCall[Any]) -> ConsolePage:
    """The components of one host, each with its latest events."""
    now, host = database_time(call), call.path_params["host"]
    async with read_transaction(call.context.mgmt_db) as conn:
        kind = choice(call, "type", TYPES)
        component = await components.show(conn, host, kind)
        [view] = await with_holdings(conn, [component])
        events = await components.events(conn, component.id, MAX_EVENTS)
    fields = [
        ("Type", [component.type or "unknown"]),
        ("State", [component.state, *filter(None, [component.state_reason])]),
        ("Health", [component.health, *filter(None, [component.health_reason])]),
        ("Since", [time_text(component.health_since, now)]),
        ("Last contact", [relative_time(component.seen_at, now)]),
        ("Row", [str(component.row or "-")]),
        ("Version", [component.version or "unknown"]),
        ("Chunks", [holding_text(view.holding)]),
    ]
    table = ConsoleTable(EVENT_HEADINGS, [event_row(event, now) for event in events])
    actions = component_row(view, now, with_actions=True).actions
    values = {"fields": fields, "events": table, "actions": actions}
    data = {"component": component, "holding": view.holding, "events": events}
    command = f"usher components show {shlex.quote(component.host)}"
    return ConsolePage("component.html", component.host, values, data, command)


async def chunks_page(call: MgmtCall[Any]) -> ConsolePage:
    """Chunks, the newest first."""
    now, stage = database_time(call), choice(call, "stage", CHUNK_STAGES)
    given = {name: condition(call, name) for name in ("stage", "crawler", "builder", "reason")}
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await queries.list_chunks(
            conn,
            stage=stage,
            crawler=await component_number(conn, given["crawler"], "crawler"),
            builder=await component_number(conn, given["builder"], "index-builder"),
            reason=given["reason"] or None,
            after=number(call, "after"),
            n=ROWS_PER_PAGE + 1,
        )
    shown = listed[:ROWS_PER_PAGE]
    table = ConsoleTable(
        ("Chunk", "Stage", "Last change", "Crawler", "Builder", "Reason"),
        [chunk_row(chunk, now) for chunk in shown],
        (
            FilterField("stage", "Stage", given["stage"], CHUNK_STAGES),
            FilterField("crawler", "Kept by the crawler", given["crawler"]),
            FilterField("builder", "Kept by the builder", given["builder"]),
            FilterField("reason", "Reason contains", given["reason"]),
        ),
        path="/chunks",
        next_href=next_href("/chunks", given, shown[-1].id if len(listed) > len(shown) else None),
        empty="No chunk matches.",
    )
    names = {"stage": "--state", **{name: f"--{name}" for name in ("crawler", "builder", "reason")}}
    options = [word for name in names if given[name] for word in (names[name], given[name])]
    command = shlex.join(["usher", "chunks", "list", *options])
    return list_page("Chunks", table, shown, command)


async def component_number(conn: Connection, host: str, kind: ComponentType) -> int | None:
    """The number of the component of this type at a host; None if there is no condition."""
    return (await components.show(conn, host, kind)).id if host else None


def chunk_row(chunk: Chunk, now: datetime) -> TableRow:
    stage = queries.stage(chunk)
    kind: CellKind = "bad" if stage in ("error", "parked") else "text"
    changed = chunk.propagated_at or chunk.built_at or chunk.crawled_at or chunk.claimed_at
    cells = (
        TableCell(str(chunk.id), f"/chunks/{chunk.id}", "number"),
        TableCell(stage, kind=kind),
        TableCell(relative_time(changed, now)),
        component_cell(chunk.crawler),
        component_cell(chunk.builder),
        TableCell(chunk.reason or "-"),
    )
    return TableRow(cells, chunk_actions(chunk))


def component_cell(host: str | None) -> TableCell:
    return TableCell(host, f"/components/{quote(host)}") if host else TableCell("-")


def chunk_cell(id_: int) -> TableCell:
    return TableCell(f"chunk {id_}", f"/chunks/{id_}")


def chunk_actions(chunk: Chunk) -> list[ActionLink]:
    parked = queries.stage(chunk) == "parked"
    return [ACTIONS["chunk-retry"].link(chunk=str(chunk.id))] if parked else []


async def chunk_page(call: MgmtCall[Any]) -> ConsolePage:
    """One chunk with its copies and pages."""
    now = database_time(call)
    async with read_transaction(call.context.mgmt_db) as conn:
        details = await queries.show_chunk(conn, path_id(call))
    chunk = details.chunk
    fields = [
        ("Stage", [queries.stage(chunk), *filter(None, [chunk.reason])]),
        (
            "Crawler",
            [component_cell(chunk.crawler) if chunk.crawler else "merged from other chunks"],
        ),
        ("Claimed", [time_text(chunk.claimed_at, now)]),
        ("Builder", [component_cell(chunk.builder)]),
        ("Built", [relative_time(chunk.built_at, now)]),
        ("Propagated", [relative_time(chunk.propagated_at, now)]),
        ("Made of", [chunk_cell(id_) for id_ in details.made_of] or [TableCell("-")]),
        ("Merged into", [chunk_cell(id_) for id_ in details.merged_into] or [TableCell("-")]),
    ]
    values = {
        "fields": fields,
        "copies": copies_table(details, now),
        "pages": pages_table(details),
        "actions": chunk_actions(chunk),
    }
    command = f"usher chunks show {chunk.id}"
    return ConsolePage("chunk.html", f"Chunk {chunk.id}", values, {"chunk": details}, command)


def copies_table(details: ChunkDetails, now: datetime) -> ConsoleTable:
    rows = [
        TableRow(
            (
                TableCell(str(copy.row), kind="number"),
                component_cell(copy.host),
                TableCell(copy.state),
                TableCell(relative_time(copy.since, now)),
            )
        )
        for copy in details.placements
    ]
    headings = ("Row", "Server", "State", "Since")
    return ConsoleTable(headings, rows, empty="No index server has a copy.")


def pages_table(details: ChunkDetails) -> ConsoleTable:
    rows = [TableRow((page_cell(page.url), TableCell(page.state))) for page in details.pages]
    return ConsoleTable(("Page", "State"), rows, empty="Its pages are in later chunks.")


def page_cell(url: str) -> TableCell:
    return TableCell(url, f"/explain?url={quote(url, safe='')}", "long")
