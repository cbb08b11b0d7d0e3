"""The incarnation of the database: another one after each restore, so that components know that history changed.

A restored database believes what was true when it was dumped. Until index servers have compared what they hold with it,
no chunk counts as loaded, and answers are partial as long as a row lacks a chunk of `work.unrestored`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The id of the database's present history, and the last chunk id issued in it."""

    id: str
    last_chunk: int


@dataclass(frozen=True, slots=True)
class UnrestoredState:
    """Chunks that are not searchable again since the database was restored; answers are partial meanwhile."""

    since: datetime
    reason: str
    chunks: int


async def current(conn: Connection) -> Incarnation:
    [present] = await store.current.rows(conn, Incarnation)
    return present


async def unrestored(conn: Connection) -> UnrestoredState:
    [state] = await store.unrestored.rows(conn, UnrestoredState)
    return state


async def begin(conn: Connection, reason: str) -> str:
    """Start a new incarnation, for a database that went back in time; returns its id."""
    [(id_,)] = await store.begin.tuples(conn, reason=reason)
    return str(id_)


async def settle(conn: Connection, chunks: Sequence[int] | None = None) -> int:
    """Forget those of these chunks, or of all, that are searchable again or will not be; returns how many."""
    return await store.settle.run(conn, chunks=None if chunks is None else list(chunks))
