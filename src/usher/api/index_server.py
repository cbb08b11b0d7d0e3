"""Endpoints for index servers and front-ends: chunks to load and drop, stale pages, and the maps of servers."""

from collections.abc import Sequence

from starlette.responses import Response

from usher.api.access import INDEX_SERVER, MAP_READER
from usher.api.context import MgmtCall, MgmtEndpoint
from usher.api.mgmt_calls import (
    calling_component,
    check_incarnation,
    database_time,
    mgmt_connection,
)
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import Endpoint, endpoint
from usher.http.server.middleware import HttpError
from usher.messages.components import AcceptedChunks, ChunkIdsQuery, ChunkIdsReport
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.front_end import ClusterMap, MappedServer, ServerRow
from usher.messages.index_server import (
    AllChunksQuery,
    ChunkServer,
    ChunksQuery,
    LeavingChunks,
    SeedHosts,
    ServerChunk,
    StalePage,
    StalePages,
)
from usher.mgmt import chunk_offers, page_versions, placements
from usher.mgmt.component_names import IDENTITY_HINT
from usher.mgmt.components import ComponentRecord
from usher.mgmt.placements import WantedChunk


async def get_chunks(call: MgmtCall[ChunksQuery] | MgmtCall[AllChunksQuery]) -> list[ServerChunk]:
    callers, query = call.context.callers, call.body
    server = await callers.component(call.caller, query.host, ("index-server",))
    if server.state == "paused":
        return []
    async with call.context.mgmt_db.connection() as conn:
        chunks = await wanted_chunks(conn, server, query)
        if not chunks and await placements.fill_new_server(conn, server, now=database_time(call)):
            chunks = await wanted_chunks(conn, server, query)
    return [server_chunk(chunk) for chunk in chunks]


async def wanted_chunks(
    conn: Connection, server: ComponentRecord, query: ChunksQuery | AllChunksQuery
) -> list[WantedChunk]:
    if query.after is None:
        return await chunk_offers.offer(conn, server.id, n=query.n)
    return await placements.wanted(conn, server.id, n=query.n, after=query.after)


def server_chunk(chunk: WantedChunk) -> ServerChunk:
    return ServerChunk(
        chunk_id=chunk.chunk_id,
        crawler_host=chunk.crawler_host,
        index_builder_host=chunk.index_builder_host,
        index_server_host=[ChunkServer(row, host) for row, host in chunk.rows],
        hosts=SeedHosts(chunk.crawler_host, chunk.index_builder_host),
        peers=chunk.peers,
        sha256=chunk.sha256,
        bytes=chunk.bytes,
        index_sha256=chunk.index_sha256,
        index_bytes=chunk.index_bytes,
    )


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


async def get_leaving(call: MgmtCall[ChunkIdsQuery]) -> LeavingChunks:
    server, query = await calling_component(call, "index-server"), call.body
    async with mgmt_connection(call, alone=True) as conn:
        now = database_time(call)
        ids = await placements.leaving(conn, server.id, now=now, n=query.n, after=query.after)
    return LeavingChunks(ids)


async def get_servers_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.rows.response(call.headers)


async def get_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.chunks.response(call.headers)


async def get_cluster_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.cluster.response(call.headers)


async def get_probation_map(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.probation.response(call.headers)


async def get_retired(call: MgmtCall[ChunksQuery]) -> StalePages:
    server = await calling_component(call, "index-server")
    async with mgmt_connection(call, alone=True) as conn:
        return await stale_pages(conn, server, n=call.body.n)


async def set_retired(call: MgmtCall[StalePages]) -> StalePages:
    server, pages = await calling_component(call, "index-server"), call.body.copies
    check_count(pages, "copies", MAX_CHUNKS_PER_REQUEST)
    async with mgmt_connection(call) as conn:
        removed = [(page.chunk_id, page.page_id) for page in pages]
        await page_versions.retired(conn, server.id, removed)
        return await stale_pages(conn, server, n=1)


async def stale_pages(conn: Connection, server: ComponentRecord, *, n: int) -> StalePages:
    pages = await page_versions.to_retire(conn, server.id, n=n)
    return StalePages(copies=[StalePage(page.chunk_id, page.page_id, page.url) for page in pages])


ENDPOINTS: Sequence[MgmtEndpoint] = (
    endpoint(
        "GET",
        "/v1/retired",
        get_retired,
        "Outdated pages that the index server removes",
        access=INDEX_SERVER,
    ),
    endpoint(
        "POST",
        "/v1/retired",
        set_retired,
        "The index server removed these pages",
        access=INDEX_SERVER,
    ),
    Endpoint(
        "GET",
        "/get_chunks",
        get_chunks,
        ChunksQuery,
        list[ServerChunk],
        "Chunks that the index server has to load",
        access=INDEX_SERVER,
    ),
    Endpoint(
        "POST",
        "/get_chunks",
        get_chunks,
        AllChunksQuery,
        list[ServerChunk],
        "GET /get_chunks in a later form",
        access=INDEX_SERVER,
        old=True,
    ),
    endpoint(
        "POST",
        "/set_chunk_loaded",
        set_loaded,
        "The index server loaded chunks",
        access=INDEX_SERVER,
    ),
    endpoint(
        "GET",
        "/get_chunks/leaving",
        get_leaving,
        "Chunks that the index server may drop now",
        access=INDEX_SERVER,
    ),
    endpoint(
        "POST",
        "/set_chunk_dropped",
        set_dropped,
        "The index server dropped chunks",
        access=INDEX_SERVER,
    ),
    endpoint(
        "GET",
        "/get_servers_map",
        get_servers_map,
        "The index servers by row",
        access=MAP_READER,
        response=list[ServerRow],
    ),
    endpoint(
        "GET",
        "/get_map",
        get_map,
        "The index servers by row, with their chunks",
        access=MAP_READER,
        response=list[list[MappedServer]],
    ),
    endpoint(
        "GET",
        "/v1/map",
        get_cluster_map,
        "The map with chunks, the incarnation and unrestored chunks",
        access=MAP_READER,
        response=ClusterMap,
    ),
    endpoint(
        "GET",
        "/v1/probation",
        get_probation_map,
        "The index servers that are not healthy, by row, with their chunks; used when no row is complete",
        access=MAP_READER,
        response=ClusterMap,
    ),
)
