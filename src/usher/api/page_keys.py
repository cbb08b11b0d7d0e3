"""Page keys at MGMT: index servers ask for the pages of chunks; they and builders report what they dropped."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, database_time, mgmt_connection
from usher.api.mgmt_messages import MOST_CHUNKS, ChunkId, Told, number_of
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.mgmt import page_keys
from usher.mgmt.component_names import IDENTITY_HINT
from usher.mgmt.page_keys import ForeignCount

MAX_CHUNKS: Final = 1_000  # of one request for keys: a chunk has up to 1,000 pages
REPORTERS: Final = frozenset({"index-builder", "index-server"})
Example = Annotated[str, Meta(max_length=2_100)]


class KeysRequest(Told, kw_only=True):
    """Chunks that the caller is to load."""

    chunk_ids: Annotated[list[ChunkId], Meta(extra_json_schema={"maxItems": MAX_CHUNKS})]


class ChunkKeys(Struct):
    """The pages whose text is in a chunk, by host and path, and those that it was given and has no text of."""

    chunk_id: int
    keys: list[str]
    textless_keys: list[str]


class KeysAnswer(Struct):
    """Chunks without a place on the caller are left out."""

    chunks: list[ChunkKeys]


class ForeignReport(Struct):
    """How many documents or pages of a chunk were dropped because they are not its own, and up to three URLs."""

    chunk_id: ChunkId
    count: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    examples: Annotated[list[Example], Meta(max_length=3)] = []


class ForeignRequest(Told, kw_only=True):
    chunks: Annotated[list[ForeignReport], Meta(extra_json_schema={"maxItems": MOST_CHUNKS})]


class ForeignAnswer(Struct):
    """The chunks of the report that the caller builds, or has a place for."""

    chunk_ids: list[int]


async def get_page_keys(call: MgmtCall[KeysRequest]) -> KeysAnswer:
    me, chunks = await caller(call, "index-server"), call.body.chunk_ids
    if len(chunks) > MAX_CHUNKS:
        message = f"{len(chunks):,} chunks are more than {MAX_CHUNKS:,}."
        raise HttpError(413, "too_large", message, hint="Ask in several requests.")
    ids = sorted({number_of(chunk) for chunk in chunks})
    async with mgmt_connection(call, alone=True) as conn:
        pages = await page_keys.page_keys(conn, ids, server=me.id)
    return KeysAnswer(
        [ChunkKeys(chunk.chunk_id, chunk.keys, chunk.textless_keys) for chunk in pages]
    )


async def set_foreign_pages(call: MgmtCall[ForeignRequest]) -> ForeignAnswer:
    me, reports = await caller(call, "index-builder", "index-server"), call.body.chunks
    if len(reports) > MOST_CHUNKS:
        message = f"{len(reports):,} chunks are more than {MOST_CHUNKS:,}."
        raise HttpError(413, "too_large", message, hint="Report them in several requests.")
    dropped = {
        id_: ForeignCount(id_, report.count, report.examples)
        for report in reports
        for id_ in [number_of(report.chunk_id)]
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
    return ForeignAnswer(recorded)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/page_keys",
        get_page_keys,
        KeysRequest,
        KeysAnswer,
        "The pages that chunks may hold; the index server drops every other document",
        access=work("index-server"),
    ),
    Endpoint(
        "POST",
        "/v1/foreign_pages",
        set_foreign_pages,
        ForeignRequest,
        ForeignAnswer,
        "The caller dropped pages that are not in the chunk; MGMT records the component at fault",
        access=work("index-builder", "index-server"),
    ),
)
