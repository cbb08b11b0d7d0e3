"""Changes that the operator makes by hand: retry parked chunks, set the number of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict
from usher.mgmt import components, placements
from usher.mgmt.components import NewEvent

store = load_statements(__file__)
MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RetriedChunk:
    """What became of the wish to have a chunk built again; `same` if it was not parked."""

    id: int
    what: Literal["waiting", "same", "missing"]


async def retry(
    conn: Connection, ids: Sequence[int] | None, *, now: datetime
) -> list[RetriedChunk]:
    """Parked chunks are offered to builders again, their attempts forgotten; all of them if none is named."""
    wanted = None if ids is None else list(dict.fromkeys(ids))
    free = {id_ for (id_,) in await store.unpark.tuples(conn, ids=wanted)}
    happened = [NewEvent(now, "unparked", chunk_id=id_) for id_ in sorted(free)]
    await components.add_events(conn, *happened)
    if wanted is None:
        return [RetriedChunk(id_, "waiting") for id_ in sorted(free)]
    known = {id_ for (id_,) in await store.existing_chunks.tuples(conn, ids=wanted)}
    return [
        RetriedChunk(id_, "waiting" if id_ in free else "same" if id_ in known else "missing")
        for id_ in wanted
    ]


async def set_rows(conn: Connection, rows: int, *, now: datetime) -> list[str]:
    """So many rows from now on; servers of rows that end get another, and are returned.

    The next plan gives up the copies in rows that are no more, and fills those that are new.
    """
    if not 1 <= rows <= MAX_ROWS:
        raise BadInput(f"There are 1 to {MAX_ROWS} rows.", hint="usher components rows --set 3")
    await components.lock_rows(conn)
    await placements.plan_alone(conn)  # nobody drops a copy that the look below counts on
    if await store.chunks_only_beyond.tuples(conn, rows=rows):
        raise Conflict(
            f"Some chunks are loaded in later rows, and not in rows 1 to {rows}.",
            hint="Wait until they are: usher components rows",
        )
    before = await components.row_count(conn)
    if await store.set_rows.tuples(conn, rows=rows):
        await components.add_events(conn, NewEvent(now, "rows", None, str(before), str(rows)))
    moved = [str(host) for (host,) in await store.leave_rows.tuples(conn, rows=rows)]
    for host in moved:  # one after the other: each is put into the row that is shortest then
        await components.join_row(
            conn, await components.show(conn, host, "index-server"), None, now
        )
    return moved
