"""Batches the statements of polls that run concurrently in one process.

Lookups are batched, and so are polls that found nothing new. Every other poll writes its own transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

import psycopg

from usher.db.pool import Connection
from usher.errors import UsherError
from usher.feeds.poll import interval, tasks
from usher.feeds.poll.interval import NextPoll
from usher.feeds.poll.outcome import FeedResponse, PollOutcome, next_poll_of
from usher.feeds.poll.tasks import NextRun
from usher.feeds.store import save_feed, subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.subscriptions import FeedSubscription, PollRecord

A = TypeVar("A")
B = TypeVar("B")
MAX_BATCH: Final = 200


class StatementBatcher(Generic[A, B]):
    """Collects requests while a call runs, and answers them all with the next call."""

    def __init__(self, answer: Callable[[Sequence[A]], Awaitable[Sequence[B]]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, request: A) -> B:
        result: asyncio.Future[B] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, result))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await result

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            await self._answer_batch(batch)
        self._worker = None

    async def _answer_batch(self, batch: Sequence[tuple[A, "asyncio.Future[B]"]]) -> None:
        try:
            answers = await self._answer([request for request, _ in batch])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            for _, result in batch:
                if not result.done():
                    result.set_exception(error)
            return
        for (_, result), answer in zip(batch, answers, strict=True):
            if not result.done():  # a cancelled caller does not wait any more
                result.set_result(answer)


@dataclass(frozen=True, slots=True)
class UnchangedPoll:
    """A poll that found nothing new."""

    subscription: FeedSubscription
    response: FeedResponse
    at: datetime


class SharedStatements:
    """The batched statements of one process.

    With `defer_digest` polls do not digest items; they set `digest_pending`, and the caller queues a job for it.
    """

    def __init__(self, databases: FeedDatabases, *, defer_digest: bool = False) -> None:
        self.defer_digest, self.digest_pending = defer_digest, False
        self._databases = databases
        self._lookups = StatementBatcher(self._find)
        self._writes = StatementBatcher(self._save)

    async def find(self, id_: int) -> FeedSubscription:
        """The subscription with this number; NotFound if there is none."""
        subscription = await self._lookups.ask(id_)
        if subscription is None:
            raise subscriptions.feed_not_found(id_)
        return subscription

    async def save_unchanged(
        self, subscription: FeedSubscription, response: FeedResponse, at: datetime
    ) -> PollOutcome | None:
        """Save a poll that found nothing new; None if it needs a transaction of its own."""
        if response.kind != "same" or str(response.url) != subscription.url:
            return None
        if subscription.hubbed and self._databases.callback_url:
            return None
        try:
            return await self._writes.ask(UnchangedPoll(subscription, response, at))
        except (psycopg.Error, UsherError):
            return None  # alone the poll reports the error, or waits for the server

    async def _find(self, ids: Sequence[int]) -> list[FeedSubscription | None]:
        async with self._databases.search.connection() as conn:
            by_id = await subscriptions.find_all(conn, ids)
        return [by_id.get(id_) for id_ in ids]

    async def _save(self, polls: Sequence[UnchangedPoll]) -> list[PollOutcome | None]:
        """Save the last poll of each feed; an earlier poll of the same feed gets None."""
        last = {poll.subscription.id: poll for poll in polls}
        async with self._databases.search.transaction() as conn:
            wanted = [poll.subscription for poll in last.values()]
            locked = await subscriptions.lock_subscriptions(conn, wanted)
            outcomes = await self._save_locked(conn, [last[id_] for id_ in locked])
        return [
            outcomes.get(poll.subscription.id) if last[poll.subscription.id] is poll else None
            for poll in polls
        ]

    async def _save_locked(
        self, conn: Connection, polls: Sequence[UnchangedPoll]
    ) -> dict[int, PollOutcome]:
        if not polls:
            return {}
        nexts = await next_polls(conn, polls)
        pairs = list(zip(polls, nexts, strict=True))
        async with self._databases.queue(conn) as queue:
            runs = [
                NextRun(task, following.at, max(following.at - poll.at, interval.MIN_WAIT))
                for poll, following in pairs
                if (task := poll.subscription.task_id) is not None
            ]
            await tasks.set_next_runs(queue, runs)
        validators = {
            poll.subscription.feed_id: poll.response.validators
            for poll in polls
            if poll.response.validators.body is not None and poll.subscription.feed_id is not None
        }
        await save_feed.save_validators(conn, validators)
        await subscriptions.record_polls(conn, [record_of(*pair) for pair in pairs])
        return {poll.subscription.id: outcome_of(poll, following) for poll, following in pairs}


async def next_polls(conn: Connection, polls: Sequence[UnchangedPoll]) -> list[NextPoll]:
    feeds = [
        poll.subscription.feed_id
        for poll in polls
        if poll.subscription.feed_id and not poll.subscription.fixed
    ]
    times = await save_feed.item_times(conn, feeds)
    return [
        next_poll_of(
            poll.subscription,
            poll.response,
            times.get(poll.subscription.feed_id or 0, []),
            new=0,
            now=poll.at,
        )
        for poll in polls
    ]


def record_of(poll: UnchangedPoll, following: NextPoll) -> PollRecord:
    return PollRecord(
        id=poll.subscription.id,
        polled_at=poll.at,
        host=poll.response.url.host,
        status=poll.response.status,
        next_poll=following,
        unmodified=True,
    )


def outcome_of(poll: UnchangedPoll, following: NextPoll) -> PollOutcome:
    id_ = poll.subscription.id
    return PollOutcome(id_, "same", "Nothing new.", next_at=following.at, why=following.why)
