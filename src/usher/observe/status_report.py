"""Read the status of both areas at one moment: the stages, and what blocks them. The source of every status screen."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from usher.db.clock import DatabaseClock
from usher.db.pool import Connection, Database
from usher.observe.blockers import Blocker, SystemState, find_blockers, is_running
from usher.observe.causes import free_bytes
from usher.observe.stages import QueueStatus, WorkStatus, read_queue, read_work
from usher.wording import json_value, record_json, records_json

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AreaReader(Protocol[T_co]):
    """Reads the status of an area at a time."""

    async def __call__(self, conn: Connection, *, now: datetime) -> T_co: ...


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
    ended: Sequence[str] = (),
) -> StatusReport:
    """Read each area in one read-only transaction, both at once.

    `behind` and `ahead` name unreadable schemas. The `ended` components, by address, do not run.
    """
    clock = next((db.clock for db in areas.values()), DatabaseClock())
    now = clock.now()
    work, queue = await asyncio.gather(
        read_area(areas.get("work"), partial(read_work, ended=ended), now),
        read_area(areas.get("control"), read_queue, now),
    )
    free = free_bytes(data) if data.exists() else None
    system = SystemState(behind or {}, ahead, free, data, clock.skew.total_seconds())
    return StatusReport(now, work, queue, find_blockers(system, work, queue, now))


async def read_area(db: Database | None, read: AreaReader[T], now: datetime) -> T | None:
    """What `read` returns for an area; None if the area cannot be read."""
    if db is None:
        return None
    async with read_transaction(db) as conn:
        return await read(conn, now=now)


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
