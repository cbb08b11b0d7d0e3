"""Endpoints that every Usher server has: liveness, health for the watchdog, metrics, version."""

import platform
from collections.abc import Callable, Sequence
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from usher import __version__
from usher.http.server.endpoint import OPEN, Call, Endpoint
from usher.messages.server import Status, Version
from usher.telemetry import metrics_text

HEALTH_PATH: Final = "/get_health_status"
SEED_HEALTH_PATHS: Final = ("/get_health", "/health_status")


def probe_endpoints(health: Callable[[], str]) -> Sequence[Endpoint[Any, Any, Any, Any]]:
    """The endpoints; `health` returns the component's health in the watchdog's words."""

    async def get_health_status(_call: Call[None, Any, Any]) -> Status:
        return Status(health())

    def health_endpoint(path: str, summary: str, *, old: bool) -> Endpoint[None, Status, Any, Any]:
        return Endpoint("GET", path, get_health_status, None, Status, summary, access=OPEN, old=old)

    return (
        Endpoint("GET", "/healthz", healthz, None, Status, "Does the process answer?", access=OPEN),
        Endpoint("GET", "/metrics", metrics, None, None, "Prometheus metrics", access=OPEN),
        Endpoint("GET", "/version", version, None, Version, "Which Usher is this?", access=OPEN),
        health_endpoint(HEALTH_PATH, "What every component answers to the watchdog", old=False),
        *(
            health_endpoint(path, f"GET {HEALTH_PATH} under an old name", old=True)
            for path in SEED_HEALTH_PATHS
        ),
    )


async def healthz(_call: Call[None, Any, Any]) -> Status:
    return Status("ok")


async def metrics(_call: Call[None, Any, Any]) -> Response:
    return Response(metrics_text(), media_type=CONTENT_TYPE_LATEST)


async def version(_call: Call[None, Any, Any]) -> Version:
    return Version(__version__, platform.python_version())
