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
from usher.feeds.poll.after_poll import follow
from usher.feeds.poll.moved_feed import moved, new_home
from usher.feeds.poll.outcome import Outcome, Told, following
from usher.feeds.poll.request import Reached, reach
from usher.feeds.poll.shared_statements import Desk
from usher.feeds.store import save_feed, subscriptions
from usher.feeds.store.databases import House
from usher.feeds.store.item_identity import digest
from usher.feeds.store.save_feed import Stamp, Stored
from usher.feeds.store.subscriptions import Noted, Subscribed
from usher.feeds.websub import rules, subscribe
from usher.urls import UrlRefusal
from usher.urls import parse as parse_url

__all__ = ["Outcome", "Told", "judge", "poll", "settle"]

EDITION: Final = b"2"  # of what is read from a document: with another one, each is read anew
TRIES: Final = 5
KNOCKS: Final = 500  # in one batch
SILENT: Final = frozenset({"dns", "connect", "timeout"})  # what our own outage looks like
GONE, UNMODIFIED = 410, 304
PASS: Final = Knock("single", hall_pass=True)  # it is news: it does not wait for its host's clock


async def poll(
    house: House,
    fetcher: Fetcher,
    id_: int,
    *,
    now: datetime | None = None,
    desk: Desk | None = None,
) -> Told:
    """Poll a feed now; one that is off is left alone. Those that go on at once share a desk."""
    desk = desk or Desk(house)
    known = await desk.find(id_)
    if known.state != "enabled":
        await stop(house, known)
        await subscribe.tend(house, fetcher, id_, now=now)
        return Told(id_, "off", f"It is {known.state}, and is not polled.")
    url = parse_url(known.url)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"The feed {id_} has no URL that can be asked: {url.detail}")
    began = now or house.search.clock.now()
    reached = await reach(fetcher, url, etag=known.etag, lastmod=known.lastmod)
    when = now or house.search.clock.now()
    outcome = replace(judge(reached, known, when), began=began)
    if outcome.kind == "failed":
        outcome = replace(outcome, home=url)  # nobody moves to where there is nothing
    elif new_home(outcome):
        outcome = replace(await moved(fetcher, known, outcome, when, judge), began=began)
    told = await desk.note(known, outcome, when) or await settle(house, known, outcome, now=when)
    if known.knocks and told.good and (told.new or told.changed or known.waiting):
        await knock(house, told, told.stored_in or known.feed_id or 0, source=outcome.home.host)
    if told.good:
        news = bool(told.new or told.changed)
        feed_id, digests = told.stored_in or known.feed_id, not desk.later
        await follow(house, known, feed_id, news=news, now=when, digests=digests)
        desk.undone = desk.undone or (desk.later and (news or known.undone))
    if known.hubbed or (outcome.feed and outcome.feed.hubs):
        told.problems += await subscribe.tend(house, fetcher, id_, now=when)
    return told


def judge(reached: Reached, known: Subscribed, now: datetime) -> Outcome:
    """What the answer means; nothing is wiped by an answer that is no feed."""
    answer, home = reached.answer, reached.home
    rest = answer.retry_after(now)
    retry = (
        None
        if rest is None
        else timedelta(seconds=min(rest, interval.MOST_RETRY_AFTER.total_seconds()))
    )
    fresh = interval.freshness(answer.header("cache-control"), answer.first("expires"), now)
    if answer.status == UNMODIFIED and (known.etag or known.lastmod):
        return Outcome("same", home, answer.status, fresh=fresh)
    if answer.status == GONE and answer.url == home:  # and not only where it sends us for now
        return Outcome("gone", home, GONE, "HTTP 410: it is gone for good.")
    error = reached.error or answer.error
    if error or answer.status is None or answer.status // 100 != 2:  # noqa: PLR2004 - success
        words = error or f"HTTP {answer.status} {answer.reason}".rstrip()
        silent = answer.status is None and answer.kind in SILENT
        return Outcome("failed", home, answer.status, f"{words}.", retry_after=retry, silent=silent)
    body = digest(EDITION, answer.body)
    stamp = Stamp(
        save_feed.clean(answer.first("etag")), save_feed.clean(answer.first("last-modified")), body
    )
    if body == known.body_hash:
        return Outcome("same", home, answer.status, stamp=stamp, fresh=fresh)
    feed = parse(
        answer.body,
        url=str(answer.url),
        content_type=answer.first("content-type"),
        language=answer.first("content-language"),
        now=now,
    )
    if isinstance(feed, NotAFeed):
        return Outcome("failed", home, answer.status, feed.reason, retry_after=retry)
    feed = rules.heard(feed, answer.headers_of("link"), str(answer.url))
    return Outcome("fresh", home, answer.status, feed=feed, stamp=stamp, fresh=fresh)


async def settle(house: House, known: Subscribed, outcome: Outcome, *, now: datetime) -> Told:
    """Write down what an answer means, all of it or nothing."""
    careful = False

    async def work(conn: Connection) -> Told:
        return await settled(house, conn, known, outcome, now, careful=careful)

    for _ in range(TRIES - 1):
        try:
            return await house.search.run(work)
        except psycopg.errors.DeadlockDetected:
            continue
        except save_feed.BAD:
            careful = True  # something cannot be kept: it has to be found
    return await house.search.run(work)


async def settled(
    house: House,
    conn: Connection,
    known: Subscribed,
    outcome: Outcome,
    now: datetime,
    *,
    careful: bool,
) -> Told:
    if await subscriptions.hold(conn, known.id) != known.url:
        return Told(known.id, "off", "It moved or went while it was asked for.")
    if outcome.kind == "gone":
        return await end(house, conn, known, "gone", outcome.reason, now)
    moved = str(outcome.home) != known.url
    if moved:
        other = await subscriptions.other_at(conn, known.id, str(outcome.home))
        if other is not None:
            words = f"It moved to {outcome.home}, which is the feed {other}."
            return await end(house, conn, known, "disabled", words, now)
        await subscriptions.move(conn, known.id, str(outcome.home))
    url = str(outcome.home) if moved else known.url
    stored = await keep(conn, known, outcome, url, now, careful=careful)
    told = told_of(known, outcome, stored, url if moved else "")
    await plan(house, conn, known, outcome, told, now)
    return told


async def keep(
    conn: Connection,
    known: Subscribed,
    outcome: Outcome,
    url: str,
    now: datetime,
    *,
    careful: bool,
) -> Stored | None:
    if outcome.feed is None:
        if outcome.stamp.body is not None and known.feed_id is not None:
            await save_feed.restamp(conn, known.feed_id, outcome.stamp)
        return None
    stored = await save_feed.save(
        conn, url, outcome.feed, outcome.stamp, id_=known.id, now=now, careful=careful
    )
    if known.partial:
        await full_pages.want(conn, [*stored.new, *stored.changed], now=now)
    if stored.feed_id != known.feed_id:
        await subscriptions.link_feed(conn, known.id, stored.feed_id)
    return stored


def told_of(known: Subscribed, outcome: Outcome, stored: Stored | None, moved: str) -> Told:
    if stored is None:
        words = "Nothing new." if outcome.kind == "same" else outcome.reason
        return Told(known.id, outcome.kind, words)
    words = f"{len(stored.new)} new, {len(stored.changed)} changed, {stored.unchanged} as before."
    return Told(
        known.id,
        "fresh",
        f"{words} It moved to {moved}." if moved else words,
        stored.new,
        len(stored.changed),
        stored.unchanged,
        problems=stored.problems,
        stored_in=stored.feed_id,
    )


async def end(
    house: House,
    conn: Connection,
    known: Subscribed,
    state: Literal["gone", "disabled"],
    reason: str,
    now: datetime,
) -> Told:
    """Poll it no more."""
    if known.task_id is not None:
        async with house.queue(conn) as queue:
            await tasks.set_state(queue, [known.task_id], "disabled", now=now)
    await subscriptions.set_state(conn, [known.id], state, reason)
    return Told(known.id, "gone" if state == "gone" else "moved", reason)


async def stop(house: House, known: Subscribed) -> None:
    """Stop the task of a feed that is off, where somebody was killed before that was done."""
    if known.task_id is None:
        return
    async with house.search.transaction() as conn, house.queue(conn) as queue:
        await tasks.set_state(queue, [known.task_id], "disabled", now=house.search.clock.now())


async def plan(
    house: House, conn: Connection, known: Subscribed, outcome: Outcome, told: Told, now: datetime
) -> None:
    """When to come again; what is our own fault does not count against the feed."""
    host = outcome.home.host
    ours = outcome.silent and await subscriptions.silence(conn, host, now=now)
    if ours:
        told.kind = "ours"
        told.words = f"Nobody answers, so that it is our own line that is down: {outcome.reason}"
    failed = outcome.kind == "failed"
    errors = known.errors + (not ours) if failed else 0
    feed_id = told.stored_in or known.feed_id
    paced = [feed_id] if feed_id and known.fixed is None else []
    times = (await save_feed.times(conn, paced)).get(feed_id or 0, [])
    then = following(known, outcome, times, new=len(told.new), errors=errors, ours=ours, now=now)
    if not failed:
        began, news = outcome.began or now, bool(told.new)
        then = await subscribe.minded(house, conn, known, then, news=news, began=began, now=now)
    told.next_at, told.why = then.at, then.why
    if known.task_id is not None:
        period = max(then.at - now, interval.SHORTEST)
        async with house.queue(conn) as queue:
            await tasks.set_clock(queue, known.task_id, period=period, next_run=then.at, host=host)
    noted = Noted(
        host=host,
        silent=outcome.silent,
        status=outcome.status,
        errors=errors,
        error=save_feed.clean(told.words) if failed else "",
        new=len(told.new),
        period=then.period,
        next_at=then.at,
        why=then.why,
        unmodified=int(outcome.kind == "same"),
    )
    await subscriptions.note(conn, known.id, noted, now=now)


async def knock(house: House, told: Told, feed_id: int, *, source: str) -> None:
    """Send the links of new items to the door, also those that a killed poll left; without a door they wait.

    `source` is the host of the feed: its items lead to no other private host.
    """
    async with house.search.connection() as conn:
        waiting = await save_feed.to_knock(conn, feed_id, n=KNOCKS)
    if not waiting:
        return
    try:
        async with house.door() as door:
            while waiting:
                links = [link for _, link in waiting]
                answers = await door.knock(links, knock=replace(PASS, source=source))
                told.knocked += sum(answers.counts().values())
                async with house.search.connection() as conn:
                    await save_feed.knocked(conn, waiting)
                    waiting = await save_feed.to_knock(conn, feed_id, n=KNOCKS)
    except Unreachable as error:
        told.problems.append(
            f"The door could not be reached; its links knock later: {error.message}"
        )
