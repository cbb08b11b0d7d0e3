"""Index servers and front-ends at MGMT: what to load, what is loaded, where to ask, and what was asked."""

from starlette.responses import Response

from usher.db import Connection
from usher.errors import BadInput
from usher.messages import ClusterMap, MappedServer, Row
from usher.mgmt import chunk_offers, placements, versions
from usher.mgmt.components import Component
from usher.mgmt.names import IDENTITY_HINT
from usher.mgmt.placements import WantedChunk
from usher.porch.entry import Declined
from usher.web.access import read_and, work
from usher.web.app import Call, Endpoint
from usher.web.coordinator import at_mgmt, caller, check_incarnation, clock
from usher.web.mgmt_shapes import (
    MOST_CHUNKS,
    AllChunksQuery,
    ChunksQuery,
    KeepQuery,
    LeavingChunks,
    LoadedAnswer,
    LoadedRequest,
    OldHosts,
    RetiredCopies,
    RetiredCopy,
    RowHost,
    ServerChunk,
    number_of,
)


async def get_chunks(call: Call[ChunksQuery] | Call[AllChunksQuery]) -> list[ServerChunk]:
    callers, asked = call.rooms.callers, call.body
    me = await callers.meet(call.asker, asked.host, ("index-server",))
    if me.state == "paused":
        return []
    async with call.rooms.mgmt.connection() as conn:
        chunks = await offered_to(conn, me, asked)
        if not chunks and await placements.fill_new_server(conn, me, now=clock(call)):
            chunks = await offered_to(conn, me, asked)
    return [server_chunk(chunk) for chunk in chunks]


async def offered_to(
    conn: Connection, me: Component, asked: ChunksQuery | AllChunksQuery
) -> list[WantedChunk]:
    if asked.after is None:
        return await chunk_offers.offer(conn, me.id, n=asked.n)
    return await placements.wanted(conn, me.id, n=asked.n, after=asked.after)


def server_chunk(one: WantedChunk) -> ServerChunk:
    return ServerChunk(
        one.chunk_id,
        one.crawler_host,
        one.index_builder_host,
        [RowHost(row, host) for row, host in one.rows],
        OldHosts(one.crawler_host, one.index_builder_host),
        one.peers,
        one.sha256,
        one.bytes,
        one.index_sha256,
        one.index_bytes,
    )


async def set_loaded(call: Call[LoadedRequest]) -> LoadedAnswer:
    asked, me = numbers(call.body), await caller(call, "index-server")
    async with at_mgmt(call) as conn:
        await placements.keep_planners_out(conn)
        await check_incarnation(conn, call.headers)
        found = await placements.loaded(conn, me.id, asked, now=clock(call))
    return LoadedAnswer(known(asked, found, f"not wanted on {me.host}"))


async def set_dropped(call: Call[LoadedRequest]) -> LoadedAnswer:
    asked, me = numbers(call.body), await caller(call, "index-server")
    async with at_mgmt(call) as conn:
        await placements.plan_alone(conn)
        await check_incarnation(conn, call.headers)
        found = await placements.dropped(conn, me.id, asked, now=clock(call))
    return LoadedAnswer(sorted(found))


def numbers(asked: LoadedRequest) -> list[int]:
    given = [*([] if asked.chunk_id is None else [asked.chunk_id]), *asked.chunk_ids]
    if not given:
        raise BadInput("chunk_id is missing, or chunk_ids.")
    if len(given) > MOST_CHUNKS:
        message = f"{len(given):,} chunks are more than {MOST_CHUNKS:,}."
        raise Declined(413, "too_large", message, hint="Say it in several requests.")
    return list(dict.fromkeys(number_of(one) for one in given))


def known(asked: list[int], found: set[int], trouble: str) -> list[int]:
    """Those that were found; declined if none was: nothing happened, and the server must know."""
    if not found:
        raise Declined(409, "not_yours", f"Chunk {asked[0]} is {trouble}.", hint=IDENTITY_HINT)
    return sorted(found)


async def get_leaving(call: Call[KeepQuery]) -> LeavingChunks:
    me, asked = await caller(call, "index-server"), call.body
    async with at_mgmt(call, alone=True) as conn:
        found = await placements.leaving(conn, me.id, now=clock(call), n=asked.n, after=asked.after)
    return LeavingChunks(found)


async def get_servers_map(call: Call[None]) -> Response:
    ready = await call.rooms.server_map.rows.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_map(call: Call[None]) -> Response:
    ready = await call.rooms.server_map.chunks.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_cluster_map(call: Call[None]) -> Response:
    ready = await call.rooms.server_map.cluster.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_probation(call: Call[None]) -> Response:
    ready = await call.rooms.server_map.probation.get()
    return ready.answer(call.headers.get("if-none-match"))


async def get_retired(call: Call[ChunksQuery]) -> RetiredCopies:
    me, asked = await caller(call, "index-server"), call.body
    async with at_mgmt(call, alone=True) as conn:
        found = await versions.to_retire(conn, me.id, n=asked.n)
    return RetiredCopies(copies=[RetiredCopy(one.chunk_id, one.page_id, one.url) for one in found])


async def set_retired(call: Call[RetiredCopies]) -> RetiredCopies:
    me, asked = await caller(call, "index-server"), call.body.copies
    if len(asked) > MOST_CHUNKS:
        raise Declined(413, "too_large", f"{len(asked):,} copies are more than {MOST_CHUNKS:,}.")
    async with at_mgmt(call) as conn:
        done = [(one.chunk_id, one.page_id) for one in asked]
        await versions.retired(conn, me.id, done)
        found = await versions.to_retire(conn, me.id, n=1)
    return RetiredCopies(copies=[RetiredCopy(one.chunk_id, one.page_id, one.url) for one in found])


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/retired",
        get_retired,
        ChunksQuery,
        RetiredCopies,
        "Pages that the index server is to take out of chunks it has, for they are out of date",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/v1/retired",
        set_retired,
        RetiredCopies,
        RetiredCopies,
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
        LoadedRequest,
        LoadedAnswer,
        "The index server has loaded chunks",
        access=work("index-server"),
    ),
    Endpoint(
        "GET",
        "/get_chunks/leaving",
        get_leaving,
        KeepQuery,
        LeavingChunks,
        "Chunks that the index server may drop now",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/set_chunk_dropped",
        set_dropped,
        LoadedRequest,
        LoadedAnswer,
        "The index server has chunks no more",
        access=work("index-server"),
    ),
    Endpoint(
        "GET",
        "/get_servers_map",
        get_servers_map,
        None,
        list[Row],
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
        "The index servers that are not healthy, by row, with their chunks: to ask when no row is complete",
        access=read_and("front-end", "index-server"),
    ),
)
