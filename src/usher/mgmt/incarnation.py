"""The incarnation of the database: it changes with each restore, so that components notice that history changed.

A restored database has the state of its dump. Until index servers have compared their chunks with it, no chunk counts
as loaded. Answers are partial as long as a row lacks a chunk of work.unrestored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The id of the current history of the database, and its last chunk id."""

    id: str
    last_chunk: int


@dataclass(frozen=True, slots=True)
class UnrestoredState:
    """Chunks that are not searchable again since the database was restored; answers are partial meanwhile."""

    since: datetime
    reason: str
    chunks: int


async def current(conn: Connection) -> Incarnation:
    return await store.current.only(conn, Incarnation)


async def unrestored(conn: Connection) -> UnrestoredState:
    return await store.unrestored.only(conn, UnrestoredState)


async def begin(conn: Connection, reason: str) -> str:
    """Start a new incarnation after a restore; returns its id."""
    return str(await store.begin.value(conn, reason=reason))


async def settle(conn: Connection, chunks: Sequence[int] | None = None) -> int:
    """Remove the chunks from work.unrestored, of these or all, that are searchable again or lost; returns how many."""
    return await store.settle.run(conn, chunks=None if chunks is None else list(chunks))
