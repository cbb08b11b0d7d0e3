"""The chunks that compaction makes: what a builder puts into one, and what changes when it has built it.

The guestbook then names the new chunk, as if its pages had been crawled again: each row keeps the old copies until it
has the new one.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.messages.builder import SourceChunk
from usher.mgmt import page_versions
from usher.mgmt.chunk_objects import object_key

store = load_statements(__file__)
SPARSE_SHARE: Final = 0.25  # of a chunk's pages; with no more left, compaction merges it


async def note_if_sparse(conn: Connection, chunk: int, *, now: datetime) -> None:
    """Make a newly built chunk a candidate if few of its pages brought a text."""
    await store.note_if_sparse.run(conn, chunk=chunk, share=SPARSE_SHARE, now=now)


async def manifest(conn: Connection, chunks: Sequence[int]) -> dict[int, list[SourceChunk]]:
    """The sources of chunks that a builder claimed; stores them, for the comparison when the chunk is built.

    The URL of a source in the object store is its key, which the caller signs.
    """
    await store.assign_pages.run(conn, chunks=list(chunks))
    sources: dict[int, list[SourceChunk]] = {id_: [] for id_ in chunks}
    for id_, *values, is_stored in await store.manifest.tuples(conn, chunks=list(chunks)):
        source = SourceChunk(*values)
        if is_stored and source.sha256:
            source.url = object_key("index", source.chunk_id, source.sha256)
        sources[id_].append(source)
    return sources


async def finish_merge(conn: Connection, chunk: int, *, now: datetime) -> int:
    """Move the pages of the sources into a chunk that was built; returns how many.

    Pages that were crawled again or disappeared meanwhile stay where they are; the new chunk has stale copies of them.
    """
    pages = await store.lock_pages.tuples(conn, chunk=chunk)
    moved = [(page, source) for source, page, where, given in pages if given and where == source]
    done = {page for page, _ in moved}
    stale = [row for row in pages if row[1] not in done and row[2] != chunk]
    await store.move_pages.run(conn, chunk=chunk, pages=sorted(done))
    await page_versions.record_stale_copies(
        conn, [(page, source, chunk) for page, source in moved], now=now
    )
    await page_versions.record_stale_copies(
        conn, [(page, chunk, where) for _, page, where, _ in stale], now=now
    )
    if gone := [(source, page) for source, page, where, _ in stale if where is None]:
        sources, ids = zip(*gone, strict=True)
        await store.copy_verdicts.run(conn, chunk=chunk, sources=list(sources), pages=list(ids))
    return len(moved)
