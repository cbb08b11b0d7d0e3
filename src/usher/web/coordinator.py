"""What MGMT's endpoints share: who calls, a way to the database, numbers of chunks, and how they decline."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

import psycopg

from usher.db import Connection
from usher.errors import BadInput, NotFound, Unreachable
from usher.mgmt import chunks
from usher.mgmt.chunks import Chunk
from usher.mgmt.components import Component
from usher.mgmt.names import Type
from usher.web.app import Call
from usher.web.mgmt_shapes import ChunkKept, Told
from usher.web.porch import Declined

Says = TypeVar("Says", bound=Told)


def clock() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def at_mgmt(call: Call[Says], *, alone: bool = False) -> AsyncIterator[Connection]:
    """A transaction, or a connection for one statement `alone`; what cannot be stored is the caller's to mend."""
    db = call.rooms.mgmt
    try:
        async with db.connection() if alone else db.transaction() as conn:
            yield conn
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"That cannot be stored: {error.diag.message_primary or error}.") from None
    except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure) as error:
        raise Unreachable("Others stood in the way.", hint="Ask again.") from error


async def caller(call: Call[Says], kind: Type | None = None) -> Component:
    """The component that calls; `kind` is what this endpoint is for."""
    return await call.rooms.callers.meet(call.asker, call.body.host, kind)


async def shown(conn: Connection, chunk: int) -> Chunk:
    """A chunk, which must be there."""
    if (found := await chunks.show(conn, chunk)) is None:
        raise NotFound(f"There is no chunk {chunk}.")
    return found


def state_of(chunk: Chunk) -> ChunkKept:
    """The state of a chunk's content, in the words of the seed."""
    return ChunkKept(chunk.id, "propagated" if chunk.propagated_at else chunk.state)


def index_state_of(chunk: Chunk) -> ChunkKept:
    """The state of a chunk's index, in the words of the seed; one that nobody builds now has failed, or waits."""
    if chunk.propagated_at:
        return ChunkKept(chunk.id, "propagated")
    if chunk.index_state is None or chunk.index_state == "parked":
        return ChunkKept(chunk.id, "error" if chunk.build_attempts else "waiting")
    return ChunkKept(chunk.id, chunk.index_state)


def lost(chunk: Chunk, me: Component) -> NoReturn:
    """The caller has no lease on this chunk, or has none any more."""
    if me.id not in (chunk.crawler_id, chunk.builder_id):
        message = f"Chunk {chunk.id} is not with {me.host}."
        raise Declined(409, "not_yours", message, hint="A component reports what it was given.")
    state = (
        chunk.state if chunk.index_state is None else f"{chunk.state}, index {chunk.index_state}"
    )
    words = f": {chunk.reason}" if chunk.reason else ""
    message = f"{me.host} does not hold chunk {chunk.id} any more; it is {state}{words}."
    raise Declined(409, "lease_lost", message, hint="Drop it and ask for others.")
