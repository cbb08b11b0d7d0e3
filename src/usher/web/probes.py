"""How others see whether this process lives and can work: probes, metrics, version."""

import asyncio
import platform

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from usher import __version__
from usher.errors import Unreachable
from usher.schema.state import newer, out_of_date, state
from usher.telemetry import exposition
from usher.web.app import Call, Endpoint
from usher.web.shapes import Status, Version

READY_SECONDS = 3  # probes give up after a few seconds too, and learn nothing then


async def healthz(_call: Call[None]) -> Status:
    return Status("ok")


async def get_health_status(_call: Call[None]) -> Status:
    return Status("healthy")


async def readyz(call: Call[None]) -> Status:
    """Ready when the database answers and has the tables this program knows."""
    try:
        async with asyncio.timeout(READY_SECONDS), call.rooms.db.transaction() as conn:
            work = await state(conn, "work")
    except TimeoutError as error:
        message = f"The database has not answered within {READY_SECONDS} seconds."
        raise Unreachable(message, hint="See `usher doctor`.") from error
    if work.unknown:
        raise newer(work)
    if work.pending:
        raise out_of_date([work.schema])
    return Status("ready")


async def metrics(_call: Call[None]) -> Response:
    return Response(exposition(), media_type=CONTENT_TYPE_LATEST)


async def version(_call: Call[None]) -> Version:
    return Version(__version__, platform.python_version())


ENDPOINTS = (
    Endpoint("GET", "/healthz", healthz, None, Status, "Does the process answer?", scope="open"),
    Endpoint("GET", "/readyz", readyz, None, Status, "Can it work?", scope="open"),
    Endpoint("GET", "/metrics", metrics, None, None, "Prometheus metrics", scope="open"),
    Endpoint("GET", "/version", version, None, Version, "Which Usher is this?", scope="open"),
    Endpoint(
        "GET",
        "/get_health_status",
        get_health_status,
        None,
        Status,
        "What every component answers to the watchdog",
        scope="open",
    ),
)
