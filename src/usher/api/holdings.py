"""Holdings at MGMT: an index server says which chunks it has, and compares them after the database was restored."""

from typing import Annotated

from msgspec import Meta, Struct

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, check_incarnation, database_time, mgmt_connection
from usher.api.mgmt_messages import MOST_CHUNKS, ChunkId, Told, number_of
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages import HeldChunk
from usher.mgmt import placements


class HeldRequest(Told, kw_only=True):
    """All chunks that a server has, checked and sound, when it comes back."""

    chunk_ids: list[ChunkId]


class Stray(Struct):
    """Chunks that the server has no use for."""

    stray: list[int]


class ComparedRequest(Told, kw_only=True):
    """Some of the chunks that a server has, with the number of their documents."""

    chunks: Annotated[list[HeldChunk], Meta(extra_json_schema={"maxItems": MOST_CHUNKS})]


class ComparedAnswer(Struct):
    """Chunks that the server has no use for, and those that it has to load again."""

    stray: list[int]
    reload: list[int]


async def set_held(call: MgmtCall[HeldRequest]) -> Stray:
    me = await caller(call, "index-server")
    held = {number_of(one) for one in call.body.chunk_ids}
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        compared_with = await check_incarnation(conn, call.headers)
        if not compared_with and await placements.is_unreported(conn, me.id):
            # It cannot compare documents, so it loads all of its chunks again.
            await placements.returned(conn, me.id, set(), now=database_time(call))
            return Stray(sorted(held))
        return Stray(sorted(await placements.returned(conn, me.id, held, now=database_time(call))))


async def compare(call: MgmtCall[ComparedRequest]) -> ComparedAnswer:
    me, chunks = await caller(call, "index-server"), call.body.chunks
    if len(chunks) > MOST_CHUNKS:
        message = f"{len(chunks):,} chunks are more than {MOST_CHUNKS:,}."
        raise HttpError(413, "too_large", message, hint="Compare them in several requests.")
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        comparison = await placements.compare(conn, me.id, chunks, now=database_time(call))
    return ComparedAnswer(comparison.stray, comparison.reload)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/holdings",
        set_held,
        HeldRequest,
        Stray,
        "The index server has these chunks and no others",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/v1/holdings/compare",
        compare,
        ComparedRequest,
        ComparedAnswer,
        "The index server compares chunks with a database that was restored, before it says what it has",
        access=work("index-server"),
    ),
)
