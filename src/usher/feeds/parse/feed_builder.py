"""Builds a feed from what a parser found, by the same rules for every parser."""

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

MAX_TTL_MINUTES: Final = 60 * 24 * 366
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
    """What a parser found about a feed: the fields of items and more."""

    subtitle = NO_CONTENT
    about = NO_CONTENT  # a longer description
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
    source: FeedSource,
    *,
    dialect: str,
    problems: list[str],
) -> Feed:
    """The finished feed; the caller sets its encoding."""
    return Feed(
        dialect=dialect,
        encoding="",
        title=with_absolute_links(channel.title, "", source),
        subtitle=with_absolute_links(channel.subtitle, "", source)
        or with_absolute_links(channel.about, "", source),
        link=link_of(channel),
        id=channel.guid,
        language=channel.language or source.language,
        copyright=copyright_of(channel, source),
        generator=channel.generator,
        pub_date=dates.parse_date(channel.published, source.now) if channel.published else None,
        updated=dates.parse_date(channel.updated, source.now) if channel.updated else None,
        moved_to=channel.moved_to,
        links=unique(channel.links),
        images=unique([image for image in channel.images if image.url]),
        authors=unique(channel.authors),
        categories=unique_categories(channel.categories),
        places=geo_points(channel),
        ratings=_ratings(channel),
        hubs=unique([link.href for link in channel.links if link.rel == "hub"]),
        self_link=next((link.href for link in channel.links if link.rel == "self"), ""),
        cloud=_cloud(channel.cloud),
        hints=_hints(channel),
        items=items,
        problems=(*problems, *_future_dates(items, source)),
    )


def too_many_items(max_items: int) -> str:
    return f"It has more than {max_items} items; the others were not read."


def _ratings(channel: FeedBuilder) -> tuple[Rating, ...]:
    ratings = (("urn:pics", channel.rating), ("urn:itunes", channel.explicit))
    return tuple(Rating(scheme, value) for scheme, value in ratings if value)


def _cloud(attributes: Mapping[str, str] | None) -> Cloud | None:
    if not attributes or not attributes.get("domain"):
        return None
    return Cloud(
        attributes["domain"],
        parse_int(attributes.get("port")),
        attributes.get("path", ""),
        attributes.get("registerprocedure", ""),
        attributes.get("protocol", ""),
    )


def _hints(channel: FeedBuilder) -> PollHints:
    minutes = parse_int(channel.ttl) if channel.ttl else None
    hours = (parse_int(hour) for hour in channel.hours)
    days = (day.strip().lower()[:3] for day in channel.days)
    return PollHints(
        ttl=timedelta(minutes=min(minutes, MAX_TTL_MINUTES)) if minutes else None,
        period=_period(channel),
        skip_hours=frozenset(hour % 24 for hour in hours if hour is not None and hour <= 24),  # noqa: PLR2004
        skip_days=frozenset(DAYS.index(day) for day in days if day in DAYS),
    )


def _period(channel: FeedBuilder) -> timedelta | None:
    whole_period = PERIODS.get(channel.period.lower())
    times = parse_int(channel.frequency) if channel.frequency else 1
    if whole_period is None or not times:
        return None
    return whole_period / min(times, MAX_FREQUENCY)


def _future_dates(items: tuple[Item, ...], source: FeedSource) -> list[str]:
    """The problem that items have dates in the future; the store replaces these dates."""
    latest = source.now + CLOCK_TOLERANCE
    count = sum(1 for item in items if item.pub_date is not None and item.pub_date > latest)
    if not count:
        return []
    return [f"{count} items have a date in the future; the time of the first poll replaces it."]
