"""Handles the callbacks of hubs: confirmations, denials and news.

News make the feed's task due, and the poll fetches the feed as usual. The body of a callback serves only to check its
signature.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from usher.db.statements import load_statements
from usher.errors import NotFound
from usher.feeds.poll import tasks
from usher.feeds.store import save_feed
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.websub import rules
from usher.feeds.websub.rules import HubState
from usher.http.server.middleware import HttpError

store = load_statements(__file__)

MAX_CHALLENGE_CHARS: Final = 4_000
MAX_TOKEN_CHARS: Final = 100
MAX_REASON_CHARS: Final = 300
BACK_OFF_STATUSES: Final = frozenset({429, 503})  # after these even news wait for the next poll
Mode = Literal["subscribe", "unsubscribe", "denied"]


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


async def verify(
    databases: FeedDatabases, token: str, mode: Mode, topic: str, *, lease: str, reason: str
) -> None:
    """Handle a verification or a denial; NotFound if it does not match a request of ours."""
    now, current = databases.search.clock.now(), await find_subscription(databases, token)
    if topic != current.topic:
        raise NotFound("There is no such request.")
    key = {"id": current.id, "token": token}
    async with databases.search.connection() as conn:
        match mode:
            case "subscribe":
                granted = rules.parse_lease(lease)
                until, renew_at = now + granted, rules.renewal_time(granted, now)
                matches = current.wanted and await store.confirm_subscription.run(
                    conn, **key, until=until, renew_at=renew_at, now=now
                )
            case "unsubscribe":
                matches = await store.confirm_unsubscription.run(conn, **key)
            case "denied":
                words = save_feed.storable_text(reason)[:MAX_REASON_CHARS]
                try_at = now + rules.DENIAL_WAIT
                matches = await store.record_denial.run(conn, **key, reason=words, try_at=try_at)
    if not matches:
        raise NotFound("There is no such request.")


async def deliver(databases: FeedDatabases, token: str, signature: str, body: bytes) -> None:
    """Poll the feed soon if the hub signed the delivery; count a delivery without a valid signature."""
    now, current = databases.search.clock.now(), await find_subscription(databases, token)
    if not current.wanted or current.state in ("leaving", "left", "denied"):
        raise HttpError(410, "gone", "This subscription has ended.")
    if current.state != "active" or not rules.is_signed(current.secret, signature, body):
        async with databases.search.connection() as conn:
            await store.count_ignored.run(conn, id=current.id)
        return
    at = rules.poll_time_after_ping(current.polled_at, now)
    held = current.status in BACK_OFF_STATUSES
    async with databases.search.transaction() as conn:
        if current.task_id is not None and not held:
            async with databases.queue(conn) as queue:
                await tasks.poll_by(queue, current.task_id, at=at)
        await store.record_ping.run(conn, id=current.id, at=at, held=held, now=now)


async def find_subscription(databases: FeedDatabases, token: str) -> CallbackSubscription:
    """The subscription with this token; NotFound if there is none."""
    subscription = None
    if len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable():
        async with databases.search.connection() as conn:
            subscription = await store.find_by_token.row(conn, CallbackSubscription, token=token)
    if subscription is None:
        raise NotFound("There is no subscription with this address.")
    return subscription
