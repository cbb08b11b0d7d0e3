"""Compaction: obsolete chunks leave, the rest of many chunks becomes one, and no page is lost or there twice."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from support.mgmt.admitted_pages import NOW
from support.mgmt.compaction import LATER, LEASE, House, paths
from usher.db.pool import Connection, connect
from usher.mgmt import (
    chunks,
    compaction,
    components,
    page_versions,
    placements,
    queries,
    server_maps,
)
from usher.mgmt.compaction import MERGE_TIMEOUT

FIRSTS = ("/0", "/4", "/8")


@pytest.fixture
async def house(conn: Connection) -> House:
    return await House.of_mgmt(conn)


@pytest.fixture
async def shared(database: str) -> AsyncIterator[House]:
    """In a database where others are at work."""
    async with await connect(database) as conn:
        made = House(conn)
        await made.begin()
        yield made


# -- chunks with nothing left


async def test_a_chunk_with_nothing_left_leaves_when_every_row_has_what_is_newer(
    house: House,
) -> None:
    old = await house.crawl(*paths(0))
    new = await house.crawl(*paths(0), rows=[0])
    assert (await house.compact(by_hand=True)).retired == []
    await house.load(new, [1])
    assert (await house.compact(by_hand=True)).retired == [old]
    for server in house.servers:
        later = LATER + placements.RELEASED_COPY_DELAY
        assert await placements.leaving(house.conn, server, now=later, n=9) == [old]
        assert await page_versions.to_retire(house.conn, server, n=9) == []
    found = await server_maps.full_map(house.conn)
    assert [chunks for _, servers in found.rows for _, chunks in servers] == [[new], [new]]
    assert await house.ask("select placements from work.server_load") == [(1,), (1,)]
    assert (
        await house.ask(
            "select from work.stale_copy union all select from work.compaction_candidate"
        )
        == []
    )
    shown = await queries.show_chunk(house.conn, old)
    assert queries.stage(shown.chunk) == "retired"
    [event] = await components.events(house.conn, n=1)
    assert (event.kind, event.chunk_id) == ("retired", old)


async def test_what_has_left_is_seated_nowhere_again(house: House) -> None:
    old = await house.crawl(*paths(0))
    await house.crawl(*paths(0))
    assert (await house.compact(by_hand=True)).retired == [old]
    assert await placements.loaded(house.conn, house.servers[0], [old], now=NOW) == set()
    await placements.dropped(house.conn, house.servers[0], [old], now=NOW)
    assert await placements.returned(house.conn, house.servers[0], [old], now=NOW) == [old]
    await house.run("update work.settings set rows = 3")
    await placements.plan(house.conn, now=NOW)
    assert [one.unseated for one in await placements.row_shortages(house.conn)] == [0, 0, 1]


async def test_a_chunk_stays_while_what_disappears_of_it_is_held_back(house: House) -> None:
    old = await house.crawl(*(f"/{number}" for number in range(20)))
    await house.fetch(*(f"/{number}" for number in range(20)), result="gone", status=410)
    [(number, may_go)] = (await page_versions.judge(house.conn, n=100, now=NOW)).items()
    assert not may_go
    assert not await house.compact(by_hand=True)
    await page_versions.release(house.conn, number)
    assert (await house.compact(by_hand=True)).retired == [old]


async def test_a_chunk_stays_while_a_server_of_it_or_of_its_successor_is_away(
    house: House,
) -> None:
    old = await house.crawl(*paths(0))
    await house.crawl(*paths(0))
    await house.run("update work.component set health = 'failure' where id = %s", house.servers[1])
    assert not await house.compact(by_hand=True)
    await house.run("update work.component set health = 'healthy'")
    assert (await house.compact(by_hand=True)).retired == [old]


async def test_a_chunk_whose_pages_are_all_as_they_were_leaves(house: House) -> None:
    await house.crawl(*paths(0))
    empty = await house.crawl(*paths(0), same=paths(0))
    assert (await house.compact(by_hand=True)).retired == [empty]


async def test_a_chunk_stays_whose_crawler_did_not_say_what_it_brought(house: House) -> None:
    """As the first crawlers do: they report the chunk, and nothing of its pages."""
    await house.crawl(*paths(0), told=False)
    await house.crawl(*paths(1))
    await house.crawl(*paths(1), *paths(2), told=False, same=paths(1))
    assert not await house.compact(by_hand=True)
    assert await house.ask("select from work.compaction_candidate") == []


async def test_what_was_seen_is_not_looked_at_again_at_once(house: House) -> None:
    await house.crawl(*paths(0))
    new = await house.crawl(*paths(0), rows=[])
    assert not await house.compact(NOW)
    await house.load(new)
    assert not await house.compact(NOW + timedelta(minutes=1))
    assert (await house.compact(NOW + compaction.WAITING_CHECK_INTERVAL)).retired


# -- chunks with little left


async def test_what_is_left_of_many_chunks_becomes_one(house: House) -> None:
    sources = await house.sparse()
    assert not await house.compact(NOW)  # not on their first day
    [made] = (await house.compact()).begun
    assert (made.sources, made.pages) == (sources, 3)
    assert await house.claim(compact=False) == []  # others do not know how
    chunk, parts = await house.taken()
    assert chunk == made.chunk_id
    assert [(one.chunk_id, one.keys) for one in parts] == [
        (source, [f"a.com{path}"]) for source, path in zip(sources, FIRSTS, strict=True)
    ]
    assert {tuple(one.hosts) for one in parts} == {("s1", "s2")}
    assert [one.sha256 for one in parts] == [f"sum {source}" for source in sources]
    assert await house.built(chunk)
    assert await house.indexed(*FIRSTS) == {chunk}
    assert await house.retire(0) == []
    await house.load(chunk, [0])
    old = list(zip(sources, FIRSTS, strict=True))
    assert await house.retire(0) == old
    assert await house.retire(1) == []  # its row has only the old ones
    assert (await house.compact()).retired == []
    await house.load(chunk, [1])
    assert await house.retire(1) == old
    done = await house.compact()
    assert (done.retired, done.made) == (sources, [chunk])
    assert not await house.compact()


async def test_chunks_that_brought_little_are_put_together_too(house: House) -> None:
    await house.crawl(*paths(0, 10))
    few = [
        await house.crawl(*paths(0, 10), same=[one for one in paths(0, 10) if one != path])
        for path in ("/3", "/7")
    ]
    [made] = (await house.compact()).begun
    assert (made.sources, made.pages) == (few, 2)


async def test_chunks_say_what_they_are_made_of_and_where_they_went(house: House) -> None:
    made = await house.begun()
    await house.taken()
    assert await house.built(made.chunk_id)
    new = await queries.show_chunk(house.conn, made.chunk_id)
    assert (new.made_of, new.merged_into) == (made.sources, [])
    assert sorted(page.url for page in new.pages) == [f"https://a.com{path}" for path in FIRSTS]
    old = await queries.show_chunk(house.conn, made.sources[0])
    assert (old.made_of, old.merged_into) == ([], [made.chunk_id])
    wanted = await placements.wanted(house.conn, house.servers[0], n=1)
    assert wanted[0].crawler_host == "b"  # compaction made it
    events = await components.events(house.conn, n=9)
    words = f"3 pages of chunks {', '.join(map(str, made.sources))}"
    assert ("compacting", words) in [(one.kind, one.reason) for one in events]


async def test_a_page_crawled_again_meanwhile_stays_where_it_is(house: House) -> None:
    made = await house.begun()
    chunk, parts = await house.taken()
    assert len(parts) == 3
    newer = await house.crawl("/0")
    assert await house.built(chunk)
    assert await house.indexed("/0") == {newer}
    assert await house.indexed("/4", "/8") == {chunk}
    await house.load(chunk)
    told = await house.retire(0)
    assert (chunk, "/0") in told
    assert {(source, path) for source, path in told if path == "/0"} >= {(made.sources[0], "/0")}
    for row in (0, 1):
        await house.retire(row)
    assert (await house.compact()).retired == made.sources


async def test_a_page_crawled_again_before_the_claim_is_left_out(house: House) -> None:
    made = await house.begun()
    await house.crawl("/0")
    chunk, parts = await house.taken()
    assert [one.chunk_id for one in parts] == made.sources[1:]
    assert await house.built(chunk)
    await house.load(chunk)
    assert (await house.compact()).retired == made.sources


async def test_a_page_gone_meanwhile_goes_from_the_new_chunk_too(house: House) -> None:
    await house.begun()
    chunk, _ = await house.taken()
    await house.fetch("/0", result="gone", status=410)
    assert set((await page_versions.judge(house.conn, n=9, now=NOW)).values()) == {True}
    assert await house.built(chunk)
    assert await page_versions.judge(house.conn, n=9, now=NOW) == {}  # it was looked at
    await house.load(chunk)
    assert (chunk, "/0") in await house.retire(0)


async def test_a_page_settled_in_the_moment_of_the_move_is_not_there_twice(
    shared: House, database: str
) -> None:
    """Its crawler reports while the builder's report is not over: it waits, and sees where the text went."""
    await shared.begun()
    chunk, _ = await shared.taken()
    async with await connect(database) as conn:
        other = House(conn)
        other.crawler = shared.crawler
        async with shared.conn.transaction():
            await chunks.finish_build(
                shared.conn, shared.builder, chunk, sha256=None, size=None, now=NOW
            )
            await shared.run("update work.hosts set ready_at = '-infinity'")
            report = asyncio.create_task(other.fetch("/0"))
            await asyncio.sleep(0.3)
            assert not report.done()
        newer = await report
    assert await shared.indexed("/0") == {newer}
    found = await shared.ask("select newer from work.stale_copy where chunk_id = %s", chunk)
    assert found == [(newer,)]


async def test_a_builder_whose_lease_ended_makes_nothing_of_it(house: House) -> None:
    await house.begun()
    chunk, first = await house.taken()
    late = NOW + 2 * LEASE
    assert (await chunks.reap(house.conn, n=9, now=late))[1] == [chunk]
    assert not await house.built(chunk)
    again, second = await house.taken(house.other)
    assert (again, second) == (chunk, first)
    assert not await house.built(chunk)
    assert await house.built(chunk, house.other)


async def test_what_nobody_can_make_frees_its_sources(house: House) -> None:
    made = await house.begun()
    for builder in (house.builder, house.other, house.builder):
        assert await house.claim(builder) == [made.chunk_id]
        await chunks.fail_build(house.conn, builder, made.chunk_id, why="it is damaged")
    assert (await house.states())[made.chunk_id] == "parked"
    assert (await house.compact()).given_up == [made.chunk_id]
    assert (await house.states())[made.chunk_id] == "error"
    assert not await house.compact()  # they rest
    again = (await house.compact(LATER + MERGE_TIMEOUT + timedelta(hours=1))).begun
    assert [one.sources for one in again] == [made.sources]


async def test_what_no_builder_takes_is_given_up_after_a_day(house: House) -> None:
    made = await house.begun()
    assert not await house.compact(LATER + timedelta(hours=23))
    assert (await house.compact(LATER + MERGE_TIMEOUT)).given_up == [made.chunk_id]


async def test_one_that_was_built_and_lost_is_made_of_the_same(house: House) -> None:
    made = await house.begun()
    chunk, parts = await house.taken()
    assert await house.built(chunk)
    assert await chunks.rebuild(house.conn, house.builder, why="it is gone") == [chunk]
    assert await house.taken(house.other) == (chunk, parts)
    assert await house.built(chunk, house.other)
    await house.load(chunk)
    assert await house.indexed(*FIRSTS) == {chunk}
    assert (await house.compact()).retired == made.sources


async def test_one_that_was_built_and_cannot_be_again_waits_for_people(house: House) -> None:
    made = await house.begun()
    chunk, _ = await house.taken()
    assert await house.built(chunk)
    await chunks.rebuild(house.conn, house.builder, why="it is gone")
    await house.run("update work.chunk set index_state = 'parked' where id = %s", chunk)
    assert not await house.compact(LATER + 3 * MERGE_TIMEOUT)
    assert (await house.states())[chunk] == "parked"
    assert {state for id_, state in (await house.states()).items() if id_ in made.sources} == {
        "built"
    }


async def test_one_empty_source_stays_until_the_new_chunk_is_there(house: House) -> None:
    made = await house.begun()
    chunk, _ = await house.taken()
    await house.crawl("/0")  # nothing of the first source is left, but a builder reads it
    assert (await house.compact(by_hand=True)).retired == []
    assert await house.built(chunk)
    await house.load(chunk)
    assert (await house.compact(by_hand=True)).retired == made.sources


async def test_nothing_is_begun_while_a_row_lacks_chunks(house: House) -> None:
    await house.sparse()
    new = await house.crawl("/30", rows=[0])
    assert not await house.compact()
    await house.load(new, [1])
    assert (await house.compact(LATER + compaction.SETTLED_CHECK_INTERVAL)).begun


async def test_two_at_once_take_no_source_twice(shared: House, database: str) -> None:
    sources = await shared.sparse()
    async with await connect(database) as one, await connect(database) as two:
        both = [House(one), House(two)]
        done = await asyncio.gather(*(each.compact() for each in both))
    assert [made.sources for one in done for made in one.begun] == [sources]


async def test_a_made_chunk_thins_out_like_any_other(house: House) -> None:
    await house.begun(number=4)
    first, _ = await house.taken()
    assert await house.built(first)
    await house.load(first)
    await house.compact()
    await house.crawl("/4", "/8", "/12")
    other = await house.crawl("/36", "/37", "/38", "/39")
    await house.crawl("/37", "/38", "/39")
    [made] = (await house.compact(by_hand=True)).begun
    assert made.sources == [first, other]
    chunk, parts = await house.taken()
    assert [one.keys for one in parts] == [["a.com/0"], ["a.com/36"]]
    assert await house.built(chunk)
    assert await house.indexed("/0", "/36") == {chunk}


async def test_a_text_that_was_lost_leaves_what_was_there_before(house: House) -> None:
    """Also where its chunk is made into another one meanwhile: only what the builder was told moves."""
    made = await house.begun()
    lost = await house.fetch("/0")
    chunk, parts = await house.taken()
    assert [one.chunk_id for one in parts] == made.sources[1:]
    await chunks.fail_crawls(house.conn, [lost], why="gone", now=NOW, crawled=True)
    assert await house.indexed("/0") == {made.sources[0]}
    assert await house.built(chunk)
    await house.load(chunk)
    assert await house.indexed("/0") == {made.sources[0]}
    assert (await house.compact(by_hand=True)).retired == made.sources[1:]
    assert (made.sources[0], "/0") not in [*await house.retire(0), *await house.retire(1)]
    await house.crawl("/0")
    assert (made.sources[0], "/0") in await house.retire(0)
    assert (await house.compact(by_hand=True)).retired == [made.sources[0]]
