"""Every kind of component at work at once on one small guestbook, each as MGMT lets it, with losses of every kind."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from support.db.invariants import violations
from support.mgmt.admitted_pages import component, url
from usher.db.pool import CONFLICT_ERRORS, Connection, Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.door.guestbook import FetchReport, FetchResult
from usher.mgmt import (
    chunk_pages,
    chunks,
    compaction,
    compaction_merge,
    missing_chunks,
    page_versions,
    placements,
)
from usher.mgmt.chunks import ClaimedChunk, ClaimedPage, HostTrouble, PageClaim
from usher.mgmt.missing_chunks import MissingFile

HOSTS, FIRST_PAGES = 4, 10
LEASE = timedelta(seconds=2)
WHY = "lost in a test"
Step = Callable[[Connection], Awaitable[str]]


def now() -> datetime:
    return datetime.now(UTC)


class Stress:
    """`await Stress(dsn, seed).run(seconds)`; then `counts` says what happened, `wrong` what must not have."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.dsn = dsn
        self.random = random.Random(seed)  # noqa: S311 - not a secret
        self.counts: Counter[str] = Counter()
        self.wrong: list[tuple[str, object]] = []
        self.over = asyncio.Event()
        self.pages = FIRST_PAGES  # of each host; more come in all the time
        self.crawlers: list[int] = []
        self.builders: list[int] = []
        self.servers: list[int] = []

    async def run(self, seconds: float) -> None:
        async with await connect(self.dsn) as conn:
            await self.begin(conn)
        workers = [
            *(self.work(self.knock) for _ in range(2)),
            *(self.work(self.crawler(id_)) for id_ in self.crawlers),
            *(self.work(self.builder(id_)) for id_ in self.builders),
            *(self.work(self.server(id_)) for id_ in self.servers),
            self.work(self.watch),
            self.work(self.check),
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker) for worker in workers]
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            self.over.set()
        async with await connect(self.dsn) as conn:
            await self.check(conn)

    async def begin(self, conn: Connection) -> None:
        await conn.execute(
            "update work.settings set cadence = '200 ms', crawl_delay = '0', \"rows\" = 2"
        )
        self.crawlers = [await component(conn, f"c{n}") for n in range(3)]
        self.builders = [await component(conn, f"b{n}", "index-builder") for n in range(2)]
        for n, row in enumerate((1, 1, 2)):
            id_ = await component(conn, f"s{n}", "index-server")
            await conn.execute('update work.component set "row" = %s where id = %s', [row, id_])
            self.servers.append(id_)

    async def work(self, step: Step) -> None:
        """Do a step again and again; one that the database undid is done again, as MGMT does."""
        async with await connect(self.dsn) as conn:
            while not self.over.is_set():
                try:
                    self.counts[await step(conn)] += 1
                except CONFLICT_ERRORS:
                    self.counts["undone"] += 1
                await asyncio.sleep(0)

    async def check(self, conn: Connection) -> str:
        self.wrong += await violations(conn)
        if self.wrong:
            self.over.set()
        await asyncio.sleep(0.2)
        return "checks"

    # -- the door

    async def knock(self, conn: Connection) -> str:
        del conn  # the doorkeeper has its own
        async with Database(self.dsn, size=1) as db:
            door = Doorkeeper(db)
            for _ in range(20):
                answers = await door.knock(self.links(), depth=1)
                self.counts.update(answers.counts())
        return "knocks"

    def links(self) -> list[str]:
        """Links to two pages that are new, and to some that may be known."""
        self.pages += 1
        paths = [self.pages, self.pages, *self.random.sample(range(self.pages), 3)]
        return [f"https://h{self.random.randrange(HOSTS)}.com/{path}" for path in paths]

    # -- crawlers

    def crawler(self, id_: int) -> Step:
        async def crawl(conn: Connection) -> str:
            ask = PageClaim(
                self.random.randint(1, 6),
                wait=timedelta(0),
                lease=LEASE,
                hold=self.random.random() < 0.5,
            )
            pack = await chunks.claim_links(conn, id_, ask, now=now())
            if pack is None:
                await asyncio.sleep(0.005)
                return "empty claims"
            return await self.end(conn, id_, pack)

        return crawl

    async def end(self, conn: Connection, me: int, pack: ClaimedChunk) -> str:
        """Report some pages early, then end the chunk in one of the ways there are."""
        early = self.random.randint(0, len(pack.pages))
        if early and not await self.report(conn, me, pack, pack.pages[:early]):
            return "late reports"
        await asyncio.sleep(self.random.random() / 50)
        way = self.random.choices(("crawled", "error", "anew", "left"), (80, 8, 6, 1))[0]
        async with conn.transaction():
            if way == "crawled":
                rest = await self.outcomes(conn, pack, pack.pages[early:])
                await chunks.finish_crawl(
                    conn, me, pack.chunk_id, sha256=None, size=1, now=now(),
                    reports=rest[: self.random.randint(0, len(rest))], back=True,
                )  # fmt: skip
            elif way == "error":
                if await chunks.lock_chunk(conn, me, pack.chunk_id, lease=timedelta(0), now=now()):
                    await chunks.fail_crawls(conn, [pack.chunk_id], why=WHY, now=now())
            elif way == "anew":
                await chunks.restart_crawler(conn, me, n=10, now=now())
        return f"chunk {way}"

    async def report(
        self, conn: Connection, me: int, pack: ClaimedChunk, pages: list[ClaimedPage]
    ) -> bool:
        async with conn.transaction():
            if not await chunks.lock_chunk(conn, me, pack.chunk_id, lease=LEASE, now=now()):
                return False
            reported = await self.outcomes(conn, pack, pages)
            await chunks.report(conn, reported, now=now())
            if self.random.random() < 0.01:
                rest = timedelta(milliseconds=100)
                trouble = HostTrouble(reported[0].domain64, "HTTP 429", rest)
                await chunks.rest_hosts(conn, [trouble], now=now())
                await conn.execute("update work.hosts set troubles = 0")  # so that rests stay short
        return True

    async def outcomes(
        self, conn: Connection, pack: ClaimedChunk, pages: list[ClaimedPage]
    ) -> list[FetchReport]:
        reported = []
        for page in pages:
            found = await chunk_pages.find_page(conn, url(page.url))
            assert found
            result, status = self.fetched(page)
            text = self.random.getrandbits(60)
            key = (found.domain64, found.path, result, pack.chunk_id, status)
            reported.append(FetchReport(*key, content_sha1=str(text), etag=str(text), text64=text))
        return reported

    def fetched(self, page: ClaimedPage) -> tuple[FetchResult, int | None]:
        """What an honest web server and crawler say: a page can be unchanged only if it was asked for so."""
        dice = self.random.random()
        if page.etag and dice < 0.4:
            return "unchanged", 304
        if dice > 0.9:
            return "gone", 410
        return ("failure", None) if dice > 0.88 else ("success", 200)

    # -- builders and servers

    def builder(self, id_: int) -> Step:
        async def build(conn: Connection) -> str:
            claimed = await chunks.claim_builds(
                conn, id_, n=2, lease=LEASE, now=now(), alone=True, compact=True
            )
            for chunk in claimed:
                if chunk.host is None:
                    async with conn.transaction():
                        await compaction_merge.manifest(conn, [chunk.chunk_id])
                await asyncio.sleep(self.random.random() / 100)
                self.counts[await self.built(conn, id_, chunk.chunk_id)] += 1
            await asyncio.sleep(0.005)
            return "claims of builds"

        return build

    async def built(self, conn: Connection, me: int, chunk: int) -> str:
        async with conn.transaction():
            await placements.plan_alone(conn)
            if not await chunks.renew(conn, me, [chunk], lease=LEASE, now=now()):
                return "late builds"
            if self.random.random() < 0.1:
                if await chunks.fail_build(conn, me, chunk, why=WHY) == "parked":
                    await missing_chunks.lose_content(conn, me, MissingFile(chunk, WHY), now=now())
                return "failed builds"
            if await chunks.finish_build(conn, me, chunk, sha256="x", size=1, now=now()):
                await placements.place_chunks(conn, [chunk], now=now())
            return "builds"

    def server(self, id_: int) -> Step:
        async def serve(conn: Connection) -> str:
            wanted = [one.chunk_id for one in await placements.wanted(conn, id_, n=5)]
            async with conn.transaction():
                if wanted and self.random.random() < 0.1:
                    losses = [MissingFile(chunk, WHY) for chunk in wanted]
                    lost = await missing_chunks.lose_indexes(conn, id_, losses, now=now())
                    return f"lost indexes {bool(lost)}"
                await placements.loaded(conn, id_, wanted, now=now())
            old = await page_versions.to_retire(conn, id_, n=50)
            await page_versions.retired(conn, id_, [(one.chunk_id, one.page_id) for one in old])
            if self.random.random() < 0.05:
                async with conn.transaction():
                    some = [
                        row[0] for row in await placements.store.placed.tuples(conn, server=id_)
                    ]
                    await placements.dropped(conn, id_, some[:2], now=now())
            await asyncio.sleep(0.01)
            return "loads" if wanted else "empty loads"

        return serve

    # -- the watchdog

    async def watch(self, conn: Connection) -> str:
        async with conn.transaction():
            await chunks.reap(conn, n=100, now=now())
        async with conn.transaction():
            await page_versions.judge(conn, n=100, now=now())
        await placements.plan(conn, now=now())
        async with conn.transaction():
            await placements.drop(conn, now=now())
        async with conn.transaction():
            done = await compaction.compact(conn, now=now(), by_hand=True)
            self.counts["compactions"] += bool(done)
        async with conn.transaction():
            if self.random.random() < 0.1:
                crawler = self.random.choice(self.crawlers)
                lost = await chunks.recrawl(conn, crawler, why=WHY, now=now(), n=2)
                self.counts["lost contents"] += len(lost)
            elif self.random.random() < 0.1:
                await chunks.rebuild(conn, self.random.choice(self.builders), why=WHY)
        await asyncio.sleep(0.02)
        return "rounds"
