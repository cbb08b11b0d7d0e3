"""Index builders at MGMT: crawled chunks claimed, and what became of their index."""

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    PROPAGATORS,
    caller,
    database_time,
    index_state_of,
    mgmt_connection,
    record_propagated,
    refuse_lost_lease,
    require_chunk,
)
from usher.db.pool import Connection
from usher.http.server.endpoint import Endpoint
from usher.messages.builder import BuildQuery, ContentChunk, IndexChunkReport, SourceChunk
from usher.messages.components import ChunkState
from usher.messages.fields import chunk_number
from usher.mgmt import chunks, compaction_merge, components, missing_chunks, page_keys, placements
from usher.mgmt.chunks import ChunkToBuild
from usher.mgmt.components import ComponentRecord
from usher.mgmt.missing_chunks import MissingFile
from usher.mgmt.page_keys import ChunkPageKeys


async def get_content_chunks(call: MgmtCall[BuildQuery]) -> list[ContentChunk]:
    me, lease = await caller(call, "index-builder"), call.context.limits.lease
    if me.state == "paused":
        return []
    n, compact = call.body.n, call.body.compact
    async with mgmt_connection(call, alone=True) as conn:
        found = await chunks.claim_builds(
            conn, me.id, n=n, lease=lease, now=database_time(call), compact=compact
        )
        if not found and await alone(conn, me):
            found = await chunks.claim_builds(
                conn, me.id, n=n, lease=lease, now=database_time(call), alone=True, compact=compact
            )
    made_of = await sources(call, [one.chunk_id for one in found if one.host is None])
    pages = await pages_of(call, [one.chunk_id for one in found if one.host is not None])
    return [content_chunk(one, made_of, pages) for one in found]


def content_chunk(
    chunk: ChunkToBuild, made_of: dict[int, list[SourceChunk]], pages: dict[int, ChunkPageKeys]
) -> ContentChunk:
    own = pages.get(chunk.chunk_id)
    return ContentChunk(
        chunk.chunk_id,
        chunk.host or "",
        own.keys if own else [],
        own.textless_keys if own else [],
        chunk.sha256,
        chunk.bytes,
        made_of.get(chunk.chunk_id),
    )


async def pages_of(call: MgmtCall[BuildQuery], claimed: list[int]) -> dict[int, ChunkPageKeys]:
    """The pages that crawled chunks may hold."""
    if not claimed:
        return {}
    async with mgmt_connection(call, alone=True) as conn:
        return {pages.chunk_id: pages for pages in await page_keys.page_keys(conn, claimed)}


async def sources(call: MgmtCall[BuildQuery], claimed: list[int]) -> dict[int, list[SourceChunk]]:
    """What chunks are to be made of that nobody crawled."""
    if not claimed:
        return {}
    async with mgmt_connection(call) as conn:
        found = await compaction_merge.manifest(conn, claimed)
    return {
        id_: [
            SourceChunk(one.chunk_id, one.hosts, one.keys, one.sha256, one.bytes) for one in parts
        ]
        for id_, parts in found.items()
    }


async def alone(conn: Connection, me: ComponentRecord) -> bool:
    """Whether nobody else could build what this builder failed with."""
    builders = await components.list_components(conn, type="index-builder", health="healthy", n=2)
    return all(one.id == me.id for one in builders)


async def set_index_state(call: MgmtCall[IndexChunkReport]) -> ChunkState:
    """Any state may be said again; what is over cannot be undone."""
    asked, chunk = call.body, chunk_number(call.body.chunk_id)
    if asked.state == "propagated":
        me = await caller(call, *PROPAGATORS)
        async with mgmt_connection(call) as conn:
            await record_propagated(call, conn, me, chunk)
            return index_state_of(await require_chunk(conn, chunk))
    me = await caller(call, "index-builder")
    async with mgmt_connection(call) as conn:
        if not await settle(call, conn, me, chunk):
            found = await require_chunk(conn, chunk)
            said_before = asked.state in (found.index_state, index_state_of(found).state)
            if found.builder_id != me.id or not said_before:
                refuse_lost_lease(found, me)
        return index_state_of(await require_chunk(conn, chunk))


async def settle(
    call: MgmtCall[IndexChunkReport], conn: Connection, me: ComponentRecord, chunk: int
) -> bool:
    """Whether the builder had that chunk, and so had its say."""
    asked, now = call.body, database_time(call)
    if asked.state != "building":
        # All who write places take this lock before they lock chunks and pages.
        await placements.plan_alone(conn)
    if not await chunks.renew(conn, me.id, [chunk], lease=call.context.limits.lease, now=now):
        return False
    match asked.state:
        case "built":
            done = await chunks.finish_build(
                conn, me.id, chunk, sha256=asked.sha256, size=asked.bytes, now=now
            )
            if done:
                await placements.place_chunks(conn, [chunk], now=now)
            return done
        case "error":
            why = asked.reason or "the builder could not build it"
            state = await chunks.fail_build(conn, me.id, chunk, why=why)
            if state == "parked" and asked.missing:
                await missing_chunks.lose_content(conn, me.id, MissingFile(chunk, why), now=now)
            return state is not None
    return (await require_chunk(conn, chunk)).builder_id == me.id


ENDPOINTS = (
    Endpoint(
        "GET",
        "/get_content_chunk_metadata",
        get_content_chunks,
        BuildQuery,
        list[ContentChunk],
        "Crawled chunks to build, each for the caller alone",
        access=work("index-builder"),
        safe=False,
    ),
    Endpoint(
        "POST",
        "/set_index_chunk_metadata",
        set_index_state,
        IndexChunkReport,
        ChunkState,
        "An index is being built, was built, or cannot be",
        access=work("index-builder", "index-server"),
    ),
)
