"""Query statistics: what was searched for, and how long it took, as index servers and front-ends report it."""

from datetime import datetime

from usher.db import Connection
from usher.statements import beside

store = beside(__file__)


async def add(conn: Connection, term: str, seconds: float, component: int, *, at: datetime) -> None:
    """One query; `look.queries` sums them up."""
    await store.add.run(conn, term=term, seconds=seconds, component=component, at=at)
