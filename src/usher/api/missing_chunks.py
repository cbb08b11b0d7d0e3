"""Index servers at MGMT that find a chunk nowhere: it is built again, or crawled again."""

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, database_time, mgmt_connection
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.index_server import LostChunks, MissingChunk, MissingChunksRequest
from usher.mgmt import missing_chunks
from usher.mgmt.component_names import storable_text
from usher.mgmt.missing_chunks import MissingFile

NOBODY = "nobody has its index any more"


async def set_missing(call: MgmtCall[MissingChunksRequest]) -> LostChunks:
    me, asked = await caller(call, "index-server"), call.body.chunks
    if len(asked) > MAX_CHUNKS_PER_REQUEST:
        raise HttpError(
            413, "too_large", f"{len(asked):,} chunks are more than {MAX_CHUNKS_PER_REQUEST:,}."
        )
    losses = {chunk_number(one.chunk_id): loss_of(one) for one in asked}  # each once
    async with mgmt_connection(call) as conn:
        became = await missing_chunks.lose_indexes(
            conn, me.id, list(losses.values()), now=database_time(call)
        )
    answer = LostChunks([], [], [])
    for id_, what in sorted(became.items()):
        getattr(answer, what).append(id_)
    return answer


def loss_of(one: MissingChunk) -> MissingFile:
    return MissingFile(chunk_number(one.chunk_id), storable_text(one.reason) or NOBODY, one.builder_silent
    )


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/chunks_missing",
        set_missing,
        MissingChunksRequest,
        LostChunks,
        "The index server is to load these chunks, and nobody has them",
        access=work("index-server"),
    ),
)
