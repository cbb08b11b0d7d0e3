"""Subscriptions (feeds.feed_metadata) and the record of their polls (feeds.feed_poll)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import msgspec

from usher.db.pool import Connection
from usher.db.statements import array, load_statements
from usher.errors import NotFound
from usher.feeds.model import PollHints
from usher.feeds.opml import Subscription
from usher.feeds.poll.interval import NextPoll

store = load_statements(__file__)

State = Literal["enabled", "disabled", "gone"]
OUTAGE_WINDOW: Final = timedelta(minutes=10)
MIN_SILENT_HOSTS: Final = 2  # other hosts that must be silent too before we blame our own network


@dataclass(frozen=True, slots=True)
class FeedSubscription:
    """What a poll needs of a feed; `fixed` is the operator's period, `period` the automatic one."""

    id: int
    url: str
    feed_id: int | None
    state: State
    fixed: timedelta | None
    knocks: bool
    task_id: int | None
    etag: str
    lastmod: str
    body_hash: UUID | None
    language: str
    ttl: timedelta | None
    update_period: timedelta | None
    skip_hours: list[int]
    skip_days: list[int]
    period: timedelta | None
    errors: int
    waiting: bool  # some links have not knocked yet
    hubbed: bool  # the feed names a hub, or has a subscription at one
    partial: bool  # jobs fetch the pages of its items
    cleans: bool  # a task cleans its items
    undone: bool  # some items are not digested, or their pages are wanted

    @property
    def hints(self) -> PollHints:
        return PollHints(
            self.ttl, self.update_period, frozenset(self.skip_hours), frozenset(self.skip_days)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRecord:
    """The result of a poll and the time of the next one."""

    id: int
    polled_at: datetime
    host: str
    next_poll: NextPoll
    status: int | None
    silent: bool = False
    errors: int = 0
    error: str = ""
    new: int = 0
    unmodified: bool


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription as commands and pages show it."""

    id: int
    url: str
    title: str
    site: str
    tags: list[str]
    state: State
    reason: str
    every: timedelta | None
    knocks: bool
    task_id: int | None
    feed_id: int | None
    added_at: datetime
    type: str
    polled_at: datetime | None
    succeeded_at: datetime | None
    status: int | None
    errors: int
    error: str
    period: timedelta | None
    next_at: datetime | None
    why: str
    polls: int
    unmodified: int
    problems: list[str]


async def add(
    conn: Connection,
    feeds: Sequence[Subscription],
    *,
    period: timedelta | None = None,
    knocks: bool = True,
    now: datetime,
) -> dict[str, int]:
    """Subscribe to feeds; returns the numbers of new ones by URL. Existing ones get the tags."""
    by_url: dict[str, Subscription] = {}
    for feed in feeds:
        by_url.setdefault(feed.url, feed)
    text = msgspec.json.encode(list(by_url.values())).decode()
    await store.tag.run(conn, feeds=text)
    rows = await store.add.tuples(conn, feeds=text, period=period, knocks=knocks, now=now)
    return {url: id_ for id_, url in rows}


async def give_tasks(conn: Connection, tasks: Mapping[int, int]) -> None:
    """Store which task polls which subscription."""
    await store.give_tasks.run(conn, ids=list(tasks), tasks=list(tasks.values()))


async def find(conn: Connection, id_: int) -> FeedSubscription:
    """The subscription with this number; NotFound if there is none."""
    subscriptions = await find_all(conn, [id_])
    if not subscriptions:
        raise feed_not_found(id_)
    return subscriptions[id_]


async def find_all(conn: Connection, ids: Sequence[int]) -> dict[int, FeedSubscription]:
    """The subscriptions with these numbers, by number."""
    rows = await store.find_all.rows(conn, FeedSubscription, ids=list(ids))
    return {subscription.id: subscription for subscription in rows}


def feed_not_found(id_: int) -> NotFound:
    return NotFound(f"There is no feed {id_}.", hint="usher feeds list")


async def lock_subscriptions(
    conn: Connection, subscriptions: Sequence[FeedSubscription]
) -> list[int]:
    """Lock subscriptions until the transaction ends; returns those whose URL is still the same."""
    return await store.lock_subscriptions.column(
        conn,
        ids=[subscription.id for subscription in subscriptions],
        urls=array(subscription.url for subscription in subscriptions),
    )


async def link_feed(conn: Connection, id_: int, feed_id: int) -> None:
    """Store which row of feeds.feed belongs to a subscription."""
    await store.link_feed.run(conn, id=id_, feed=feed_id)


async def other_subscription_at(conn: Connection, id_: int, url: str) -> int | None:
    """The number of another subscription to this URL."""
    ids: list[int] = await store.other_subscription_at.column(conn, id=id_, url=url)
    return ids[0] if ids else None


async def move(conn: Connection, id_: int, url: str) -> None:
    """Change the URL of a feed."""
    await store.move.run(conn, id=id_, url=url)


async def set_state(
    conn: Connection, ids: Sequence[int], state: State, reason: str = ""
) -> list[tuple[int, str, int | None]]:
    """Set whether feeds are polled; returns their numbers, URLs and tasks."""
    rows = await store.set_state.tuples(conn, ids=list(ids), state=state, reason=reason)
    return [(id_, url, task) for id_, url, task in rows]


async def record_polls(conn: Connection, records: Sequence[PollRecord]) -> None:
    """Record the results of polls, at most one of each feed."""
    await store.record_polls.run(
        conn,
        ids=[record.id for record in records],
        hosts=array(record.host for record in records),
        times=[record.polled_at for record in records],
        silents=[record.silent for record in records],
        statuses=[record.status for record in records],
        errors=[record.errors for record in records],
        messages=array(record.error for record in records),
        news=[record.new for record in records],
        periods=[record.next_poll.period for record in records],
        next_ats=[record.next_poll.at for record in records],
        whys=array(record.next_poll.why for record in records),
        unmodifieds=[int(record.unmodified) for record in records],
    )


async def is_outage(conn: Connection, host: str, *, now: datetime) -> bool:
    """Whether no host answered lately, so that our own network must be down."""
    since = now - OUTAGE_WINDOW
    [(silent, answered)] = await store.answering_hosts.tuples(conn, host=host, since=since)
    return int(silent) >= MIN_SILENT_HOSTS and not answered


async def list_feeds(
    conn: Connection,
    *,
    which: int | str | None = None,
    state: str | None = None,
    tag: str | None = None,
    contains: str | None = None,
    failing: bool = False,
    after: int = 0,
    n: int = 100,
) -> list[SubscriptionRow]:
    """Subscriptions in the order of their numbers; `which` selects one by number or URL."""
    return await store.list_feeds.rows(
        conn,
        SubscriptionRow,
        id=which if isinstance(which, int) else None,
        url=which if isinstance(which, str) else None,
        state=state,
        tag=tag,
        contains=contains,
        failing=failing,
        after=after,
        n=n,
    )


async def subscribed_urls(conn: Connection, urls: Sequence[str]) -> set[str]:
    """Those of the URLs that have a subscription."""
    return set(await store.subscribed_urls.column(conn, urls=list(urls)))


async def count_items(conn: Connection, feed_id: int) -> int:
    [number] = await store.count_items.column(conn, feed=feed_id)
    return int(number)
