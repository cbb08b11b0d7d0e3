"""Which pages a chunk may hold, whatever happens to its pages later; and who may report foreign ones."""

from datetime import datetime, timedelta

import pytest

from support.mgmt.admitted_pages import NOW
from support.mgmt.compaction import House, paths
from usher.db.pool import Connection
from usher.messages.components import ForeignPages
from usher.messages.index_server import ChunkPages
from usher.mgmt import components, page_keys
from usher.mgmt.components import ComponentRecord


@pytest.fixture
async def house(conn: Connection) -> House:
    return await House.of_mgmt(conn)


async def keys(house: House, chunk: int, server: int | None = None) -> ChunkPages:
    [pages] = await page_keys.page_keys(house.conn, [chunk], server=server)
    assert pages.chunk_id == chunk
    return pages


def named(*of: str) -> list[str]:
    return [f"a.com{path}" for path in of]


async def test_a_chunk_keeps_the_pages_that_later_chunks_crawl_again(house: House) -> None:
    first = await house.crawl("/0", "/1", "/2")
    for _ in range(2):
        later = await house.crawl("/1", "/2")
        assert await keys(house, first) == ChunkPages(first, named("/0", "/1", "/2"), [])
        assert await keys(house, later) == ChunkPages(later, named("/1", "/2"), [])


async def test_pages_that_brought_no_text_are_known_but_not_to_be_indexed(house: House) -> None:
    first = await house.crawl("/0", "/1", "/2")
    same = await house.crawl("/0", "/1", same=["/1"])
    gone = await house.fetch("/2", "/3", result="failure", status=500)
    assert await keys(house, same) == ChunkPages(same, named("/0"), named("/1"))
    assert await keys(house, gone) == ChunkPages(gone, [], named("/2", "/3"))
    assert await keys(house, first) == ChunkPages(first, named("/0", "/1", "/2"), [])


async def test_pages_reported_without_details_are_indexed_until_another_chunk_has_them(
    house: House,
) -> None:
    first = await house.crawl("/0", "/1", "/2", told=False)
    assert await keys(house, first) == ChunkPages(first, named("/0", "/1", "/2"), [])
    await house.crawl("/1")
    await house.crawl("/2", told=False)
    assert await keys(house, first) == ChunkPages(first, named("/0", "/2"), named("/1"))


async def test_a_chunk_made_of_others_has_what_was_alive_of_them(house: House) -> None:
    made = await house.begun()
    chunk, sources = await house.taken()
    assert await house.built(chunk)
    alive = [key for source in sources for key in source.keys]
    assert alive == named("/0", "/4", "/8")
    assert await keys(house, chunk) == ChunkPages(chunk, alive, [])
    for source, number in zip(made.sources, range(3), strict=True):
        assert await keys(house, source) == ChunkPages(source, named(*paths(number)), [])
    await house.load(chunk)
    for row in (0, 1):
        await house.retire(row)
    assert (await house.compact()).retired == made.sources
    await house.crawl("/0")
    assert await keys(house, chunk) == ChunkPages(chunk, alive, [])


async def test_a_server_gets_the_keys_of_its_own_chunks(house: House) -> None:
    chunk = await house.fetch("/0")
    assert await page_keys.page_keys(house.conn, [chunk], server=house.servers[0]) == []
    await house.claim()
    assert await house.built(chunk)
    assert (await keys(house, chunk, house.servers[0])).keys == named("/0")
    assert await page_keys.page_keys(house.conn, [chunk], server=house.crawler) == []


async def test_a_chunk_of_an_earlier_schema_has_the_pages_of_the_guestbook(house: House) -> None:
    chunk = await house.fetch("/0", "/1")
    await house.run("update work.chunk set page_ids = null where id = %s", chunk)
    assert await keys(house, chunk) == ChunkPages(chunk, named("/0", "/1"), [])


async def component(house: House, id_: int) -> ComponentRecord:
    [(host,)] = await house.ask("select host from work.component where id = %s", id_)
    return await components.show(house.conn, host)


async def reported(house: House, reporter: int, chunk: int, count: int, now: datetime = NOW) -> int:
    """How many chunks MGMT took the report of."""
    dropped = [ForeignPages(chunk, count, ["https://bank.test/", "https://shop.test/"])]
    return len(
        await page_keys.report(house.conn, await component(house, reporter), dropped, now=now)
    )


async def test_a_report_names_the_component_at_fault_and_the_reporter_once(house: House) -> None:
    chunk = await house.fetch("/0")
    assert not await reported(house, house.builder, chunk, 1)
    await house.claim()
    assert await reported(house, house.builder, chunk, 1)
    assert not await reported(house, house.other, chunk, 1)
    assert not await reported(house, house.servers[0], chunk, 2)
    assert await house.built(chunk)
    for count in (2, 3):
        assert await reported(house, house.servers[0], chunk, count, NOW + timedelta(minutes=count))
    assert await reported(house, house.servers[1], chunk, 4)
    events = await house.ask(
        "select component_id, reason from work.event where kind = 'foreign_pages' order by id"
    )
    such = ", such as https://bank.test/, https://shop.test/"
    assert events == [
        (house.crawler, f"index-builder b dropped 1 foreign page{such}"),
        (house.builder, f"index-server s1 dropped 2 foreign documents of crawler c{such}"),
        (house.builder, f"index-server s2 dropped 4 foreign documents of crawler c{such}"),
    ]
