"""Types of jobs: how many jobs of each wait, run and ended, and which types are paused."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS
from usher.console.page import (
    REFRESH_SECONDS,
    CellKind,
    ConsolePage,
    ConsoleTable,
    TableCell,
    TableRow,
    list_page,
)
from usher.observe.status_report import read_transaction
from usher.queue import queries, task_queries
from usher.queue.queries import JobCount
from usher.queue.task_queries import PausedType

MAX_RUNS_COUNTED: Final = 20_000  # so that the page takes less than 50 ms
LIVE_STATES: Final = ("pending", "waiting", "running", "temporary-error")
ENDED_STATES: Final = ("completed", "permanent-error", "cancelled")
HEADINGS: Final = (
    "Type", "Pending", "Needs others", "Running", "Retried later", "Completed", "Failed", "Cancelled", "State",
)  # fmt: skip
StateCounts = Mapping[tuple[str, str], JobCount]


async def types_page(call: MgmtCall[Any]) -> ConsolePage:
    """Types with live, ended or paused jobs, by name."""
    now = database_time(call)
    async with read_transaction(call.context.control) as conn:
        counts = await queries.count_jobs(conn, now=now, most=MAX_RUNS_COUNTED)
        paused = {each.type: each for each in await task_queries.paused_types(conn)}
    by_state: dict[tuple[str, str], JobCount] = {
        (each.type, each.state): each for each in (*counts.live, *counts.log)
    }
    names = sorted({name for name, _ in by_state} | paused.keys())
    table = ConsoleTable(
        HEADINGS,
        [type_row(name, by_state, paused.get(name)) for name in names],
        empty="There is no job.",
        notes=(f"Ended jobs are those of the last 24 hours, {MAX_RUNS_COUNTED:,} at most.",),
    )
    records = type_records(names, by_state, paused)
    command = "usher jobs list --summary"
    return list_page("Types of jobs", table, records, command, live_seconds=REFRESH_SECONDS)


def type_records(
    names: Sequence[str], counts: StateCounts, paused: Mapping[str, PausedType]
) -> list[dict[str, Any]]:
    states: dict[str, dict[str, int]] = defaultdict(dict)
    for (name, state), count in counts.items():
        states[name][state] = count.number
    return [{"type": name, "jobs": states[name], "paused": paused.get(name)} for name in names]


def type_row(name: str, counts: StateCounts, paused: PausedType | None) -> TableRow:
    kind: CellKind = "bad" if paused else "text"
    cells = (
        TableCell(name, f"/jobs?{urlencode({'type': name})}"),
        *(count_cell(counts.get((name, state))) for state in (*LIVE_STATES, *ENDED_STATES)),
        TableCell(
            "paused" if paused else "active", kind=kind, more=paused.reason if paused else ""
        ),
    )
    action = "type-resume" if paused else "type-pause"
    return TableRow(cells, (ACTIONS[action].link(type=name),))


def count_cell(count: JobCount | None) -> TableCell:
    if count is None:
        return TableCell("0", kind="number")
    return TableCell(f"{'≥ ' * count.more}{count.number:,}", kind="number")
