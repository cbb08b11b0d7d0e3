"""What crawlers and MGMT say to each other of hosts: robots.txt, sitemaps, and feeds that pages offer."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from usher.api.mgmt_messages import Seconds, Time, Told, Why


class RobotsQuery(Told, kw_only=True):
    """A host by any URL of it: `https://example.com/`."""

    origin: str


class RobotsRead(Told, kw_only=True):
    """What a crawler was answered when it asked for robots.txt; no status if nothing was answered."""

    origin: str
    status: Annotated[int, Meta(ge=100, le=999)] | None = None
    body: Annotated[str, Meta(max_length=512_000)] = ""
    error: Why = ""
    crawl_delay: Seconds | None = None
    sitemaps: Annotated[list[str], Meta(max_length=1_000)] = []  # noqa: RUF012 - msgspec copies it


class RobotsKept(Struct, omit_defaults=True):
    """Nothing at all for a robots.txt that nobody has read."""

    status: int | None = None
    body: str = ""
    fetched_at: datetime | None = None
    expires_at: datetime | None = None
    failures: int = 0
    error: str = ""


class Changed(Struct):
    """A page, and when it changed last as its site says."""

    link: str
    changed: Time | None = None


class SitemapRead(Told, kw_only=True):
    """What a sitemap says, or a part of it: its pages, other sitemaps, and how many pages there are in all."""

    link: str
    links: list[Changed] = []  # noqa: RUF012 - msgspec copies it
    sitemaps: Annotated[list[str], Meta(max_length=1_000)] = []  # noqa: RUF012 - msgspec copies it
    pages: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    problem: Why = ""


class FeedsOffered(Told, kw_only=True):
    """Feeds that pages of a host offer; the host by any URL of it."""

    origin: str
    feeds: Annotated[list[str], Meta(max_length=1_000)]


class FeedsKept(Struct):
    """How many of them are new."""

    new: int
