"""Polls one feed: fetches and parses it, stores it, schedules the next poll and sends new links to the door.

Every step is safe to repeat. A process that is killed leaves nothing half done, and the next poll completes the rest.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Literal

import psycopg

from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Connection
from usher.door.rules import Knock
from usher.errors import BadInput, Unreachable
from usher.feeds.items import full_pages
from usher.feeds.model import NotAFeed
from usher.feeds.parse.parser import parse
from usher.feeds.poll import interval, tasks
from usher.feeds.poll.after_poll import run_followups
from usher.feeds.poll.moved_feed import declared_url, follow_declared_move
from usher.feeds.poll.outcome import FeedResponse, PollOutcome, next_poll_of
from usher.feeds.poll.request import FetchResult, fetch_feed
from usher.feeds.poll.shared_statements import SharedStatements
from usher.feeds.poll.tasks import NextRun
from usher.feeds.store import save_feed, subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.item_identity import hash_parts
from usher.feeds.store.save_feed import CacheValidators, SaveResult, storable_text
from usher.feeds.store.subscriptions import FeedSubscription, PollRecord
from usher.feeds.websub import rules, subscribe
from usher.urls import UrlRefusal
from usher.urls import parse as parse_url

PARSER_EDITION: Final = (
    b"2"  # part of the body's hash; a new edition makes polls parse every document again
)
MAX_ATTEMPTS: Final = 5
KNOCK_BATCH: Final = 500
OUTAGE_KINDS: Final = frozenset({"dns", "connect", "timeout"})  # errors that our own outage causes
STATUS_GONE, STATUS_NOT_MODIFIED = 410, 304
# Items are news, so they do not wait for the host's next visit.
KNOCK: Final = Knock("single", hall_pass=True)


async def poll(
    databases: FeedDatabases,
    fetcher: Fetcher,
    id_: int,
    *,
    now: datetime | None = None,
    shared: SharedStatements | None = None,
) -> PollOutcome:
    """Poll a feed now unless it is disabled or gone; concurrent polls pass the same `shared`."""
    shared = shared or SharedStatements(databases)
    subscription = await shared.find(id_)
    if subscription.state != "enabled":
        await stop_task(databases, subscription)
        await subscribe.update_hub_subscription(databases, fetcher, id_, now=now)
        return PollOutcome(id_, "off", f"The feed is {subscription.state} and not polled.")
    url = parse_url(subscription.url)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"The URL of feed {id_} cannot be requested: {url.detail}")
    began = now or databases.search.clock.now()
    result = await fetch_feed(fetcher, url, etag=subscription.etag, lastmod=subscription.lastmod)
    now = now or databases.search.clock.now()
    response = interpret(result, subscription, now)
    if response.kind == "failed":
        response = replace(response, url=url)  # a redirect to an error is no move
    elif declared_url(response):
        response = await follow_declared_move(fetcher, subscription, response, now, interpret)
    response = replace(response, began=began)
    outcome = await shared.save_unchanged(subscription, response, now)
    outcome = outcome or await save_response(databases, subscription, response, now=now)
    await _after_saving(databases, shared, subscription, response, outcome, now)
    if subscription.hubbed or (response.feed and response.feed.hubs):
        outcome.problems += await subscribe.update_hub_subscription(
            databases, fetcher, id_, now=now
        )
    return outcome


async def _after_saving(
    databases: FeedDatabases,
    shared: SharedStatements,
    subscription: FeedSubscription,
    response: FeedResponse,
    outcome: PollOutcome,
    now: datetime,
) -> None:
    """Knock for new links and start the follow-ups of a successful poll."""
    if not outcome.good:
        return
    news = bool(outcome.new or outcome.changed)
    feed_id = outcome.stored_in or subscription.feed_id
    if subscription.knocks and (news or subscription.waiting):
        await knock_items(databases, outcome, feed_id or 0, source=response.url.host)
    digest = not shared.defer_digest
    await run_followups(databases, subscription, feed_id, news=news, now=now, digest=digest)
    if shared.defer_digest and (news or subscription.undone):
        shared.digest_pending = True


def interpret(result: FetchResult, subscription: FeedSubscription, now: datetime) -> FeedResponse:
    """The meaning of a response; a response that is no feed never replaces what is stored."""
    answer, url = result.answer, result.url
    seconds = answer.retry_after(now)
    retry_after = None
    if seconds is not None:
        retry_after = timedelta(seconds=min(seconds, interval.MAX_RETRY_AFTER.total_seconds()))
    lifetime = interval.cache_lifetime(answer.header("cache-control"), answer.first("expires"), now)
    if answer.status == STATUS_NOT_MODIFIED and (subscription.etag or subscription.lastmod):
        return FeedResponse("same", url, answer.status, cache_lifetime=lifetime)
    if answer.status == STATUS_GONE and answer.url == url:  # not after a temporary redirect
        return FeedResponse("gone", url, STATUS_GONE, "HTTP 410: the feed is gone.")
    error = result.error or answer.error
    if error or answer.status is None or answer.status // 100 != 2:  # noqa: PLR2004 - success
        reason = f"{error or f'HTTP {answer.status} {answer.reason}'.rstrip()}."
        silent = answer.status is None and answer.kind in OUTAGE_KINDS
        return FeedResponse(
            "failed", url, answer.status, reason, retry_after=retry_after, silent=silent
        )
    validators = CacheValidators(
        storable_text(answer.first("etag")),
        storable_text(answer.first("last-modified")),
        hash_parts(PARSER_EDITION, answer.body),
    )
    if validators.body == subscription.body_hash:
        return FeedResponse(
            "same", url, answer.status, validators=validators, cache_lifetime=lifetime
        )
    feed = parse(
        answer.body,
        url=str(answer.url),
        content_type=answer.first("content-type"),
        language=answer.first("content-language"),
        now=now,
    )
    if isinstance(feed, NotAFeed):
        return FeedResponse("failed", url, answer.status, feed.reason, retry_after=retry_after)
    feed = rules.with_link_headers(feed, answer.headers_of("link"), str(answer.url))
    return FeedResponse(
        "fresh", url, answer.status, feed=feed, validators=validators, cache_lifetime=lifetime
    )


async def save_response(
    databases: FeedDatabases,
    subscription: FeedSubscription,
    response: FeedResponse,
    *,
    now: datetime,
) -> PollOutcome:
    """Save a response in one transaction; repeats after a deadlock and isolates items that cannot be stored."""
    isolate = False

    async def save(conn: Connection) -> PollOutcome:
        return await save_in_transaction(
            databases, conn, subscription, response, now, isolate=isolate
        )

    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await databases.search.run(save)
        except psycopg.errors.DeadlockDetected:
            continue
        except save_feed.UNSTORABLE_ERRORS:
            isolate = True
    return await databases.search.run(save)


async def save_in_transaction(
    databases: FeedDatabases,
    conn: Connection,
    subscription: FeedSubscription,
    response: FeedResponse,
    now: datetime,
    *,
    isolate: bool,
) -> PollOutcome:
    if not await subscriptions.lock_subscriptions(conn, [subscription]):
        return PollOutcome(subscription.id, "off", "The feed moved or went during the poll.")
    if response.kind == "gone":
        return await end_subscription(databases, conn, subscription, "gone", response.reason, now)
    url = str(response.url)
    moved = url != subscription.url
    if moved:
        other = await subscriptions.other_subscription_at(conn, subscription.id, url)
        if other is not None:
            reason = f"It moved to {url}, which is feed {other}."
            return await end_subscription(databases, conn, subscription, "disabled", reason, now)
        await subscriptions.move(conn, subscription.id, url)
    stored = await save_document(conn, subscription, response, url, now, isolate=isolate)
    outcome = outcome_of(subscription, response, stored, url if moved else "")
    await schedule_next(databases, conn, subscription, response, outcome, now)
    return outcome


async def save_document(
    conn: Connection,
    subscription: FeedSubscription,
    response: FeedResponse,
    url: str,
    now: datetime,
    *,
    isolate: bool,
) -> SaveResult | None:
    """Save the feed of a response, or only its validators if the document is the same."""
    if response.feed is None:
        if response.validators.body is not None and subscription.feed_id is not None:
            await save_feed.save_validators(conn, {subscription.feed_id: response.validators})
        return None
    stored = await save_feed.save_feed(
        conn, url, response.feed, response.validators, id_=subscription.id, now=now, isolate=isolate
    )
    if subscription.partial:
        await full_pages.want_pages(conn, [*stored.new, *stored.changed], now=now)
    if stored.feed_id != subscription.feed_id:
        await subscriptions.link_feed(conn, subscription.id, stored.feed_id)
    return stored


def outcome_of(
    subscription: FeedSubscription, response: FeedResponse, stored: SaveResult | None, moved_to: str
) -> PollOutcome:
    if stored is None:
        words = "Nothing new." if response.kind == "same" else response.reason
        return PollOutcome(subscription.id, response.kind, words)
    words = f"{len(stored.new)} new, {len(stored.changed)} changed, {stored.unchanged} unchanged."
    return PollOutcome(
        subscription.id,
        "fresh",
        f"{words} It moved to {moved_to}." if moved_to else words,
        stored.new,
        len(stored.changed),
        stored.unchanged,
        problems=stored.problems,
        stored_in=stored.feed_id,
    )


async def end_subscription(
    databases: FeedDatabases,
    conn: Connection,
    subscription: FeedSubscription,
    state: Literal["gone", "disabled"],
    reason: str,
    now: datetime,
) -> PollOutcome:
    """Stop polling a feed."""
    if subscription.task_id is not None:
        async with databases.queue(conn) as queue:
            await tasks.set_state(queue, [subscription.task_id], "disabled", now=now)
    await subscriptions.set_state(conn, [subscription.id], state, reason)
    return PollOutcome(subscription.id, "gone" if state == "gone" else "moved", reason)


async def stop_task(databases: FeedDatabases, subscription: FeedSubscription) -> None:
    """Disable the task of a disabled feed, in case a process was killed before it did so."""
    if subscription.task_id is None:
        return
    now = databases.search.clock.now()
    async with databases.search.transaction() as conn, databases.queue(conn) as queue:
        await tasks.set_state(queue, [subscription.task_id], "disabled", now=now)


async def schedule_next(
    databases: FeedDatabases,
    conn: Connection,
    subscription: FeedSubscription,
    response: FeedResponse,
    outcome: PollOutcome,
    now: datetime,
) -> None:
    """Record the poll and schedule the next one; our own outage does not count against the feed."""
    host, failed = response.url.host, response.kind == "failed"
    outage = response.silent and await subscriptions.is_outage(conn, host, now=now)
    if outage:
        outcome.kind = "ours"
        outcome.words = f"No host answers; our own network seems to be down: {response.reason}"
    errors = subscription.errors + (not outage) if failed else 0
    feed_id, new = outcome.stored_in or subscription.feed_id, len(outcome.new)
    paced = [feed_id] if feed_id and subscription.fixed is None else []
    times = (await save_feed.item_times(conn, paced)).get(feed_id or 0, [])
    following = next_poll_of(
        subscription, response, times, new=new, errors=errors, outage=outage, now=now
    )
    if not failed:
        began = response.began or now
        following = await subscribe.next_poll_with_hub(
            databases, conn, subscription, following, news=new > 0, began=began, now=now
        )
    outcome.next_at, outcome.why = following.at, following.why
    if subscription.task_id is not None:
        period = max(following.at - now, interval.MIN_WAIT)
        async with databases.queue(conn) as queue:
            run = NextRun(subscription.task_id, following.at, period, host)
            await tasks.set_next_runs(queue, [run])
    record = PollRecord(
        id=subscription.id,
        polled_at=now,
        host=host,
        silent=response.silent,
        status=response.status,
        errors=errors,
        error=storable_text(outcome.words) if failed else "",
        new=new,
        next_poll=following,
        unmodified=response.kind == "same",
    )
    await subscriptions.record_polls(conn, [record])


async def knock_items(
    databases: FeedDatabases, outcome: PollOutcome, feed_id: int, *, source: str
) -> None:
    """Send the links of new items to the door, with those that a killed poll left; without a door they wait.

    `source` is the host of the feed: its items lead to no other private host.
    """
    async with databases.search.connection() as conn:
        waiting = await save_feed.unknocked_links(conn, feed_id, n=KNOCK_BATCH)
    if not waiting:
        return
    try:
        async with databases.door() as door:
            while waiting:
                links = [link for _, link in waiting]
                answers = await door.knock(links, knock=replace(KNOCK, source=source))
                outcome.knocked += sum(answers.counts().values())
                async with databases.search.connection() as conn:
                    await save_feed.mark_knocked(conn, waiting)
                    waiting = await save_feed.unknocked_links(conn, feed_id, n=KNOCK_BATCH)
    except Unreachable as error:
        outcome.problems.append(
            f"Could not reach the door; the links knock after the next poll: {error.message}"
        )
