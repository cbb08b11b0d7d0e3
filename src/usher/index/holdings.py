"""What an index server compares with a restored database: the documents of each chunk in the index and in its file.

The incarnation of the database is stored beside the chunks, so that a server that was down during a restore compares
its chunks when it starts.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from usher.chunk_store import ChunkStore, translate_disk_errors
from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.engine import Engine
from usher.messages.index_server import HeldChunk
from usher.private_files import write_file

FILE: Final = "incarnation"
NOT_COMPARED: Final = (
    "not compared"  # in place of an incarnation; front-ends mark such hits partial
)


def read_incarnation(directory: Path) -> str:
    """The incarnation that the server last compared its chunks with; empty if there is none."""
    with suppress(OSError):
        return (directory / FILE).read_text(encoding="ascii").strip()
    return ""


def forget_incarnation(directory: Path) -> None:
    """Delete the incarnation before a comparison, so that a server that is killed during it compares again."""
    with translate_disk_errors(directory / FILE):
        (directory / FILE).unlink(missing_ok=True)


def write_incarnation(directory: Path, incarnation: str) -> None:
    with translate_disk_errors(directory / FILE):
        write_file(directory / FILE, incarnation.encode("ascii"))


def held_chunks(engine: Engine, store: ChunkStore, chunks: Iterable[int]) -> list[HeldChunk]:
    """The searchable documents of chunks and those in their files; reads the files for their checksums."""
    return [_held_chunk(engine, store, chunk) for chunk in chunks]


def _held_chunk(engine: Engine, store: ChunkStore, chunk: int) -> HeldChunk:
    documents, file = engine.count(chunk), store.find(chunk)
    with suppress(BadInput):
        if file:
            return HeldChunk(chunk, documents, chunk_file.count(file.path), file.sha256)
    return HeldChunk(chunk, documents)
