"""What MGMT's endpoints share: who calls, a way to the database and once more, numbers of chunks, how they decline."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, NoReturn, TypeVar

import psycopg
from starlette.responses import Response

from usher.api.callers import is_named
from usher.api.context import MgmtCall
from usher.db.pool import CONFLICT_ERRORS, Connection
from usher.errors import BadInput, NotAllowed, NotFound, Unreachable
from usher.http.server.middleware import HttpError
from usher.messages.components import ChunkState
from usher.messages.fields import INCARNATION_HEADER, ComponentRequest
from usher.mgmt import chunk_offers, chunks, incarnation, placements
from usher.mgmt.chunks import Chunk
from usher.mgmt.component_names import IDENTITY_HINT, ComponentType
from usher.mgmt.components import ComponentRecord

Says = TypeVar("Says", bound=ComponentRequest)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Handler = Callable[[MgmtCall[Asked]], Awaitable[Answer | Response]]
# Who may say `propagated`, and index servers first: of others it means nothing.
PROPAGATORS: Final[tuple[ComponentType, ...]] = ("index-server", "crawler", "index-builder")
PAUSES: Final = (0.01, 0.05, 0.2)  # seconds; jitter keeps those apart who met


def database_time(call: MgmtCall[Any]) -> datetime:
    """Return the time of the database, which judges leases."""
    return call.context.mgmt_db.clock.now()


@contextmanager
def reject_unstorable() -> Iterator[None]:
    """What cannot be stored is the caller's to mend."""
    try:
        yield
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"That cannot be stored: {error.diag.message_primary or error}.") from None


@asynccontextmanager
async def mgmt_connection(
    call: MgmtCall[Says], *, alone: bool = False
) -> AsyncIterator[Connection]:
    """A transaction, or a connection for one statement `alone`."""
    db = call.context.mgmt_db
    with reject_unstorable():
        async with db.connection() if alone else db.transaction() as conn:
            yield conn


def retry_on_conflict(handler: Handler[Asked, Answer]) -> Handler[Asked, Answer]:
    """A handler of MGMT that begins anew, a few times, when others stood in its way.

    The database undid what it was at, and all it may have done before is harmless to repeat, as every call of a
    component is.
    """

    async def patient(call: MgmtCall[Asked]) -> Answer | Response:
        for pause in PAUSES:
            try:
                return await handler(call)
            except CONFLICT_ERRORS:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
        try:
            return await handler(call)
        except CONFLICT_ERRORS as error:
            raise Unreachable("Others stood in the way.", hint="Ask again.") from error

    return patient


async def caller(call: MgmtCall[Says], *roles: ComponentType) -> ComponentRecord:
    """The component that calls; `roles` are those that the endpoint is for, the likeliest first."""
    return await call.context.callers.meet(call.caller, call.body.host, roles)


async def lease_holders(call: MgmtCall[Says]) -> list[ComponentRecord]:
    """The component that calls; at an address that two roles share, its crawler and its index builder."""
    first = await caller(call, "crawler", "index-builder")
    second = await caller(call, "index-builder", "crawler")
    return [first] if first.id == second.id else [first, second]


async def record_propagated(
    call: MgmtCall[Says], conn: Connection, me: ComponentRecord, chunk: int
) -> None:
    """An index server that says `propagated` has loaded the chunk, if it is assigned to it; of others it means nothing.

    Where roles share an address, the builder may say so before the server has the chunk: then the server must have been
    offered it.
    """
    if me.type != "index-server":
        return
    await placements.keep_planners_out(conn)
    await check_incarnation(conn, call.headers)
    if is_named(call.caller, call.body.host) or chunk in await chunk_offers.offered(conn, me.id):
        await placements.loaded(conn, me.id, [chunk], now=database_time(call))


def record_caller(
    handler: Handler[Asked, Answer], roles: Sequence[ComponentType]
) -> Handler[Asked, Answer]:
    """A handler whose calls are signs of life of components in these roles, although it need not know who calls."""

    async def noted(call: MgmtCall[Asked]) -> Answer | Response:
        with suppress(NotAllowed, BadInput):  # the handler decides who may call, and what it reads
            await call.context.callers.note(call.caller, getattr(call.body, "host", None), roles)
        return await handler(call)

    return noted


async def check_incarnation(conn: Connection, headers: Mapping[str, str]) -> str:
    """The incarnation that an index server compared its chunks with, empty if it knows of none; 412 if it is another.

    Call it in a transaction that keeps planners out: a new incarnation begins before it or after it.
    """
    claimed = headers.get(INCARNATION_HEADER, "")
    present = (await incarnation.current(conn)).id
    if claimed and claimed != present:
        raise HttpError(
            HTTPStatus.PRECONDITION_FAILED,
            "other_incarnation",
            "The database was restored since this server compared its chunks with it.",
            hint="POST them to /v1/holdings/compare first.",
            headers={INCARNATION_HEADER: present},
        )
    return claimed


async def require_chunk(conn: Connection, chunk: int) -> Chunk:
    """A chunk, which must be there."""
    if (found := await chunks.show(conn, chunk)) is None:
        raise NotFound(f"There is no chunk {chunk}.")
    return found


def state_of(chunk: Chunk) -> ChunkState:
    """The state of a chunk's content, in the words of the seed."""
    return ChunkState(chunk.id, "propagated" if chunk.propagated_at else chunk.state)


def index_state_of(chunk: Chunk) -> ChunkState:
    """The state of a chunk's index, in the words of the seed; one that nobody builds now has failed, or waits."""
    if chunk.propagated_at:
        return ChunkState(chunk.id, "propagated")
    if chunk.index_state is None or chunk.index_state == "parked":
        return ChunkState(chunk.id, "error" if chunk.build_attempts else "waiting")
    return ChunkState(chunk.id, chunk.index_state)


def refuse_lost_lease(chunk: Chunk, me: ComponentRecord) -> NoReturn:
    """The caller has no lease on this chunk, or has none any more."""
    if me.id not in (chunk.crawler_id, chunk.builder_id):
        message = f"Chunk {chunk.id} is not with {me.host}."
        raise HttpError(
            409,
            "not_yours",
            message,
            hint=f"A component reports what it was given. {IDENTITY_HINT}",
        )
    state = (
        chunk.state if chunk.index_state is None else f"{chunk.state}, index {chunk.index_state}"
    )
    words = f": {chunk.reason}" if chunk.reason else ""
    message = f"{me.host} does not hold chunk {chunk.id} any more; it is {state}{words}."
    raise HttpError(409, "lease_lost", message, hint="Drop it and ask for others.")
