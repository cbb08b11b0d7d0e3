"""A feed in the making, and the rules that finish it, the same for every parser.

Comes from the fast parser, from feedparser or from JSON, as words; goes to `Feed`.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from usher.feeds.model import Cloud, Feed, Hints, Image, Item, Rating
from usher.feeds.parse import dates
from usher.feeds.parse.item_builder import (
    FUTURE,
    NOTHING,
    Draft,
    Page,
    categorised,
    copyright_of,
    link_of,
    places,
    shown,
    unique,
)
from usher.feeds.parse.media_rss import whole

MOST_TTL: Final = 60 * 24 * 366  # minutes
MOST_FREQUENCY: Final = 10_000
PERIODS: Final[Mapping[str, timedelta]] = MappingProxyType(
    {
        "hourly": timedelta(hours=1),
        "daily": timedelta(days=1),
        "weekly": timedelta(weeks=1),
        "monthly": timedelta(days=30),
        "yearly": timedelta(days=365),
    }
)
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Channel(Draft):
    """What a parser has found about a feed: what items have too, and more."""

    subtitle = NOTHING
    about = NOTHING  # a longer text than the subtitle
    generator = ""
    moved_to = ""
    ttl = ""
    period = ""
    frequency = ""
    rating = ""
    cloud: Mapping[str, str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.images: list[Image] = []
        self.hours: list[str] = []
        self.days: list[str] = []


def finish_feed(
    channel: Channel, items: tuple[Item, ...], page: Page, *, dialect: str, problems: list[str]
) -> Feed:
    """The feed that a channel describes; its encoding is filled in by whoever knows it."""
    return Feed(
        dialect=dialect,
        encoding="",
        title=shown(channel.title, "", page),
        subtitle=shown(channel.subtitle, "", page) or shown(channel.about, "", page),
        link=link_of(channel),
        id=channel.guid,
        language=channel.language or page.language,
        copyright=copyright_of(channel, page),
        generator=channel.generator,
        pub_date=dates.read(channel.published, page.now) if channel.published else None,
        updated=dates.read(channel.updated, page.now) if channel.updated else None,
        moved_to=channel.moved_to,
        links=unique(channel.links),
        images=unique([one for one in channel.images if one.url]),
        authors=unique(channel.authors),
        categories=categorised(channel.categories),
        places=places(channel),
        ratings=_ratings(channel),
        hubs=unique([one.href for one in channel.links if one.rel == "hub"]),
        self_link=next((one.href for one in channel.links if one.rel == "self"), ""),
        cloud=_cloud(channel.cloud),
        hints=_hints(channel),
        items=items,
        problems=(*problems, *_odd_times(items, page)),
    )


def too_many(most_items: int) -> str:
    return f"It has more than {most_items} items; the rest was not read."


def _ratings(channel: Channel) -> tuple[Rating, ...]:
    found = (("urn:pics", channel.rating), ("urn:itunes", channel.explicit))
    return tuple(Rating(scheme, value) for scheme, value in found if value)


def _cloud(said: Mapping[str, str] | None) -> Cloud | None:
    if not said or not said.get("domain"):
        return None
    return Cloud(
        said["domain"],
        whole(said.get("port")),
        said.get("path", ""),
        said.get("registerprocedure", ""),
        said.get("protocol", ""),
    )


def _hints(channel: Channel) -> Hints:
    minutes = whole(channel.ttl) if channel.ttl else None
    hours = (whole(one) for one in channel.hours)
    days = (one.strip().lower()[:3] for one in channel.days)
    return Hints(
        ttl=timedelta(minutes=min(minutes, MOST_TTL)) if minutes else None,
        period=_period(channel),
        skip_hours=frozenset(one % 24 for one in hours if one is not None and one <= 24),  # noqa: PLR2004
        skip_days=frozenset(DAYS.index(one) for one in days if one in DAYS),
    )


def _period(channel: Channel) -> timedelta | None:
    whole_period = PERIODS.get(channel.period.lower())
    times = whole(channel.frequency) if channel.frequency else 1
    if whole_period is None or not times:
        return None
    return whole_period / min(times, MOST_FREQUENCY)


def _odd_times(items: tuple[Item, ...], page: Page) -> list[str]:
    """Dates in the future are reported; the store replaces them."""
    latest = page.now + FUTURE
    count = sum(1 for one in items if one.pub_date is not None and one.pub_date > latest)
    if not count:
        return []
    return [
        f"{count} of its items are dated in the future; they count as of when they were first seen."
    ]
