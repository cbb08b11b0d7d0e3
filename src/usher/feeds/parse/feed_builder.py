"""A feed in the making, and the rules that finish it, the same for every parser.

Comes from the fast parser, from feedparser or from JSON, as words; goes to `Feed`.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from usher.feeds.model import Cloud, Feed, Image, Item, PollHints, Rating
from usher.feeds.parse import dates
from usher.feeds.parse.item_builder import (
    CLOCK_TOLERANCE,
    NO_CONTENT,
    FeedSource,
    ItemBuilder,
    copyright_of,
    geo_points,
    link_of,
    unique,
    unique_categories,
    with_absolute_links,
)
from usher.feeds.parse.media_rss import parse_int

MAX_TTL_MINUTES: Final = 60 * 24 * 366  # minutes
MAX_FREQUENCY: Final = 10_000
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


class FeedBuilder(ItemBuilder):
    """What a parser has found about a feed: what items have too, and more."""

    subtitle = NO_CONTENT
    about = NO_CONTENT  # a longer text than the subtitle
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


def build_feed(
    channel: FeedBuilder,
    items: tuple[Item, ...],
    page: FeedSource,
    *,
    dialect: str,
    problems: list[str],
) -> Feed:
    """The feed that a channel describes; its encoding is filled in by whoever knows it."""
    return Feed(
        dialect=dialect,
        encoding="",
        title=with_absolute_links(channel.title, "", page),
        subtitle=with_absolute_links(channel.subtitle, "", page)
        or with_absolute_links(channel.about, "", page),
        link=link_of(channel),
        id=channel.guid,
        language=channel.language or page.language,
        copyright=copyright_of(channel, page),
        generator=channel.generator,
        pub_date=dates.parse_date(channel.published, page.now) if channel.published else None,
        updated=dates.parse_date(channel.updated, page.now) if channel.updated else None,
        moved_to=channel.moved_to,
        links=unique(channel.links),
        images=unique([one for one in channel.images if one.url]),
        authors=unique(channel.authors),
        categories=unique_categories(channel.categories),
        places=geo_points(channel),
        ratings=_ratings(channel),
        hubs=unique([one.href for one in channel.links if one.rel == "hub"]),
        self_link=next((one.href for one in channel.links if one.rel == "self"), ""),
        cloud=_cloud(channel.cloud),
        hints=_hints(channel),
        items=items,
        problems=(*problems, *_odd_times(items, page)),
    )


def too_many_items(most_items: int) -> str:
    return f"It has more than {most_items} items; the rest was not read."


def _ratings(channel: FeedBuilder) -> tuple[Rating, ...]:
    found = (("urn:pics", channel.rating), ("urn:itunes", channel.explicit))
    return tuple(Rating(scheme, value) for scheme, value in found if value)


def _cloud(said: Mapping[str, str] | None) -> Cloud | None:
    if not said or not said.get("domain"):
        return None
    return Cloud(
        said["domain"],
        parse_int(said.get("port")),
        said.get("path", ""),
        said.get("registerprocedure", ""),
        said.get("protocol", ""),
    )


def _hints(channel: FeedBuilder) -> PollHints:
    minutes = parse_int(channel.ttl) if channel.ttl else None
    hours = (parse_int(one) for one in channel.hours)
    days = (one.strip().lower()[:3] for one in channel.days)
    return PollHints(
        ttl=timedelta(minutes=min(minutes, MAX_TTL_MINUTES)) if minutes else None,
        period=_period(channel),
        skip_hours=frozenset(one % 24 for one in hours if one is not None and one <= 24),  # noqa: PLR2004
        skip_days=frozenset(DAYS.index(one) for one in days if one in DAYS),
    )


def _period(channel: FeedBuilder) -> timedelta | None:
    whole_period = PERIODS.get(channel.period.lower())
    times = parse_int(channel.frequency) if channel.frequency else 1
    if whole_period is None or not times:
        return None
    return whole_period / min(times, MAX_FREQUENCY)


def _odd_times(items: tuple[Item, ...], page: FeedSource) -> list[str]:
    """Dates in the future are reported; the store replaces them."""
    latest = page.now + CLOCK_TOLERANCE
    count = sum(1 for one in items if one.pub_date is not None and one.pub_date > latest)
    if not count:
        return []
    return [
        f"{count} of its items are dated in the future; they count as of when they were first seen."
    ]
