"""Endpoints for index servers: chunks to load and drop, their pages, holdings, lost chunks, and the maps of servers."""

from typing import Final

from starlette.responses import Response

from usher.api.access import INDEX_SERVER, MAP_READER, work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    calling_component,
    check_incarnation,
    database_time,
    mgmt_connection,
)
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.http.server.middleware import HttpError
from usher.messages.components import (
    AcceptedChunks,
    ChunkIdsQuery,
    ChunkIdsReport,
    ForeignPages,
    ForeignPagesRequest,
)
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.front_end import ClusterMap, MappedServer, ServerRow
from usher.messages.index_server import (
    MAX_CHUNKS_PER_KEYS_REQUEST,
    AllChunksQuery,
    ChunksQuery,
    CompareHoldingsRequest,
    HoldingsComparison,
    HoldingsRequest,
    LeavingChunks,
    LostChunks,
    MissingChunk,
    MissingChunksRequest,
    PageKeysAnswer,
    PageKeysRequest,
    ServerChunk,
    StalePages,
    StrayChunks,
)
from usher.mgmt import (
    chunk_offers,
    missing_chunks,
    page_keys,
    page_versions,
    placements,
    removal_sweep,
)
from usher.mgmt.component_names import IDENTITY_HINT, storable_reason
from usher.mgmt.components import ComponentRecord
from usher.mgmt.missing_chunks import MissingFile

LOST_REASON: Final = "no component has its index any more"
REPORTERS: Final = frozenset({"index-builder", "index-server"})  # of foreign pages
ENDPOINTS = EndpointList()


@ENDPOINTS.get("/get_chunks", "Chunks that the index server has to load", INDEX_SERVER)
async def get_chunks(call: MgmtCall[ChunksQuery]) -> list[ServerChunk]:
    return await chunks_to_load(call)


@ENDPOINTS.post("/get_chunks", "GET /get_chunks in a later form", INDEX_SERVER, old=True)
async def get_all_chunks(call: MgmtCall[AllChunksQuery]) -> list[ServerChunk]:
    return await chunks_to_load(call)


async def chunks_to_load(
    call: MgmtCall[ChunksQuery] | MgmtCall[AllChunksQuery],
) -> list[ServerChunk]:
    callers, query = call.context.callers, call.body
    server = await callers.component(call.caller, query.host, ("index-server",))
    if server.state == "paused":
        return []
    async with call.context.mgmt_db.connection() as conn:
        chunks = await wanted_chunks(conn, server, query)
        if not chunks and await placements.fill_new_server(conn, server, now=database_time(call)):
            chunks = await wanted_chunks(conn, server, query)
    urls = call.context.chunk_urls
    if not urls.has_store:  # the server would take a chunk for lost that is in the store
        chunks = [chunk for chunk in chunks if not chunk.url]
    await urls.sign(chunks)
    return chunks


async def wanted_chunks(
    conn: Connection, server: ComponentRecord, query: ChunksQuery | AllChunksQuery
) -> list[ServerChunk]:
    if query.after is None:
        return await chunk_offers.offer(conn, server.id, n=query.n)
    return await placements.wanted(conn, server.id, n=query.n, after=query.after)


@ENDPOINTS.post("/set_chunk_loaded", "The index server loaded chunks", INDEX_SERVER)
async def set_loaded(call: MgmtCall[ChunkIdsReport]) -> AcceptedChunks:
    ids, server = chunk_numbers(call.body), await calling_component(call, "index-server")
    async with mgmt_connection(call) as conn:
        await placements.keep_planners_out(conn)
        await check_incarnation(conn, call.headers)
        accepted = await placements.loaded(conn, server.id, ids, now=database_time(call))
    if not accepted:  # nothing happened, and the server must know
        message = f"Chunk {ids[0]} has no placement on {server.host}."
        raise HttpError(409, "not_yours", message, hint=IDENTITY_HINT)
    return AcceptedChunks(sorted(accepted))


@ENDPOINTS.post("/set_chunk_dropped", "The index server dropped chunks", INDEX_SERVER)
async def set_dropped(call: MgmtCall[ChunkIdsReport]) -> AcceptedChunks:
    ids, server = chunk_numbers(call.body), await calling_component(call, "index-server")
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        accepted = await placements.dropped(conn, server.id, ids, now=database_time(call))
    return AcceptedChunks(sorted(accepted))


def chunk_numbers(report: ChunkIdsReport) -> list[int]:
    """The chunks of a report, each once."""
    ids = [*([] if report.chunk_id is None else [report.chunk_id]), *report.chunk_ids]
    if not ids:
        raise BadInput("chunk_id is missing, or chunk_ids.")
    check_count(ids, "chunks", MAX_CHUNKS_PER_REQUEST)
    return list(dict.fromkeys(chunk_number(id_) for id_ in ids))


@ENDPOINTS.get("/get_chunks/leaving", "Chunks that the index server may drop now", INDEX_SERVER)
async def get_leaving(call: MgmtCall[ChunkIdsQuery]) -> LeavingChunks:
    server, query = await calling_component(call, "index-server"), call.body
    async with mgmt_connection(call, alone=True) as conn:
        now = database_time(call)
        ids = await placements.leaving(conn, server.id, now=now, n=query.n, after=query.after)
    return LeavingChunks(ids)


@ENDPOINTS.get("/get_servers_map", "The index servers by row", MAP_READER, response=list[ServerRow])
async def get_servers_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.rows.response(call.headers)


@ENDPOINTS.get(
    "/get_map",
    "The index servers by row, with their chunks",
    MAP_READER,
    response=list[list[MappedServer]],
)
async def get_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.chunks.response(call.headers)


@ENDPOINTS.get(
    "/v1/map",
    "The map with chunks, the incarnation and unrestored chunks",
    MAP_READER,
    response=ClusterMap,
)
async def get_cluster_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.cluster.response(call.headers)


@ENDPOINTS.get(
    "/v1/probation",
    "The index servers that are not healthy, by row, with their chunks; used when no row is complete",
    MAP_READER,
    response=ClusterMap,
)
async def get_probation_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.probation.response(call.headers)


@ENDPOINTS.get("/v1/retired", "Outdated pages that the index server removes", INDEX_SERVER)
async def get_retired(call: MgmtCall[ChunksQuery]) -> StalePages:
    server = await calling_component(call, "index-server")
    async with mgmt_connection(call, alone=True) as conn:
        return await stale_pages(conn, server, n=call.body.n)


@ENDPOINTS.post("/v1/retired", "The index server removed these pages", INDEX_SERVER)
async def set_retired(call: MgmtCall[StalePages]) -> StalePages:
    server, pages = await calling_component(call, "index-server"), call.body.copies
    check_count(pages, "copies", MAX_CHUNKS_PER_REQUEST)
    async with mgmt_connection(call) as conn:
        removed = [(page.chunk_id, page.page_id) for page in pages]
        await page_versions.retired(conn, server.id, removed)
        return await stale_pages(conn, server, n=1)


async def stale_pages(conn: Connection, server: ComponentRecord, *, n: int) -> StalePages:
    # First: a removal that is swept in between has copies that this answer lacks.
    removal = await removal_sweep.last_swept(conn)
    copies = await page_versions.to_retire(conn, server.id, n=n)
    return StalePages(copies=copies, removals=removal)


@ENDPOINTS.post("/v1/holdings", "The index server has exactly these chunks", INDEX_SERVER)
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


@ENDPOINTS.post("/v1/holdings/compare", "Compare chunks with a restored database", INDEX_SERVER)
async def compare_holdings(call: MgmtCall[CompareHoldingsRequest]) -> HoldingsComparison:
    server, chunks = await calling_component(call, "index-server"), call.body.chunks
    check_count(chunks, "chunks", MAX_CHUNKS_PER_REQUEST)
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        return await placements.compare(conn, server.id, chunks, now=database_time(call))


@ENDPOINTS.post("/v1/chunks_missing", "Chunks that no component has", INDEX_SERVER)
async def set_missing(call: MgmtCall[MissingChunksRequest]) -> LostChunks:
    server, reports = await calling_component(call, "index-server"), call.body.chunks
    check_count(reports, "chunks", MAX_CHUNKS_PER_REQUEST)
    files = {file.chunk_id: file for file in map(missing_file, reports)}  # each once
    async with mgmt_connection(call) as conn:
        actions = await missing_chunks.lose_indexes(
            conn, server.id, list(files.values()), now=database_time(call)
        )
    answer = LostChunks([], [], [])
    for id_, action in sorted(actions.items()):
        getattr(answer, action).append(id_)
    return answer


def missing_file(report: MissingChunk) -> MissingFile:
    reason = storable_reason(report.reason) or LOST_REASON
    return MissingFile(chunk_number(report.chunk_id), reason, report.builder_silent)


@ENDPOINTS.post("/v1/page_keys", "The pages that chunks may hold", INDEX_SERVER)
async def get_page_keys(call: MgmtCall[PageKeysRequest]) -> PageKeysAnswer:
    server, chunks = await calling_component(call, "index-server"), call.body.chunk_ids
    check_count(chunks, "chunks", MAX_CHUNKS_PER_KEYS_REQUEST)
    ids = sorted({chunk_number(chunk) for chunk in chunks})
    async with mgmt_connection(call, alone=True) as conn:
        return PageKeysAnswer(await page_keys.page_keys(conn, ids, server=server.id))


@ENDPOINTS.post(
    "/v1/foreign_pages",
    "Report pages that are not in their chunk",
    work("index-builder", "index-server"),
)
async def set_foreign_pages(call: MgmtCall[ForeignPagesRequest]) -> AcceptedChunks:
    component = await calling_component(call, "index-builder", "index-server")
    check_count(call.body.chunks, "chunks", MAX_CHUNKS_PER_REQUEST)
    dropped = {
        id_: ForeignPages(id_, report.count, report.examples)
        for report in call.body.chunks
        for id_ in [chunk_number(report.chunk_id)]
    }
    accepted: list[int] = []
    if component.type in REPORTERS:
        async with mgmt_connection(call) as conn:
            counts = list(dropped.values())
            accepted = await page_keys.report(conn, component, counts, now=database_time(call))
    if dropped and not accepted:
        raise HttpError(
            409,
            "not_yours",
            f"None of these chunks is assigned to {component.host}.",
            hint=f"Report chunks that you build or load. {IDENTITY_HINT}",
        )
    return AcceptedChunks(accepted)
