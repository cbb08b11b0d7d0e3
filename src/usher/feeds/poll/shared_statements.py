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
from usher.db.statements import array, load_statements
from usher.errors import UsherError
from usher.feeds.poll import interval
from usher.feeds.poll.outcome import Outcome, Told, following
from usher.feeds.store import subscriptions
from usher.feeds.store.databases import House
from usher.feeds.store.save_feed import times as item_times
from usher.feeds.store.subscriptions import Subscribed

store = load_statements(__file__)

A = TypeVar("A")
B = TypeVar("B")
MOST: Final = 200  # with one statement


class Together(Generic[A, B]):
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
            pack, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
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
class Quiet:
    """A poll that brought nothing."""

    known: Subscribed
    outcome: Outcome
    at: datetime


class Desk:
    """One for each process that polls many."""

    def __init__(self, house: House, *, later: bool = False) -> None:
        """Words are taken by each poll, or `later` by somebody who is told that there is something undone."""
        self.later, self.undone = later, False
        self._house = house
        self._finding = Together(self._find)
        self._noting = Together(self._note)

    async def find(self, id_: int) -> Subscribed:
        """The subscription of that number."""
        found = await self._finding.ask(id_)
        if found is None:
            raise subscriptions.missing(id_)
        return found

    async def note(self, known: Subscribed, outcome: Outcome, at: datetime) -> Told | None:
        """Write down a poll that brought nothing; None for one that is to be written by itself."""
        quiet = outcome.kind == "same" and str(outcome.home) == known.url
        quiet = quiet and not (known.hubbed and self._house.callback)
        if not quiet:
            return None
        try:
            return await self._noting.ask(Quiet(known, outcome, at))
        except (psycopg.Error, UsherError):
            return None  # alone it says what is wrong, or tries until the server is back

    async def _find(self, ids: Sequence[int]) -> list[Subscribed | None]:
        async with self._house.search.connection() as conn:
            found = await subscriptions.find_all(conn, ids)
        return [found.get(id_) for id_ in ids]

    async def _note(self, quiet: Sequence[Quiet]) -> list[Told | None]:
        async with self._house.search.transaction() as conn:
            return await self._noted(conn, {one.known.id: one for one in quiet}, quiet)

    async def _noted(
        self, conn: Connection, once: dict[int, Quiet], quiet: Sequence[Quiet]
    ) -> list[Told | None]:
        urls = array(one.known.url for one in once.values())
        held = await store.hold.tuples(conn, ids=list(once), urls=urls)
        ours = [once[id_] for (id_,) in held]
        if ours:
            nexts = await self._nexts(conn, ours)
            await self._set_clocks(conn, ours, nexts)
            await restamp(conn, ours)
            await note(conn, ours, nexts)
            made = {one.known.id: told(one, then) for one, then in zip(ours, nexts, strict=True)}
        else:
            made = {}
        # Of two polls of one feed the last counts, and the other is written by itself.
        return [made.get(one.known.id) if once[one.known.id] is one else None for one in quiet]

    async def _nexts(self, conn: Connection, ours: Sequence[Quiet]) -> list[interval.Next]:
        """When to come again."""
        feeds = [one.known.feed_id for one in ours if one.known.feed_id and not one.known.fixed]
        times = await item_times(conn, feeds)
        return [
            following(
                one.known, one.outcome, times.get(one.known.feed_id or 0, []), new=0, now=one.at
            )
            for one in ours
        ]

    async def _set_clocks(
        self, conn: Connection, ours: Sequence[Quiet], nexts: Sequence[interval.Next]
    ) -> None:
        with_tasks = [
            (one.known.task_id, max(then.at - one.at, interval.SHORTEST), then.at)
            for one, then in zip(ours, nexts, strict=True)
            if one.known.task_id is not None
        ]
        if with_tasks:
            ids, periods, next_runs = zip(*with_tasks, strict=True)
            async with self._house.queue(conn) as queue:
                await store.set_clocks.run(
                    queue, ids=list(ids), periods=list(periods), next_runs=list(next_runs)
                )


async def restamp(conn: Connection, ours: Sequence[Quiet]) -> None:
    """The same documents, by other names."""
    stamped = [
        (one.known.feed_id, one.outcome.stamp.etag, one.outcome.stamp.lastmod)
        for one in ours
        if one.outcome.stamp.body is not None and one.known.feed_id is not None
    ]
    if stamped:
        ids, etags, lastmods = zip(*stamped, strict=True)
        await store.restamp.run(conn, ids=list(ids), etags=array(etags), lastmods=array(lastmods))


async def note(conn: Connection, ours: Sequence[Quiet], nexts: Sequence[interval.Next]) -> None:
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


def told(one: Quiet, then: interval.Next) -> Told:
    return Told(one.known.id, "same", "Nothing new.", next_at=then.at, why=then.why)
