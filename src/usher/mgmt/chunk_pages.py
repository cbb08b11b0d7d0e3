"""The pages of a chunk, and the codes of content types."""

from dataclasses import dataclass

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.urls import Url

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class PageInChunk:
    """A page, and the chunk that it is or was in."""

    host: str
    path: str
    domain64: int
    chunk_id: int | None
    state: str


async def pages_of(conn: Connection, chunk: int) -> list[PageInChunk]:
    """The pages of a chunk, in any state."""
    return await store.pages_of.rows(conn, PageInChunk, chunk=chunk)


async def find_page(conn: Connection, url: Url) -> PageInChunk | None:
    """The page with this URL, in any state."""
    return await store.find_page.row(conn, PageInChunk, host=url.host, path=url.path)


async def content_types(conn: Connection) -> dict[str, int]:
    """The code of every known media type."""
    return dict(await store.content_types.tuples(conn))
