"""Which row an index server belongs to. A row has one engine, and one on OpenSearch has one index server: the cluster.

Every server of a row counts as its member, also one that is away: its row answers only when it is back. These do not
count, and leave the row when a server joins that they would keep out:

    drained   it is draining and has no chunks left
    replaced  its index is in OpenSearch and it stopped, or gave no sign of life for a while; the joining server is on
              OpenSearch too and gets its chunks. The claim in the state index ensures that only one writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict
from usher.messages.components import EngineName
from usher.mgmt import components, placements
from usher.mgmt.components import HINT, ComponentRecord, NewEvent
from usher.mgmt.placement_rules import OPENSEARCH, row_for

store = load_statements(__file__)
# A server that renews its claim calls more often; another one gets the claim after 15 seconds.
REPLACED_AFTER: Final = timedelta(seconds=10)
ENGINE_TEXTS: Final = {"tantivy": "Tantivy", "opensearch": "OpenSearch"}


@dataclass(frozen=True, slots=True)
class RowMember:
    """An index server of a row, and how many chunks of the row it has."""

    id: int
    host: str
    row: int
    engine: EngineName
    draining: bool
    health: str
    has_stopped: bool
    seen_at: datetime
    chunks: int
    loaded: bool  # whether it has loaded one of them

    @property
    def is_drained(self) -> bool:
        return self.draining and not self.chunks

    def is_replaceable(self, now: datetime) -> bool:
        """Whether another server on OpenSearch may take its place."""
        return self.engine == OPENSEARCH and (
            self.has_stopped or now - self.seen_at > REPLACED_AFTER
        )


async def join_row(
    conn: Connection,
    server: ComponentRecord,
    row: int | None,
    engine: EngineName | None = None,
    *,
    now: datetime,
) -> ComponentRecord:
    """Put an index server into the row that it declares, else into the shortest; its old chunks move away.

    Conflict if the row has another engine, or if the server would leave a row whose chunks it alone has. A drained
    server whose row was removed joins no other row unless it declares one. Without an engine it keeps its own.
    """
    if server.type != "index-server":
        if row is not None:
            raise BadInput(
                f"Only index servers belong to a row; {server.host} is not server.", hint=HINT
            )
        return server
    await components.lock_rows(conn)
    # Another call of the server may have been first.
    server = await components.of_id(conn, server.id)
    new_engine = engine or server.engine
    stays = row in (None, server.row) and (server.row is not None or server.draining)
    if stays and new_engine == server.engine:
        return server
    new_row = await _checked_row(conn, server, row, new_engine, now)
    await store.join_row.run(conn, id=server.id, row=new_row, engine=new_engine)
    if new_row != server.row:
        before = None if server.row is None else str(server.row)
        await components.add_events(conn, NewEvent(now, "row", server.id, before, str(new_row)))
    return await components.of_id(conn, server.id)


async def _checked_row(
    conn: Connection,
    server: ComponentRecord,
    row: int | None,
    engine: EngineName,
    now: datetime,
) -> int | None:
    """The row that the server may join, once those that it replaces have left; None if it joins none."""
    members = await _members(conn)
    own = next((member for member in members if member.id == server.id), None)
    others = [member for member in members if member.id != server.id]
    rows = await components.row_count(conn)
    new_row = server.row if row is None else row
    if new_row is None:
        if server.draining:
            return None
        new_row = await _free_row(conn, server, engine, others, rows, now)
    _check_number(own, new_row, rows)
    _check_leaving(own, others, new_row)
    _check_own_chunks(own, new_row, engine)
    check_row(new_row, engine, others, rows, now)
    await _replace_members(conn, server, new_row, engine, others, now)
    return new_row


async def check_joining(
    conn: Connection, host: str, row: int, engine: EngineName, *, now: datetime
) -> None:
    """Conflict if an index server at this host could not join the row; it may be unknown."""
    members = await _members(conn)
    own = next((member for member in members if member.host == host), None)
    others = [member for member in members if member.host != host]
    _check_own_chunks(own, row, engine)
    check_row(row, engine, others, await components.row_count(conn), now)


def engine_name(setting: str) -> EngineName:
    """The engine of this setting."""
    return "opensearch" if setting == OPENSEARCH else "tantivy"


def check_row(
    row: int, engine: EngineName, others: Sequence[RowMember], rows: int, now: datetime
) -> None:
    """Conflict if a server on this engine must not join the row, because of its other members."""
    for member in blocking_members(row, engine, others, now):
        raise (
            second_server(member, rows)
            if member.engine == engine
            else other_engine(member, engine, rows)
        )


def blocking_members(
    row: int, engine: EngineName, others: Sequence[RowMember], now: datetime
) -> list[RowMember]:
    """The members that keep a server on this engine out of their row."""
    return [
        member
        for member in others
        if member.row == row
        and not member.is_drained
        and (member.engine != engine or engine == OPENSEARCH)
        and not (engine == OPENSEARCH and member.is_replaceable(now))
    ]


def other_engine(member: RowMember, engine: EngineName, rows: int) -> Conflict:
    row, text = member.row, ENGINE_TEXTS[member.engine]
    message = (
        f"Row {row} is on {text}, by the index server {member.host}. "
        f"A row has one engine, so a server on {ENGINE_TEXTS[engine]} cannot join it."
    )
    return Conflict(message, hint=f"{way_back(member)} {way_out(member, rows)}")


def second_server(member: RowMember, rows: int) -> Conflict:
    message = (
        f"Row {member.row} has its index server on OpenSearch already: {member.host}. "
        "A row on OpenSearch has only one."
    )
    seconds = REPLACED_AFTER.total_seconds()
    hint = (
        f"To replace it, stop it: {seconds:g} seconds after its last sign of life another server may take its place. "
        f"For another row: usher components rows --set {rows + 1}"
    )
    return Conflict(message, hint=hint)


def way_back(member: RowMember) -> str:
    if member.engine == OPENSEARCH:
        return f"If {member.host} is away, repair its cluster, or start it again with --engine opensearch."
    return f"If {member.host} is away, start it again."


def way_out(member: RowMember, rows: int) -> str:
    """How the operator removes a member for good."""
    if not member.chunks:
        return f"If it never comes back: usher components drain {member.host}"
    new = rows + 1
    return (
        f"To replace its row: usher components rows --set {new}, start this server with --row {new}, "
        f"and when that row is complete: usher components rows --remove {member.row}"
    )


def _check_number(own: RowMember | None, row: int, rows: int) -> None:
    """BadInput if there is no such row; the server may have kept the number of a row that got another one."""
    if 1 <= row <= rows:
        return
    if own is None or row < 1:
        raise BadInput(f"There are rows 1 to {rows}.", hint="usher components rows")
    raise BadInput(
        f"There are rows 1 to {rows}. The row of {own.host} is row {own.row} now.",
        hint=f"Start it with --row {own.row} instead of --row {row}; change it in its unit too.",
    )


def _check_leaving(own: RowMember | None, others: Sequence[RowMember], row: int) -> None:
    """Conflict if no other server could take the chunks of the row that the server leaves, unless it is draining."""
    if own is None or own.row == row or own.draining or not own.chunks:
        return
    if any(other.row == own.row and other.health == "healthy" for other in others):
        return
    raise Conflict(
        f"{own.host} is the last index server of row {own.row}, which has {own.chunks} chunks there.",
        hint=(
            f"Start it with --row {own.row}. To move it nevertheless: usher components drain {own.host}, "
            f"start it with --row {row}, usher components undrain {own.host}"
        ),
    )


def _check_own_chunks(own: RowMember | None, row: int, engine: EngineName) -> None:
    """Conflict if the server has loaded chunks of its row and would lose them with its engine."""
    if own is not None and own.row == row and own.engine != engine and own.loaded:
        text, wanted = ENGINE_TEXTS[own.engine], ENGINE_TEXTS[engine]
        raise Conflict(
            f"{own.host} has the chunks of row {row} on {text}, and would lose them on {wanted}.",
            hint=f"Start it with --engine {own.engine}. To change the engine, add a row: docs/opensearch.md",
        )


async def _members(conn: Connection) -> list[RowMember]:
    return await store.members.rows(conn, RowMember)


async def _free_row(
    conn: Connection,
    server: ComponentRecord,
    engine: EngineName,
    others: Sequence[RowMember],
    rows: int,
    now: datetime,
) -> int:
    """The shortest row that a server on this engine may join; Conflict if there is none."""
    closed = {row for row in range(1, rows + 1) if blocking_members(row, engine, others, now)}
    if len(closed) == rows:
        raise Conflict(
            f"No row takes an index server on {ENGINE_TEXTS[engine]}: a row has one engine, "
            "and one on OpenSearch has one server.",
            hint=f"usher components rows --set {rows + 1}",
        )
    return row_for(server.host, await components.servers(conn, now=now), rows, closed=closed)


async def _replace_members(
    conn: Connection,
    server: ComponentRecord,
    row: int,
    engine: EngineName,
    others: Sequence[RowMember],
    now: datetime,
) -> None:
    """Take those out of the row that no longer count, if they would keep the server out; it gets their chunks."""
    left = [
        member
        for member in others
        if member.row == row and (member.engine != engine or engine == OPENSEARCH)
    ]
    if not left:
        return
    await placements.plan_alone(conn)
    for member in left:  # at most one has chunks
        if member.chunks:
            await store.take_chunks.run(conn, taker=server.id, giver=member.id)
            await store.undrain.run(conn, id=server.id)
        await store.leave_row.run(conn, id=member.id)
        await components.add_events(
            conn,
            NewEvent(now, "row", member.id, str(row), reason=f"replaced by {server.host}"),
        )
