"""Holdings at MGMT: an index server says which chunks it has, and compares them after the database was restored."""

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, check_incarnation, database_time, mgmt_connection
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.index_server import (
    CompareHoldingsRequest,
    HoldingsComparison,
    HoldingsRequest,
    StrayChunks,
)
from usher.mgmt import placements


async def set_held(call: MgmtCall[HoldingsRequest]) -> StrayChunks:
    me = await caller(call, "index-server")
    held = {chunk_number(one) for one in call.body.chunk_ids}
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        compared_with = await check_incarnation(conn, call.headers)
        if not compared_with and await placements.is_unreported(conn, me.id):
            # It cannot compare documents, so it loads all of its chunks again.
            await placements.returned(conn, me.id, set(), now=database_time(call))
            return StrayChunks(sorted(held))
        return StrayChunks(
            sorted(await placements.returned(conn, me.id, held, now=database_time(call)))
        )


async def compare(call: MgmtCall[CompareHoldingsRequest]) -> HoldingsComparison:
    me, chunks = await caller(call, "index-server"), call.body.chunks
    if len(chunks) > MAX_CHUNKS_PER_REQUEST:
        message = f"{len(chunks):,} chunks are more than {MAX_CHUNKS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Compare them in several requests.")
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        comparison = await placements.compare(conn, me.id, chunks, now=database_time(call))
    return HoldingsComparison(comparison.stray, comparison.reload)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/holdings",
        set_held,
        HoldingsRequest,
        StrayChunks,
        "The index server has these chunks and no others",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/v1/holdings/compare",
        compare,
        CompareHoldingsRequest,
        HoldingsComparison,
        "The index server compares chunks with a database that was restored, before it says what it has",
        access=work("index-server"),
    ),
)
