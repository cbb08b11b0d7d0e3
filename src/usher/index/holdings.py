"""What an index server compares with a restored database: the documents of each chunk in the index and in its file.

The engine stores the incarnation of the database beside the chunks, so that a server that was down during a restore
compares its chunks when it starts.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from usher.chunk_store import ChunkStore
from usher.errors import BadInput, Conflict
from usher.index import chunk_file
from usher.index.engine import INSTALLATION, Engine
from usher.messages.index_server import HeldChunk

INSTALLATION_DIGITS: Final = 12  # of an incarnation; a restore keeps them
NOT_COMPARED: Final = (
    "not compared"  # in place of an incarnation; front-ends mark such hits partial
)


def check_installation(engine: Engine, incarnation: str) -> None:
    """Store in a new index whose it is; Conflict if it belongs to another installation.

    The chunks of two installations have the same numbers, so a server would replace those of the other.
    """
    name = incarnation[-INSTALLATION_DIGITS:]
    stored = engine.read_state(INSTALLATION)
    if not stored and name:
        engine.write_state(INSTALLATION, name)
    elif name and stored != name:
        hint = "Choose another index: USHER_ENGINE_INDEX. Or delete this one if it is not needed."
        raise Conflict("The index belongs to another installation of Usher.", hint=hint)


def held_chunks(engine: Engine, store: ChunkStore, chunks: Iterable[int]) -> list[HeldChunk]:
    """The searchable documents of chunks and those in their files; reads the files for their checksums."""
    return [_held_chunk(engine, store, chunk) for chunk in chunks]


def _held_chunk(engine: Engine, store: ChunkStore, chunk: int) -> HeldChunk:
    documents, file = engine.count(chunk), store.find(chunk)
    with suppress(BadInput):
        if file:
            return HeldChunk(chunk, documents, chunk_file.count(file.path), file.sha256)
    return HeldChunk(chunk, documents)
