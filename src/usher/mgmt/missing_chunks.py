"""Chunks whose files are nowhere any more: built again while their content is there, or else crawled again.

Comes from index servers that are to load a chunk which neither its builder nor any other server has, and from builders
whose crawler has lost the content; goes to work.chunk, and to the guestbook. Whatever writes must be called in a
transaction. Nothing is done while a server that may come back has the chunk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import components, health, page_versions, placements
from usher.mgmt.chunks import MAX_BUILD_ATTEMPTS, MAX_CRAWL_ATTEMPTS
from usher.mgmt.components import NewEvent
from usher.mgmt.health import HealthLimits
from usher.telemetry import Log

store = load_statements(__file__)
log = Log("mgmt")
DEFAULT_LIMITS: Final = HealthLimits()
LossResult = Literal["build", "parked", "crawl"]


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A chunk whose file nobody has, as those said who were asked; `silent` if its builder said nothing at all."""

    chunk_id: int
    reason: str
    silent: bool = False


async def lose_indexes(
    conn: Connection,
    server: int,
    losses: Sequence[MissingFile],
    *,
    now: datetime,
    patience: HealthLimits = DEFAULT_LIMITS,
) -> dict[int, LossResult]:
    """Of chunks that a server finds nowhere, those that are: to be built again, or crawled, or parked for people."""
    await placements.plan_alone(conn)
    gone = await _gone(conn, now, patience)
    found = await store.lose_indexes.tuples(
        conn,
        server=server,
        chunks=[one.chunk_id for one in losses],
        reasons=[one.reason for one in losses],
        silent=[one.silent for one in losses],
        gone=gone,
        most=MAX_BUILD_ATTEMPTS,
    )
    became: dict[int, LossResult] = dict(found)
    await _crawl_again(conn, [id_ for id_, what in found if what == "crawl"], gone, now)
    if parked := [id_ for id_, what in found if what == "parked"]:
        await placements.remove_placements(conn, parked, copies=False)
    await _record_losses(conn, "index_missing", server, losses, became, now)
    return became


async def lose_content(
    conn: Connection,
    builder: int,
    loss: MissingFile,
    *,
    now: datetime,
    patience: HealthLimits = DEFAULT_LIMITS,
) -> bool:
    """A chunk was parked because its crawler has lost it: whether its pages wait again, and no server has it."""
    await placements.plan_alone(conn)
    gone = await _gone(conn, now, patience)
    lost = await _crawl_again(conn, [loss.chunk_id], gone, now)
    await _record_losses(
        conn, "content_missing", builder, [loss], dict.fromkeys(lost, "crawl"), now
    )
    return bool(lost)


async def _crawl_again(
    conn: Connection, chunks: Sequence[int], gone: Sequence[int], now: datetime
) -> list[int]:
    """Parked chunks that can be had in no other way; their pages can be found as they were before, if they were."""
    if not chunks:
        return []
    found = await store.crawl_again.tuples(conn, chunks=list(chunks), gone=list(gone))
    lost = [id_ for (id_,) in found]
    await placements.remove_placements(conn, lost, copies=True)
    await page_versions.take_back(conn, lost, max_losses=MAX_CRAWL_ATTEMPTS, now=now)
    return lost


async def _gone(conn: Connection, now: datetime, patience: HealthLimits) -> list[int]:
    """The components that nobody waits for any more."""
    known = await components.list_components(conn)
    return [one.id for one in known if health.overdue(one.record, now, patience)]


async def _record_losses(
    conn: Connection,
    kind: str,
    component: int,
    losses: Sequence[MissingFile],
    became: Mapping[int, LossResult],
    now: datetime,
) -> None:
    """Write down what became of chunks, for people."""
    lost = [one for one in losses if one.chunk_id in became]
    for one in lost:
        log.warning(kind, chunk=one.chunk_id, next=became[one.chunk_id], reason=one.reason)
    happened = [
        NewEvent(now, kind, component, "built", became[one.chunk_id], one.reason, one.chunk_id)
        for one in lost
    ]
    await components.add_events(conn, *happened)
