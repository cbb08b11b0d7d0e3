"""Chunk files over HTTP, as crawlers and builders serve them: one by its id, and a list of all."""

import asyncio
import re
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.chunk_store import Kept, Shelf
from usher.errors import BadInput, NotFound
from usher.http.server.component import Call, Endpoint
from usher.http.server.files import FileResponse
from usher.tickets import Action

CHUNK: Final = re.compile(r"([0-9]{1,18})c?", re.ASCII)  # the seed writes 101 and 101c
LISTED: Final = 1000


class ChunkListQuery(Struct, forbid_unknown_fields=True):
    """Which chunks to list: so many, after that one."""

    n: Annotated[int, Meta(ge=1, le=LISTED)] = LISTED
    after: int = -1


class ChunkListEntry(Struct):
    chunk_id: int
    bytes: int
    sha256: str


def chunk_endpoints(
    shelf: Shelf,
    path: str,
    media_type: str = "application/warc",
    action: Action = "content",
) -> Sequence[Endpoint]:
    """`GET /get_chunk/<id>` and `GET /get_chunks`, or by whichever name `path` says."""

    async def one(call: Call) -> FileResponse:
        found = await asyncio.to_thread(shelf.find, chunk_of(call.words["id"]))
        if found is None:
            raise NotFound(f"There is no chunk {call.words['id']} here.")
        return FileResponse(found.path, found.sha256, media_type)

    async def every(call: Call) -> list[ChunkListEntry]:
        return await asyncio.to_thread(listed, shelf, call.query(ChunkListQuery))

    return (
        Endpoint("GET", f"{path}/{{id}}", one, action),
        Endpoint("GET", f"{path}s", every, action),
    )


def chunk_of(word: str) -> int:
    found = CHUNK.fullmatch(word)
    if found is None:
        raise BadInput(f"{word[:40]!a} is no chunk id.", hint="A number, as in 101.")
    return int(found[1])


def listed(shelf: Shelf, page: ChunkListQuery) -> list[ChunkListEntry]:
    """In order of their ids; whoever wants more asks for those after the last."""
    ids = islice((one for one in shelf.chunks() if one > page.after), page.n)
    found: list[tuple[int, Kept | None]] = [(chunk, shelf.find(chunk)) for chunk in ids]
    return [ChunkListEntry(chunk, kept.size, kept.sha256) for chunk, kept in found if kept]
