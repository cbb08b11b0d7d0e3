"""Subscriptions: which feeds are polled, as the operator has it, and how their polls went.

Comes from the command line, OPML files and polls; goes to feeds.feed_metadata and feeds.feed_poll, and out as rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import msgspec

from usher.db.pool import Connection
from usher.db.statements import beside
from usher.errors import NotFound
from usher.feeds.model import PollHints
from usher.feeds.opml import Subscription

store = beside(__file__)

State = Literal["enabled", "disabled", "gone"]
OUTAGE_WINDOW: Final = timedelta(minutes=10)
MIN_SILENT_HOSTS: Final = 2  # besides the one in question: then it is we who hear nothing


@dataclass(frozen=True, slots=True)
class FeedSubscription:
    """What a poll must know of a feed; `fixed` is the operator's period, `period` the one found until now."""

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
    waiting: bool  # there are links that have not been to the door
    hubbed: bool  # a hub is offered, or has been asked
    partial: bool  # the pages of its items are fetched
    cleans: bool  # its items are made into clean texts
    undone: bool  # there are items whose words are not known, or whose pages are wanted

    @property
    def hints(self) -> PollHints:
        return PollHints(
            self.ttl, self.update_period, frozenset(self.skip_hours), frozenset(self.skip_days)
        )


@dataclass(frozen=True, slots=True)
class PollRecord:
    """How a poll went, and when the next one is."""

    host: str
    silent: bool
    status: int | None
    errors: int
    error: str
    new: int
    period: timedelta
    next_at: datetime
    why: str
    unmodified: int


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription as shown."""

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
    """Subscribe; the numbers of those that are new, by URL. Tags are added to those that are not."""
    once: dict[str, Subscription] = {}
    for one in feeds:
        once.setdefault(one.url, one)
    given = [
        {"url": one.url, "title": one.title, "site": one.site, "tags": one.tags}
        for one in once.values()
    ]
    text = msgspec.json.encode(given).decode()
    await store.tag.run(conn, feeds=text)
    made = await store.add.tuples(conn, feeds=text, period=period, knocks=knocks, now=now)
    return {url: id_ for id_, url in made}


async def give_tasks(conn: Connection, tasks: Mapping[int, int]) -> None:
    await store.give_tasks.run(conn, ids=list(tasks), tasks=list(tasks.values()))


async def find(conn: Connection, id_: int) -> FeedSubscription:
    """The subscription of that number."""
    found = await find_all(conn, [id_])
    if not found:
        raise feed_not_found(id_)
    return found[id_]


async def find_all(conn: Connection, ids: Sequence[int]) -> dict[int, FeedSubscription]:
    """Those of these subscriptions that are there, by their numbers."""
    found = await store.find.rows(conn, FeedSubscription, ids=list(ids))
    return {one.id: one for one in found}


def feed_not_found(id_: int) -> NotFound:
    return NotFound(f"There is no feed {id_}.", hint="usher feeds list")


async def lock_subscription(conn: Connection, id_: int) -> str:
    """Keep a subscription as it is until the transaction ends; its URL, or nothing if it is there no more."""
    found = await store.hold.tuples(conn, id=id_)
    return str(found[0][0]) if found else ""


async def link_feed(conn: Connection, id_: int, feed_id: int) -> None:
    await store.link_feed.run(conn, id=id_, feed=feed_id)


async def other_subscription_at(conn: Connection, id_: int, url: str) -> int | None:
    """Who else is subscribed at a URL."""
    found = await store.other_at.tuples(conn, id=id_, url=url)
    return int(found[0][0]) if found else None


async def move(conn: Connection, id_: int, url: str) -> None:
    """The feed is elsewhere for good."""
    await store.move.run(conn, id=id_, url=url)


async def set_state(
    conn: Connection, ids: Sequence[int], state: State, reason: str = ""
) -> list[tuple[int, str, int | None]]:
    """Poll feeds, or do not; their numbers, URLs and tasks."""
    found = await store.set_state.tuples(conn, ids=list(ids), state=state, reason=reason)
    return [(id_, url, task) for id_, url, task, _ in found]


async def record_poll(conn: Connection, id_: int, noted: PollRecord, *, now: datetime) -> None:
    """Write down how a poll went."""
    await store.note.run(
        conn,
        id=id_,
        now=now,
        host=noted.host,
        silent=noted.silent,
        status=noted.status,
        errors=noted.errors,
        error=noted.error,
        new=noted.new,
        period=noted.period,
        next_at=noted.next_at,
        why=noted.why,
        unmodified=noted.unmodified,
    )


async def is_outage(conn: Connection, host: str, *, now: datetime) -> bool:
    """Whether nobody answers lately, so that the fault is ours."""
    [(silent, answered)] = await store.silence.tuples(conn, host=host, since=now - OUTAGE_WINDOW)
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
    """Subscriptions in the order of their numbers; `which` is a number or a URL."""
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


async def count_items(conn: Connection, feed_id: int) -> int:
    [(number,)] = await store.count_items.tuples(conn, feed=feed_id)
    return int(number)
