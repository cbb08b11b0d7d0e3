"""Page keys at MGMT: index servers ask for the pages of chunks; they and builders report what they dropped."""

from typing import Annotated, Final

from msgspec import Meta

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, database_time, mgmt_connection
from usher.http.server.endpoint import Endpoint
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
Example = Annotated[str, Meta(max_length=2_100)]


async def get_page_keys(call: MgmtCall[PageKeysRequest]) -> PageKeysAnswer:
    me, chunks = await caller(call, "index-server"), call.body.chunk_ids
    if len(chunks) > MAX_CHUNKS_PER_KEYS_REQUEST:
        message = f"{len(chunks):,} chunks are more than {MAX_CHUNKS_PER_KEYS_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Ask in several requests.")
    ids = sorted({chunk_number(chunk) for chunk in chunks})
    async with mgmt_connection(call, alone=True) as conn:
        pages = await page_keys.page_keys(conn, ids, server=me.id)
    return PageKeysAnswer(
        [ChunkPages(chunk.chunk_id, chunk.keys, chunk.textless_keys) for chunk in pages]
    )


async def set_foreign_pages(call: MgmtCall[ForeignPagesRequest]) -> AcceptedChunks:
    me, reports = await caller(call, "index-builder", "index-server"), call.body.chunks
    if len(reports) > MAX_CHUNKS_PER_REQUEST:
        message = f"{len(reports):,} chunks are more than {MAX_CHUNKS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Report them in several requests.")
    dropped = {
        id_: ForeignCount(id_, report.count, report.examples)
        for report in reports
        for id_ in [chunk_number(report.chunk_id)]
    }
    async with mgmt_connection(call) as conn:
        recorded = (
            await page_keys.report(conn, me, list(dropped.values()), now=database_time(call))
            if me.type in REPORTERS
            else []
        )
    if dropped and not recorded:
        message = f"None of these chunks is with {me.host}."
        raise HttpError(
            409, "not_yours", message, hint=f"Report chunks that you build or load. {IDENTITY_HINT}"
        )
    return AcceptedChunks(recorded)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/page_keys",
        get_page_keys,
        PageKeysRequest,
        PageKeysAnswer,
        "The pages that chunks may hold; the index server drops every other document",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/v1/foreign_pages",
        set_foreign_pages,
        ForeignPagesRequest,
        AcceptedChunks,
        "The caller dropped pages that are not in the chunk; MGMT records the component at fault",
        access=work("index-builder", "index-server"),
    ),
)
