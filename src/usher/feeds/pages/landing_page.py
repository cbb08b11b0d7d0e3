"""What somebody finds who only knows MGMT's address: what this is, and where everything is.

Comes from the header Accept; goes to a browser as a page, to any other program as data.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from usher import __version__

WHAT: Final = "MGMT of Usher: gives pages to crawlers, what they bring to builders, what is built to index servers."


class Place(Struct):
    """An address, and what is there."""

    path: str
    what: str


class Home(Struct):
    """What this is, which version of it, and where to go."""

    name: str
    version: str
    what: str
    places: list[Place]


PLACES: Final[Sequence[Place]] = (
    Place("/feeds", "feeds: how they are, and when they are polled next"),
    Place("/items", "items of feeds, to read and to search"),
    Place("/items.atom", "the newest items as an Atom feed"),
    Place("/v1/components", "crawlers, builders, servers and front-ends, and how they are"),
    Place("/v1/events", "what happened of late"),
    Place("/v1/jobs", "jobs that wait, run or failed"),
    Place("/v1/tasks", "what runs again and again"),
    Place("/v1/openapi.json", "every endpoint, as an OpenAPI document"),
    Place("/healthz", "whether the process answers"),
    Place("/readyz", "whether it can work"),
    Place("/metrics", "metrics for Prometheus"),
    Place("/version", "which Usher this is"),
)
HOME: Final = Home("usher", __version__, WHAT, list(PLACES))


def wants_page(accept: str) -> bool:
    """Whether whoever sent this header reads HTML, as browsers say; a program that says nothing does not."""
    kinds = [one.partition(";") for one in accept.lower().split(",")]
    return any(
        kind.strip() in ("text/html", "application/xhtml+xml") and not refused(more)
        for kind, _, more in kinds
    )


def refused(more: str) -> bool:
    """Whether it is named in order not to be sent: `q=0`."""
    weights = [one.strip() for one in more.split(";") if one.strip().startswith("q=")]
    return any(one[2:].strip("0.") == "" for one in weights)
