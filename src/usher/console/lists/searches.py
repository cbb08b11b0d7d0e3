"""Search statistics: how long queries took, and which were frequent. Only admin sees what users searched for."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.lists.list_query import choice, condition
from usher.console.page import (
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.mgmt import queries
from usher.mgmt.queries import QueryTermTimes, QueryTimes
from usher.observe.status_report import read_transaction
from usher.wording import relative_time

MAX_QUERIES_READ: Final = 10_000  # so that the page takes less than 50 ms
MAX_TERMS: Final = 100
DEFAULT_SPAN: Final = "1d"
SPANS: Final[Mapping[str, timedelta]] = {
    "1h": timedelta(hours=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


async def searches_page(call: MgmtCall[Any]) -> ConsolePage:
    """The time of queries and the most frequent terms."""
    now, empty = database_time(call), choice(call, "results", ("none",)) is not None
    span = choice(call, "since", tuple(SPANS)) or DEFAULT_SPAN
    since = now - SPANS.get(span, timedelta(days=1))
    async with read_transaction(call.context.mgmt_db) as conn:
        times = await queries.queries(conn, since=since, most=MAX_QUERIES_READ)
        terms = await queries.terms(
            conn, since=since, n=MAX_TERMS, most=MAX_QUERIES_READ, without_results=empty
        )
    table = ConsoleTable(
        ("Query", "Times", "Mean time", "Slowest", "Latest"),
        [term_row(term, now) for term in terms],
        (
            FilterField("since", "Of the last", condition(call, "since"), tuple(SPANS), "1d"),
            FilterField("results", "Results", condition(call, "results"), ("none",)),
        ),
        path="/searches",
        empty="There was no such query.",
        notes=(times_text(times), f"The {MAX_TERMS} most frequent terms."),
    )
    words = ["usher", "stats", "queries", "--since", span, "--limit", str(MAX_TERMS)]
    command = shlex.join([*words, *(["--no-results"] if empty else [])])
    page = list_page("Searches", table, terms, command)
    return replace(page, data={**page.data, "times": times})


def times_text(times: QueryTimes) -> str:
    if not times.number:
        return "No queries."
    is_part = times.number >= MAX_QUERIES_READ
    number = f"The latest {times.number:,} queries" if is_part else f"{times.number:,} queries"
    return (
        f"{number}: p50 {times.median:.3f} s, p95 {times.p95:.3f} s, slowest {times.slowest:.3f} s."
    )


def term_row(term: QueryTermTimes, now: datetime) -> TableRow:
    cells = (
        TableCell(term.term, kind="long"),
        TableCell(f"{term.number:,}", kind="number"),
        TableCell(f"{term.mean:.3f} s", kind="number"),
        TableCell(f"{term.slowest:.3f} s", kind="number"),
        TableCell(relative_time(term.latest, now)),
    )
    return TableRow(cells)
