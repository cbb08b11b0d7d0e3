"""Endpoints for index builders: they claim crawled chunks and report the index."""

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    PROPAGATORS,
    calling_component,
    database_time,
    index_state,
    mgmt_connection,
    record_propagated,
    refuse_lost_lease,
    require_chunk,
)
from usher.api.uploads import record_upload
from usher.db.pool import Connection
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.messages.builder import (
    BuildQuery,
    ContentChunk,
    IndexChunkReport,
    PageLinks,
    SiteTemplate,
    SourceChunk,
)
from usher.messages.components import ChunkState
from usher.messages.fields import MAX_PAGES_PER_CHUNK, chunk_number
from usher.messages.index_server import ChunkPages
from usher.mgmt import (
    anchors,
    chunks,
    compaction_merge,
    components,
    missing_chunks,
    page_keys,
    placements,
    site_templates,
)
from usher.mgmt.chunk_objects import object_key
from usher.mgmt.chunks import ChunkToBuild
from usher.mgmt.components import ComponentRecord
from usher.mgmt.missing_chunks import MissingFile

ENDPOINTS = EndpointList()


@ENDPOINTS.get(
    "/get_content_chunk_metadata",
    "Claim crawled chunks to build",
    work("index-builder"),
    safe=False,
)
async def get_content_chunks(call: MgmtCall[BuildQuery]) -> list[ContentChunk]:
    builder = await calling_component(call, "index-builder")
    if builder.state == "paused":
        return []
    async with mgmt_connection(call, alone=True) as conn:
        claimed = await claim(call, conn, builder)
        if not claimed and await is_only_builder(conn, builder):
            claimed = await claim(call, conn, builder, alone=True)
    sources = await merge_sources(call, [chunk.chunk_id for chunk in claimed if chunk.host is None])
    keys = await page_keys_of(call, [chunk.chunk_id for chunk in claimed if chunk.host is not None])
    links = await links_of(call, [chunk.chunk_id for chunk in claimed])
    # After the links: a page whose template changes later is scheduled to be indexed again.
    templates, samples = await templates_of(call, claimed)
    answer = [
        content_chunk(
            chunk,
            sources.get(chunk.chunk_id),
            keys.get(chunk.chunk_id),
            links.get(chunk.chunk_id, []),
            templates.get(chunk.chunk_id, []),
            samples.get(chunk.chunk_id, {}),
        )
        for chunk in claimed
    ]
    urls = call.context.chunk_urls
    for message in answer:
        message.upload = urls.has_store
    await urls.sign(answer)
    await urls.sign(source for message in answer for source in message.made_of or [])
    return answer


async def claim(
    call: MgmtCall[BuildQuery], conn: Connection, builder: ComponentRecord, *, alone: bool = False
) -> list[ChunkToBuild]:
    """Claim chunks; a builder that is `alone` also gets those that it failed to build."""
    return await chunks.claim_builds(
        conn,
        builder.id,
        n=call.body.n,
        lease=call.context.limits.lease,
        now=database_time(call),
        alone=alone,
        compact=call.body.compact,
        with_store=call.context.chunk_urls.has_store,
    )


def content_chunk(
    chunk: ChunkToBuild,
    sources: list[SourceChunk] | None,
    pages: ChunkPages | None,
    links: list[PageLinks],
    templates: list[SiteTemplate],
    samples: dict[str, int],
) -> ContentChunk:
    key = object_key("content", chunk.chunk_id, chunk.sha256 or "")
    return ContentChunk(
        chunk_id=chunk.chunk_id,
        host=chunk.host or "",
        keys=pages.keys if pages else [],
        textless_keys=pages.textless_keys if pages else [],
        sha256=chunk.sha256,
        bytes=chunk.bytes,
        made_of=sources,
        # A merge replaces the anchors that the index has, also by none.
        links=[page for page in links if sources or page.depth or page.inlinks],
        templates=templates,
        samples=samples,
        url=key if chunk.is_stored else "",
    )


async def page_keys_of(call: MgmtCall[BuildQuery], chunk_ids: list[int]) -> dict[int, ChunkPages]:
    """The pages that crawled chunks may hold."""
    if not chunk_ids:
        return {}
    async with mgmt_connection(call, alone=True) as conn:
        return {pages.chunk_id: pages for pages in await page_keys.page_keys(conn, chunk_ids)}


async def links_of(call: MgmtCall[BuildQuery], chunk_ids: list[int]) -> dict[int, list[PageLinks]]:
    """What links say about the pages of chunks."""
    if not chunk_ids:
        return {}
    async with mgmt_connection(call, alone=True) as conn:
        return await anchors.page_links(conn, chunk_ids)


async def templates_of(
    call: MgmtCall[BuildQuery], claimed: list[ChunkToBuild]
) -> tuple[dict[int, list[SiteTemplate]], dict[int, dict[str, int]]]:
    """The templates of the hosts of chunks, and the pages of crawled chunks whose lines the builder reports."""
    if not claimed:
        return {}, {}
    crawled = [chunk.chunk_id for chunk in claimed if chunk.host is not None]
    async with mgmt_connection(call, alone=True) as conn:
        templates = await site_templates.chunk_templates(
            conn, [chunk.chunk_id for chunk in claimed]
        )
        return templates, await site_templates.pages_to_sample(conn, crawled)


async def merge_sources(
    call: MgmtCall[BuildQuery], chunk_ids: list[int]
) -> dict[int, list[SourceChunk]]:
    """The chunks that each of these chunks is merged from."""
    if not chunk_ids:
        return {}
    async with mgmt_connection(call) as conn:
        return await compaction_merge.manifest(conn, chunk_ids)


async def is_only_builder(conn: Connection, builder: ComponentRecord) -> bool:
    """Whether no other healthy builder could build what this one failed to build."""
    healthy = await components.list_components(conn, type="index-builder", health="healthy", n=2)
    return all(component.id == builder.id for component in healthy)


@ENDPOINTS.post(
    "/set_index_chunk_metadata",
    "Report that an index is being built, was built, or failed",
    work("index-builder", "index-server"),
)
async def set_index_state(call: MgmtCall[IndexChunkReport]) -> ChunkState:
    """Record a report. A builder may repeat its report, but it cannot undo a final state."""
    report, chunk = call.body, chunk_number(call.body.chunk_id)
    check_count(report.samples, "samples", MAX_PAGES_PER_CHUNK)
    if report.state == "propagated":
        component = await calling_component(call, *PROPAGATORS)
        async with mgmt_connection(call) as conn:
            await record_propagated(call, conn, component, chunk)
            return index_state(await require_chunk(conn, chunk))
    component = await calling_component(call, "index-builder")
    async with mgmt_connection(call) as conn:
        if not await settle(call, conn, component, chunk):
            record = await require_chunk(conn, chunk)
            is_repeated = report.state in (record.index_state, index_state(record).state)
            if record.builder_id != component.id or not is_repeated:
                refuse_lost_lease(record, component)
        return index_state(await require_chunk(conn, chunk))


async def settle(
    call: MgmtCall[IndexChunkReport], conn: Connection, builder: ComponentRecord, chunk: int
) -> bool:
    """Apply the report if the builder holds the chunk; False if it does not."""
    report, now = call.body, database_time(call)
    if report.state != "building":
        # Every writer of placements takes this lock before it locks chunks and pages.
        await placements.plan_alone(conn)
    lease = call.context.limits.lease
    if not await chunks.renew(conn, builder.id, [chunk], lease=lease, now=now):
        return False
    match report.state:
        case "built":
            is_built = await chunks.finish_build(
                conn, builder.id, chunk, sha256=report.sha256, size=report.bytes, now=now
            )
            if is_built:
                if report.stored:
                    await record_upload(conn, "index", chunk, report.sha256, now)
                await placements.place_chunks(conn, [chunk], now=now)
                await site_templates.add_samples(conn, chunk, report.samples)
            return is_built
        case "error":
            reason = report.reason or "the builder could not build it"
            state = await chunks.fail_build(conn, builder.id, chunk, why=reason)
            if state == "parked" and report.missing:
                missing = MissingFile(chunk, reason)
                await missing_chunks.lose_content(conn, builder.id, missing, now=now)
            return state is not None
    return (await require_chunk(conn, chunk)).builder_id == builder.id
