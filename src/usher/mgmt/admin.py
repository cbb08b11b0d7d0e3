"""Changes that the operator makes by hand: retry parked chunks, set the number of rows, remove a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict
from usher.mgmt import components, placements, row_membership
from usher.mgmt.components import NewEvent

store = load_statements(__file__)
MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RetriedChunk:
    """The result of a retry; `same` if the chunk was not parked."""

    id: int
    what: Literal["waiting", "same", "missing"]


async def retry(
    conn: Connection, ids: Sequence[int] | None, *, now: datetime
) -> list[RetriedChunk]:
    """Offer parked chunks to builders again, with no attempts counted; all of them if `ids` is None."""
    wanted = None if ids is None else list(dict.fromkeys(ids))
    unparked = set(await store.unpark.column(conn, ids=wanted))
    events = [NewEvent(now, "unparked", chunk_id=id_) for id_ in sorted(unparked)]
    await components.add_events(conn, *events)
    if wanted is None:
        return [RetriedChunk(id_, "waiting") for id_ in sorted(unparked)]
    existing = set(await store.existing_chunks.column(conn, ids=wanted))
    return [
        RetriedChunk(
            id_, "waiting" if id_ in unparked else "same" if id_ in existing else "missing"
        )
        for id_ in wanted
    ]


async def set_rows(conn: Connection, rows: int, *, now: datetime) -> list[str]:
    """Set the number of rows; returns the servers that this moved because their row no longer exists.

    The next plan of the watchdog removes the copies in former rows and fills new rows.
    """
    if not 1 <= rows <= MAX_ROWS:
        raise BadInput(f"There are 1 to {MAX_ROWS} rows.", hint="usher components rows --set 3")
    before = await _lock_rows(conn)
    if await store.chunks_only_in.tuples(conn, first=rows + 1, last=MAX_ROWS):
        raise Conflict(
            f"Some chunks are loaded in later rows, and not in rows 1 to {rows}.",
            hint="Wait until they are: usher components rows",
        )
    await _store_row_count(conn, before, rows, now)
    moved = await store.leave_rows.column(conn, first=rows + 1, last=MAX_ROWS)
    for host in moved:  # one after the other: each joins the row that is then shortest
        server = await components.show(conn, host, "index-server")
        try:
            await row_membership.join_row(conn, server, None, now=now)
        except Conflict as error:
            message = f"The index server {host} cannot move to another row. {error.message}"
            hint = "Remove its row instead: usher components rows --remove N"
            raise Conflict(message, hint=hint) from error
    return moved


async def remove_row(conn: Connection, row: int, *, now: datetime) -> list[str]:
    """Remove one row; the last row gets its number. Returns its servers, which are drained and belong to no row.

    No other copy moves: a row on another engine can take the place of an old one.
    """
    last = await _lock_rows(conn)
    if not 1 <= row <= last:
        raise BadInput(f"There are rows 1 to {last}.", hint="usher components rows")
    if last == 1:
        raise BadInput("The only row cannot be removed.", hint="usher components rows --set 2")
    if await store.chunks_only_in.tuples(conn, first=row, last=row):
        raise Conflict(
            f"Some chunks are loaded in row {row} only.",
            hint="Wait until another row has them: usher components rows",
        )
    servers = await store.dismiss_servers.column(conn, row=row)
    await store.empty_row.run(conn, row=row, last=last)
    if row < last:
        await store.renumber_row.run(conn, row=row, last=last)
    await _store_row_count(conn, last, last - 1, now)
    await store.check_every_row.run(conn)
    return servers


async def _lock_rows(conn: Connection) -> int:
    """Keep servers from dropping copies and other transactions from assigning rows; returns the number of rows."""
    await components.lock_rows(conn)
    await placements.plan_alone(conn)
    return await components.row_count(conn)


async def _store_row_count(conn: Connection, before: int, rows: int, now: datetime) -> None:
    if await store.set_rows.tuples(conn, rows=rows):
        await components.add_events(conn, NewEvent(now, "rows", None, str(before), str(rows)))
