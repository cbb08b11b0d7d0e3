"""Which chunks an index server is told to load: each call continues where the last answer ended."""

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.messages.index_server import ServerChunk
from usher.mgmt import placements

store = load_statements(__file__)


async def offer(conn: Connection, server: int, *, n: int) -> list[ServerChunk]:
    """Chunks for a server to load, those first that it was not offered recently."""
    before = await offered(conn, server)
    chunks = await placements.wanted(
        conn, server, n=n, after=before[-1] if before else 0, around=True
    )
    ids = [chunk.chunk_id for chunk in chunks]
    if ids != before:
        await store.set_offered.run(conn, server=server, chunks=ids)
    return chunks


async def offered(conn: Connection, server: int) -> list[int]:
    """The chunks of the last offer to a server."""
    return list(await store.offered.value(conn, server=server))
