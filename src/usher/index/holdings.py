"""What an index server compares with a restored database: for each chunk its documents, in the index and in its file.

The incarnation that a server compared its chunks with is in a file beside them, so that a server that was down during a
restore compares them when it starts.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from usher.chunk_store import Shelf, at_disk
from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.engine import Engine
from usher.messages.index_server import HeldChunk
from usher.private_files import write_file

FILE: Final = "incarnation"
NOT_COMPARED: Final = (
    "not compared"  # what answers have in place of an incarnation; front-ends mark them partial
)


def read_incarnation(directory: Path) -> str:
    """The incarnation that the server in this directory compared its chunks with last; empty if with none."""
    with suppress(OSError):
        return (directory / FILE).read_text(encoding="ascii").strip()
    return ""


def forget_incarnation(directory: Path) -> None:
    """Begin a comparison: a server that is killed during it compares again, and its answers are partial until then."""
    with at_disk(directory / FILE):
        (directory / FILE).unlink(missing_ok=True)


def write_incarnation(directory: Path, incarnation: str) -> None:
    with at_disk(directory / FILE):
        write_file(directory / FILE, incarnation.encode("ascii"))


def count_documents(engine: Engine, shelf: Shelf, chunks: Iterable[int]) -> list[HeldChunk]:
    """How many documents of each chunk can be found, and how many its file has; reads every file for its checksum."""
    return [held_chunk(engine, shelf, chunk) for chunk in chunks]


def held_chunk(engine: Engine, shelf: Shelf, chunk: int) -> HeldChunk:
    documents, kept = engine.count(chunk), shelf.find(chunk)
    with suppress(BadInput):
        if kept:
            return HeldChunk(chunk, documents, chunk_file.count(kept.path), kept.sha256)
    return HeldChunk(chunk, documents)
