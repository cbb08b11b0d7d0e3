"""Endpoints that serve chunk files: one chunk by its id, and the list of all."""

import asyncio
import re
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.chunk_store import ChunkStore
from usher.errors import BadInput, NotFound
from usher.http.server.component import ComponentCall, ComponentEndpoint
from usher.http.server.endpoint import AccessRule, Endpoint
from usher.http.server.files import FileResponse
from usher.tickets import Action

CHUNK_ID: Final = re.compile(r"([0-9]{1,18})c?", re.ASCII)  # the seed writes 101 and 101c
MAX_LIST_LENGTH: Final = 1000


class ChunkListQuery(Struct, forbid_unknown_fields=True):
    """At most `n` chunks with ids above `after`."""

    n: Annotated[int, Meta(ge=1, le=MAX_LIST_LENGTH)] = MAX_LIST_LENGTH
    after: int = -1


class ChunkListEntry(Struct):
    chunk_id: int
    bytes: int
    sha256: str


def chunk_endpoints(
    store: ChunkStore,
    path: str,
    media_type: str = "application/warc",
    action: Action = "content",
) -> Sequence[ComponentEndpoint]:
    """`GET /get_chunk/<id>` and `GET /get_chunks`, where `path` is `/get_chunk`."""
    access = AccessRule("ticket", action=action)

    async def get_chunk(call: ComponentCall[None]) -> FileResponse:
        id_ = call.path_params["id"]
        file = await asyncio.to_thread(store.find, chunk_id(id_))
        if file is None:
            raise NotFound(f"There is no chunk {id_} here.")
        return FileResponse(file.path, file.sha256, media_type)

    async def list_chunks(call: ComponentCall[ChunkListQuery]) -> list[ChunkListEntry]:
        return await asyncio.to_thread(chunk_list, store, call.body)

    return (
        Endpoint("GET", f"{path}/{{id}}", get_chunk, access=access),
        Endpoint("GET", f"{path}s", list_chunks, ChunkListQuery, access=access),
    )


def chunk_id(text: str) -> int:
    match = CHUNK_ID.fullmatch(text)
    if match is None:
        raise BadInput(f"{text[:40]!a} is no chunk id.", hint="A number, as in 101.")
    return int(match[1])


def chunk_list(store: ChunkStore, query: ChunkListQuery) -> list[ChunkListEntry]:
    """The chunks by id; a caller pages with `after`."""
    ids = islice((id_ for id_ in store.chunks() if id_ > query.after), query.n)
    files = ((id_, store.find(id_)) for id_ in ids)
    return [ChunkListEntry(id_, file.size, file.sha256) for id_, file in files if file]
