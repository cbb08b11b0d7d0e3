"""Components, chunks, events and tokens."""

import shlex
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
from usher.mgmt import components, queries, tokens
from usher.mgmt.chunks import Chunk
from usher.mgmt.component_chunks import with_holdings
from usher.mgmt.component_names import TYPES, ComponentType
from usher.mgmt.health import Health
from usher.mgmt.queries import STAGES, ChunkDetails, Stage
from usher.mgmt.tokens import Token
from usher.observe.status_report import read_transaction
from usher.wording import relative_time, time_text

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
    given = {name: condition(call, name) for name in ("type", "health")}
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await components.list_components(
            conn,
            type=choice(call, "type", TYPES),
            health=choice(call, "health", HEALTHS),
            after=condition(call, "after"),
            n=ROWS_PER_PAGE,
        )
        views = await with_holdings(conn, listed)
    now = database_time(call)
    after = listed[-1].host if len(listed) >= ROWS_PER_PAGE else None
    table = ConsoleTable(
        COMPONENT_HEADINGS,
        [component_row(view, now, with_actions=True) for view in views],
        (
            FilterField("type", "Type", given["type"], TYPES),
            FilterField("health", "Health", given["health"], HEALTHS),
        ),
        path="/components",
        next_href=next_href("/components", given, after),
        empty="No component matches.",
    )
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    command = shlex.join(["usher", "components", "list", *options])
    return list_page("Components", table, views, command)


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
    given = {name: condition(call, name) for name in ("stage", "crawler", "builder")}
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await queries.list_chunks(
            conn,
            stage=stage,
            crawler=await component_number(conn, given["crawler"], "crawler"),
            builder=await component_number(conn, given["builder"], "index-builder"),
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
        ),
        path="/chunks",
        next_href=next_href("/chunks", given, shown[-1].id if len(listed) > len(shown) else None),
        empty="No chunk matches.",
    )
    names = {"stage": "--state", "crawler": "--crawler", "builder": "--builder"}
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
        ("Crawler", [chunk.crawler or "merged from other chunks"]),
        ("Claimed", [time_text(chunk.claimed_at, now)]),
        ("Builder", [chunk.builder or "-"]),
        ("Built", [relative_time(chunk.built_at, now)]),
        ("Propagated", [relative_time(chunk.propagated_at, now)]),
        ("Made of", [", ".join(map(str, details.made_of)) or "-"]),
        ("Merged into", [", ".join(map(str, details.merged_into)) or "-"]),
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
    return TableCell(url, f"/explain?url={quote(url, safe='')}")


async def events_page(call: MgmtCall[Any]) -> ConsolePage:
    """Events and actions of operators, the latest first."""
    now, kind = database_time(call), choice(call, "show", ("actions",))
    async with read_transaction(call.context.mgmt_db) as conn:
        read = components.operator_events if kind else components.events
        listed = await read(conn, n=ROWS_PER_PAGE, before=number(call, "after"))
    given = {"show": kind or ""}
    after = listed[-1].id if len(listed) >= ROWS_PER_PAGE else None
    table = ConsoleTable(
        EVENT_HEADINGS,
        [event_row(event, now) for event in listed],
        (FilterField("show", "Only", given["show"], ("actions",)),),
        path="/events",
        next_href=next_href("/events", given, after),
        empty="Nothing happened yet.",
    )
    return list_page("Events", table, listed, "usher components events")


async def tokens_page(call: MgmtCall[Any]) -> ConsolePage:
    """Tokens by name; only hashes of their secrets are stored."""
    now = database_time(call)
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await tokens.list_tokens(conn)
    table = ConsoleTable(
        ("Token", "Scope", "Component", "Created", "Used", "Expires", "State"),
        [token_row(token, now) for token in listed],
        empty="There is no token.",
    )
    return list_page("Tokens", table, listed, "usher tokens list")


def token_row(token: Token, now: datetime) -> TableRow:
    is_good = token.is_good(now)
    state = "valid" if is_good else "revoked" if token.revoked_at else "expired"
    cells = (
        TableCell(token.name),
        TableCell(token.scope),
        TableCell(" at ".join(filter(None, (token.type, token.address))) or "-"),
        TableCell(relative_time(token.created_at, now)),
        TableCell(relative_time(token.used_at, now)),
        TableCell(relative_time(token.expires_at, now)),
        TableCell(state, kind="text" if is_good else "bad"),
    )
    links = () if token.revoked_at else (ACTIONS["token-revoke"].link(token=token.name),)
    return TableRow(cells, links)
