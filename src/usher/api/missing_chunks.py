"""Index servers at MGMT that find a chunk nowhere: it is built again, or crawled again."""

from typing import Annotated

from msgspec import Meta, Struct

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, database_time, mgmt_connection
from usher.api.mgmt_messages import MOST_CHUNKS, ChunkId, Told, Why, number_of
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.mgmt import missing_chunks
from usher.mgmt.component_names import storable_text
from usher.mgmt.missing_chunks import MissingFile

NOBODY = "nobody has its index any more"


class MissingChunk(Struct):
    """A chunk that nobody has whole: what those said who were asked, and whether its builder said nothing at all."""

    chunk_id: ChunkId
    reason: Why = ""
    builder_silent: bool = False


class MissingChunks(Told, kw_only=True):
    chunks: Annotated[list[MissingChunk], Meta(extra_json_schema={"maxItems": MOST_CHUNKS})]


class Lost(Struct):
    """Chunks that are built again, whose pages are crawled again, and that were lost too often; no other is lost."""

    build: list[int]
    crawl: list[int]
    parked: list[int]


async def set_missing(call: MgmtCall[MissingChunks]) -> Lost:
    me, asked = await caller(call, "index-server"), call.body.chunks
    if len(asked) > MOST_CHUNKS:
        raise HttpError(413, "too_large", f"{len(asked):,} chunks are more than {MOST_CHUNKS:,}.")
    losses = {number_of(one.chunk_id): loss_of(one) for one in asked}  # each once
    async with mgmt_connection(call) as conn:
        became = await missing_chunks.lose_indexes(
            conn, me.id, list(losses.values()), now=database_time(call)
        )
    answer = Lost([], [], [])
    for id_, what in sorted(became.items()):
        getattr(answer, what).append(id_)
    return answer


def loss_of(one: MissingChunk) -> MissingFile:
    return MissingFile(
        number_of(one.chunk_id), storable_text(one.reason) or NOBODY, one.builder_silent
    )


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/chunks_missing",
        set_missing,
        MissingChunks,
        Lost,
        "The index server is to load these chunks, and nobody has them",
        access=work("index-server"),
    ),
)
