"""What hubs say when they call us: that they agree, that they will not, that there is news.

Comes from the callback, whose address only the hub was told; goes to the subscription and, for news, to the clock of
the feed's task. The feed is then polled like any other: so the body of a call is neither read nor kept, nothing but its
signature is believed, and there is one way only in which items come in.
"""

from typing import Final, Literal

from usher.errors import NotFound
from usher.feeds.poll import tasks
from usher.feeds.store import save_feed
from usher.feeds.store.databases import House
from usher.feeds.websub import rules, subscriptions
from usher.feeds.websub.subscriptions import Called
from usher.http.server.middleware import HttpError

LONGEST_CHALLENGE: Final = 4_000
LONGEST_TOKEN: Final = 100
LONGEST_REASON: Final = 300
HELD_OFF: Final = frozenset({429, 503})  # whose server said when to come again, and is heard
Mode = Literal["subscribe", "unsubscribe", "denied"]


async def verify(
    house: House, token: str, mode: Mode, topic: str, *, lease: str, reason: str
) -> None:
    """The hub asks whether we asked, or says that it will not; NotFound if we did not ask that."""
    now, found = house.search.clock.now(), await called(house, token)
    if topic != found.topic:
        raise NotFound("Nobody asked for that here.")
    async with house.search.connection() as conn:
        match mode:
            case "subscribe":
                agreed = rules.lease(lease)
                until, again = now + agreed, rules.renewal(agreed, now)
                good = found.wanted and await subscriptions.agree(
                    conn, found.id, token, until=until, renew_at=again, now=now
                )
            case "unsubscribe":
                good = await subscriptions.release(conn, found.id, token)
            case "denied":
                words, then = save_feed.clean(reason)[:LONGEST_REASON], now + rules.AFTER_DENIAL
                good = await subscriptions.deny(conn, found.id, token, words, try_at=then)
    if not good:
        raise NotFound("Nobody asked for that here.")


async def deliver(house: House, token: str, signature: str, body: bytes) -> None:
    """There is news, if the hub signed it; what is not signed is heard, and no more."""
    now, found = house.search.clock.now(), await called(house, token)
    if not found.wanted or found.state in ("leaving", "left", "denied"):
        raise HttpError(410, "gone", "Nobody listens here any more.")
    if found.state != "active" or not rules.signed(found.secret, signature, body):
        async with house.search.connection() as conn:
            await subscriptions.ignore(conn, found.id)
        return
    at, held = rules.hastened(found.polled_at, now), found.status in HELD_OFF
    async with house.search.transaction() as conn:
        if found.task_id is not None and not held:
            async with house.queue(conn) as queue:
                await tasks.hasten(queue, found.task_id, at=at)
        await subscriptions.ping(conn, found.id, at=at, held=held, now=now)


async def called(house: House, token: str) -> Called:
    found = None
    if len(token) <= LONGEST_TOKEN and token.isascii() and token.isprintable():
        async with house.search.connection() as conn:
            found = await subscriptions.called(conn, token)
    if found is None:
        raise NotFound("Nobody listens here.")
    return found
