"""Chunk files in the object store: which exist, which are being uploaded, and which may be deleted.

A key names the checksum, so a late upload of a component that lost its lease never replaces the file of another.
Functions that write need a transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple, get_args

from usher.chunk_store import CHUNKS_PER_FOLDER, CONTENT_SUFFIX, INDEX_SUFFIX
from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)
ObjectKind = Literal["content", "index"]
KINDS: Final[tuple[ObjectKind, ...]] = get_args(ObjectKind)
SUFFIXES: Final = {"content": CONTENT_SUFFIX, "index": INDEX_SUFFIX}


class ChunkObject(NamedTuple):
    """The file of a chunk in the object store."""

    kind: ObjectKind
    chunk_id: int
    sha256: str

    @property
    def key(self) -> str:
        return object_key(self.kind, self.chunk_id, self.sha256)


class ObjectPage(NamedTuple):
    """Some objects: those that may be deleted, and the last one; None at the end."""

    unneeded: list[ChunkObject]
    last: ChunkObject | None


FIRST_OBJECT: Final = ChunkObject("content", 0, "")


def object_key(kind: ObjectKind, chunk: int, sha256: str) -> str:
    """Return the key below the prefix of the store, such as `index/000123/000123456-SHA256.idx`."""
    folder = f"{chunk // CHUNKS_PER_FOLDER:06d}"
    return f"{kind}/{folder}/{chunk:09d}-{sha256}{SUFFIXES[kind]}"


async def request_upload(conn: Connection, file: ChunkObject, *, now: datetime) -> bool:
    """Record an upload before it begins; False while an earlier object of this key is being deleted."""
    rows = await store.request_upload.column(
        conn, kind=file.kind, chunk=file.chunk_id, sha256=file.sha256, now=now
    )
    return bool(rows)


async def set_stored(conn: Connection, file: ChunkObject, *, now: datetime) -> bool:
    """Record that an upload is complete; False if it was not requested."""
    rows = await store.set_stored.column(
        conn, kind=file.kind, chunk=file.chunk_id, sha256=file.sha256, now=now
    )
    return bool(rows)


async def page_of_objects(
    conn: Connection, after: ChunkObject, *, latest_request: datetime, n: int
) -> ObjectPage:
    """Return the next objects; uploads that were requested after `latest_request` may still run."""
    rows = await store.page_of_objects.tuples(
        conn,
        kind=after.kind,
        chunk=after.chunk_id,
        sha256=after.sha256,
        latest_request=latest_request,
        n=n,
    )
    unneeded = [ChunkObject(*key) for *key, can_go in rows if can_go]
    return ObjectPage(unneeded, ChunkObject(*rows[-1][:3]) if len(rows) == n else None)


async def mark_unneeded(
    conn: Connection, objects: Sequence[ChunkObject], *, latest_request: datetime
) -> list[ChunkObject]:
    """Reserve objects for deletion; returns those that are still not needed."""
    rows = await store.mark_unneeded.tuples(
        conn, **object_columns(objects), latest_request=latest_request
    )
    return [ChunkObject(*row) for row in rows]


async def forget_deleted(conn: Connection, objects: Sequence[ChunkObject]) -> None:
    """Delete the rows of reserved objects after the objects."""
    await store.forget_deleted.run(conn, **object_columns(objects))


async def recorded_objects(conn: Connection, objects: Sequence[ChunkObject]) -> set[ChunkObject]:
    """Return those of these objects that have a row."""
    rows = await store.recorded_objects.tuples(conn, **object_columns(objects))
    return {ChunkObject(*row) for row in rows}


async def has_objects(conn: Connection) -> bool:
    """Whether any chunk is in the object store."""
    return bool(await store.has_objects.value(conn))


def object_columns(objects: Sequence[ChunkObject]) -> dict[str, list[object]]:
    return {
        "kinds": [file.kind for file in objects],
        "chunks": [file.chunk_id for file in objects],
        "sums": [file.sha256 for file in objects],
    }
