"""Pages of the guestbook: the data of `usher pages list`."""

import shlex
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, condition, next_href
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
from usher.console.page_conditions import CONDITION_NAMES, host_number, read_conditions
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.mgmt import page_list
from usher.mgmt.page_list import RESULTS, STATES, ListedPage
from usher.observe.status_report import read_transaction
from usher.urls import Url, parse
from usher.wording import relative_time

HEADINGS: Final = ("Page", "State", "Result", "HTTP", "Fetched", "Next visit", "Reason")
RELATED_PAGES: Final = (
    ActionLink("Pages by reason", "/pages/errors"),
    ActionLink("Refused URLs", "/pages/refused"),
)
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
            FilterField("path", "Path contains", given["path"]),
            FilterField("state", "State", given["state"], STATES),
            FilterField("result", "Result", given["result"], RESULTS),
            FilterField("status", "HTTP status", given["status"]),
            FilterField("reason", "Reason contains", given["reason"]),
            FilterField("due", "Next visit within", given["due"], example="7d"),
            FilterField("older", "Fetched longer ago than", given["older"], example="7d"),
            FilterField("newer", "Fetched in the last", given["newer"], example="12h"),
        ),
        path="/pages",
        next_href=next_href("/pages", given, listing.next_after),
        empty=f"None of these {MAX_PAGES_READ:,} pages matches; the search continues below."
        if listing.next_after
        else "No page matches.",
    )
    chosen = {name: value for name, value in given.items() if value}
    names = ("pages-recrawl", "pages-remove") if chosen else ()
    links = [ACTIONS[name].link(**chosen) for name in names]
    command = list_command(given)
    return list_page("Pages", table, listing.pages, command, links=links, related=RELATED_PAGES)


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
        TableCell(page.url, f"/explain?url={quote(page.url, safe='')}", "long"),
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
