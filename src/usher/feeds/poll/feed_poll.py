"""Polls one feed: fetches and parses it, stores it, schedules the next poll and sends new links to the door.

Every step is safe to repeat. A process that is killed leaves nothing half done, and the next poll completes the rest.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import psycopg

from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Connection
from usher.door.rules import Knock
from usher.errors import BadInput, Unreachable
from usher.feeds.items import followup_jobs, full_pages
from usher.feeds.poll import interval, tasks
from usher.feeds.poll.interval import NextPoll
from usher.feeds.poll.moved_feed import declared_url, follow_declared_move
from usher.feeds.poll.outcome import FeedResponse, PollOutcome, interpret, next_poll_of
from usher.feeds.poll.request import fetch_feed
from usher.feeds.poll.shared_statements import SharedStatements
from usher.feeds.poll.tasks import NextRun
from usher.feeds.store import item_texts, save_feed, subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.save_feed import SaveResult, storable_text
from usher.feeds.store.subscriptions import FeedSubscription, PollRecord
from usher.feeds.websub import subscribe
from usher.urls import UrlRefusal
from usher.urls import parse as parse_url

MAX_ATTEMPTS: Final = 5
KNOCK_BATCH: Final = 500
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
    permission = databases.host_permission
    result = await fetch_feed(
        fetcher, url, permission, etag=subscription.etag, lastmod=subscription.lastmod
    )
    now = now or databases.search.clock.now()
    response = interpret(result, subscription, now)
    if response.kind == "failed":
        response = replace(response, url=url)  # a redirect to an error is no move
    elif declared_url(response):
        response = await follow_declared_move(fetcher, subscription, response, permission, now)
    done = FeedPoll(databases, subscription, replace(response, began=began), now)
    outcome = await shared.save_unchanged(subscription, done.response, now) or await done.save()
    if outcome.good:
        await done.run_followups(outcome, shared)
    if subscription.hubbed or (response.feed and response.feed.hubs):
        problems = await subscribe.update_hub_subscription(databases, fetcher, id_, now=now)
        outcome.problems += problems
    return outcome


async def stop_task(databases: FeedDatabases, subscription: FeedSubscription) -> None:
    """Disable the task of a disabled feed, in case a process was killed before it did so."""
    if subscription.task_id is None:
        return
    now = databases.search.clock.now()
    async with databases.search.transaction() as conn, databases.queue(conn) as queue:
        await tasks.set_state(queue, [subscription.task_id], "disabled", now=now)


@dataclass(frozen=True, slots=True)
class FeedPoll:
    """A poll whose response is there, but not saved yet."""

    databases: FeedDatabases
    subscription: FeedSubscription
    response: FeedResponse
    now: datetime

    async def save(self) -> PollOutcome:
        """Save the response in one transaction; repeats after a deadlock and isolates items that cannot be stored."""
        isolate = False

        async def save(conn: Connection) -> PollOutcome:
            return await self._save(conn, isolate=isolate)

        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return await self.databases.search.run(save)
            except psycopg.errors.DeadlockDetected:
                continue
            except save_feed.UNSTORABLE_ERRORS:
                isolate = True
        return await self.databases.search.run(save)

    async def _save(self, conn: Connection, *, isolate: bool) -> PollOutcome:
        id_, url = self.subscription.id, str(self.response.url)
        if not await subscriptions.lock_subscriptions(conn, [self.subscription]):
            return PollOutcome(id_, "off", "The feed moved or went during the poll.")
        if self.response.kind == "gone":
            return await self._end_subscription(conn, "gone", self.response.reason)
        moved = url != self.subscription.url
        if moved:
            other = await subscriptions.other_subscription_at(conn, id_, url)
            if other is not None:
                reason = f"It moved to {url}, which is feed {other}."
                return await self._end_subscription(conn, "disabled", reason)
            await subscriptions.move(conn, id_, url)
        stored = await self._save_document(conn, isolate=isolate)
        outcome = self._outcome(stored, moved_to=url if moved else "")
        await self._schedule_next(conn, outcome)
        return outcome

    async def _save_document(self, conn: Connection, *, isolate: bool) -> SaveResult | None:
        """Save the feed, or only its validators if the document is the same."""
        subscription, response = self.subscription, self.response
        if response.feed is None:
            if response.validators.body is not None and subscription.feed_id is not None:
                await save_feed.save_validators(conn, {subscription.feed_id: response.validators})
            return None
        stored = await save_feed.save_feed(
            conn,
            str(response.url),
            response.feed,
            response.validators,
            id_=subscription.id,
            now=self.now,
            isolate=isolate,
        )
        if subscription.partial:
            await full_pages.want_pages(conn, [*stored.new, *stored.changed], now=self.now)
        if stored.feed_id != subscription.feed_id:
            await subscriptions.link_feed(conn, subscription.id, stored.feed_id)
        return stored

    def _outcome(self, stored: SaveResult | None, *, moved_to: str) -> PollOutcome:
        id_, kind = self.subscription.id, self.response.kind
        if stored is None:
            return PollOutcome(id_, kind, self.response.reason or "Nothing new.")
        new, changed = len(stored.new), len(stored.changed)
        words = f"{new} new, {changed} changed, {stored.unchanged} unchanged."
        return PollOutcome(
            id_,
            "fresh",
            f"{words} It moved to {moved_to}." if moved_to else words,
            stored.new,
            changed,
            stored.unchanged,
            problems=stored.problems,
            stored_in=stored.feed_id,
        )

    async def _end_subscription(
        self, conn: Connection, state: Literal["gone", "disabled"], reason: str
    ) -> PollOutcome:
        """Stop polling the feed."""
        subscription = self.subscription
        if subscription.task_id is not None:
            async with self.databases.queue(conn) as queue:
                await tasks.set_state(queue, [subscription.task_id], "disabled", now=self.now)
        await subscriptions.set_state(conn, [subscription.id], state, reason)
        return PollOutcome(subscription.id, "gone" if state == "gone" else "moved", reason)

    async def _schedule_next(self, conn: Connection, outcome: PollOutcome) -> None:
        """Record the poll and schedule the next one; our own outage does not count against the feed."""
        subscription, response, host = self.subscription, self.response, self.response.url.host
        outage = response.silent and await subscriptions.is_outage(conn, host, now=self.now)
        if outage:
            outcome.kind = "ours"
            outcome.words = f"No host answers; our own network seems to be down: {response.reason}"
        failed = response.kind == "failed"
        errors = subscription.errors + (not outage) if failed else 0
        following = await self._next_poll(conn, outcome, errors=errors, outage=outage)
        outcome.next_at, outcome.why = following.at, following.why
        if subscription.task_id is not None:
            period = max(following.at - self.now, interval.MIN_WAIT)
            async with self.databases.queue(conn) as queue:
                run = NextRun(subscription.task_id, following.at, period, host)
                await tasks.set_next_runs(queue, [run])
        record = PollRecord(
            id=subscription.id,
            polled_at=self.now,
            host=host,
            silent=response.silent,
            status=response.status,
            errors=errors,
            error=storable_text(outcome.words) if failed else "",
            new=len(outcome.new),
            next_poll=following,
            unmodified=response.kind == "same",
        )
        await subscriptions.record_polls(conn, [record])

    async def _next_poll(
        self, conn: Connection, outcome: PollOutcome, *, errors: int, outage: bool
    ) -> NextPoll:
        subscription, response, now = self.subscription, self.response, self.now
        feed_id, new = outcome.stored_in or subscription.feed_id, len(outcome.new)
        paced = [feed_id] if feed_id and subscription.fixed is None else []
        times = (await save_feed.item_times(conn, paced)).get(feed_id or 0, [])
        following = next_poll_of(
            subscription, response, times, new=new, errors=errors, outage=outage, now=now
        )
        if response.kind == "failed":
            return following
        began = response.began or now
        return await subscribe.next_poll_with_hub(
            self.databases, conn, subscription, following, news=new > 0, began=began, now=now
        )

    async def run_followups(self, outcome: PollOutcome, shared: SharedStatements) -> None:
        """Knock for new links, digest items, and queue jobs that fetch pages and clean items.

        A process that is killed leaves rows that say so, and the next poll of the feed completes the work.
        """
        subscription, news = self.subscription, bool(outcome.new or outcome.changed)
        feed_id = outcome.stored_in or subscription.feed_id
        if subscription.knocks and (news or subscription.waiting):
            await self._knock(outcome, feed_id or 0)
        if feed_id is None or not (news or subscription.undone):
            return
        if shared.defer_digest:
            shared.digest_pending = True
        else:
            await item_texts.digest_feed(self.databases.search, feed_id)
        if subscription.partial:
            await full_pages.queue_wanted_pages(self.databases, feed_id)
        if subscription.cleans:
            async with (
                self.databases.search.transaction() as conn,
                self.databases.queue(conn) as queue,
            ):
                await followup_jobs.clean_soon(queue, [subscription.id], now=self.now)

    async def _knock(self, outcome: PollOutcome, feed_id: int) -> None:
        """Send the links of new items to the door, with those that a killed poll left; without a door they wait."""
        # The host of the feed is the source: its items lead to no other private host.
        knock, search = replace(KNOCK, source=self.response.url.host), self.databases.search
        async with search.connection() as conn:
            waiting = await save_feed.unknocked_links(conn, feed_id, n=KNOCK_BATCH)
        if not waiting:
            return
        try:
            async with self.databases.door() as door:
                while waiting:
                    answers = await door.knock([link for _, link in waiting], knock=knock)
                    outcome.knocked += sum(answers.counts().values())
                    async with search.connection() as conn:
                        await save_feed.mark_knocked(conn, waiting)
                        waiting = await save_feed.unknocked_links(conn, feed_id, n=KNOCK_BATCH)
        except Unreachable as error:
            outcome.problems.append(
                f"Could not reach the door; the links knock after the next poll: {error.message}"
            )
