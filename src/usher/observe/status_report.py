"""Read the status of both areas at one moment: the stages, and what blocks them. The source of every status screen."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database
from usher.observe.blockers import Blocker, SystemState, find_blockers, is_running
from usher.observe.causes import free_bytes
from usher.observe.stages import QueueStatus, WorkStatus, read_queue, read_work
from usher.wording import json_value, record_json, records_json


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The state at one moment; None for an area whose schema is out of date."""

    at: datetime
    work: WorkStatus | None
    queue: QueueStatus | None
    blockers: Sequence[Blocker]


async def read_report(
    areas: Mapping[str, Database],
    data: Path,
    *,
    behind: Mapping[str, int] | None = None,
    ahead: Sequence[str] = (),
) -> StatusReport:
    """Read each area in one read-only transaction; `behind` and `ahead` name the schemas that cannot be read."""
    clock = next((db.clock for db in areas.values()), DatabaseClock())
    now, work, queue = clock.now(), None, None
    if "work" in areas:
        async with read_transaction(areas["work"]) as conn:
            work = await read_work(conn, now=now)
    if "control" in areas:
        async with read_transaction(areas["control"]) as conn:
            queue = await read_queue(conn, now=now)
    free = free_bytes(data) if data.exists() else None
    system = SystemState(behind or {}, ahead, free, data, clock.skew.total_seconds())
    return StatusReport(now, work, queue, find_blockers(system, work, queue, now))


@asynccontextmanager
async def read_transaction(db: Database) -> AsyncIterator[Connection]:
    async with db.transaction() as conn:
        await conn.execute("set transaction isolation level repeatable read, read only")
        yield conn


def status_json(report: StatusReport) -> dict[str, Any]:
    return {
        "at": json_value(report.at),
        "well": not report.blockers,
        "running": is_running(report.work, report.queue) if report.work else None,
        "work": record_json(report.work) if report.work else None,
        "queue": record_json(report.queue) if report.queue else None,
        "holdups": records_json(report.blockers),
    }
