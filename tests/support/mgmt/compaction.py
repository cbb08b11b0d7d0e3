"""Chunks of which little is left: pages crawled again and again, built and loaded by servers of two rows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from support.mgmt.admitted_pages import NONE, NOW, component, delay, url
from usher.db.pool import Connection
from usher.door import hosts
from usher.door.guestbook import FetchReport, FetchResult
from usher.messages.builder import SourceChunk
from usher.mgmt import chunk_pages, chunks, compaction, compaction_merge, page_versions, placements
from usher.mgmt.chunks import PageClaim
from usher.mgmt.compaction import CompactionResult, MergedChunk

LEASE = timedelta(minutes=5)
LATER = NOW + timedelta(days=2)


class House:
    """One crawler, two builders, two rows of one server each."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.crawler = self.builder = self.other = 0
        self.servers: list[int] = []

    async def begin(self) -> None:
        await hosts.register(self.conn, names=["a.com"], now=NOW)
        await self.run(
            "insert into work.guestbook (domain64, path, next_fetch, state) "
            "select domain64, '/' || n, %s, 'idle' from work.hosts, generate_series(0, 39) n",
            NOW,
        )
        await delay(self.conn, 0)
        await self.conn.execute('update work.settings set "rows" = 2')
        self.crawler = await component(self.conn, "c")
        self.builder = await component(self.conn, "b", "index-builder")
        self.other = await component(self.conn, "b2", "index-builder")
        for row in (1, 2):
            id_ = await component(self.conn, f"s{row}", "index-server")
            await self.run('update work.component set "row" = %s where id = %s', row, id_)
            self.servers.append(id_)

    @classmethod
    async def of_mgmt(cls, conn: Connection) -> Self:
        """In a transaction that is undone, as MGMT."""
        made = cls(conn)
        await made.begin()
        await conn.execute("set local role usher_mgmt")
        return made

    async def run(self, text: str, *given: object) -> None:
        await self.conn.execute(text.encode(), given)

    async def ask(self, text: str, *given: object) -> list[tuple[Any, ...]]:
        return await (await self.conn.execute(text.encode(), given)).fetchall()

    async def fetch(
        self,
        *paths: str,
        result: FetchResult = "success",
        status: int = 200,
        same: Sequence[str] = (),
        told: bool = True,
    ) -> int:
        """One more crawl of these pages of a.com, all with the same result, but for those that are as they were."""
        await self.run(
            "update work.guestbook set state = 'pending', admitted_at = now() where path = any(%s)",
            list(paths),
        )
        await self.run("update work.hosts set claim_at = '-infinity', ready_at = '-infinity'")
        ask = PageClaim(len(paths), wait=NONE)
        pack = await chunks.claim_links(self.conn, self.crawler, ask, now=NOW)
        assert pack
        assert len(pack.pages) == len(paths)
        outcomes = []
        for page in pack.pages:
            found = await chunk_pages.find_page(self.conn, url(page.url))
            assert found
            page_result: FetchResult = "unchanged" if found.path in same else result
            known = (found.domain64, found.path, page_result, pack.chunk_id, status)
            outcomes.append(FetchReport(*known, text64=1))
        await chunks.report(self.conn, outcomes if told else [], now=NOW)
        await chunks.finish_crawl(
            self.conn, self.crawler, pack.chunk_id, sha256=None, size=None, now=NOW
        )
        return pack.chunk_id

    async def claim(self, builder: int = 0, *, compact: bool = True) -> list[int]:
        found = await chunks.claim_builds(
            self.conn, builder or self.builder, n=9, lease=LEASE, now=NOW, compact=compact
        )
        return [one.chunk_id for one in found]

    async def built(self, chunk: int, builder: int = 0) -> bool:
        async with self.conn.transaction():
            who = builder or self.builder
            done = await chunks.finish_build(
                self.conn, who, chunk, sha256=f"sum {chunk}", size=chunk, now=NOW
            )
            if done:
                await placements.place_chunks(self.conn, [chunk], now=NOW)
        return done

    async def crawl(
        self,
        *paths: str,
        rows: Sequence[int] = (0, 1),
        same: Sequence[str] = (),
        told: bool = True,
    ) -> int:
        """Crawled, built, and loaded in these rows."""
        chunk = await self.fetch(*paths, same=same, told=told)
        assert await self.claim(compact=False) == [chunk]
        assert await self.built(chunk)
        await self.load(chunk, rows)
        return chunk

    async def load(self, chunk: int, rows: Sequence[int] = (0, 1)) -> None:
        for row in rows:
            assert await placements.loaded(self.conn, self.servers[row], [chunk], now=NOW)

    async def retire(self, row: int) -> list[tuple[int, str]]:
        """What a server is to take out, taken out."""
        found = await page_versions.to_retire(self.conn, self.servers[row], n=1000)
        done = [(one.chunk_id, one.page_id) for one in found]
        await page_versions.retired(self.conn, self.servers[row], done)
        return [(one.chunk_id, one.url.removeprefix("https://a.com")) for one in found]

    async def compact(self, now: datetime = LATER, *, by_hand: bool = False) -> CompactionResult:
        async with self.conn.transaction():
            return await compaction.compact(self.conn, now=now, by_hand=by_hand)

    async def sparse(self, number: int = 3, *, size: int = 4) -> list[int]:
        """So many chunks of pages of which the first alone is still good."""
        made = [await self.crawl(*paths(n, size)) for n in range(number)]
        await self.crawl(*(path for n in range(number) for path in paths(n, size)[1:]))
        for row in (0, 1):
            await self.retire(row)
        return made

    async def begun(self, number: int = 3, *, size: int = 4) -> MergedChunk:
        """A chunk that is to be made of so many others."""
        await self.sparse(number, size=size)
        [made] = (await self.compact()).begun
        return made

    async def taken(self, builder: int = 0) -> tuple[int, list[SourceChunk]]:
        """It is taken by a builder; what that is told."""
        chunk = (await self.claim(builder))[0]
        return chunk, (await compaction_merge.manifest(self.conn, [chunk]))[chunk]

    async def indexed(self, *of: str) -> set[int]:
        found = await self.ask("select indexed_in from work.guestbook where path = any(%s)", [*of])
        return {chunk for (chunk,) in found}

    async def states(self) -> dict[int, str]:
        return dict(await self.ask("select id, coalesce(index_state, state) from work.chunk"))


def paths(number: int, size: int = 4) -> list[str]:
    return [f"/{number * size + place}" for place in range(size)]
