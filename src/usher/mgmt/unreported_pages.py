"""Leftovers: the pages of a chunk, and those that its crawler had nothing to say about.

Comes from a chunk that its crawler holds; goes back to the guestbook, where the pages wait again.
"""

from dataclasses import dataclass

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class PageInChunk:
    """A page of a chunk, by its address and by its place in the guestbook."""

    host: str
    path: str
    domain64: int
    chunk_id: int | None
    state: str


async def pages_of(conn: Connection, chunk: int) -> list[PageInChunk]:
    """The pages that are in a chunk, in whatever state."""
    return await store.pages_of.rows(conn, PageInChunk, chunk=chunk)


async def content_types(conn: Connection) -> dict[str, int]:
    """The number of every media type that has one."""
    return dict(await store.content_types.tuples(conn))
