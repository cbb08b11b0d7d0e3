"""The doorkeeper: takes a batch of URLs as they come, and answers each with a verdict and a reason.

Comes from whoever knocks (command line, HTTP, crawlers, feeds, tasks); goes to the guestbook, where an admitted page is
a queued page. What it remembers of hosts is checked by the statement itself: a host that changed since is judged anew.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import psycopg

from usher.db import Connection, Database
from usher.door import guestbook, hosts
from usher.door.memory import Knowledge
from usher.door.rules import Knock, Reason, Verdict
from usher.errors import Unreachable
from usher.telemetry import VERDICTS
from usher.urls import Refused, Scheme, Url, parse

Transactions = Callable[[], AbstractAsyncContextManager[Connection]]
SINGLE = Knock()
AT_ONCE = 2  # batches of a stream that are with the server
ROUND = 1_000  # hosts of the nightly round in one batch
TRIES = 20  # of a batch that met a deadlock or a host that changed; each time others have got on


class Answer(NamedTuple):
    """What the door says to one URL."""

    given: str
    reason: Reason
    detail: str = ""
    url: Url | None = None

    @property
    def verdict(self) -> Verdict:
        return self.reason.verdict


@dataclass(frozen=True, slots=True)
class Answers:
    """What the door says to a batch, in its order, and how many other pages came in with its full knocks."""

    answers: list[Answer]
    brought: int = 0

    def counts(self) -> Counter[Reason]:
        return Counter(answer.reason for answer in self.answers)


@dataclass(slots=True)
class Visit:
    """One batch on its way through the door; `answers` fills up."""

    given: Sequence[str]
    read: list[Url | Refused]
    knock: Knock
    found_on: str
    register: bool
    now: datetime
    answers: list[Answer | None]
    brought: int = 0
    known: Knowledge = field(default_factory=Knowledge)
    same: dict[int, int] = field(default_factory=dict)  # a URL given before in this batch → where
    from_memory: dict[int, Url] = field(default_factory=dict)  # refused by what is remembered

    def refuse(self, index: int, url: Url, reason: Reason, detail: str) -> None:
        self.answers[index] = Answer(self.given[index], reason, detail, url)
        self.from_memory[index] = url


class Doorkeeper:
    """One for each process: what it remembers of hosts serves every batch."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._memory = Knowledge()

    async def knock(
        self,
        given: Sequence[str],
        *,
        knock: Knock = SINGLE,
        found_on: str = "",
        register: bool = True,
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> Answers:
        """Judge a batch as if one URL came after the other; what is admitted is queued when this returns.

        A host seen for the first time is registered, unless told not to, or unless the URL was found on a host whose
        scope does not reach it. A dry run answers the same and changes nothing.
        """
        visit = read(given, knock, found_on, now or datetime.now(UTC), register=register)
        return await self._receive(visit, dry_run=dry_run)

    async def stream(
        self, batches: Iterable[Sequence[str]], *, knock: Knock = SINGLE, dry_run: bool = False
    ) -> AsyncIterator[Answers]:
        """Judge a long list; batches are read while the server judges those before, and answered in order.

        Two are with the server at once, so that neither side waits for the other: of a URL that stands in both, either
        may be the one that comes in.
        """
        under_way: deque[asyncio.Task[Answers]] = deque()
        try:
            for given in batches:
                visit = read(given, knock, "", datetime.now(UTC), register=True)
                if len(under_way) == AT_ONCE:
                    yield await under_way.popleft()
                under_way.append(asyncio.create_task(self._receive(visit, dry_run=dry_run)))
                await asyncio.sleep(0)  # lets it send its statement before the next batch is read
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def kick_off(self, *, now: datetime | None = None) -> AsyncIterator[Answers]:
        """Knock for every host whose time has come, full and without a pass: the nightly round, batch by batch."""
        now, last = now or datetime.now(UTC), 0
        while True:
            async with self.db.transaction() as conn:
                found = await hosts.due(conn, now=now, after=last, n=ROUND)
            if not found:
                return
            last = found[-1].id
            roots = [str(Url(Scheme(host.scheme), host.name, "/")) for host in found]
            yield await self.knock(roots, knock=Knock("full"), now=now)

    async def settle(
        self, outcomes: Sequence[guestbook.Outcome], *, now: datetime | None = None
    ) -> tuple[list[guestbook.Settled], list[int]]:
        """Record what fetches brought, and close the crawls that are over by it; returns pages and hosts."""
        when = now or datetime.now(UTC)

        async def work(conn: Connection) -> tuple[list[guestbook.Settled], list[int]]:
            settled = await guestbook.settle(conn, outcomes=outcomes, now=when)
            numbers = sorted({page.domain64 for page in settled})
            return settled, await guestbook.close_crawls(conn, domain64s=numbers) if numbers else []

        return await self.db.run(work)

    async def _receive(self, visit: Visit, *, dry_run: bool) -> Answers:
        async with self._transactions(dry_run=dry_run) as transaction:
            for _ in range(TRIES):
                await self._learn(visit, transaction, keep=not dry_run)
                if not await self._judge(visit, transaction):
                    break
            else:
                raise Unreachable(
                    "The door could not judge: its hosts change all the time.", hint="Try again."
                )
        answers = answered(visit)
        for reason, number in answers.counts().items() if not dry_run else ():
            VERDICTS.labels(reason).inc(number)
        return answers

    @asynccontextmanager
    async def _transactions(self, *, dry_run: bool) -> AsyncIterator[Transactions]:
        """How to begin a transaction; those of a dry run are one, which is undone."""
        if not dry_run:
            yield self.db.transaction
            return
        async with self.db.transaction() as conn, conn.transaction(force_rollback=True):

            @asynccontextmanager
            async def the_same() -> AsyncIterator[Connection]:
                async with conn.transaction():  # one that fails may be tried again
                    yield conn

            yield the_same

    async def _learn(self, visit: Visit, transaction: Transactions, *, keep: bool) -> None:
        """Know every host of the batch; those never seen are registered, in a transaction of their own."""
        schemes: dict[str, int] = {}  # the first URL of each host says how it is visited
        for url in visit.read:
            if isinstance(url, Url):
                schemes.setdefault(url.host, url.scheme)
        concerned = {*schemes, visit.found_on} if visit.found_on else schemes.keys()
        visit.known = self._memory.part(concerned)
        if not visit.known.lacks(concerned):
            return
        async with transaction() as conn:
            await visit.known.learn(
                conn, schemes, found_on=visit.found_on, register=visit.register, now=visit.now
            )
        if keep:  # and only now that it is committed
            self._memory = self._memory.joined(visit.known)

    async def _judge(self, visit: Visit, transaction: Transactions) -> bool:
        """Answer what has no answer yet; true where a host changed meanwhile and some must be judged anew."""
        batch, order = self._pack(visit)
        if not order and not visit.from_memory:
            return False
        try:
            async with transaction() as conn:
                stale = await self._recall(conn, visit)
                letters = await self._ask(conn, visit, batch) if order else ""
        except psycopg.errors.DeadlockDetected:
            return True
        for index, letter in zip(order, letters, strict=True):
            if letter != guestbook.STALE:
                visit.answers[index] = self._answer(visit, index, guestbook.LETTERS[letter])
        if not stale and guestbook.STALE not in letters:
            return False
        visit.same = {index: first for index, first in visit.same.items() if visit.answers[first]}
        self._memory = Knowledge()
        return True

    async def _ask(self, conn: Connection, visit: Visit, batch: guestbook.Batch) -> str:
        letters, brought = await guestbook.knock(
            conn, batch, knock=visit.knock, house_revision=visit.known.house_revision, now=visit.now
        )
        visit.brought += brought
        return letters

    async def _recall(self, conn: Connection, visit: Visit) -> bool:
        """Whether refusals by what we know are out of date; then they are taken back."""
        if not visit.from_memory:
            return False
        known = [visit.known.hosts[url.host] for url in visit.from_memory.values()]
        stale = await hosts.changed(
            conn,
            revisions={host.domain64: host.revision for host in known},
            house_revision=visit.known.house_revision,
        )
        if stale:
            for index in visit.from_memory:
                visit.answers[index] = None
        visit.from_memory.clear()
        return stale

    def _pack(self, visit: Visit) -> tuple[guestbook.Batch, list[int]]:
        """What the statement has to judge; what can be answered without it is answered here."""
        batch, order = guestbook.Batch(), list[int]()
        seen: dict[tuple[str, str], int] = {}
        for index, url in enumerate(visit.read):
            if visit.answers[index] is not None or index in visit.same or isinstance(url, Refused):
                continue
            host = visit.known.hosts.get(url.host)
            if host is None:
                visit.answers[index] = Answer(visit.given[index], Reason.HOST_UNKNOWN, UNKNOWN, url)
            elif host.refusal:
                visit.refuse(index, url, host.refusal, host.detail)
            else:
                self._queue_up(visit, index, url, batch, order, seen)
        return batch, order

    def _queue_up(
        self,
        visit: Visit,
        index: int,
        url: Url,
        batch: guestbook.Batch,
        order: list[int],
        seen: dict[tuple[str, str], int],
    ) -> None:
        """One URL of an open host: filtered, the same as one before, or next in the batch."""
        host = visit.known.hosts[url.host]
        path = url.path
        if host.rules:
            filtered = host.rules.apply(path)
            if not isinstance(filtered, str):
                visit.refuse(index, url, Reason.FILTERED, f"{filtered.name}: {filtered.detail}")
                return
            if filtered != path:
                path = filtered
                visit.read[index] = Url(url.scheme, url.host, path)
        first = seen.setdefault((url.host, path), index)
        if first != index:
            visit.same[index] = first
            return
        order.append(index)
        batch.add(host.domain64, host.revision, path, url.scheme)

    def _answer(self, visit: Visit, index: int, reason: Reason) -> Answer:
        url = visit.read[index]
        return Answer(visit.given[index], reason, "", url if isinstance(url, Url) else None)


UNKNOWN = "nobody has registered this host, and where the link was found does not reach it"


def read(
    given: Sequence[str], knock: Knock, found_on: str, now: datetime, *, register: bool
) -> Visit:
    """Every URL in its canonical form; what has none is answered here."""
    seen = [parse(text) for text in given]
    answers: list[Answer | None] = [
        Answer(text, Reason(url.reason), url.detail) if isinstance(url, Refused) else None
        for text, url in zip(given, seen, strict=True)
    ]
    return Visit(given, seen, knock, found_on, register, now, answers)


def answered(visit: Visit) -> Answers:
    """The answers in order; a URL given twice waits already if it came in the first time."""
    for index, first in visit.same.items():
        before = visit.answers[first]
        if before is not None:
            again = Reason.ALREADY_WAITING if before.verdict is Verdict.ADMIT else before.reason
            visit.answers[index] = before._replace(given=visit.given[index], reason=again)
    return Answers([answer for answer in visit.answers if answer is not None], visit.brought)
