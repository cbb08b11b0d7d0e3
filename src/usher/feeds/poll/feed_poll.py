"""One poll of a feed: asked for, read, kept; when to come again, and the links of its new items sent to the door.

Comes from the queue, as a job of the feed's task, or from a person; goes to the schema `feeds`, the feed's task and the
door. Whoever is killed at any point leaves nothing half done, and the next poll does what was left.
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
from usher.feeds.store import save_feed, subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.item_identity import hash_parts
from usher.feeds.store.save_feed import CacheValidators, SaveResult
from usher.feeds.store.subscriptions import FeedSubscription, PollRecord
from usher.feeds.websub import rules, subscribe
from usher.urls import Refused
from usher.urls import parse as parse_url

PARSER_EDITION: Final = b"2"  # of what is read from a document: with another one, each is read anew
MAX_ATTEMPTS: Final = 5
KNOCK_BATCH: Final = 500  # in one batch
OUTAGE_KINDS: Final = frozenset({"dns", "connect", "timeout"})  # what our own outage looks like
STATUS_GONE, STATUS_NOT_MODIFIED = 410, 304
KNOCK: Final = Knock("single", hall_pass=True)  # it is news: it does not wait for its host's clock


async def poll(
    databases: FeedDatabases,
    fetcher: Fetcher,
    id_: int,
    *,
    now: datetime | None = None,
    shared: SharedStatements | None = None,
) -> PollOutcome:
    """Poll a feed now; one that is off is left alone. Those that go on at once share a shared."""
    shared = shared or SharedStatements(databases)
    known = await shared.find(id_)
    if known.state != "enabled":
        await stop_task(databases, known)
        await subscribe.update_hub_subscription(databases, fetcher, id_, now=now)
        return PollOutcome(id_, "off", f"It is {known.state}, and is not polled.")
    url = parse_url(known.url)
    if isinstance(url, Refused):
        raise BadInput(f"The feed {id_} has no URL that can be asked: {url.detail}")
    began = now or databases.search.clock.now()
    reached = await fetch_feed(fetcher, url, etag=known.etag, lastmod=known.lastmod)
    when = now or databases.search.clock.now()
    outcome = replace(interpret(reached, known, when), began=began)
    if outcome.kind == "failed":
        outcome = replace(outcome, home=url)  # nobody moves to where there is nothing
    elif declared_url(outcome):
        outcome = replace(
            await follow_declared_move(fetcher, known, outcome, when, interpret), began=began
        )
    told = await shared.note(known, outcome, when) or await save_response(
        databases, known, outcome, now=when
    )
    if known.knocks and told.good and (told.new or told.changed or known.waiting):
        await knock_items(
            databases, told, told.stored_in or known.feed_id or 0, source=outcome.home.host
        )
    if told.good:
        news = bool(told.new or told.changed)
        feed_id, digests = told.stored_in or known.feed_id, not shared.defer_digest
        await run_followups(databases, known, feed_id, news=news, now=when, digests=digests)
        shared.digest_pending = shared.digest_pending or (
            shared.defer_digest and (news or known.undone)
        )
    if known.hubbed or (outcome.feed and outcome.feed.hubs):
        told.problems += await subscribe.update_hub_subscription(databases, fetcher, id_, now=when)
    return told


def interpret(reached: FetchResult, known: FeedSubscription, now: datetime) -> FeedResponse:
    """What the answer means; nothing is wiped by an answer that is no feed."""
    answer, home = reached.answer, reached.home
    rest = answer.retry_after(now)
    retry = (
        None
        if rest is None
        else timedelta(seconds=min(rest, interval.MAX_RETRY_AFTER.total_seconds()))
    )
    fresh = interval.cache_lifetime(answer.header("cache-control"), answer.first("expires"), now)
    if answer.status == STATUS_NOT_MODIFIED and (known.etag or known.lastmod):
        return FeedResponse("same", home, answer.status, fresh=fresh)
    if (
        answer.status == STATUS_GONE and answer.url == home
    ):  # and not only where it sends us for now
        return FeedResponse("gone", home, STATUS_GONE, "HTTP 410: it is gone for good.")
    error = reached.error or answer.error
    if error or answer.status is None or answer.status // 100 != 2:  # noqa: PLR2004 - success
        words = error or f"HTTP {answer.status} {answer.reason}".rstrip()
        silent = answer.status is None and answer.kind in OUTAGE_KINDS
        return FeedResponse(
            "failed", home, answer.status, f"{words}.", retry_after=retry, silent=silent
        )
    body = hash_parts(PARSER_EDITION, answer.body)
    stamp = CacheValidators(
        save_feed.storable_text(answer.first("etag")),
        save_feed.storable_text(answer.first("last-modified")),
        body,
    )
    if body == known.body_hash:
        return FeedResponse("same", home, answer.status, stamp=stamp, fresh=fresh)
    feed = parse(
        answer.body,
        url=str(answer.url),
        content_type=answer.first("content-type"),
        language=answer.first("content-language"),
        now=now,
    )
    if isinstance(feed, NotAFeed):
        return FeedResponse("failed", home, answer.status, feed.reason, retry_after=retry)
    feed = rules.with_link_headers(feed, answer.headers_of("link"), str(answer.url))
    return FeedResponse("fresh", home, answer.status, feed=feed, stamp=stamp, fresh=fresh)


async def save_response(
    databases: FeedDatabases, known: FeedSubscription, outcome: FeedResponse, *, now: datetime
) -> PollOutcome:
    """Write down what an answer means, all of it or nothing."""
    careful = False

    async def work(conn: Connection) -> PollOutcome:
        return await save_in_transaction(databases, conn, known, outcome, now, careful=careful)

    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await databases.search.run(work)
        except psycopg.errors.DeadlockDetected:
            continue
        except save_feed.UNSTORABLE_ERRORS:
            careful = True  # something cannot be kept: it has to be found
    return await databases.search.run(work)


async def save_in_transaction(
    databases: FeedDatabases,
    conn: Connection,
    known: FeedSubscription,
    outcome: FeedResponse,
    now: datetime,
    *,
    careful: bool,
) -> PollOutcome:
    if await subscriptions.lock_subscription(conn, known.id) != known.url:
        return PollOutcome(known.id, "off", "It moved or went while it was asked for.")
    if outcome.kind == "gone":
        return await end_subscription(databases, conn, known, "gone", outcome.reason, now)
    moved = str(outcome.home) != known.url
    if moved:
        other = await subscriptions.other_subscription_at(conn, known.id, str(outcome.home))
        if other is not None:
            words = f"It moved to {outcome.home}, which is the feed {other}."
            return await end_subscription(databases, conn, known, "disabled", words, now)
        await subscriptions.move(conn, known.id, str(outcome.home))
    url = str(outcome.home) if moved else known.url
    stored = await save_document(conn, known, outcome, url, now, careful=careful)
    told = outcome_of(known, outcome, stored, url if moved else "")
    await schedule_next(databases, conn, known, outcome, told, now)
    return told


async def save_document(
    conn: Connection,
    known: FeedSubscription,
    outcome: FeedResponse,
    url: str,
    now: datetime,
    *,
    careful: bool,
) -> SaveResult | None:
    if outcome.feed is None:
        if outcome.stamp.body is not None and known.feed_id is not None:
            await save_feed.save_validators(conn, known.feed_id, outcome.stamp)
        return None
    stored = await save_feed.save_feed(
        conn, url, outcome.feed, outcome.stamp, id_=known.id, now=now, careful=careful
    )
    if known.partial:
        await full_pages.want_pages(conn, [*stored.new, *stored.changed], now=now)
    if stored.feed_id != known.feed_id:
        await subscriptions.link_feed(conn, known.id, stored.feed_id)
    return stored


def outcome_of(
    known: FeedSubscription, outcome: FeedResponse, stored: SaveResult | None, moved: str
) -> PollOutcome:
    if stored is None:
        words = "Nothing new." if outcome.kind == "same" else outcome.reason
        return PollOutcome(known.id, outcome.kind, words)
    words = f"{len(stored.new)} new, {len(stored.changed)} changed, {stored.unchanged} as before."
    return PollOutcome(
        known.id,
        "fresh",
        f"{words} It moved to {moved}." if moved else words,
        stored.new,
        len(stored.changed),
        stored.unchanged,
        problems=stored.problems,
        stored_in=stored.feed_id,
    )


async def end_subscription(
    databases: FeedDatabases,
    conn: Connection,
    known: FeedSubscription,
    state: Literal["gone", "disabled"],
    reason: str,
    now: datetime,
) -> PollOutcome:
    """Poll it no more."""
    if known.task_id is not None:
        async with databases.queue(conn) as queue:
            await tasks.set_state(queue, [known.task_id], "disabled", now=now)
    await subscriptions.set_state(conn, [known.id], state, reason)
    return PollOutcome(known.id, "gone" if state == "gone" else "moved", reason)


async def stop_task(databases: FeedDatabases, known: FeedSubscription) -> None:
    """Stop the task of a feed that is off, where somebody was killed before that was done."""
    if known.task_id is None:
        return
    async with databases.search.transaction() as conn, databases.queue(conn) as queue:
        await tasks.set_state(queue, [known.task_id], "disabled", now=databases.search.clock.now())


async def schedule_next(
    databases: FeedDatabases,
    conn: Connection,
    known: FeedSubscription,
    outcome: FeedResponse,
    told: PollOutcome,
    now: datetime,
) -> None:
    """When to come again; what is our own fault does not count against the feed."""
    host = outcome.home.host
    ours = outcome.silent and await subscriptions.is_outage(conn, host, now=now)
    if ours:
        told.kind = "ours"
        told.words = f"Nobody answers, so that it is our own line that is down: {outcome.reason}"
    failed = outcome.kind == "failed"
    errors = known.errors + (not ours) if failed else 0
    feed_id = told.stored_in or known.feed_id
    paced = [feed_id] if feed_id and known.fixed is None else []
    times = (await save_feed.item_times(conn, paced)).get(feed_id or 0, [])
    then = next_poll_of(known, outcome, times, new=len(told.new), errors=errors, ours=ours, now=now)
    if not failed:
        began, news = outcome.began or now, bool(told.new)
        then = await subscribe.next_poll_with_hub(
            databases, conn, known, then, news=news, began=began, now=now
        )
    told.next_at, told.why = then.at, then.why
    if known.task_id is not None:
        period = max(then.at - now, interval.MIN_WAIT)
        async with databases.queue(conn) as queue:
            await tasks.set_next_run(
                queue, known.task_id, period=period, next_run=then.at, host=host
            )
    noted = PollRecord(
        host=host,
        silent=outcome.silent,
        status=outcome.status,
        errors=errors,
        error=save_feed.storable_text(told.words) if failed else "",
        new=len(told.new),
        period=then.period,
        next_at=then.at,
        why=then.why,
        unmodified=int(outcome.kind == "same"),
    )
    await subscriptions.record_poll(conn, known.id, noted, now=now)


async def knock_items(
    databases: FeedDatabases, told: PollOutcome, feed_id: int, *, source: str
) -> None:
    """Send the links of new items to the door, also those that a killed poll left; without a door they wait.

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
                told.knocked += sum(answers.counts().values())
                async with databases.search.connection() as conn:
                    await save_feed.mark_knocked(conn, waiting)
                    waiting = await save_feed.unknocked_links(conn, feed_id, n=KNOCK_BATCH)
    except Unreachable as error:
        told.problems.append(
            f"The door could not be reached; its links knock later: {error.message}"
        )
