"""The doorkeeper: takes a batch of URLs as they come, and answers each with a verdict and a reason.

Comes from whoever knocks (command line, HTTP, crawlers, feeds, tasks); goes to the guestbook, where an admitted page is
a queued page. What it remembers of hosts is checked by the statement itself: a host that changed since is judged anew.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime

import psycopg

from usher.db.pool import Connection, Database
from usher.door import guestbook, hosts
from usher.door.batch import BatchVerdicts, KnockBatch, read_urls
from usher.door.host_cache import CachedHost, HostCache
from usher.door.host_limits import LimitDecision, PageLimits
from usher.door.rules import MAX_COUNTED_DEPTH, Knock
from usher.errors import Unreachable
from usher.private_hosts import PrivateAllowList
from usher.telemetry import VERDICTS
from usher.urls import Scheme, Url

Transactions = Callable[[], AbstractAsyncContextManager[Connection]]
SINGLE_KNOCK = Knock()
MAX_BATCHES_IN_FLIGHT = 2  # batches of a stream that are with the server
HOSTS_PER_KICK_OFF_BATCH = 1_000  # hosts of the nightly round in one batch
MAX_ATTEMPTS = (
    20  # of a batch that met a deadlock or a host that changed; each time others have got on
)


class Doorkeeper:
    """One for each process: what it remembers of hosts serves every batch."""

    def __init__(self, db: Database, allowed: PrivateAllowList = PrivateAllowList()) -> None:  # noqa: B008 - frozen
        self.db, self.allowed = db, allowed
        self._memory = HostCache()
        self._census = PageLimits()

    async def knock(
        self,
        given: Sequence[str],
        *,
        knock: Knock = SINGLE_KNOCK,
        found_on: str = "",
        register: bool = True,
        dry_run: bool = False,
        depth: int = 0,
        filtered: bool = True,
        now: datetime | None = None,
    ) -> BatchVerdicts:
        """Judge a batch as if one URL came after the other; what is admitted is queued when this returns.

        A host seen for the first time is registered, unless told not to, or unless the URL was found on a host whose
        scope does not reach it. `depth` is how many clicks the URLs are from where the crawl came in. What is not
        `filtered` passes whatever the filters say, as sitemaps do. A dry run answers the same and changes nothing.
        The host that they were found on is their source, unless the knock names another.
        """
        visit = read_urls(
            given,
            now or self.db.clock.now(),
            knock=knock,
            found_on=found_on,
            register=register,
            depth=max(0, min(depth, MAX_COUNTED_DEPTH)),
            dry_run=dry_run,
        )
        visit.filtered, visit.allowed = filtered, self.allowed
        return await self._receive(visit)

    async def stream(
        self,
        batches: Iterable[Sequence[str]],
        *,
        knock: Knock = SINGLE_KNOCK,
        dry_run: bool = False,
    ) -> AsyncIterator[BatchVerdicts]:
        """Judge a long list; batches are read while the server judges those before, and answered in order.

        Two are with the server at once, so that neither side waits for the other: of a URL that stands in both, either
        may be the one that comes in.
        """
        under_way: deque[asyncio.Task[BatchVerdicts]] = deque()
        try:
            for given in batches:
                visit = read_urls(given, self.db.clock.now(), knock=knock, dry_run=dry_run)
                if len(under_way) == MAX_BATCHES_IN_FLIGHT:
                    yield await under_way.popleft()
                under_way.append(asyncio.create_task(self._receive(visit)))
                await asyncio.sleep(0)  # lets it send its statement before the next batch is read
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def kick_off(self, *, now: datetime | None = None) -> AsyncIterator[BatchVerdicts]:
        """Knock for every host whose time has come, full and without a pass: the nightly round, batch by batch."""
        now, last = now or self.db.clock.now(), 0
        while True:
            async with self.db.transaction() as conn:
                found = await hosts.due(conn, now=now, after=last, n=HOSTS_PER_KICK_OFF_BATCH)
            if not found:
                return
            last = found[-1].id
            roots = [str(Url(Scheme(host.scheme), host.name, "/")) for host in found]
            yield await self.knock(roots, knock=Knock("full"), now=now)

    async def settle(
        self, outcomes: Sequence[guestbook.PageReport], *, now: datetime | None = None
    ) -> tuple[list[guestbook.SettledPage], list[int]]:
        """Record what fetches brought, and close the crawls that are over by it; returns pages and hosts."""
        when = now or self.db.clock.now()

        async def work(conn: Connection) -> tuple[list[guestbook.SettledPage], list[int]]:
            settled = await guestbook.settle(conn, outcomes=outcomes, now=when)
            numbers = sorted({page.domain64 for page in settled if not page.waits})
            if not numbers:
                return settled, []
            return settled, await guestbook.close_crawls(conn, domain64s=numbers, now=when)

        return await self.db.run(work)

    async def hint(
        self,
        changed: Sequence[tuple[str, datetime]],
        *,
        source: str | None = None,
        now: datetime | None = None,
    ) -> int:
        """Have pages come sooner that their site says have changed since; how many do, for a knock to let in."""
        when = now or self.db.clock.now()
        knock = Knock(source=source)
        visit = read_urls([url for url, _ in changed], when, knock=knock, register=False)
        visit.allowed = self.allowed
        await self._learn(visit, self.db.transaction)
        batch, order = visit.pack()
        times = visit.latest([moment for _, moment in changed])
        moments = [times[index] for index in order]

        async def work(conn: Connection) -> int:
            return await guestbook.hint(conn, batch, changed=moments, now=when)

        for _ in range(MAX_ATTEMPTS if order else 0):
            with suppress(psycopg.errors.DeadlockDetected):
                return await self.db.run(work)
        return 0  # it is only a hint, and will come again

    async def _receive(self, visit: KnockBatch) -> BatchVerdicts:
        dry_run = visit.dry_run
        census = PageLimits() if dry_run else self._census
        async with self._transactions(dry_run=dry_run) as transaction:
            for _ in range(MAX_ATTEMPTS):
                await self._learn(visit, transaction)
                concerned = await self._count(visit, census, transaction)
                if not await self._judge(visit, census, concerned, transaction):
                    break
            else:
                raise Unreachable(
                    "The door could not judge: its hosts change all the time.", hint="Try again."
                )
        answers = visit.answered()
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

    async def _learn(self, visit: KnockBatch, transaction: Transactions) -> None:
        """Know every host of the batch; those never seen are registered, in a transaction of their own."""
        schemes: dict[str, int] = {}  # the first URL of each host says how it is visited
        for url in visit.urls:
            if isinstance(url, Url):
                schemes.setdefault(url.host, url.scheme)
        concerned = {*schemes, visit.found_on} if visit.found_on else schemes.keys()
        visit.known = self._memory.part(concerned)
        if not visit.known.lacks(concerned):
            return
        async with transaction() as conn:
            await visit.known.learn(
                conn,
                schemes,
                found_on=visit.found_on,
                register=visit.register,
                now=visit.now,
                forbidden={name for name in schemes if visit.is_forbidden(name)},
            )
        if not visit.dry_run:  # and only now that it is committed
            self._memory = self._memory.joined(visit.known)

    async def _count(
        self, visit: KnockBatch, census: PageLimits, transaction: Transactions
    ) -> list[CachedHost]:
        """The hosts that may have no room for what is new, their pages counted where it is time to."""
        if visit.knock.kind == "full":
            return []
        concerned = census.concerned(visit.known.hosts.values(), depth=visit.depth)
        if uncounted := census.uncounted(concerned):
            async with transaction() as conn:
                await census.count(conn, uncounted)
        return concerned

    async def _judge(
        self,
        visit: KnockBatch,
        census: PageLimits,
        concerned: list[CachedHost],
        transaction: Transactions,
    ) -> bool:
        """Answer what has no answer yet; true where a host changed meanwhile and some must be judged anew."""
        batch, order = visit.pack()
        if not order and not visit.from_memory:
            return False
        sorted_out = LimitDecision()
        try:
            async with transaction() as conn:
                if concerned:
                    sorted_out = await census.sort(conn, batch, concerned, depth=visit.depth)
                    batch, order = visit.shut_out(batch, order, sorted_out.out)
                stale = await self._recall(conn, visit)
                letters = await self._ask(conn, visit, batch) if order else ""
            census.add(batch, letters)
        except psycopg.errors.DeadlockDetected:
            return True
        finally:
            census.release(sorted_out.held)
        visit.answer(order, letters)
        if not stale and guestbook.STALE not in letters:
            return False
        visit.begin_anew()
        self._memory = HostCache()
        return True

    async def _ask(self, conn: Connection, visit: KnockBatch, batch: guestbook.PackedUrls) -> str:
        letters, brought = await guestbook.knock(
            conn,
            batch,
            knock=visit.knock,
            house_revision=visit.known.house_revision,
            now=visit.now,
            depth=visit.depth,
        )
        visit.brought += brought
        return letters

    async def _recall(self, conn: Connection, visit: KnockBatch) -> bool:
        """Whether refusals by what we know are out of date; then they are taken back."""
        if not visit.from_memory:
            return False
        known = [visit.known.hosts[url.host] for url in visit.from_memory.values()]
        stale = await hosts.have_changed(
            conn,
            revisions={host.domain64: host.revision for host in known},
            house_revision=visit.known.house_revision,
        )
        if stale:
            for index in visit.from_memory:
                visit.answers[index] = None
        visit.from_memory.clear()
        return stale
