"""Pages by reason: those that failed, those that a server or robots.txt keeps out, and URLs that the door refused."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.lists.list_query import condition
from usher.console.lists.pages import MAX_PAGES_READ
from usher.console.page import (
    ActionLink,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.console.page_conditions import host_number
from usher.door import refused_urls
from usher.door.refused_urls import RefusedReason
from usher.mgmt import page_list
from usher.mgmt.page_list import ErrorKind, PageConditions, PageResultCount
from usher.observe.status_report import read_transaction
from usher.wording import counted, relative_time

KEPT_OUT_RESULTS: Final = ("blocked", "gone", "moved", "noindex", "empty", "duplicate", "removed")
RELATED_PAGES: Final = (ActionLink("Pages", "/pages"), ActionLink("Refused URLs", "/pages/refused"))


async def reasons_page(call: MgmtCall[Any]) -> ConsolePage:
    """Failed, kept out and refused pages by reason, of all hosts or of one."""
    now, host = database_time(call), condition(call, "host")
    async with read_transaction(call.context.mgmt_db) as conn:
        number = await host_number(conn, host) if host else None
        kinds = await page_list.error_kinds(conn, number, most=MAX_PAGES_READ)
        refused = await refused_urls.refused_reasons(conn, host=host.lower() or None)
        counts = await page_list.count_pages(
            conn, PageConditions(domain64=number), most=MAX_PAGES_READ
        )
    kept_out = [count for count in counts if count.result in KEPT_OUT_RESULTS]
    table = ConsoleTable(
        ("Kind", "Pages", "Next attempt", "Example"),
        error_rows(kinds, host, now),
        (FilterField("host", "Host", host),),
        path="/pages/errors",
        empty="No page failed.",
    )
    tables = [
        ("Kept out of the index", kept_out_table(kept_out, host)),
        ("Refused by the door", refused_table(refused, host, now)),
    ]
    option = f" --host {shlex.quote(host)}" if host else ""
    command = f"usher pages errors{option}"
    page = list_page(
        "Failed pages by kind", table, kinds, command, related=RELATED_PAGES, more=tables
    )
    return replace(page, data={**page.data, "results": kept_out, "refused": refused})


def error_rows(kinds: Sequence[ErrorKind], host: str, now: datetime) -> list[TableRow]:
    return [
        TableRow(
            (
                TableCell(kind.kind, pages_link(host, state="error", reason=kind.kind)),
                TableCell(pages_text(kind.number, kind.hosts, is_more=kind.more), kind="number"),
                TableCell(relative_time(kind.next_attempt, now)),
                TableCell(kind.example, f"/explain?url={quote(kind.example, safe='')}", "long"),
            )
        )
        for kind in kinds
    ]


def pages_text(pages: int, hosts: int, *, is_more: bool = False) -> str:
    """`312 pages on 4 hosts`."""
    return f"{'≥ ' * is_more}{counted(pages, 'page')} on {counted(hosts, 'host')}"


def pages_link(host: str, **conditions: str) -> str:
    return f"/pages?{urlencode({**({'host': host} if host else {}), **conditions})}"


def kept_out_table(counts: Sequence[PageResultCount], host: str) -> ConsoleTable:
    rows = [
        TableRow(
            (
                TableCell(count.result, pages_link(host, result=count.result)),
                TableCell(f"{'≥ ' * count.more}{counted(count.number, 'page')}", kind="number"),
            )
        )
        for count in counts
    ]
    is_part = any(count.more for count in counts)
    note = f"Of the first {MAX_PAGES_READ:,} pages. Choose a host to see those of a host."
    return ConsoleTable(
        ("Result", "Pages"), rows, empty="No such page.", notes=(note,) if is_part else ()
    )


def refused_table(reasons: Sequence[RefusedReason], host: str, now: datetime) -> ConsoleTable:
    rows = [
        TableRow(
            (
                TableCell(reason.reason, f"/pages/refused?{refused_query(reason.reason, host)}"),
                TableCell(
                    f"{counted(reason.urls, 'URL')} on {counted(reason.hosts, 'host')}",
                    kind="number",
                ),
                TableCell(relative_time(reason.latest, now)),
            )
        )
        for reason in reasons
    ]
    note = f"A sample: at most {refused_urls.MAX_URLS_PER_HOST} URLs of each reason and host."
    return ConsoleTable(
        ("Reason", "In the sample", "Latest"), rows, empty="The door refused no URL.", notes=(note,)
    )


def refused_query(reason: str, host: str) -> str:
    return urlencode({"reason": reason, **({"host": host} if host else {})})
