"""Query statistics: search terms and times, as index servers and front ends report them."""

from collections.abc import Sequence
from datetime import datetime

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)
ReportedQuery = tuple[datetime, str, float, int | None]  # time, term, seconds, results


async def add(conn: Connection, queries: Sequence[ReportedQuery], component: int) -> None:
    """Store queries that a component answered."""
    ats, terms, seconds, results = zip(*queries, strict=True)
    await store.add.run(
        conn,
        ats=list(ats),
        terms=list(terms),
        seconds=list(seconds),
        results=list(results),
        component=component,
    )
