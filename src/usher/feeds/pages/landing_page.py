"""What somebody finds who only knows MGMT's address: what this is, and where everything is.

Comes from the header Accept; goes to a browser as a page, to any other program as data.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from usher import __version__

DESCRIPTION: Final = (
    "MGMT of Usher: hands pages to crawlers, chunks to builders, and built chunks to index servers."
)


class LandingLink(Struct):
    """An address, and what is there."""

    path: str
    what: str


class LandingPage(Struct):
    """What this is, which version of it, and where to go."""

    name: str
    version: str
    what: str
    places: list[LandingLink]


LINKS: Final[Sequence[LandingLink]] = (
    LandingLink("/feeds", "feeds: how they are, and when they are polled next"),
    LandingLink("/items", "items of feeds, to read and to search"),
    LandingLink("/items.atom", "the newest items as an Atom feed"),
    LandingLink("/v1/components", "crawlers, builders, servers and front-ends, and how they are"),
    LandingLink("/v1/events", "what happened of late"),
    LandingLink("/v1/jobs", "jobs that wait, run or failed"),
    LandingLink("/v1/tasks", "what runs again and again"),
    LandingLink("/v1/openapi.json", "every endpoint, as an OpenAPI document"),
    LandingLink("/healthz", "whether the process answers"),
    LandingLink("/readyz", "whether it can work"),
    LandingLink("/metrics", "metrics for Prometheus"),
    LandingLink("/version", "which Usher this is"),
)
LANDING_PAGE: Final = LandingPage("usher", __version__, DESCRIPTION, list(LINKS))


def accepts_html(accept: str) -> bool:
    """Whether whoever sent this header reads HTML, as browsers say; a program that says nothing does not."""
    kinds = [one.partition(";") for one in accept.lower().split(",")]
    return any(
        kind.strip() in ("text/html", "application/xhtml+xml") and not has_zero_weight(more)
        for kind, _, more in kinds
    )


def has_zero_weight(more: str) -> bool:
    """Whether it is named in order not to be sent: `q=0`."""
    weights = [one.strip() for one in more.split(";") if one.strip().startswith("q=")]
    return any(one[2:].strip("0.") == "" for one in weights)
