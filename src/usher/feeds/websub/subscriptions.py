"""The subscriptions at hubs (feeds.websub)."""

from dataclasses import dataclass
from datetime import datetime

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.feeds.websub.rules import HubOffer, HubState, HubSubscription

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class FeedHub:
    """The hub and the self link of a feed; `wanted` if the feed is polled at all."""

    url: str
    wanted: bool
    hub: str
    self_link: str


@dataclass(frozen=True, slots=True)
class CallbackSubscription:
    """The subscription that a hub calls back about; `status` is the HTTP status of the last poll."""

    id: int
    topic: str
    secret: str
    state: HubState
    wanted: bool
    task_id: int | None
    polled_at: datetime | None
    status: int


async def feed_hub(conn: Connection, id_: int) -> FeedHub | None:
    """The hub of a feed; None if there is no such feed."""
    return await store.feed_hub.row(conn, FeedHub, id=id_)


async def hub_subscription(conn: Connection, id_: int) -> HubSubscription | None:
    """The subscription of a feed at its hub."""
    return await store.hub_subscription.row(conn, HubSubscription, id=id_)


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
    """Store a subscription request before it is sent."""
    await store.record_request.run(
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
    """Store why a request failed, and when to try again."""
    await store.record_failure.run(conn, id=id_, token=token, reason=reason, try_at=try_at)


async def begin_unsubscribe(conn: Connection, id_: int, *, now: datetime) -> HubSubscription | None:
    """Store that a subscription ends; returns it, or None if there is none."""
    return await store.begin_unsubscribe.row(conn, HubSubscription, id=id_, now=now)


async def find_by_token(conn: Connection, token: str) -> CallbackSubscription | None:
    """The subscription with this callback token."""
    return await store.find_by_token.row(conn, CallbackSubscription, token=token)


async def confirm_subscription(
    conn: Connection,
    id_: int,
    token: str,
    *,
    until: datetime,
    renew_at: datetime,
    now: datetime,
) -> bool:
    """Store that the hub confirmed a subscription; false if none was requested."""
    rows = await store.confirm_subscription.tuples(
        conn, id=id_, token=token, until=until, renew_at=renew_at, now=now
    )
    return bool(rows)


async def confirm_unsubscription(conn: Connection, id_: int, token: str) -> bool:
    """Store that the hub confirmed the end of a subscription; false if that was not requested."""
    return bool(await store.confirm_unsubscription.tuples(conn, id=id_, token=token))


async def record_denial(
    conn: Connection, id_: int, token: str, reason: str, *, try_at: datetime
) -> bool:
    """Store that the hub denied a subscription; false if none was requested."""
    rows = await store.record_denial.tuples(conn, id=id_, token=token, reason=reason, try_at=try_at)
    return bool(rows)


async def count_ignored(conn: Connection, id_: int) -> None:
    """Count a delivery without a valid signature."""
    await store.count_ignored.run(conn, id=id_)


async def record_ping(
    conn: Connection, id_: int, *, at: datetime, held: bool, now: datetime
) -> None:
    """Store that the hub announced news; the feed is polled at `at`, unless its server asked to wait."""
    await store.record_ping.run(conn, id=id_, at=at, held=held, now=now)


async def distrust_silent_hub(conn: Connection, id_: int) -> None:
    """Distrust the hub if a poll found news that the hub did not announce."""
    await store.distrust_silent_hub.run(conn, id=id_)
