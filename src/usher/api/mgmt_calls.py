"""What the endpoints of components share: the calling component, the database, retries, chunk states, refusals."""

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
from usher.http.server.endpoint import AnswerT, BodyT
from usher.http.server.middleware import HttpError
from usher.messages.components import ChunkState
from usher.messages.fields import INCARNATION_HEADER, ComponentRequest
from usher.mgmt import chunk_offers, chunks, incarnation, placements
from usher.mgmt.chunks import Chunk
from usher.mgmt.component_names import IDENTITY_HINT, ComponentType
from usher.mgmt.components import ComponentRecord

RequestT = TypeVar("RequestT", bound=ComponentRequest)
Handler = Callable[[MgmtCall[BodyT]], Awaitable[AnswerT | Response]]
# The components that may report `propagated`; it means something for index servers only.
PROPAGATORS: Final[tuple[ComponentType, ...]] = ("index-server", "crawler", "index-builder")
RETRY_SECONDS: Final = (0.01, 0.05, 0.2)


def database_time(call: MgmtCall[Any]) -> datetime:
    """The database's time, by which leases are judged."""
    return call.context.mgmt_db.clock.now()


@contextmanager
def reject_unstorable() -> Iterator[None]:
    """Turn what the database cannot store into BadInput."""
    try:
        yield
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"That cannot be stored: {error.diag.message_primary or error}.") from None


@asynccontextmanager
async def mgmt_connection(
    call: MgmtCall[RequestT], *, alone: bool = False
) -> AsyncIterator[Connection]:
    """A transaction, or with `alone` a connection for a single statement."""
    db = call.context.mgmt_db
    with reject_unstorable():
        async with db.connection() if alone else db.transaction() as conn:
            yield conn


def retry_on_conflict(handler: Handler[BodyT, AnswerT]) -> Handler[BodyT, AnswerT]:
    """The handler with retries when its transaction conflicts with another; every call of a component is idempotent."""

    async def retrying(call: MgmtCall[BodyT]) -> AnswerT | Response:
        for seconds in RETRY_SECONDS:
            try:
                return await handler(call)
            except CONFLICT_ERRORS:
                await asyncio.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        try:
            return await handler(call)
        except CONFLICT_ERRORS as error:
            raise Unreachable("Other calls are in the way.", hint="Retry the call.") from error

    return retrying


async def calling_component(call: MgmtCall[RequestT], *roles: ComponentType) -> ComponentRecord:
    """The component that calls; `roles` are those that the endpoint serves, the likeliest first."""
    return await call.context.callers.component(call.caller, call.body.host, roles)


async def lease_holders(call: MgmtCall[RequestT]) -> list[ComponentRecord]:
    """The component that calls; at an address that two roles share, its crawler and its index builder."""
    first = await calling_component(call, "crawler", "index-builder")
    second = await calling_component(call, "index-builder", "crawler")
    return [first] if first.id == second.id else [first, second]


async def record_propagated(
    call: MgmtCall[RequestT], conn: Connection, component: ComponentRecord, chunk: int
) -> None:
    """Record that an index server loaded a chunk that is placed on it; of other components it means nothing.

    Where roles share an address, the builder may report `propagated` before the server has the chunk. So MGMT must have
    offered the chunk to the server.
    """
    if component.type != "index-server":
        return
    await placements.keep_planners_out(conn)
    await check_incarnation(conn, call.headers)
    is_server = is_named(call.caller, call.body.host)
    if is_server or chunk in await chunk_offers.offered(conn, component.id):
        await placements.loaded(conn, component.id, [chunk], now=database_time(call))


def record_caller(
    handler: Handler[BodyT, AnswerT], roles: Sequence[ComponentType]
) -> Handler[BodyT, AnswerT]:
    """The handler, with each call counted as a sign of life of a component in one of these roles."""

    async def recording(call: MgmtCall[BodyT]) -> AnswerT | Response:
        with suppress(NotAllowed, BadInput):  # the handler decides who may call, and what is valid
            host = getattr(call.body, "host", None)
            await call.context.callers.record_sign_of_life(call.caller, host, roles)
        return await handler(call)

    return recording


async def check_incarnation(conn: Connection, headers: Mapping[str, str]) -> str:
    """The incarnation that an index server compared its chunks with, empty if it names none; 412 if it is outdated.

    Call it in a transaction that keeps planners out: then a new incarnation starts before it or after it.
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
    """The chunk; NotFound if there is none."""
    if (record := await chunks.show(conn, chunk)) is None:
        raise NotFound(f"There is no chunk {chunk}.")
    return record


def content_state(chunk: Chunk) -> ChunkState:
    """The state of a chunk's content in the seed's terms."""
    return ChunkState(chunk.id, "propagated" if chunk.propagated_at else chunk.state)


def index_state(chunk: Chunk) -> ChunkState:
    """The state of a chunk's index in the seed's terms; one without a builder has failed, or waits."""
    if chunk.propagated_at:
        return ChunkState(chunk.id, "propagated")
    if chunk.index_state is None or chunk.index_state == "parked":
        return ChunkState(chunk.id, "error" if chunk.build_attempts else "waiting")
    return ChunkState(chunk.id, chunk.index_state)


def refuse_lost_lease(chunk: Chunk, component: ComponentRecord) -> NoReturn:
    """Raise 409: the component never had a lease on this chunk, or lost it."""
    if component.id not in (chunk.crawler_id, chunk.builder_id):
        raise HttpError(
            409,
            "not_yours",
            f"Chunk {chunk.id} is not assigned to {component.host}.",
            hint=f"A component reports the chunks that it got. {IDENTITY_HINT}",
        )
    state = (
        chunk.state if chunk.index_state is None else f"{chunk.state}, index {chunk.index_state}"
    )
    reason = f": {chunk.reason}" if chunk.reason else ""
    raise HttpError(
        409,
        "lease_lost",
        f"{component.host} no longer holds chunk {chunk.id}; it is {state}{reason}.",
        hint="Drop it and ask for others.",
    )
