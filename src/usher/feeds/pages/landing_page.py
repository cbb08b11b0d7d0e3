"""The landing page of MGMT: what it is and where everything is, as HTML for browsers and JSON for programs."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from usher import __version__

DESCRIPTION: Final = (
    "MGMT of Usher: hands pages to crawlers, chunks to builders, and built chunks to index servers."
)


class LandingLink(Struct):
    """A path, and what is there."""

    path: str
    what: str


class LandingPage(Struct):
    """A description of MGMT, its version, and links."""

    name: str
    version: str
    what: str
    places: list[LandingLink]


LINKS: Final[Sequence[LandingLink]] = (
    LandingLink("/feeds", "Feed status and next poll"),
    LandingLink("/items", "Items of feeds, to read and search"),
    LandingLink("/items.atom", "The newest items as an Atom feed"),
    LandingLink("/v1/components", "Status of crawlers, builders, index servers and front-ends"),
    LandingLink("/v1/events", "Recent events"),
    LandingLink("/v1/jobs", "Waiting, running and failed jobs"),
    LandingLink("/v1/tasks", "Periodic tasks"),
    LandingLink("/v1/openapi.json", "All endpoints as an OpenAPI document"),
    LandingLink("/healthz", "Whether the process answers"),
    LandingLink("/readyz", "Whether the process is ready for requests"),
    LandingLink("/metrics", "Metrics for Prometheus"),
    LandingLink("/version", "The version of Usher"),
)
LANDING_PAGE: Final = LandingPage("usher", __version__, DESCRIPTION, list(LINKS))


def accepts_html(accept: str) -> bool:
    """Whether an Accept header names HTML, as those of browsers do."""
    types = [part.partition(";") for part in accept.lower().split(",")]
    return any(
        type_.strip() in ("text/html", "application/xhtml+xml") and not has_zero_weight(parameters)
        for type_, _, parameters in types
    )


def has_zero_weight(parameters: str) -> bool:
    """Whether the parameters of a type contain `q=0`, which excludes it."""
    names = (parameter.strip() for parameter in parameters.split(";"))
    return any(name.startswith("q=") and name[2:].strip("0.") == "" for name in names)
