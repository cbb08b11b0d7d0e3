"""The doorkeeper: judges batches of URLs and answers each with a verdict and a reason.

An admitted page is a queued page of the guestbook. The doorkeeper caches the rules of hosts; each statement checks the
revision of the hosts, and a batch whose hosts changed meanwhile is judged again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime

import psycopg

from usher.db.pool import Connection, Database
from usher.door import guestbook, hosts
from usher.door.batch import BatchVerdicts, KnockBatch
from usher.door.host_cache import CachedHost, HostCache
from usher.door.host_limits import LimitDecision, PageLimits
from usher.door.refused_urls import RefusedSample
from usher.door.rules import MAX_COUNTED_DEPTH, Knock
from usher.errors import Unreachable
from usher.private_hosts import AllowList
from usher.telemetry import VERDICTS
from usher.urls import Url, url_text

Transactions = Callable[[], AbstractAsyncContextManager[Connection]]
SINGLE_KNOCK = Knock()
MAX_BATCHES_IN_FLIGHT = 2  # of one stream
HOSTS_PER_KICK_OFF_BATCH = 1_000
PAGES_PER_RETRY_BATCH = 1_000
MAX_ATTEMPTS = 20  # for a batch after deadlocks or changes of its hosts


class Doorkeeper:
    """One for each process; all batches share its cache of hosts."""

    def __init__(
        self,
        db: Database,
        allowed: AllowList = AllowList(),  # noqa: B008 - frozen
        refused: RefusedSample | None = None,
    ) -> None:
        self.db, self.allowed, self.refused = db, allowed, refused
        self._cache = HostCache()
        self._limits = PageLimits()

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
        """Judge a batch as if the URLs came one after the other; admitted pages are queued when this returns.

        Registers hosts that are new, unless `register` is false or the scope of the host `found_on` excludes them.
        `depth` is the number of clicks from the start of the crawl. Without `filtered` the filters are ignored, as for
        sitemaps. A dry run gives the same answers and changes nothing. The source of the URLs is `found_on`, unless
        the knock names another.
        """
        batch = KnockBatch(
            given,
            now or self.db.clock.now(),
            knock,
            found_on=found_on,
            register=register,
            depth=max(0, min(depth, MAX_COUNTED_DEPTH)),
            dry_run=dry_run,
            filtered=filtered,
            allowed=self.allowed,
        )
        return await self._receive(batch)

    async def stream(
        self,
        batches: Iterable[Sequence[str]],
        *,
        knock: Knock = SINGLE_KNOCK,
        dry_run: bool = False,
    ) -> AsyncIterator[BatchVerdicts]:
        """Judge a long list batch by batch; yields the answers in order.

        Two batches are in flight at once, so that neither client nor server waits for the other. If both contain a URL,
        either of them may admit it.
        """
        in_flight: deque[asyncio.Task[BatchVerdicts]] = deque()
        try:
            for given in batches:
                batch = KnockBatch(given, self.db.clock.now(), knock, dry_run=dry_run)
                if len(in_flight) == MAX_BATCHES_IN_FLIGHT:
                    yield await in_flight.popleft()
                in_flight.append(asyncio.create_task(self._receive(batch)))
                await asyncio.sleep(0)  # send its statement before parsing the next batch
            while in_flight:
                yield await in_flight.popleft()
        finally:
            for task in in_flight:
                task.cancel()
            await asyncio.gather(*in_flight, return_exceptions=True)

    async def kick_off(self, *, now: datetime | None = None) -> AsyncIterator[BatchVerdicts]:
        """The nightly recrawl, batch by batch: a full knock at every host that is due, without a hall pass.

        Then a knock for each page that failed and is due again: the next crawl of its host may be weeks away.
        """
        now, last = now or self.db.clock.now(), 0
        while True:
            async with self.db.transaction() as conn:
                due = await hosts.due(conn, now=now, after=last, n=HOSTS_PER_KICK_OFF_BATCH)
            if not due:
                break
            last = due[-1].id
            roots = [url_text(host.scheme, host.name, "/") for host in due]
            yield await self.knock(roots, knock=Knock("full"), now=now)
        async for batch in self._retry_failed(now):
            yield batch

    async def _retry_failed(self, now: datetime) -> AsyncIterator[BatchVerdicts]:
        last, last_id = datetime.min.replace(tzinfo=UTC), 0
        while True:
            async with self.db.transaction() as conn:
                pages = await guestbook.failed_and_due(
                    conn, now=now, after=last, after_id=last_id, n=PAGES_PER_RETRY_BATCH
                )
            if not pages:
                return
            last, last_id = pages[-1].next_fetch, pages[-1].id
            for depth in sorted({page.depth for page in pages}):  # a knock never increases it
                urls = [page.url for page in pages if page.depth == depth]
                yield await self.knock(urls, depth=depth, now=now)

    async def settle(
        self, reports: Sequence[guestbook.FetchReport], *, now: datetime | None = None
    ) -> tuple[list[guestbook.SettledPage], list[int]]:
        """Record the results of fetches, and close finished crawls; returns the pages and these hosts."""
        when = now or self.db.clock.now()

        async def work(conn: Connection) -> tuple[list[guestbook.SettledPage], list[int]]:
            settled = await guestbook.settle(conn, reports=reports, now=when)
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
        """Make pages due earlier that changed according to their site; returns how many. A knock then admits them."""
        when = now or self.db.clock.now()
        knock, given = Knock(source=source), [url for url, _ in changed]
        batch = KnockBatch(given, when, knock, register=False, allowed=self.allowed)
        await self._read_hosts(batch, self.db.transaction)
        packed, order = batch.pack()
        times = batch.latest([moment for _, moment in changed])
        moments = [times[index] for index in order]

        async def work(conn: Connection) -> int:
            return await guestbook.hint(conn, packed, changed=moments, now=when)

        for _ in range(MAX_ATTEMPTS if order else 0):
            with suppress(psycopg.errors.DeadlockDetected):
                return await self.db.run(work)
        return 0  # the site repeats its hint later

    async def locate(
        self, given: Sequence[str], *, source: str, filtered: bool = True
    ) -> list[tuple[int, str] | None]:
        """Return the host number and the path of each URL, after the filters; None for what the door refuses.

        `source` is the host whose pages name the URLs. Registers no host.
        """
        batch = KnockBatch(
            given,
            self.db.clock.now(),
            Knock(source=source),
            register=False,
            filtered=filtered,
            allowed=self.allowed,
        )
        await self._read_hosts(batch, self.db.transaction)
        packed, order = batch.pack()
        numbers = list(packed.hosts)
        keys: dict[int, tuple[int, str]] = {
            index: (numbers[place - 1], path)
            for index, place, path in zip(order, packed.places, packed.paths, strict=True)
        }
        return [keys.get(batch.duplicates.get(index, index)) for index in range(len(given))]

    async def _receive(self, batch: KnockBatch) -> BatchVerdicts:
        dry_run = batch.dry_run
        limits = PageLimits() if dry_run else self._limits
        async with self._transactions(dry_run=dry_run) as transaction:
            for _ in range(MAX_ATTEMPTS):
                await self._read_hosts(batch, transaction)
                limited = await self._count_pages(batch, limits, transaction)
                if await self._judge(batch, limits, limited, transaction):
                    break
            else:
                raise Unreachable(
                    "The door could not judge the batch, because its hosts keep changing.",
                    hint="Try again.",
                )
        verdicts = batch.verdicts()
        if dry_run:
            return verdicts
        for reason, number in verdicts.counts().items():
            VERDICTS.labels(reason).inc(number)
        if self.refused is not None:
            self.refused.add(verdicts.answers)
        return verdicts

    @asynccontextmanager
    async def _transactions(self, *, dry_run: bool) -> AsyncIterator[Transactions]:
        """Yield a function that begins a transaction; a dry run has a single one, which is rolled back."""
        if not dry_run:
            yield self.db.transaction
            return
        async with self.db.transaction() as conn, conn.transaction(force_rollback=True):

            @asynccontextmanager
            async def savepoint() -> AsyncIterator[Connection]:
                async with conn.transaction():  # so that a retry is possible
                    yield conn

            yield savepoint

    async def _read_hosts(self, batch: KnockBatch, transaction: Transactions) -> None:
        """Read the hosts of the batch that are not cached; registers new ones in a transaction of their own."""
        schemes: dict[str, int] = {}  # of the first URL of each host
        for url in batch.urls:
            if isinstance(url, Url):
                schemes.setdefault(url.host, url.scheme)
        names = {*schemes, batch.found_on} if batch.found_on else schemes.keys()
        batch.cache = self._cache.part(names)
        if not batch.cache.lacks(names):
            return
        async with transaction() as conn:
            await batch.cache.read(
                conn,
                schemes,
                found_on=batch.found_on,
                register=batch.register,
                now=batch.now,
                forbidden={name for name in schemes if batch.is_forbidden(name)},
            )
        if not batch.dry_run:  # only after the commit
            self._cache = self._cache.merged(batch.cache)

    async def _count_pages(
        self, batch: KnockBatch, limits: PageLimits, transaction: Transactions
    ) -> list[CachedHost]:
        """The hosts that may have no room for new pages; counts the pages of those whose last count is too old."""
        if batch.knock.kind == "full":
            return []
        limited = limits.limited(batch.cache.hosts.values(), depth=batch.depth)
        if uncounted := limits.uncounted(limited):
            async with transaction() as conn:
                await limits.count(conn, uncounted)
        return limited

    async def _judge(
        self,
        batch: KnockBatch,
        limits: PageLimits,
        limited: list[CachedHost],
        transaction: Transactions,
    ) -> bool:
        """Judge the URLs that have no answer yet; returns False if a host changed and some have none."""
        packed, order = batch.pack()
        if not order and not batch.refused_from_cache:
            return True
        decision = LimitDecision()
        try:
            async with transaction() as conn:
                if limited:
                    decision = await limits.decide(conn, packed, limited, depth=batch.depth)
                    packed, order = batch.refuse_over_limit(packed, order, decision.refused)
                is_stale = await self._withdraw_stale_refusals(conn, batch)
                judgements = await self._knock(conn, batch, packed) if order else []
            limits.add(packed, judgements)
        except psycopg.errors.DeadlockDetected:
            return False
        finally:
            limits.release(decision.reserved)
        if not batch.answer(order, judgements) and not is_stale:
            return True
        batch.forget_unanswered_duplicates()
        self._cache = HostCache()
        return False

    async def _knock(
        self, conn: Connection, batch: KnockBatch, packed: guestbook.PackedUrls
    ) -> list[guestbook.UrlJudgement]:
        judgements, brought = await guestbook.knock(
            conn,
            packed,
            knock=batch.knock,
            settings_revision=batch.cache.settings_revision,
            now=batch.now,
            depth=batch.depth,
        )
        batch.brought += brought
        return judgements

    async def _withdraw_stale_refusals(self, conn: Connection, batch: KnockBatch) -> bool:
        """Withdraw the refusals by cached rules if a host changed since; returns whether it did."""
        if not batch.refused_from_cache:
            return False
        hosts_ = [batch.cache.hosts[url.host] for url in batch.refused_from_cache.values()]
        is_stale = await hosts.have_changed(
            conn,
            revisions={host.domain64: host.revision for host in hosts_},
            settings_revision=batch.cache.settings_revision,
        )
        if is_stale:
            for index in batch.refused_from_cache:
                batch.answers[index] = None
        batch.refused_from_cache.clear()
        return is_stale
