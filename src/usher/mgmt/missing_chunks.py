"""Chunks whose files are lost: built again while their content exists, else crawled again.

Index servers report chunks that neither the builder nor another server has; builders report content that the crawler
lost. Nothing changes while a server that may come back has the chunk. Functions that write need a transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import components, health, page_versions, placements
from usher.mgmt.chunks import MAX_BUILD_ATTEMPTS, MAX_CRAWL_ATTEMPTS
from usher.mgmt.components import NewEvent
from usher.mgmt.health import DEFAULT_LIMITS, HealthLimits
from usher.telemetry import Log

store = load_statements(__file__)
log = Log("mgmt")
LossResult = Literal["build", "parked", "crawl"]


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A chunk whose file could not be downloaded, and why; `silent` if its builder did not answer."""

    chunk_id: int
    reason: str
    silent: bool = False


async def lose_indexes(
    conn: Connection,
    server: int,
    losses: Sequence[MissingFile],
    *,
    now: datetime,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> dict[int, LossResult]:
    """Have missing chunks built or crawled again, or parked for the operator; returns what happens to each."""
    await placements.plan_alone(conn)
    gone = await _gone(conn, now, limits)
    rows = await store.lose_indexes.tuples(
        conn,
        server=server,
        chunks=[loss.chunk_id for loss in losses],
        reasons=[loss.reason for loss in losses],
        silent=[loss.silent for loss in losses],
        gone=gone,
        most=MAX_BUILD_ATTEMPTS,
    )
    results: dict[int, LossResult] = dict(rows)
    await _crawl_again(conn, [id_ for id_, what in rows if what == "crawl"], gone, now)
    if parked := [id_ for id_, what in rows if what == "parked"]:
        await placements.remove_placements(conn, parked, copies=False)
    await _record_losses(conn, "index_missing", server, losses, results, now)
    return results


async def lose_content(
    conn: Connection,
    builder: int,
    loss: MissingFile,
    *,
    now: datetime,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> bool:
    """Have a parked chunk crawled again whose crawler lost the content; returns False if a server has the chunk."""
    await placements.plan_alone(conn)
    gone = await _gone(conn, now, limits)
    lost = await _crawl_again(conn, [loss.chunk_id], gone, now)
    await _record_losses(
        conn, "content_missing", builder, [loss], dict.fromkeys(lost, "crawl"), now
    )
    return bool(lost)


async def _crawl_again(
    conn: Connection, chunks: Sequence[int], gone: Sequence[int], now: datetime
) -> list[int]:
    """Have the pages of parked chunks crawled again that no server has; earlier copies of them stay searchable."""
    if not chunks:
        return []
    lost = await store.crawl_again.column(conn, chunks=list(chunks), gone=list(gone))
    await placements.remove_placements(conn, lost, copies=True)
    await page_versions.take_back(conn, lost, max_losses=MAX_CRAWL_ATTEMPTS, now=now)
    return lost


async def _gone(conn: Connection, now: datetime, limits: HealthLimits) -> list[int]:
    """The components whose failure is longer than the grace period."""
    records = await components.list_components(conn)
    return [record.id for record in records if health.overdue(record.record, now, limits)]


async def _record_losses(
    conn: Connection,
    kind: str,
    component: int,
    losses: Sequence[MissingFile],
    results: Mapping[int, LossResult],
    now: datetime,
) -> None:
    """Store and log what happens to missing chunks."""
    lost = [loss for loss in losses if loss.chunk_id in results]
    for loss in lost:
        log.warning(kind, chunk=loss.chunk_id, next=results[loss.chunk_id], reason=loss.reason)
    events = [
        NewEvent(now, kind, component, "built", results[loss.chunk_id], loss.reason, loss.chunk_id)
        for loss in lost
    ]
    await components.add_events(conn, *events)
