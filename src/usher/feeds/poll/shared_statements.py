"""Where polls that go on at once in one process look things up and write them down together.

Comes from each of them, one at a time; goes to the database, all that came in the meantime with one statement. Only
polls that brought nothing are written together: each of the others has enough of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

import psycopg

from usher.db.pool import Connection
from usher.db.statements import array, beside
from usher.errors import UsherError
from usher.feeds.poll import interval
from usher.feeds.poll.outcome import FeedResponse, PollOutcome, next_poll_of
from usher.feeds.store import subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.save_feed import item_times
from usher.feeds.store.subscriptions import FeedSubscription

store = beside(__file__)

A = TypeVar("A")
B = TypeVar("B")
MAX_BATCH: Final = 200  # with one statement


class StatementBatcher(Generic[A, B]):
    """Questions of many, answered with one call for all that came while the last was under way."""

    def __init__(self, answer: Callable[[Sequence[A]], Awaitable[Sequence[B]]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def ask(self, question: A) -> B:
        answer: asyncio.Future[B] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._busy is None:
            self._busy = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            pack, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            await self._do(pack)
        self._busy = None

    async def _do(self, pack: Sequence[tuple[A, "asyncio.Future[B]"]]) -> None:
        try:
            found = await self._answer([question for question, _ in pack])
        except Exception as error:  # noqa: BLE001 - whoever asked is to know
            for _, answer in pack:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), one in zip(pack, found, strict=True):
            if not answer.done():  # whoever asked may have left
                answer.set_result(one)


@dataclass(frozen=True, slots=True)
class UnchangedPoll:
    """A poll that brought nothing."""

    known: FeedSubscription
    outcome: FeedResponse
    at: datetime


class SharedStatements:
    """One for each process that polls many."""

    def __init__(self, databases: FeedDatabases, *, defer_digest: bool = False) -> None:
        """Words are taken by each poll, or `later` by somebody who is told that there is something undone."""
        self.defer_digest, self.digest_pending = defer_digest, False
        self._databases = databases
        self._finding = StatementBatcher(self._find)
        self._noting = StatementBatcher(self._note)

    async def find(self, id_: int) -> FeedSubscription:
        """The subscription of that number."""
        found = await self._finding.ask(id_)
        if found is None:
            raise subscriptions.feed_not_found(id_)
        return found

    async def note(
        self, known: FeedSubscription, outcome: FeedResponse, at: datetime
    ) -> PollOutcome | None:
        """Write down a poll that brought nothing; None for one that is to be written by itself."""
        quiet = outcome.kind == "same" and str(outcome.home) == known.url
        quiet = quiet and not (known.hubbed and self._databases.callback_url)
        if not quiet:
            return None
        try:
            return await self._noting.ask(UnchangedPoll(known, outcome, at))
        except (psycopg.Error, UsherError):
            return None  # alone it says what is wrong, or tries until the server is back

    async def _find(self, ids: Sequence[int]) -> list[FeedSubscription | None]:
        async with self._databases.search.connection() as conn:
            found = await subscriptions.find_all(conn, ids)
        return [found.get(id_) for id_ in ids]

    async def _note(self, quiet: Sequence[UnchangedPoll]) -> list[PollOutcome | None]:
        async with self._databases.search.transaction() as conn:
            return await self._noted(conn, {one.known.id: one for one in quiet}, quiet)

    async def _noted(
        self, conn: Connection, once: dict[int, UnchangedPoll], quiet: Sequence[UnchangedPoll]
    ) -> list[PollOutcome | None]:
        urls = array(one.known.url for one in once.values())
        held = await store.hold.tuples(conn, ids=list(once), urls=urls)
        ours = [once[id_] for (id_,) in held]
        if ours:
            nexts = await self._nexts(conn, ours)
            await self._set_clocks(conn, ours, nexts)
            await save_validators(conn, ours)
            await record_polls(conn, ours, nexts)
            made = {
                one.known.id: outcome_of(one, then) for one, then in zip(ours, nexts, strict=True)
            }
        else:
            made = {}
        # Of two polls of one feed the last counts, and the other is written by itself.
        return [made.get(one.known.id) if once[one.known.id] is one else None for one in quiet]

    async def _nexts(
        self, conn: Connection, ours: Sequence[UnchangedPoll]
    ) -> list[interval.NextPoll]:
        """When to come again."""
        feeds = [one.known.feed_id for one in ours if one.known.feed_id and not one.known.fixed]
        times = await item_times(conn, feeds)
        return [
            next_poll_of(
                one.known, one.outcome, times.get(one.known.feed_id or 0, []), new=0, now=one.at
            )
            for one in ours
        ]

    async def _set_clocks(
        self, conn: Connection, ours: Sequence[UnchangedPoll], nexts: Sequence[interval.NextPoll]
    ) -> None:
        with_tasks = [
            (one.known.task_id, max(then.at - one.at, interval.MIN_WAIT), then.at)
            for one, then in zip(ours, nexts, strict=True)
            if one.known.task_id is not None
        ]
        if with_tasks:
            ids, periods, next_runs = zip(*with_tasks, strict=True)
            async with self._databases.queue(conn) as queue:
                await store.set_clocks.run(
                    queue, ids=list(ids), periods=list(periods), next_runs=list(next_runs)
                )


async def save_validators(conn: Connection, ours: Sequence[UnchangedPoll]) -> None:
    """The same documents, by other names."""
    stamped = [
        (one.known.feed_id, one.outcome.stamp.etag, one.outcome.stamp.lastmod)
        for one in ours
        if one.outcome.stamp.body is not None and one.known.feed_id is not None
    ]
    if stamped:
        ids, etags, lastmods = zip(*stamped, strict=True)
        await store.restamp.run(conn, ids=list(ids), etags=array(etags), lastmods=array(lastmods))


async def record_polls(
    conn: Connection, ours: Sequence[UnchangedPoll], nexts: Sequence[interval.NextPoll]
) -> None:
    await store.note.run(
        conn,
        ids=[one.known.id for one in ours],
        hosts=array(one.outcome.home.host for one in ours),
        ats=[one.at for one in ours],
        statuses=[one.outcome.status for one in ours],
        periods=[then.period for then in nexts],
        next_ats=[then.at for then in nexts],
        whys=array(then.why for then in nexts),
    )


def outcome_of(one: UnchangedPoll, then: interval.NextPoll) -> PollOutcome:
    return PollOutcome(one.known.id, "same", "Nothing new.", next_at=then.at, why=then.why)
