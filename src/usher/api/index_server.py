"""Index servers and front-ends at MGMT: what to load, what is loaded, where to ask, and what was asked."""

from starlette.responses import Response

from usher.api.access import read_and, work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, check_incarnation, database_time, mgmt_connection
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.components import AcceptedChunks, ChunkIdsQuery, ChunkIdsReport
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.front_end import ClusterMap, MappedServer, ServerRow
from usher.messages.index_server import (
    AllChunksQuery,
    ChunksQuery,
    LeavingChunks,
    RowServer,
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
    callers, asked = call.context.callers, call.body
    me = await callers.meet(call.caller, asked.host, ("index-server",))
    if me.state == "paused":
        return []
    async with call.context.mgmt_db.connection() as conn:
        chunks = await offered_to(conn, me, asked)
        if not chunks and await placements.fill_new_server(conn, me, now=database_time(call)):
            chunks = await offered_to(conn, me, asked)
    return [server_chunk(chunk) for chunk in chunks]


async def offered_to(
    conn: Connection, me: ComponentRecord, asked: ChunksQuery | AllChunksQuery
) -> list[WantedChunk]:
    if asked.after is None:
        return await chunk_offers.offer(conn, me.id, n=asked.n)
    return await placements.wanted(conn, me.id, n=asked.n, after=asked.after)


def server_chunk(one: WantedChunk) -> ServerChunk:
    return ServerChunk(
        one.chunk_id,
        one.crawler_host,
        one.index_builder_host,
        [RowServer(row, host) for row, host in one.rows],
        SeedHosts(one.crawler_host, one.index_builder_host),
        one.peers,
        one.sha256,
        one.bytes,
        one.index_sha256,
        one.index_bytes,
    )


async def set_loaded(call: MgmtCall[ChunkIdsReport]) -> AcceptedChunks:
    asked, me = numbers(call.body), await caller(call, "index-server")
    async with mgmt_connection(call) as conn:
        await placements.keep_planners_out(conn)
        await check_incarnation(conn, call.headers)
        found = await placements.loaded(conn, me.id, asked, now=database_time(call))
    return AcceptedChunks(known(asked, found, f"not wanted on {me.host}"))


async def set_dropped(call: MgmtCall[ChunkIdsReport]) -> AcceptedChunks:
    asked, me = numbers(call.body), await caller(call, "index-server")
    async with mgmt_connection(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        found = await placements.dropped(conn, me.id, asked, now=database_time(call))
    return AcceptedChunks(sorted(found))


def numbers(asked: ChunkIdsReport) -> list[int]:
    given = [*([] if asked.chunk_id is None else [asked.chunk_id]), *asked.chunk_ids]
    if not given:
        raise BadInput("chunk_id is missing, or chunk_ids.")
    if len(given) > MAX_CHUNKS_PER_REQUEST:
        message = f"{len(given):,} chunks are more than {MAX_CHUNKS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Say it in several requests.")
    return list(dict.fromkeys(chunk_number(one) for one in given))


def known(asked: list[int], found: set[int], trouble: str) -> list[int]:
    """Those that were found; declined if none was: nothing happened, and the server must know."""
    if not found:
        raise HttpError(409, "not_yours", f"Chunk {asked[0]} is {trouble}.", hint=IDENTITY_HINT)
    return sorted(found)


async def get_leaving(call: MgmtCall[ChunkIdsQuery]) -> LeavingChunks:
    me, asked = await caller(call, "index-server"), call.body
    async with mgmt_connection(call, alone=True) as conn:
        found = await placements.leaving(
            conn, me.id, now=database_time(call), n=asked.n, after=asked.after
        )
    return LeavingChunks(found)


async def get_servers_map(call: MgmtCall[None]) -> Response:
    ready = await call.context.server_map.rows.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_map(call: MgmtCall[None]) -> Response:
    ready = await call.context.server_map.chunks.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_cluster_map(call: MgmtCall[None]) -> Response:
    ready = await call.context.server_map.cluster.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_probation(call: MgmtCall[None]) -> Response:
    ready = await call.context.server_map.probation.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_retired(call: MgmtCall[ChunksQuery]) -> StalePages:
    me, asked = await caller(call, "index-server"), call.body
    async with mgmt_connection(call, alone=True) as conn:
        found = await page_versions.to_retire(conn, me.id, n=asked.n)
    return StalePages(copies=[StalePage(one.chunk_id, one.page_id, one.url) for one in found])


async def set_retired(call: MgmtCall[StalePages]) -> StalePages:
    me, asked = await caller(call, "index-server"), call.body.copies
    if len(asked) > MAX_CHUNKS_PER_REQUEST:
        raise HttpError(
            413, "too_large", f"{len(asked):,} copies are more than {MAX_CHUNKS_PER_REQUEST:,}."
        )
    async with mgmt_connection(call) as conn:
        done = [(one.chunk_id, one.page_id) for one in asked]
        await page_versions.retired(conn, me.id, done)
        found = await page_versions.to_retire(conn, me.id, n=1)
    return StalePages(copies=[StalePage(one.chunk_id, one.page_id, one.url) for one in found])


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/retired",
        get_retired,
        ChunksQuery,
        StalePages,
        "Pages that the index server is to take out of chunks it has, for they are out of date",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/v1/retired",
        set_retired,
        StalePages,
        StalePages,
        "The index server has taken these out; answers with the next one, if there is one",
        access=work("index-server"),
    ),
    Endpoint(
        "GET",
        "/get_chunks",
        get_chunks,
        ChunksQuery,
        list[ServerChunk],
        "Chunks that the index server is to load",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/get_chunks",
        get_chunks,
        AllChunksQuery,
        list[ServerChunk],
        "The same, as it was asked later on",
        access=work("index-server"),
        old=True,
    ),
    Endpoint(
        "POST",
        "/set_chunk_loaded",
        set_loaded,
        ChunkIdsReport,
        AcceptedChunks,
        "The index server has loaded chunks",
        access=work("index-server"),
    ),
    Endpoint(
        "GET",
        "/get_chunks/leaving",
        get_leaving,
        ChunkIdsQuery,
        LeavingChunks,
        "Chunks that the index server may drop now",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/set_chunk_dropped",
        set_dropped,
        ChunkIdsReport,
        AcceptedChunks,
        "The index server has chunks no more",
        access=work("index-server"),
    ),
    Endpoint(
        "GET",
        "/get_servers_map",
        get_servers_map,
        None,
        list[ServerRow],
        "The index servers to ask, by row",
        access=read_and("front-end", "index-server"),
    ),
    Endpoint(
        "GET",
        "/get_map",
        get_map,
        None,
        list[list[MappedServer]],
        "The same, with the chunks of every server",
        access=read_and("front-end", "index-server"),
    ),
    Endpoint(
        "GET",
        "/v1/map",
        get_cluster_map,
        None,
        ClusterMap,
        "The same, with the incarnation and the chunks that are not searchable again since a restore",
        access=read_and("front-end", "index-server"),
    ),
    Endpoint(
        "GET",
        "/v1/probation",
        get_probation,
        None,
        ClusterMap,
        "The index servers on probation or with an error, by row, with their chunks: to ask when no row is complete",
        access=read_and("front-end", "index-server"),
    ),
)
