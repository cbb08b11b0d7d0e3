"""Query statistics: what was searched for, and how long it took, as index servers and front-ends report it."""

from collections.abc import Sequence
from datetime import datetime

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)
ReportedQuery = tuple[datetime, str, float]  # when, what, and how many seconds it took


async def add(conn: Connection, queries: Sequence[ReportedQuery], component: int) -> None:
    """Queries that a component answered; `look.queries` sums them up."""
    ats, terms, seconds = zip(*queries, strict=True)
    await store.add.run(
        conn, ats=list(ats), terms=list(terms), seconds=list(seconds), component=component
    )
