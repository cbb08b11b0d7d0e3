"""Endpoints for page keys: index servers ask which pages a chunk may hold; they and builders report foreign pages."""

from typing import Final

from usher.api.access import INDEX_SERVER, work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import calling_component, database_time, mgmt_connection
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import endpoint
from usher.http.server.middleware import HttpError
from usher.messages.components import AcceptedChunks, ForeignPagesRequest
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.index_server import (
    MAX_CHUNKS_PER_KEYS_REQUEST,
    ChunkPages,
    PageKeysAnswer,
    PageKeysRequest,
)
from usher.mgmt import page_keys
from usher.mgmt.component_names import IDENTITY_HINT
from usher.mgmt.page_keys import ForeignCount

REPORTERS: Final = frozenset({"index-builder", "index-server"})


async def get_page_keys(call: MgmtCall[PageKeysRequest]) -> PageKeysAnswer:
    server, chunks = await calling_component(call, "index-server"), call.body.chunk_ids
    check_count(chunks, "chunks", MAX_CHUNKS_PER_KEYS_REQUEST)
    ids = sorted({chunk_number(chunk) for chunk in chunks})
    async with mgmt_connection(call, alone=True) as conn:
        pages = await page_keys.page_keys(conn, ids, server=server.id)
    return PageKeysAnswer(
        [ChunkPages(chunk.chunk_id, chunk.keys, chunk.textless_keys) for chunk in pages]
    )


async def set_foreign_pages(call: MgmtCall[ForeignPagesRequest]) -> AcceptedChunks:
    component = await calling_component(call, "index-builder", "index-server")
    check_count(call.body.chunks, "chunks", MAX_CHUNKS_PER_REQUEST)
    dropped = {
        id_: ForeignCount(id_, report.count, report.examples)
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


ENDPOINTS = (
    endpoint(
        "POST",
        "/v1/page_keys",
        get_page_keys,
        "The pages that chunks may hold",
        access=INDEX_SERVER,
    ),
    endpoint(
        "POST",
        "/v1/foreign_pages",
        set_foreign_pages,
        "Report pages that are not in their chunk",
        access=work("index-builder", "index-server"),
    ),
)
