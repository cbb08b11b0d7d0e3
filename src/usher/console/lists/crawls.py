"""Crawls of hosts that are open, with a forecast of their end, and their actions."""

import shlex
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href
from usher.console.page import (
    REFRESH_SECONDS,
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.mgmt import open_crawls
from usher.mgmt.open_crawls import CRAWL_STATES, MAX_PAGES_COUNTED, OpenCrawl
from usher.observe.status_report import read_transaction
from usher.wording import capped_count, relative_time

HEADINGS: Final = ("Host", "State", "Started", "Waiting", "Fetching", "Pages", "Forecast")


async def crawls_page(call: MgmtCall[Any]) -> ConsolePage:
    """Open crawls by host."""
    now = database_time(call)
    given = {name: condition(call, name) for name in ("contains", "state")}
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await open_crawls.open_crawls(
            conn,
            after=condition(call, "after"),
            contains=given["contains"].lower() or None,
            state=choice(call, "state", CRAWL_STATES),
            n=ROWS_PER_PAGE + 1,
        )
    shown = listed[:ROWS_PER_PAGE]
    table = ConsoleTable(
        HEADINGS,
        [crawl_row(crawl, now) for crawl in shown],
        (
            FilterField("contains", "Host contains", given["contains"]),
            FilterField("state", "State", given["state"], CRAWL_STATES),
        ),
        path="/crawls",
        next_href=next_href("/crawls", given, shown[-1].name if len(listed) > len(shown) else None),
        empty="No host is being crawled.",
    )
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return list_page(
        "Crawls",
        table,
        shown,
        shlex.join(["usher", "hosts", "crawls", *options]),
        links=[ACTIONS["host-recrawl"].link("Start a crawl", pages="due")],
        live_seconds=REFRESH_SECONDS,
    )


def crawl_row(crawl: OpenCrawl, now: datetime) -> TableRow:
    kind: CellKind = "text" if crawl.state == "running" else "bad"
    counts = (crawl.waiting, crawl.fetching, crawl.pages)
    cells = (
        TableCell(crawl.name, f"/hosts/{quote(crawl.name)}"),
        TableCell(crawl.state, kind=kind, more=crawl.reason),
        TableCell(relative_time(crawl.started, now)),
        *(TableCell(capped_count(number, MAX_PAGES_COUNTED), kind="number") for number in counts),
        TableCell(crawl.forecast(now)),
    )
    is_open = crawl.state in ("running", "resting")
    first = ACTIONS["host-pause" if is_open else "host-open"].link(host=crawl.name)
    return TableRow(cells, (first, ACTIONS["host-stop"].link("Stop", host=crawl.name)))
