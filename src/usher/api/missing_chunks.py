"""The endpoint for chunks that no component has: MGMT has them built or crawled again."""

from usher.api.access import INDEX_SERVER
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import calling_component, database_time, mgmt_connection
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import endpoint
from usher.messages.fields import MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.messages.index_server import LostChunks, MissingChunk, MissingChunksRequest
from usher.mgmt import missing_chunks
from usher.mgmt.component_names import storable_text
from usher.mgmt.missing_chunks import MissingFile

DEFAULT_REASON = "no component has its index any more"


async def set_missing(call: MgmtCall[MissingChunksRequest]) -> LostChunks:
    server, reports = await calling_component(call, "index-server"), call.body.chunks
    check_count(reports, "chunks", MAX_CHUNKS_PER_REQUEST)
    files = {file.chunk_id: file for file in map(missing_file, reports)}  # each once
    async with mgmt_connection(call) as conn:
        actions = await missing_chunks.lose_indexes(
            conn, server.id, list(files.values()), now=database_time(call)
        )
    answer = LostChunks([], [], [])
    for id_, action in sorted(actions.items()):
        getattr(answer, action).append(id_)
    return answer


def missing_file(report: MissingChunk) -> MissingFile:
    reason = storable_text(report.reason) or DEFAULT_REASON
    return MissingFile(chunk_number(report.chunk_id), reason, report.builder_silent)


ENDPOINTS = (
    endpoint(
        "POST",
        "/v1/chunks_missing",
        set_missing,
        "Chunks that no component has",
        access=INDEX_SERVER,
    ),
)
