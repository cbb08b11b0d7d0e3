"""What programs get at `/`: what MGMT is, and where everything is. Browsers get the console there."""

from collections.abc import Mapping
from typing import Any, Final

from usher import __version__

DESCRIPTION: Final = (
    "MGMT of Usher: hands pages to crawlers, chunks to builders, and built chunks to index servers."
)


LINKS: Final[Mapping[str, str]] = {
    "/feeds": "Feed status and next poll",
    "/items": "Items of feeds, to read and search",
    "/items.atom": "The newest items as an Atom feed",
    "/v1/components": "Status of crawlers, builders, index servers and front-ends",
    "/v1/events": "Recent events",
    "/v1/jobs": "Waiting, running and failed jobs",
    "/v1/tasks": "Periodic tasks",
    "/v1/openapi.json": "All endpoints as an OpenAPI document",
    "/healthz": "Whether the process answers",
    "/readyz": "Whether the process is ready for requests",
    "/metrics": "Metrics for Prometheus",
    "/version": "The version of Usher",
    "/status.json": "Problems and stages, as `usher status --json` prints them",
}


def landing_data() -> dict[str, Any]:
    """A description of MGMT, its version, and links."""
    places = [{"path": path, "what": what} for path, what in LINKS.items()]
    return {"name": "usher", "version": __version__, "what": DESCRIPTION, "places": places}
