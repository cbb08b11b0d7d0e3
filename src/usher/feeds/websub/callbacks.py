"""Handles the callbacks of hubs: confirmations, denials and news.

News make the feed's task due, and the poll fetches the feed as usual. The body of a callback serves only to check its
signature.
"""

from typing import Final, Literal

from usher.errors import NotFound
from usher.feeds.poll import tasks
from usher.feeds.store import save_feed
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.websub import rules, subscriptions
from usher.feeds.websub.subscriptions import CallbackSubscription
from usher.http.server.middleware import HttpError

MAX_CHALLENGE_CHARS: Final = 4_000
MAX_TOKEN_CHARS: Final = 100
MAX_REASON_CHARS: Final = 300
BACK_OFF_STATUSES: Final = frozenset({429, 503})  # after these even news wait for the next poll
Mode = Literal["subscribe", "unsubscribe", "denied"]


async def verify(
    databases: FeedDatabases, token: str, mode: Mode, topic: str, *, lease: str, reason: str
) -> None:
    """Handle a verification or a denial; NotFound if it does not match a request of ours."""
    now, current = databases.search.clock.now(), await find_subscription(databases, token)
    if topic != current.topic:
        raise NotFound("There is no such request.")
    async with databases.search.connection() as conn:
        match mode:
            case "subscribe":
                granted = rules.parse_lease(lease)
                until, renew_at = now + granted, rules.renewal_time(granted, now)
                matches = current.wanted and await subscriptions.confirm_subscription(
                    conn, current.id, token, until=until, renew_at=renew_at, now=now
                )
            case "unsubscribe":
                matches = await subscriptions.confirm_unsubscription(conn, current.id, token)
            case "denied":
                words = save_feed.storable_text(reason)[:MAX_REASON_CHARS]
                try_at = now + rules.DENIAL_WAIT
                matches = await subscriptions.record_denial(
                    conn, current.id, token, words, try_at=try_at
                )
    if not matches:
        raise NotFound("There is no such request.")


async def deliver(databases: FeedDatabases, token: str, signature: str, body: bytes) -> None:
    """Poll the feed soon if the hub signed the delivery; count a delivery without a valid signature."""
    now, current = databases.search.clock.now(), await find_subscription(databases, token)
    if not current.wanted or current.state in ("leaving", "left", "denied"):
        raise HttpError(410, "gone", "This subscription has ended.")
    if current.state != "active" or not rules.is_signed(current.secret, signature, body):
        async with databases.search.connection() as conn:
            await subscriptions.count_ignored(conn, current.id)
        return
    at = rules.poll_time_after_ping(current.polled_at, now)
    held = current.status in BACK_OFF_STATUSES
    async with databases.search.transaction() as conn:
        if current.task_id is not None and not held:
            async with databases.queue(conn) as queue:
                await tasks.poll_by(queue, current.task_id, at=at)
        await subscriptions.record_ping(conn, current.id, at=at, held=held, now=now)


async def find_subscription(databases: FeedDatabases, token: str) -> CallbackSubscription:
    """The subscription with this token; NotFound if there is none."""
    subscription = None
    if len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable():
        async with databases.search.connection() as conn:
            subscription = await subscriptions.find_by_token(conn, token)
    if subscription is None:
        raise NotFound("There is no subscription with this address.")
    return subscription
