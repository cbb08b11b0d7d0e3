"""Removals of pages, the latest first."""

import shlex
from datetime import datetime
from typing import Any

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href, number
from usher.console.page import (
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.door import removals
from usher.door.removals import Removal
from usher.observe.status_report import read_transaction
from usher.wording import counted, relative_time


async def removals_page(call: MgmtCall[Any]) -> ConsolePage:
    now, undone = database_time(call), choice(call, "undone", ("also",))
    contains = condition(call, "contains")
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await removals.list_removals(
            conn,
            before=number(call, "after"),
            undone=undone is not None,
            contains=contains or None,
            n=ROWS_PER_PAGE,
        )
    given = {"contains": contains, "undone": undone or ""}
    after = listed[-1].id if len(listed) >= ROWS_PER_PAGE else None
    table = ConsoleTable(
        ("Target", "Removed", "By", "State", "Reason"),
        [removal_row(removal, now) for removal in listed],
        (
            FilterField("contains", "Target, author or reason contains", contains),
            FilterField("undone", "Undone ones", given["undone"], ("also",), "not shown"),
        ),
        path="/removals",
        next_href=next_href("/removals", given, after),
        empty="No page is removed.",
    )
    links = [ACTIONS["page-remove"].link("Remove pages")]
    return list_page("Removals", table, listed, list_command(given), links=links)


def list_command(given: dict[str, str]) -> str:
    words = ["usher", "remove", "--list", *(["--all"] if given["undone"] else [])]
    return shlex.join([*words, *(["--contains", given["contains"]] if given["contains"] else [])])


def removal_row(removal: Removal, now: datetime) -> TableRow:
    state = f"undone by {removal.undone_by}" if removal.undone_at else "in progress"
    if removal.swept_at and not removal.undone_at:
        state = f"{counted(removal.pages, 'page')} removed"
    cells = (
        TableCell(removal.target),
        TableCell(relative_time(removal.removed_at, now)),
        TableCell(removal.removed_by),
        TableCell(state),
        TableCell(removal.reason),
    )
    is_active = removal.undone_at is None
    return TableRow(
        cells, (ACTIONS["removal-undo"].link(target=removal.target),) if is_active else ()
    )
