"""The sample of URLs that the door refused, by reason and host."""

import shlex
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href
from usher.console.page import (
    ActionLink,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.door import refused_urls
from usher.door.refused_urls import MAX_URLS_PER_HOST, SAMPLED_REASONS, RefusedUrl
from usher.errors import BadInput
from usher.observe.status_report import read_transaction
from usher.wording import relative_time

REASONS: Final = tuple(reason.value for reason in SAMPLED_REASONS)
POSITION_PARTS: Final = 3


async def refused_page(call: MgmtCall[Any]) -> ConsolePage:
    """Refused URLs by reason and host."""
    now = database_time(call)
    given = {name: condition(call, name) for name in ("reason", "host", "contains")}
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await refused_urls.refused_urls(
            conn,
            reason=choice(call, "reason", REASONS),
            host=given["host"].lower() or None,
            contains=given["contains"] or None,
            after=position(condition(call, "after")),
            n=ROWS_PER_PAGE + 1,
        )
    shown = listed[:ROWS_PER_PAGE]
    last = shown[-1] if len(listed) > len(shown) else None
    table = ConsoleTable(
        ("Reason", "Host", "URL", "Detail", "Refused"),
        [refused_row(refused, now) for refused in shown],
        (
            FilterField("reason", "Reason", given["reason"], REASONS),
            FilterField("host", "Host", given["host"]),
            FilterField("contains", "URL or detail contains", given["contains"]),
        ),
        path="/pages/refused",
        next_href=next_href(
            "/pages/refused", given, last and f"{last.reason} {last.host} {last.url}"
        ),
        empty="The door refused no URL.",
        notes=(f"A sample: the latest {MAX_URLS_PER_HOST} URLs of each reason and host.",),
    )
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    command = shlex.join(["usher", "pages", "refused", *options])
    related = (ActionLink("Pages by reason", "/pages/errors"),)
    return list_page("Refused URLs", table, shown, command, related=related)


def position(text: str) -> tuple[str, str, str]:
    """The row after which the list continues: reason, host and URL."""
    if not text:
        return "", "", ""
    parts = text.split(" ", POSITION_PARTS - 1)
    if len(parts) != POSITION_PARTS:
        raise BadInput(f"{text[:60]!a} is not a position in the list.")
    reason, host, url = parts
    return reason, host, url


def refused_row(refused: RefusedUrl, now: datetime) -> TableRow:
    host = TableCell(refused.host, f"/hosts/{quote(refused.host)}")
    cells = (
        TableCell(refused.reason),
        host if refused.host else TableCell("-"),
        TableCell(refused.url, f"/explain?url={quote(refused.url, safe='')}", "long"),
        TableCell(refused.detail or "-"),
        TableCell(relative_time(refused.at, now)),
    )
    return TableRow(cells)
