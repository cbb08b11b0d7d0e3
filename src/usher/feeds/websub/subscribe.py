"""Subscribes to feeds at their hubs, renews and ends the subscriptions.

A failing hub never fails a poll; the failure is stored and reported.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.feeds.poll.interval import NextPoll
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.save_feed import storable_text
from usher.feeds.store.subscriptions import FeedSubscription
from usher.feeds.websub import rules
from usher.feeds.websub.rules import HubOffer, HubSubscription
from usher.urls import UrlRefusal
from usher.urls import parse as parse_url

store = load_statements(__file__)

FORM_TYPE: Final = "application/x-www-form-urlencoded"
REPEAT_STATUSES: Final = frozenset({307, 308})  # redirects that repeat the POST
MAX_REDIRECTS: Final = 3
MAX_REASON_CHARS: Final = 300
# A secret that the hub repeats is hidden before the cut.
MAX_READ_BYTES: Final = 10 * MAX_REASON_CHARS


@dataclass(frozen=True, slots=True)
class FeedHub:
    """The hub and the self link of a feed; `wanted` if the feed is polled at all."""

    url: str
    wanted: bool
    hub: str
    self_link: str


async def update_hub_subscription(
    databases: FeedDatabases, fetcher: Fetcher, id_: int, *, now: datetime | None = None
) -> list[str]:
    """Send the request to the feed's hub that is due, if any; returns the problems."""
    if not databases.callback_url:
        return []
    now = now or databases.search.clock.now()
    async with databases.search.connection() as conn:
        feed = await store.feed_hub.row(conn, FeedHub, id=id_)
        current = await store.hub_subscription.row(conn, HubSubscription, id=id_)
    if feed is None:
        return []
    offer = rules.hub_offer(feed.hub, feed.self_link, feed.url)
    match rules.next_step(current, offer, wanted=feed.wanted, now=now):
        case "subscribe" if offer is not None:
            return await subscribe(databases, fetcher, id_, feed.url, offer, current, now)
        case "unsubscribe":
            return await unsubscribe(databases, fetcher, [id_], now=now)
    return []


async def next_poll_with_hub(
    databases: FeedDatabases,
    conn: Connection,
    subscription: FeedSubscription,
    following: NextPoll,
    *,
    news: bool,
    began: datetime,
    now: datetime,
) -> NextPoll:
    """The next poll of a feed with a hub; `news` if the poll that began at `began` found new items."""
    if not databases.callback_url:
        return following
    if news:
        await store.distrust_silent_hub.run(conn, id=subscription.id)
    current = await store.hub_subscription.row(conn, HubSubscription, id=subscription.id)
    slower = subscription.fixed is None
    return rules.adjust_next_poll(following, current, slower=slower, began=began, now=now)


async def subscribe(
    databases: FeedDatabases,
    fetcher: Fetcher,
    id_: int,
    feed: str,
    offer: HubOffer,
    current: HubSubscription | None,
    now: datetime,
) -> list[str]:
    """Request a subscription; the hub calls back, perhaps before it answers. Returns the problems."""
    renewed = current if current and current.offer == offer and current.state != "left" else None
    token = renewed.token if renewed else secrets.token_urlsafe(32)
    secret = renewed.secret if renewed else secrets.token_hex(32)
    errors = renewed.errors + 1 if renewed else 1
    try_at = now + rules.retry_wait(errors)
    async with databases.search.connection() as conn:
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
    callback = callback_url(databases, token)
    body = rules.request_form("subscribe", offer, callback=callback, secret=secret)
    answer = await post_to_hub(fetcher, feed, offer.hub, body)
    problem = response_problem(answer, token, secret)
    if not problem:
        return []
    seconds = answer.retry_after(now) if isinstance(answer, FetchResponse) else None
    wait = timedelta(seconds=min(seconds or 0, rules.DENIAL_WAIT.total_seconds()))
    reason = storable_text(problem)[:MAX_REASON_CHARS]
    async with databases.search.connection() as conn:
        await store.record_failure.run(conn, id=id_, token=token, reason=reason, try_at=now + wait)
    return [f"Could not subscribe at its hub: {problem}"]


async def unsubscribe(
    databases: FeedDatabases, fetcher: Fetcher, ids: Iterable[int], *, now: datetime | None = None
) -> list[str]:
    """End the subscriptions of feeds; returns the problems. If a hub fails, its lease ends the subscription."""
    problems = []
    for id_ in ids:
        async with databases.search.connection() as conn:
            feed = await store.feed_hub.row(conn, FeedHub, id=id_)
            when = now or databases.search.clock.now()
            ended = await store.begin_unsubscribe.row(conn, HubSubscription, id=id_, now=when)
        if ended is not None and databases.callback_url:
            callback = callback_url(databases, ended.token)
            body = rules.request_form("unsubscribe", ended.offer, callback=callback, secret="")
            answer = await post_to_hub(fetcher, feed.url if feed else "", ended.hub, body)
            if problem := response_problem(answer, ended.token, ended.secret):
                problems.append(f"Could not unsubscribe at its hub: {problem}")
    return problems


def callback_url(databases: FeedDatabases, token: str) -> str:
    return f"{databases.callback_url}/websub/{token}"


async def post_to_hub(
    fetcher: Fetcher, feed: str, hub_url: str, body: bytes
) -> FetchResponse | str:
    """The hub's answer after redirects, or why there was no request.

    `feed` is where the feed was fetched: it must not name a private hub of another host.
    """
    source, target = parse_url(feed), parse_url(hub_url)
    if isinstance(source, UrlRefusal):
        return f"{feed} cannot have a hub: {source.detail}"
    if isinstance(target, UrlRefusal):
        return f"{hub_url} cannot be requested: {target.detail}"
    for _ in range(MAX_REDIRECTS):
        answer = await fetcher.post(target, body, FORM_TYPE, source=source)
        if answer.status not in REPEAT_STATUSES or answer.location is None:
            return answer
        source, target = target, answer.location
    return answer


def response_problem(answer: FetchResponse | str, *secrets_: str) -> str:
    """What is wrong with a hub's answer, without the secrets that it may repeat; empty if it is fine."""
    if isinstance(answer, str):
        return answer
    if answer.status is None:
        return f"{answer.error}."
    if answer.status // 100 == 2:  # noqa: PLR2004 - success
        return ""
    text = " ".join(answer.body[:MAX_READ_BYTES].decode("utf-8", "replace").split())
    for secret in filter(None, secrets_):
        text = text.replace(secret, "…")
    text = text[:MAX_REASON_CHARS]
    return f"HTTP {answer.status} {answer.reason}".rstrip() + (f": {text}" if text else ".")
