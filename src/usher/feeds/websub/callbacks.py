"""What hubs say when they call us: that they agree, that they will not, that there is news.

Comes from the callback, whose address only the hub was told; goes to the subscription and, for news, to the clock of
the feed's task. The feed is then polled like any other: so the body of a call is neither read nor kept, nothing but its
signature is believed, and there is one way only in which items come in.
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
BACK_OFF_STATUSES: Final = frozenset(
    {429, 503}
)  # whose server said when to come again, and is heard
Mode = Literal["subscribe", "unsubscribe", "denied"]


async def verify(
    databases: FeedDatabases, token: str, mode: Mode, topic: str, *, lease: str, reason: str
) -> None:
    """The hub asks whether we asked, or says that it will not; NotFound if we did not ask that."""
    now, found = databases.search.clock.now(), await find_subscription(databases, token)
    if topic != found.topic:
        raise NotFound("Nobody asked for that here.")
    async with databases.search.connection() as conn:
        match mode:
            case "subscribe":
                agreed = rules.parse_lease(lease)
                until, again = now + agreed, rules.renewal_time(agreed, now)
                good = found.wanted and await subscriptions.confirm_subscription(
                    conn, found.id, token, until=until, renew_at=again, now=now
                )
            case "unsubscribe":
                good = await subscriptions.confirm_unsubscription(conn, found.id, token)
            case "denied":
                words, then = (
                    save_feed.storable_text(reason)[:MAX_REASON_CHARS],
                    now + rules.DENIAL_WAIT,
                )
                good = await subscriptions.record_denial(conn, found.id, token, words, try_at=then)
    if not good:
        raise NotFound("Nobody asked for that here.")


async def deliver(databases: FeedDatabases, token: str, signature: str, body: bytes) -> None:
    """There is news, if the hub signed it; what is not signed is heard, and no more."""
    now, found = databases.search.clock.now(), await find_subscription(databases, token)
    if not found.wanted or found.state in ("leaving", "left", "denied"):
        raise HttpError(410, "gone", "Nobody listens here any more.")
    if found.state != "active" or not rules.is_signed(found.secret, signature, body):
        async with databases.search.connection() as conn:
            await subscriptions.count_ignored(conn, found.id)
        return
    at, held = rules.poll_time_after_ping(found.polled_at, now), found.status in BACK_OFF_STATUSES
    async with databases.search.transaction() as conn:
        if found.task_id is not None and not held:
            async with databases.queue(conn) as queue:
                await tasks.poll_by(queue, found.task_id, at=at)
        await subscriptions.record_ping(conn, found.id, at=at, held=held, now=now)


async def find_subscription(databases: FeedDatabases, token: str) -> CallbackSubscription:
    found = None
    if len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable():
        async with databases.search.connection() as conn:
            found = await subscriptions.find_by_token(conn, token)
    if found is None:
        raise NotFound("Nobody listens here.")
    return found
