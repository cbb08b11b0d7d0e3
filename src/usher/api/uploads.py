"""Endpoints that give crawlers and builders URLs of the object store, and the records of uploads."""

from datetime import datetime
from typing import Final

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    calling_component,
    database_time,
    mgmt_connection,
    refuse_lost_lease,
    require_chunk,
)
from usher.db.pool import Connection
from usher.errors import BadInput, NotFound, Unreachable
from usher.http.server.endpoint import EndpointList
from usher.messages.components import ContentUrlRequest, SignedUrl, UploadRequest
from usher.messages.fields import chunk_number
from usher.mgmt import chunk_objects, chunks
from usher.mgmt.chunk_objects import ChunkObject, ObjectKind
from usher.mgmt.component_names import ComponentType

UPLOADERS: Final[dict[ObjectKind, ComponentType]] = {"content": "crawler", "index": "index-builder"}
ENDPOINTS = EndpointList()


@ENDPOINTS.post(
    "/v1/upload_url",
    "A URL to upload the file of a chunk to the object store",
    work("crawler", "index-builder"),
)
async def get_upload_url(call: MgmtCall[UploadRequest]) -> SignedUrl:
    """Permit the upload of one file by the component that has the lease on its chunk."""
    request, now = call.body, database_time(call)
    chunk = chunk_number(request.chunk_id)
    component = await calling_component(call, UPLOADERS[request.kind])
    file = ChunkObject(request.kind, chunk, request.sha256)
    target = await call.context.chunk_urls.upload(file)
    async with mgmt_connection(call) as conn:
        lease = call.context.limits.lease
        held = await chunks.renew(conn, component.id, [chunk], lease=lease, now=now)
        if not held or component.type != UPLOADERS[request.kind]:
            refuse_lost_lease(await require_chunk(conn, chunk), component)
        if not await chunk_objects.request_upload(conn, file, now=now):
            raise Unreachable("An earlier upload of this file is being deleted.", hint="Retry.")
    return target


@ENDPOINTS.post(
    "/v1/content_url",
    "A URL to download the content of a chunk from the object store",
    work("index-builder"),
)
async def get_content_url(call: MgmtCall[ContentUrlRequest]) -> SignedUrl:
    """Permit the download by the builder that has the lease on the chunk; the URL of its claim may have expired."""
    chunk, now = chunk_number(call.body.chunk_id), database_time(call)
    builder = await calling_component(call, "index-builder")
    async with mgmt_connection(call) as conn:
        lease = call.context.limits.lease
        held = await chunks.renew(conn, builder.id, [chunk], lease=lease, now=now)
        record = await require_chunk(conn, chunk)
        if not held or record.builder_id != builder.id:
            refuse_lost_lease(record, builder)
    if not record.is_content_stored or record.sha256 is None:
        raise NotFound(f"The content of chunk {chunk} is not in the object store.")
    return await call.context.chunk_urls.download(ChunkObject("content", chunk, record.sha256))


async def record_upload(
    conn: Connection, kind: ObjectKind, chunk: int, sha256: str | None, now: datetime
) -> None:
    """Record that the object store has a file; BadInput if the component did not ask for the URL of the upload."""
    if sha256 is None or not await chunk_objects.set_stored(
        conn, ChunkObject(kind, chunk, sha256), now=now
    ):
        raise BadInput(
            f"Chunk {chunk} was not uploaded: no URL was given for a file with this checksum.",
            hint="POST /v1/upload_url first, with the same sha256.",
        )
