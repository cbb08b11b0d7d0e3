"""Endpoints for query statistics: what people searched for, and how long it took."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from usher.api.access import FRONT_END
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import RequestT, calling_component, database_time, mgmt_connection
from usher.errors import BadInput
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.messages.front_end import MAX_QUERIES_PER_REQUEST, QueryStat, QueryStats
from usher.messages.server import Status
from usher.mgmt import query_stats
from usher.mgmt.component_names import storable_text
from usher.mgmt.query_stats import ReportedQuery

DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(us|ms|s|m|min)?")
UNIT_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60}
MAX_QUERY_SECONDS: Final = 86_400
ENDPOINTS = EndpointList()


@ENDPOINTS.post("/send_query_stats", "Report one query and its duration", FRONT_END)
async def send_query_stats(call: MgmtCall[QueryStat]) -> Status:
    await store(call, [call.body])
    return Status("ok")


@ENDPOINTS.post("/v1/query_stats", "Report up to 1,000 queries", FRONT_END)
async def send_many(call: MgmtCall[QueryStats]) -> Status:
    check_count(call.body.queries, "queries", MAX_QUERIES_PER_REQUEST)
    await store(call, call.body.queries)
    return Status("ok")


async def store(call: MgmtCall[RequestT], stats: Sequence[QueryStat]) -> None:
    now = database_time(call)
    queries = [reported_query(stat, now) for stat in stats]
    component = await calling_component(call, "front-end", "index-server")
    if queries:
        async with mgmt_connection(call, alone=True) as conn:
            await query_stats.add(conn, queries, component.id)


def reported_query(stat: QueryStat, now: datetime) -> ReportedQuery:
    at = now if stat.timestamp is None else datetime.fromtimestamp(stat.timestamp, UTC)
    return at, storable_text(stat.term, 1_000), seconds(stat.query_time), stat.results


def seconds(duration: str | float) -> float:
    """A number of seconds, or a text such as "1s" or "250ms"."""
    if not isinstance(duration, str):
        return float(duration)
    match = DURATION.fullmatch(duration.strip().lower())
    value = float(match[1]) * UNIT_SECONDS[match[2] or "s"] if match else MAX_QUERY_SECONDS + 1
    if value > MAX_QUERY_SECONDS:
        message = f"query_time cannot be {duration[:40]!a}."
        raise BadInput(message, hint="1s, 250ms, or seconds: 0.25")
    return value
