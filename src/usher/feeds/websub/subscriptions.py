"""Subscriptions at hubs, as rows: asked for, agreed to, denied, ended, and the news that hubs had.

Comes from polls, which ask hubs, and from the callback, which hubs call; goes to feeds.websub.
"""

from dataclasses import dataclass
from datetime import datetime

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.feeds.websub.rules import HubOffer, HubState, HubSubscription

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class FeedHub:
    """What a feed offers: its hub, and what it calls itself."""

    url: str
    wanted: bool
    hub: str
    own: str


@dataclass(frozen=True, slots=True)
class CallbackSubscription:
    """The subscription that a hub calls about; `status` is what the last poll was answered with."""

    id: int
    topic: str
    secret: str
    state: HubState
    wanted: bool
    task_id: int | None
    polled_at: datetime | None
    status: int


async def feed_hub(conn: Connection, id_: int) -> FeedHub | None:
    """What a feed offers."""
    return await store.known.row(conn, FeedHub, id=id_)


async def hub_subscription(conn: Connection, id_: int) -> HubSubscription | None:
    """How the subscription of a feed at its hub stands."""
    return await store.standing.row(conn, HubSubscription, id=id_)


async def record_request(
    conn: Connection,
    id_: int,
    offer: HubOffer,
    *,
    token: str,
    secret: str,
    try_at: datetime,
    now: datetime,
) -> None:
    """A hub is about to be asked."""
    await store.ask.run(
        conn,
        id=id_,
        hub=offer.hub,
        topic=offer.topic,
        token=token,
        secret=secret,
        try_at=try_at,
        now=now,
    )


async def record_failure(
    conn: Connection, id_: int, token: str, reason: str, *, try_at: datetime
) -> None:
    await store.fail.run(conn, id=id_, token=token, reason=reason, try_at=try_at)


async def begin_unsubscribe(conn: Connection, id_: int, *, now: datetime) -> HubSubscription | None:
    """The hub is to tell us no more; the subscription that ends, if there is one."""
    return await store.leave.row(conn, HubSubscription, id=id_, now=now)


async def find_by_token(conn: Connection, token: str) -> CallbackSubscription | None:
    """Whose address a hub calls."""
    return await store.called.row(conn, CallbackSubscription, token=token)


async def confirm_subscription(
    conn: Connection,
    id_: int,
    token: str,
    *,
    until: datetime,
    renew_at: datetime,
    now: datetime,
) -> bool:
    """The hub agreed to what we asked; false if we did not."""
    found = await store.agree.tuples(
        conn, id=id_, token=token, until=until, renew_at=renew_at, now=now
    )
    return bool(found)


async def confirm_unsubscription(conn: Connection, id_: int, token: str) -> bool:
    """The hub agreed that it is over; false if we did not ask that."""
    return bool(await store.release.tuples(conn, id=id_, token=token))


async def record_denial(
    conn: Connection, id_: int, token: str, reason: str, *, try_at: datetime
) -> bool:
    return bool(await store.deny.tuples(conn, id=id_, token=token, reason=reason, try_at=try_at))


async def count_ignored(conn: Connection, id_: int) -> None:
    await store.ignore.run(conn, id=id_)


async def record_ping(
    conn: Connection, id_: int, *, at: datetime, held: bool, now: datetime
) -> None:
    """The hub has news, for which the feed is polled then, unless its server holds us off."""
    await store.ping.run(conn, id=id_, at=at, held=held, now=now)


async def distrust_silent_hub(conn: Connection, id_: int) -> None:
    """A poll found news; if the hub did not tell us since the one before, it is not to be relied on."""
    await store.distrust.run(conn, id=id_)
