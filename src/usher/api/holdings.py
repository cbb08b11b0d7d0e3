"""Endpoints for the holdings of index servers: which chunks they have, also after a restore of the database."""

from usher.api.access import INDEX_SERVER
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    calling_component,
    check_incarnation,
    database_time,
    mgmt_connection,
)
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import endpoint
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.index_server import (
    CompareHoldingsRequest,
    HoldingsComparison,
    HoldingsRequest,
    StrayChunks,
)
from usher.mgmt import placements


async def set_holdings(call: MgmtCall[HoldingsRequest]) -> StrayChunks:
    server = await calling_component(call, "index-server")
    held = {chunk_number(chunk) for chunk in call.body.chunk_ids}
    async with mgmt_connection(call) as conn:
        now = database_time(call)
        await placements.plan_alone(conn)
        compared_with = await check_incarnation(conn, call.headers)
        if not compared_with and await placements.is_unreported(conn, server.id):
            # The server cannot compare documents, so it loads all of its chunks again.
            await placements.returned(conn, server.id, set(), now=now)
            return StrayChunks(sorted(held))
        return StrayChunks(sorted(await placements.returned(conn, server.id, held, now=now)))


async def compare_holdings(call: MgmtCall[CompareHoldingsRequest]) -> HoldingsComparison:
    server, chunks = await calling_component(call, "index-server"), call.body.chunks
    check_count(chunks, "chunks", MAX_CHUNKS_PER_REQUEST)
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        comparison = await placements.compare(conn, server.id, chunks, now=database_time(call))
    return HoldingsComparison(comparison.stray, comparison.reload)


ENDPOINTS = (
    endpoint(
        "POST",
        "/v1/holdings",
        set_holdings,
        "The index server has exactly these chunks",
        access=INDEX_SERVER,
    ),
    endpoint(
        "POST",
        "/v1/holdings/compare",
        compare_holdings,
        "Compare chunks with a restored database",
        access=INDEX_SERVER,
    ),
)
