"""Asking hubs to tell us of news, and to stop that.

Comes from polls, once a feed was read, and from whoever disables a feed; goes to the hub, past the guard that every
fetch goes past. What a hub does wrong is noted, and never a poll's trouble.
"""

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.db.pool import Connection
from usher.feeds.poll.interval import NextPoll
from usher.feeds.store import save_feed
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.subscriptions import FeedSubscription
from usher.feeds.websub import rules, subscriptions
from usher.feeds.websub.rules import HubSubscription
from usher.urls import UrlRefusal
from usher.urls import parse as parse_url

FORM_TYPE: Final = "application/x-www-form-urlencoded"
REPEAT_STATUSES: Final = frozenset({307, 308})  # what is sent is to be sent elsewhere
MAX_REDIRECTS: Final = 3
MAX_REASON_CHARS: Final = 300
MAX_READ_BYTES: Final = 10 * MAX_REASON_CHARS  # so that nothing is cut off before it is hidden


async def update_hub_subscription(
    databases: FeedDatabases, fetcher: Fetcher, id_: int, *, now: datetime | None = None
) -> list[str]:
    """Do what is due at the hub of a feed; what went wrong, in words."""
    if not databases.callback_url:
        return []
    now = now or databases.search.clock.now()
    async with databases.search.connection() as conn:
        known, standing = (
            await subscriptions.feed_hub(conn, id_),
            await subscriptions.hub_subscription(conn, id_),
        )
    if known is None:
        return []
    offer = rules.hub_offer(known.hub, known.own, known.url)
    match rules.next_step(standing, offer, wanted=known.wanted, now=now):
        case "subscribe" if offer is not None:
            return await subscribe(databases, fetcher, id_, known.url, offer, standing, now)
        case "unsubscribe":
            return await unsubscribe(databases, fetcher, [id_], now=now)
    return []


async def next_poll_with_hub(
    databases: FeedDatabases,
    conn: Connection,
    known: FeedSubscription,
    following: NextPoll,
    *,
    news: bool,
    began: datetime,
    now: datetime,
) -> NextPoll:
    """The next poll of a feed as its hub lets it be; `news` is whether a poll that began then found any."""
    if not databases.callback_url:
        return following
    if news:
        await subscriptions.distrust_silent_hub(conn, known.id)
    standing = await subscriptions.hub_subscription(conn, known.id)
    return rules.adjust_next_poll(
        following, standing, slower=known.fixed is None, began=began, now=now
    )


async def subscribe(
    databases: FeedDatabases,
    fetcher: Fetcher,
    id_: int,
    feed: str,
    offer: rules.HubOffer,
    standing: HubSubscription | None,
    now: datetime,
) -> list[str]:
    """Ask the hub; it calls back, perhaps before it answers."""
    same = standing is not None and standing.offer == offer and standing.state != "left"
    token = standing.token if standing and same else secrets.token_urlsafe(32)
    secret = standing.secret if standing and same else secrets.token_hex(32)
    errors = standing.errors + 1 if standing and same else 1
    async with databases.search.connection() as conn:
        await subscriptions.record_request(
            conn,
            id_,
            offer,
            token=token,
            secret=secret,
            try_at=now + rules.retry_wait(errors),
            now=now,
        )
    body = rules.request_form(
        "subscribe", offer, callback=callback_url(databases, token), secret=secret
    )
    answer = await post_to_hub(fetcher, feed, offer.hub, body)
    words = response_problem(answer, token, secret)
    if not words:
        return []
    rest = answer.retry_after(now) if isinstance(answer, FetchResponse) else None
    pause = timedelta(seconds=min(rest or 0, rules.DENIAL_WAIT.total_seconds()))
    async with databases.search.connection() as conn:
        await subscriptions.record_failure(
            conn, id_, token, save_feed.storable_text(words)[:MAX_REASON_CHARS], try_at=now + pause
        )
    return [f"Its hub does not take us: {words}"]


async def unsubscribe(
    databases: FeedDatabases, fetcher: Fetcher, ids: Iterable[int], *, now: datetime | None = None
) -> list[str]:
    """Have the hubs of feeds tell us no more; one that cannot be told ends when its lease does."""
    problems = []
    for id_ in ids:
        async with databases.search.connection() as conn:
            known = await subscriptions.feed_hub(conn, id_)
            standing = await subscriptions.begin_unsubscribe(
                conn, id_, now=now or databases.search.clock.now()
            )
        if standing is not None and databases.callback_url:
            there = callback_url(databases, standing.token)
            body = rules.request_form("unsubscribe", standing.offer, callback=there, secret="")
            answer = await post_to_hub(fetcher, known.url if known else "", standing.hub, body)
            if words := response_problem(answer, standing.token, standing.secret):
                problems.append(f"Its hub could not be told that it is over: {words}")
    return problems


def callback_url(databases: FeedDatabases, token: str) -> str:
    return f"{databases.callback_url}/websub/{token}"


async def post_to_hub(
    fetcher: Fetcher, feed: str, hub_url: str, body: bytes
) -> FetchResponse | str:
    """The hub's answer, or why it was not asked; redirects that keep what is sent are followed.

    `feed` is where the feed was fetched: it must not name a private hub of another host.
    """
    source, there = parse_url(feed), parse_url(hub_url)
    if isinstance(source, UrlRefusal):
        return f"{feed} cannot have a hub: {source.detail}"
    if isinstance(there, UrlRefusal):
        return f"{hub_url} cannot be asked: {there.detail}"
    for _ in range(MAX_REDIRECTS):
        answer = await fetcher.post(there, body, FORM_TYPE, source=source)
        if answer.status not in REPEAT_STATUSES or answer.location is None:
            return answer
        source, there = there, answer.location
    return answer


def response_problem(answer: FetchResponse | str, *secret: str) -> str:
    """What is wrong with a hub's answer, which may repeat what it was told; nothing if it is well."""
    if isinstance(answer, str):
        return answer
    if answer.status is None:
        return f"{answer.error}."
    if answer.status // 100 == 2:  # noqa: PLR2004 - success
        return ""
    said = " ".join(answer.body[:MAX_READ_BYTES].decode("utf-8", "replace").split())
    for one in filter(None, secret):
        said = said.replace(one, "…")
    said = said[:MAX_REASON_CHARS]
    return f"HTTP {answer.status} {answer.reason}".rstrip() + (f": {said}" if said else ".")
