"""Front-ends and index servers at MGMT that say what was searched for, and how long it took."""

import re
from datetime import UTC, datetime
from typing import Final

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import caller, database_time, mgmt_connection
from usher.errors import BadInput
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.front_end import MAX_QUERIES_PER_REQUEST, QueryStat, QueryStats
from usher.messages.server import Status
from usher.mgmt import query_stats
from usher.mgmt.component_names import storable_text
from usher.mgmt.query_stats import ReportedQuery

TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(us|ms|s|m|min)?")
UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60}
LONGEST: Final = 86_400  # seconds


async def send_query_stats(call: MgmtCall[QueryStat]) -> Status:
    asked, me = (
        [read(call.body, database_time(call))],
        await caller(call, "front-end", "index-server"),
    )
    async with mgmt_connection(call, alone=True) as conn:
        await query_stats.add(conn, asked, me.id)
    return Status("ok")


async def send_many(call: MgmtCall[QueryStats]) -> Status:
    given = call.body.queries
    if len(given) > MAX_QUERIES_PER_REQUEST:
        raise HttpError(
            413, "too_large", f"{len(given):,} queries are more than {MAX_QUERIES_PER_REQUEST:,}."
        )
    now = database_time(call)
    asked, me = [read(one, now) for one in given], await caller(call, "front-end", "index-server")
    if asked:
        async with mgmt_connection(call, alone=True) as conn:
            await query_stats.add(conn, asked, me.id)
    return Status("ok")


def read(given: QueryStat, now: datetime) -> ReportedQuery:
    at = now if given.timestamp is None else datetime.fromtimestamp(given.timestamp, UTC)
    return at, storable_text(given.term, 1_000), seconds(given.query_time)


def seconds(given: str | float) -> float:
    """A number of seconds, or a text such as "1s" or "250ms"."""
    if not isinstance(given, str):
        return float(given)
    found = TIME.fullmatch(given.strip().lower())
    took = float(found[1]) * UNITS[found[2] or "s"] if found else LONGEST + 1
    if took > LONGEST:
        raise BadInput(f"query_time cannot be {given[:40]!a}.", hint="1s, 250ms, or seconds: 0.25")
    return took


ENDPOINTS = (
    Endpoint(
        "POST",
        "/send_query_stats",
        send_query_stats,
        QueryStat,
        Status,
        "What was searched for, and how long it took",
        access=work("front-end"),
    ),
    Endpoint(
        "POST",
        "/v1/query_stats",
        send_many,
        QueryStats,
        Status,
        "The same, of up to 1,000 queries",
        access=work("front-end"),
    ),
)
