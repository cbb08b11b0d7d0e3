"""Chunk offers: what an index server is told to load, in turn: one that loads nothing still sees every chunk."""

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import placements
from usher.mgmt.placements import WantedChunk

store = load_statements(__file__)


async def offer(conn: Connection, server: int, *, n: int) -> list[WantedChunk]:
    """Chunks that a server is to load, those that it was offered least recently first."""
    before = await offered(conn, server)
    chunks = await placements.wanted(
        conn, server, n=n, after=before[-1] if before else 0, around=True
    )
    ids = [chunk.chunk_id for chunk in chunks]
    if ids != before:
        await store.set_offered.run(conn, server=server, chunks=ids)
    return chunks


async def offered(conn: Connection, server: int) -> list[int]:
    """The chunks that a server was offered last."""
    [(chunks,)] = await store.offered.tuples(conn, server=server)
    return list(chunks)
