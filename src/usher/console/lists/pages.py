"""Pages of the guestbook, and failed pages by kind: the data of `usher pages list` and `usher pages errors`."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, condition, next_href
from usher.console.page import (
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.console.page_conditions import CONDITION_NAMES, host_number, read_conditions
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.mgmt import page_list
from usher.mgmt.page_list import RESULTS, STATES, ErrorKind, ListedPage
from usher.observe.status_report import read_transaction
from usher.urls import Url, parse
from usher.wording import counted, relative_time

HEADINGS: Final = ("Page", "State", "Result", "HTTP", "Fetched", "Next visit", "Reason")
MAX_PAGES_READ: Final = 5_000  # for one screen, so that it takes less than 50 ms


async def pages_page(call: MgmtCall[Any]) -> ConsolePage:
    """Pages by host and path that match the conditions."""
    now = database_time(call)
    given = {name: condition(call, name) for name in CONDITION_NAMES}
    async with read_transaction(call.context.mgmt_db) as conn:
        conditions = await read_conditions(conn, given, now)
        after = await position(conn, condition(call, "after"))
        listing = await page_list.list_pages(
            conn, conditions, after=after, n=ROWS_PER_PAGE, most=MAX_PAGES_READ
        )
    table = ConsoleTable(
        HEADINGS,
        [page_row(page, now) for page in listing.pages],
        (
            FilterField("host", "Host", given["host"]),
            FilterField("state", "State", given["state"], STATES),
            FilterField("result", "Result", given["result"], RESULTS),
            FilterField("reason", "Reason contains", given["reason"]),
            FilterField("older", "Older than", given["older"]),
            FilterField("newer", "Newer than", given["newer"]),
        ),
        path="/pages",
        next_href=next_href("/pages", given, listing.next_after),
        empty=f"None of these {MAX_PAGES_READ:,} pages matches; the search continues below."
        if listing.next_after
        else "No page matches.",
    )
    page = list_page("Pages", table, listing.pages, list_command(given))
    chosen = {name: value for name, value in given.items() if value}
    names = ("pages-recrawl", "pages-remove") if chosen else ()
    links = [ACTIONS[name].link(**chosen) for name in names]
    values = {**page.values, "links": links}
    return ConsolePage(page.template, page.heading, values, page.data, page.command)


async def position(conn: Connection, after: str) -> tuple[int, str] | None:
    """The host and path of the page after which the list starts."""
    if not after:
        return None
    url = parse(after)
    if not isinstance(url, Url):
        raise BadInput(f"{after[:80]!a} is not the URL of a page: {url.detail}")
    return await host_number(conn, url.host), url.path


def list_command(given: dict[str, str]) -> str:
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return shlex.join(["usher", "pages", "list", *options])


def page_row(page: ListedPage, now: datetime) -> TableRow:
    kind: CellKind = "bad" if page.state == "error" else "text"
    due = "now" if page.state in ("pending", "crawling") else relative_time(page.next_fetch, now)
    cells = (
        TableCell(page.url, f"/explain?url={quote(page.url, safe='')}"),
        TableCell(page.state, kind=kind),
        TableCell(page.result),
        TableCell(str(page.status or "-"), kind="number"),
        TableCell(relative_time(page.last_fetched, now)),
        TableCell("-" if page.state == "idle" else due),
        TableCell(page.reason or "-"),
    )
    links = (
        ACTIONS["page-recrawl"].link(url=page.url),
        ACTIONS["page-remove"].link(target=page.url),
    )
    return TableRow(cells, links)


async def errors_page(call: MgmtCall[Any]) -> ConsolePage:
    """Failed pages by kind, the most frequent first."""
    now, host = database_time(call), condition(call, "host")
    async with read_transaction(call.context.mgmt_db) as conn:
        domain64 = await host_number(conn, host) if host else None
        kinds = await page_list.error_kinds(conn, domain64, most=MAX_PAGES_READ)
    table = ConsoleTable(
        ("Kind", "Pages", "Next attempt", "Example"),
        error_rows(kinds, host, now),
        (FilterField("host", "Host", host),),
        path="/pages/errors",
        empty="No page failed.",
    )
    option = f" --host {shlex.quote(host)}" if host else ""
    return list_page("Failed pages by kind", table, kinds, f"usher pages errors{option}")


def error_rows(kinds: Sequence[ErrorKind], host: str, now: datetime) -> list[TableRow]:
    of_host = f"&host={quote(host)}" if host else ""
    return [
        TableRow(
            (
                TableCell(kind.kind, f"/pages?state=error&reason={quote(kind.kind)}{of_host}"),
                TableCell(f"{'≥ ' * kind.more}{counted(kind.number, 'page')}", kind="number"),
                TableCell(relative_time(kind.next_attempt, now)),
                TableCell(kind.example, f"/explain?url={quote(kind.example, safe='')}"),
            )
        )
        for kind in kinds
    ]
