"""How others see whether this process lives and can work: probes, metrics, version."""

import asyncio
import platform
from collections.abc import Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from usher import __version__
from usher.api.access import OPEN
from usher.api.app import Call, Endpoint
from usher.db.pool import Database
from usher.errors import Unreachable
from usher.http.server.messages import Status, Version
from usher.schema.state import (
    SchemaState,
    out_of_date_error,
    schema_state,
    unknown_migrations_error,
)
from usher.telemetry import metrics_text

READY_SECONDS = 3  # probes give up after a few seconds too, and learn nothing then


async def healthz(_call: Call[None]) -> Status:
    return Status("ok")


async def get_health_status(_call: Call[None]) -> Status:
    return Status("healthy")


async def readyz(call: Call[None]) -> Status:
    """Ready when the databases answer and have the tables this program knows."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            found = [
                await state_of(call.rooms.db, "work"),
                await state_of(call.rooms.control, "control"),
            ]
    except TimeoutError as error:
        message = f"The database has not answered within {READY_SECONDS} seconds."
        raise Unreachable(message, hint="See `usher doctor`.") from error
    for one in found:
        if one.unknown:
            raise unknown_migrations_error(one)
    if behind := [one.schema for one in found if one.pending]:
        raise out_of_date_error(behind)
    return Status("ready")


async def state_of(db: Database, schema: str) -> SchemaState:
    async with db.transaction() as conn:
        return await schema_state(conn, schema)


async def metrics(_call: Call[None]) -> Response:
    return Response(metrics_text(), media_type=CONTENT_TYPE_LATEST)


async def version(_call: Call[None]) -> Version:
    return Version(__version__, platform.python_version())


ENDPOINTS: Sequence[Endpoint[Any, Any]] = (
    Endpoint("GET", "/healthz", healthz, None, Status, "Does the process answer?", access=OPEN),
    Endpoint("GET", "/readyz", readyz, None, Status, "Can it work?", access=OPEN),
    Endpoint("GET", "/metrics", metrics, None, None, "Prometheus metrics", access=OPEN),
    Endpoint("GET", "/version", version, None, Version, "Which Usher is this?", access=OPEN),
    Endpoint(
        "GET",
        "/get_health_status",
        get_health_status,
        None,
        Status,
        "What every component answers to the watchdog",
        access=OPEN,
    ),
    *(
        Endpoint(
            "GET",
            path,
            get_health_status,
            None,
            Status,
            "GET /get_health_status under an old name",
            access=OPEN,
            old=True,
        )
        for path in ("/get_health", "/health_status")
    ),
)
