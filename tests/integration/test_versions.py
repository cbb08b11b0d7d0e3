"""Versions: old copies stay until the row has the newer one, and much of a host never disappears at once unseen."""

from datetime import timedelta

from support.mgmt.admitted_pages import NONE, NOW, admit, component, delay, pages, url
from usher.db.pool import Connection, connect
from usher.door.guestbook import FetchReport, FetchResult
from usher.mgmt import chunk_pages, chunks, page_versions, placements
from usher.mgmt.chunks import ClaimedChunk, PageClaim

LEASE = timedelta(minutes=5)


class House:
    """One crawler, one builder, two rows of one server each."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.crawler = self.builder = 0
        self.servers: list[int] = []

    async def begin(self) -> None:
        await delay(self.conn, 0)
        await self.conn.execute('update work.settings set "rows" = 2')
        self.crawler = await component(self.conn, "c")
        self.builder = await component(self.conn, "b", "index-builder")
        for row in (1, 2):
            id_ = await component(self.conn, f"s{row}", "index-server")
            await self.conn.execute(
                'update work.component set "row" = %s where id = %s', [row, id_]
            )
            self.servers.append(id_)

    async def crawl(self, result: FetchResult = "success", status: int = 200, n: int = 5) -> int:
        """One more crawl of pages, all with the same result; then built and seated."""
        await self.conn.execute(
            "update work.guestbook set state = 'pending', admitted_at = now() where id in "
            "(select id from work.guestbook order by id limit %s)",
            [n],
        )
        await self.conn.execute("update work.hosts set claim_at = '-infinity'")
        pack = await chunks.claim_links(self.conn, self.crawler, PageClaim(n, wait=NONE), now=NOW)
        assert pack
        await self.report(pack, result, status)
        built = await chunks.claim_builds(self.conn, self.builder, n=5, lease=LEASE, now=NOW)
        assert [one.chunk_id for one in built] == [pack.chunk_id]
        await chunks.finish_build(
            self.conn, self.builder, pack.chunk_id, sha256=None, size=None, now=NOW
        )
        await placements.place_chunks(self.conn, [pack.chunk_id], now=NOW)
        return pack.chunk_id

    async def report(self, pack: ClaimedChunk, result: FetchResult, status: int) -> None:
        outcomes = []
        for page in pack.pages:
            found = await chunk_pages.find_page(self.conn, url(page.url))
            assert found
            outcomes.append(
                FetchReport(found.domain64, found.path, result, pack.chunk_id, status, text64=1)
            )
        await chunks.report(self.conn, outcomes, now=NOW)
        await chunks.finish_crawl(
            self.conn, self.crawler, pack.chunk_id, sha256=None, size=None, now=NOW
        )

    async def load(self, server: int, chunk: int) -> None:
        assert await placements.loaded(self.conn, self.servers[server], [chunk], now=NOW)

    async def to_retire(self, server: int) -> list[tuple[int, str]]:
        found = await page_versions.to_retire(self.conn, self.servers[server], n=1000)
        return [(one.chunk_id, one.url) for one in found]


async def test_an_old_copy_goes_when_its_row_has_the_newer_one(database: str) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        old = await house.crawl(n=1)
        await house.load(0, old)
        await house.load(1, old)
        new = await house.crawl(n=1)
        assert await house.to_retire(0) == []
        await house.load(0, new)
        assert await house.to_retire(0) == [(old, "https://a.com/")]
        assert await house.to_retire(1) == []  # its row has only the old one
        [one] = await page_versions.to_retire(conn, house.servers[0], n=10)
        assert (
            await page_versions.retired(conn, house.servers[0], [(one.chunk_id, one.page_id)]) == 1
        )
        assert await house.to_retire(0) == []
        await house.load(1, new)
        assert await house.to_retire(1) == [(old, "https://a.com/")]


async def test_what_was_outdated_twice_goes_with_the_newest(database: str) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        first = await house.crawl(n=1)
        await house.load(0, first)
        await house.crawl(n=1)  # which no server ever loads
        third = await house.crawl(n=1)
        await house.load(0, third)
        assert await house.to_retire(0) == [(first, "https://a.com/")]


async def test_a_server_that_loads_an_old_chunk_is_told_what_is_outdated_in_it(
    database: str,
) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        old = await house.crawl(n=1)
        new = await house.crawl(n=1)
        await house.load(0, new)
        await house.load(0, old)
        assert await house.to_retire(0) == [(old, "https://a.com/")]


async def test_pages_that_are_gone_disappear_once_they_are_looked_at(database: str) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        old = await house.crawl()
        await house.load(0, old)
        await house.crawl("gone", 410)
        assert await house.to_retire(0) == []
        assert set((await page_versions.judge(conn, n=100, now=NOW)).values()) == {True}
        assert len(await house.to_retire(0)) == 5


async def test_when_much_of_a_host_goes_at_once_somebody_has_to_look(database: str) -> None:
    await admit(database, *pages("a.com", 40))
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        old = await house.crawl(n=40)
        await house.load(0, old)
        await house.crawl("gone", 410, n=20)
        [(number, may_go)] = (await page_versions.judge(conn, n=100, now=NOW)).items()
        assert not may_go
        assert await house.to_retire(0) == []
        assert await page_versions.held_back(conn, number) == 20
        assert await page_versions.judge(conn, n=100, now=NOW) == {}  # it is not asked again
        assert await page_versions.release(conn, number) == 20
        assert len(await house.to_retire(0)) == 20
        assert await page_versions.held_back(conn, number) == 0


async def test_a_page_that_comes_back_is_found_again(database: str) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        old = await house.crawl(n=1)
        await house.load(0, old)
        await house.crawl("gone", 410, n=1)
        await page_versions.judge(conn, n=100, now=NOW)
        back = await house.crawl(n=1)
        await house.load(0, back)
        assert await house.to_retire(0) == [(old, "https://a.com/")]
