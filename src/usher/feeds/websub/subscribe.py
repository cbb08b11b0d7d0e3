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
from usher.feeds.poll.interval import Next
from usher.feeds.store import save_feed
from usher.feeds.store.databases import House
from usher.feeds.store.subscriptions import Subscribed
from usher.feeds.websub import rules, subscriptions
from usher.feeds.websub.rules import Standing
from usher.urls import UrlRefusal
from usher.urls import parse as parse_url

FORM: Final = "application/x-www-form-urlencoded"
AGAIN: Final = frozenset({307, 308})  # what is sent is to be sent elsewhere
MOST_HOPS: Final = 3
LONGEST_REASON: Final = 300
MOST_READ: Final = 10 * LONGEST_REASON  # so that nothing is cut off before it is hidden


async def tend(
    house: House, fetcher: Fetcher, id_: int, *, now: datetime | None = None
) -> list[str]:
    """Do what is due at the hub of a feed; what went wrong, in words."""
    if not house.callback:
        return []
    now = now or house.search.clock.now()
    async with house.search.connection() as conn:
        known, standing = (
            await subscriptions.known(conn, id_),
            await subscriptions.standing(conn, id_),
        )
    if known is None:
        return []
    offer = rules.offered(known.hub, known.own, known.url)
    match rules.step(standing, offer, wanted=known.wanted, now=now):
        case "subscribe" if offer is not None:
            return await subscribe(house, fetcher, id_, known.url, offer, standing, now)
        case "unsubscribe":
            return await leave(house, fetcher, [id_], now=now)
    return []


async def minded(
    house: House,
    conn: Connection,
    known: Subscribed,
    following: Next,
    *,
    news: bool,
    began: datetime,
    now: datetime,
) -> Next:
    """The next poll of a feed as its hub lets it be; `news` is whether a poll that began then found any."""
    if not house.callback:
        return following
    if news:
        await subscriptions.distrust(conn, known.id)
    standing = await subscriptions.standing(conn, known.id)
    return rules.paced(following, standing, slower=known.fixed is None, began=began, now=now)


async def subscribe(
    house: House,
    fetcher: Fetcher,
    id_: int,
    feed: str,
    offer: rules.Offer,
    standing: Standing | None,
    now: datetime,
) -> list[str]:
    """Ask the hub; it calls back, perhaps before it answers."""
    same = standing is not None and standing.offer == offer and standing.state != "left"
    token = standing.token if standing and same else secrets.token_urlsafe(32)
    secret = standing.secret if standing and same else secrets.token_hex(32)
    errors = standing.errors + 1 if standing and same else 1
    async with house.search.connection() as conn:
        await subscriptions.ask(
            conn,
            id_,
            offer,
            token=token,
            secret=secret,
            try_at=now + rules.wait(errors),
            now=now,
        )
    body = rules.form("subscribe", offer, callback=callback(house, token), secret=secret)
    answer = await send(fetcher, feed, offer.hub, body)
    words = trouble(answer, token, secret)
    if not words:
        return []
    rest = answer.retry_after(now) if isinstance(answer, FetchResponse) else None
    pause = timedelta(seconds=min(rest or 0, rules.AFTER_DENIAL.total_seconds()))
    async with house.search.connection() as conn:
        await subscriptions.fail(
            conn, id_, token, save_feed.clean(words)[:LONGEST_REASON], try_at=now + pause
        )
    return [f"Its hub does not take us: {words}"]


async def leave(
    house: House, fetcher: Fetcher, ids: Iterable[int], *, now: datetime | None = None
) -> list[str]:
    """Have the hubs of feeds tell us no more; one that cannot be told ends when its lease does."""
    problems = []
    for id_ in ids:
        async with house.search.connection() as conn:
            known = await subscriptions.known(conn, id_)
            standing = await subscriptions.leave(conn, id_, now=now or house.search.clock.now())
        if standing is not None and house.callback:
            there = callback(house, standing.token)
            body = rules.form("unsubscribe", standing.offer, callback=there, secret="")
            answer = await send(fetcher, known.url if known else "", standing.hub, body)
            if words := trouble(answer, standing.token, standing.secret):
                problems.append(f"Its hub could not be told that it is over: {words}")
    return problems


def callback(house: House, token: str) -> str:
    return f"{house.callback}/websub/{token}"


async def send(fetcher: Fetcher, feed: str, hub_url: str, body: bytes) -> FetchResponse | str:
    """The hub's answer, or why it was not asked; redirects that keep what is sent are followed.

    `feed` is where the feed was fetched: it must not name a private hub of another host.
    """
    source, there = parse_url(feed), parse_url(hub_url)
    if isinstance(source, UrlRefusal):
        return f"{feed} cannot have a hub: {source.detail}"
    if isinstance(there, UrlRefusal):
        return f"{hub_url} cannot be asked: {there.detail}"
    for _ in range(MOST_HOPS):
        answer = await fetcher.post(there, body, FORM, source=source)
        if answer.status not in AGAIN or answer.location is None:
            return answer
        source, there = there, answer.location
    return answer


def trouble(answer: FetchResponse | str, *secret: str) -> str:
    """What is wrong with a hub's answer, which may repeat what it was told; nothing if it is well."""
    if isinstance(answer, str):
        return answer
    if answer.status is None:
        return f"{answer.error}."
    if answer.status // 100 == 2:  # noqa: PLR2004 - success
        return ""
    said = " ".join(answer.body[:MOST_READ].decode("utf-8", "replace").split())
    for one in filter(None, secret):
        said = said.replace(one, "…")
    said = said[:LONGEST_REASON]
    return f"HTTP {answer.status} {answer.reason}".rstrip() + (f": {said}" if said else ".")
