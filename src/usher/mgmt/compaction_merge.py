"""The chunks that compaction makes: what a builder puts into one, and what changes when it has built it.

The guestbook then names the new chunk, as if its pages had been crawled again: each row keeps the old copies until it
has the new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import page_versions

store = load_statements(__file__)
SPARSE_SHARE: Final = 0.25  # of a chunk's pages; with no more alive, it is put together with others


@dataclass(frozen=True, slots=True)
class MergeSource:
    """A chunk to take pages from: who has its index, how to check it, and the pages, each by host and path."""

    chunk_id: int
    sha256: str | None
    bytes: int | None
    hosts: list[str]
    keys: list[str]


async def note_if_sparse(conn: Connection, chunk: int, *, now: datetime) -> None:
    """A crawled chunk is built: if few of its pages brought a text, as when most are as they were, it is noted."""
    await store.note_if_sparse.run(conn, chunk=chunk, share=SPARSE_SHARE, now=now)


async def manifest(conn: Connection, chunks: Sequence[int]) -> dict[int, list[MergeSource]]:
    """What the builder that took these chunks is to make them of; written down, to be compared when it has."""
    await store.assign_pages.run(conn, chunks=list(chunks))
    found: dict[int, list[MergeSource]] = {id_: [] for id_ in chunks}
    for id_, *source in await store.manifest.tuples(conn, chunks=list(chunks)):
        found[id_].append(MergeSource(*source))
    return found


async def finish_merge(conn: Connection, chunk: int, *, now: datetime) -> int:
    """Such a chunk is built: the pages that are where they were move into it; returns how many.

    Those that were crawled again or disappeared meanwhile stay so, and what the new chunk has of them is out of date.
    """
    pages = await store.lock_pages.tuples(conn, chunk=chunk)
    moved = [(page, source) for source, page, where, given in pages if given and where == source]
    done = {page for page, _ in moved}
    stale = [one for one in pages if one[1] not in done and one[2] != chunk]
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
