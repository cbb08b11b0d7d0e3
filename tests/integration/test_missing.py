"""Chunks whose files are nowhere: built again or crawled again, never while a component has them, and not for ever."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from support.mgmt.admitted_pages import NONE, NOW
from support.mgmt.compaction import House
from support.mgmt.index_servers import fail
from usher.db.pool import Connection, connect
from usher.mgmt import admin, chunks, components, missing_chunks, page_versions, placements
from usher.mgmt.chunks import PageClaim
from usher.mgmt.missing_chunks import LossResult, MissingFile

DAY = timedelta(days=1)


@pytest.fixture
async def house(conn: Connection) -> House:
    return await House.of_mgmt(conn)


class Shared(House):
    """In a database where others are at work."""

    dsn = ""


@pytest.fixture
async def shared(database: str) -> AsyncIterator[Shared]:
    async with await connect(database) as conn:
        made = Shared(conn)
        made.dsn = database
        await made.begin()
        yield made


async def lose(
    house: House, chunk: int, row: int = 0, *, silent: bool = False
) -> dict[int, LossResult]:
    """A server says that it finds the chunk nowhere."""
    losses = [MissingFile(chunk, "it is not there", silent), MissingFile(10**12, "nor is this")]
    return await missing_chunks.lose_indexes(house.conn, house.servers[row], losses, now=NOW)


async def give_up(house: House, chunk: int) -> bool:
    """Three builders say that the content is nowhere either; whether its pages wait again."""
    builders = (house.other, house.builder, house.other)
    for builder in builders:
        assert await house.claim(builder, compact=False) == [chunk]
        state = await chunks.fail_build(house.conn, builder, chunk, why="it is gone")
    assert state == "parked"
    return await missing_chunks.lose_content(
        house.conn, builder, MissingFile(chunk, "it is gone"), now=NOW
    )


async def gone(house: House, chunk: int) -> None:
    """Every row had it, and all servers lose it."""
    for server in house.servers:
        await placements.dropped(house.conn, server, [chunk], now=NOW)


async def waiting(house: House) -> list[str]:
    found = await house.ask("select path from work.guestbook where state = 'pending' order by 1")
    return [path for (path,) in found]


async def seats(house: House, chunk: int) -> list[tuple[int, str]]:
    query = "select component_id, state from work.placement where chunk_id = %s order by 1"
    return [(id_, state) for id_, state in await house.ask(query, chunk)]


# -- indexes


async def test_an_index_that_nobody_has_is_built_again_for_the_same_seats(house: House) -> None:
    chunk = await house.crawl("/0", "/1", rows=())
    before = await seats(house, chunk)
    assert await lose(house, chunk) == {chunk: "build"}
    assert await lose(house, chunk, 1) == {}, "that is known by now"
    shown = await chunks.show(house.conn, chunk)
    assert shown
    assert (shown.index_state, shown.reason) == (None, "it is not there")
    assert await placements.wanted(house.conn, house.servers[0], n=9) == []
    assert await house.claim(house.other) == [chunk]
    assert await house.built(chunk, house.other)
    assert await seats(house, chunk) == before
    [wanted] = await placements.wanted(house.conn, house.servers[0], n=9)
    assert (wanted.chunk_id, wanted.index_builder_host) == (chunk, "b2")
    [event] = await components.events(house.conn, house.servers[0], 1)
    told = (event.kind, event.chunk_id, event.after, event.reason)
    assert told == ("index_missing", chunk, "build", "it is not there")


async def test_nothing_happens_while_a_server_has_it(house: House) -> None:
    chunk = await house.crawl("/0", rows=(0,))
    assert await lose(house, chunk, 1) == {}
    assert await lose(house, chunk, 0) == {}, "it has it itself"
    await house.run("update work.placement set state = 'leaving' where state = 'loaded'")
    assert await lose(house, chunk, 1) == {}
    await fail(house.conn, house.servers[0], NOW - timedelta(minutes=1))
    assert await lose(house, chunk, 1) == {}, "it may come back"
    await fail(house.conn, house.servers[0], NOW - DAY)
    assert await lose(house, chunk, 1) == {chunk: "build"}


async def test_nobody_loses_what_is_not_wanted_of_him_or_not_built(house: House) -> None:
    chunk = await house.crawl("/0", rows=())
    assert await missing_chunks.lose_indexes(house.conn, house.servers[0], [], now=NOW) == {}
    await house.run("delete from work.placement where component_id = %s", house.servers[0])
    assert await lose(house, chunk, 0) == {}
    crawled = await house.fetch("/1")
    assert await lose(house, crawled, 1) == {}
    assert await lose(house, chunk, 1) == {chunk: "build"}


async def test_what_is_lost_again_and_again_waits_for_people(house: House) -> None:
    chunk = await house.crawl("/0", rows=())
    for builder in (house.other, house.builder):
        assert await lose(house, chunk) == {chunk: "build"}
        assert await house.claim(builder) == [chunk]
        assert await house.built(chunk, builder)
    assert await lose(house, chunk) == {chunk: "parked"}
    assert await seats(house, chunk) == []
    assert [(row.unseated, row.wanted) for row in await placements.row_shortages(house.conn)] == [
        (0, 0),
        (0, 0),
    ]
    await admin.retry(house.conn, [chunk], now=NOW)
    assert await house.claim(house.other) == [chunk]
    assert await house.built(chunk, house.other)
    assert [state for _, state in await seats(house, chunk)] == ["wanted", "wanted"]


async def test_a_builder_that_does_not_answer_is_waited_for(house: House) -> None:
    lacking, had = await house.crawl("/0", rows=()), await house.crawl("/1")
    await gone(house, had)
    assert await lose(house, lacking, silent=True) == {}
    assert await lose(house, had, silent=True) == {}
    await fail(house.conn, house.builder, NOW - DAY)
    assert await lose(house, lacking, silent=True) == {}, "the watchdog sees to that"
    assert await lose(house, had, silent=True) == {had: "build"}


# -- content


async def test_what_every_row_had_and_nobody_has_is_crawled_again(house: House) -> None:
    chunk = await house.crawl("/0", "/1", "/2")
    newer = await house.crawl("/1", "/2", same=["/1"])
    await gone(house, chunk)
    await house.run("update work.guestbook set etag = 'x', last_modified = now()")
    assert await lose(house, chunk) == {chunk: "build"}
    shown = await chunks.show(house.conn, chunk)
    assert shown
    assert (shown.propagated_at, shown.build_attempts) == (None, 0)
    assert await give_up(house, chunk)
    assert (await house.states())[chunk] == "error"
    assert await seats(house, chunk) == []
    # One was unchanged since and came in a newer chunk; of another that one has a newer text.
    assert await waiting(house) == ["/0", "/1"]
    assert await house.indexed("/2") == {newer}
    await house.run("update work.hosts set claim_at = '-infinity', ready_at = '-infinity'")
    pack = await chunks.claim_links(house.conn, house.crawler, PageClaim(2, wait=NONE), now=NOW)
    assert pack
    assert [(one.etag, one.last_modified, one.text64) for one in pack.pages] == [(None,) * 3] * 2


async def test_a_text_that_was_lost_on_its_way_leaves_the_older_one(house: House) -> None:
    older = await house.crawl("/0")
    chunk = await house.fetch("/0")
    assert await give_up(house, chunk)
    assert await house.indexed("/0") == {older}
    assert await waiting(house) == ["/0"]
    newest = await house.crawl("/0")
    assert await house.indexed("/0") == {newest}
    assert await house.retire(0) == [(older, "/0")]


async def test_content_is_not_fetched_again_if_a_server_has_its_index(house: House) -> None:
    chunk = await house.crawl("/0", rows=(0,))
    await fail(house.conn, house.servers[0], NOW - DAY)
    assert await lose(house, chunk, 1) == {chunk: "build"}
    await house.run("update work.component set health = 'healthy'")  # it is back
    await house.run("update work.chunk set build_attempts = 0")
    assert not await give_up(house, chunk)
    assert (await house.states())[chunk] == "parked"
    assert (house.servers[0], "loaded") in await seats(house, chunk)
    assert await waiting(house) == []


async def test_a_server_that_comes_back_with_what_was_crawled_again_drops_it(house: House) -> None:
    chunk = await house.crawl("/0")
    for server in house.servers:
        await fail(house.conn, server, NOW - DAY)
    await house.run("update work.placement set state = 'wanted' where \"row\" = 2")
    assert await lose(house, chunk, 1) == {chunk: "build"}
    assert await give_up(house, chunk)
    stray = await placements.returned(house.conn, house.servers[0], {chunk}, now=NOW)
    assert stray == [chunk]


async def test_a_page_that_is_lost_again_and_again_is_an_error(house: House) -> None:
    for _ in range(3):
        assert await give_up(house, await house.fetch("/0"))
        assert await waiting(house) == ["/0"]
    assert await give_up(house, await house.fetch("/0"))
    assert await waiting(house) == []
    [(state, reason, later)] = await house.ask(
        "select state, reason, next_fetch > %s from work.guestbook where path = '/0'", NOW
    )
    assert (state, reason, later) == ("error", "lost too often: it is gone", True)


# -- chunks that are made of others


async def test_one_made_of_others_is_made_of_the_same_again(house: House) -> None:
    made = await house.begun()
    chunk, parts = await house.taken()
    assert await house.built(chunk)
    assert await lose(house, chunk) == {chunk: "build"}
    assert await house.taken(house.other) == (chunk, parts)
    assert await house.built(chunk, house.other)
    await house.load(chunk)
    assert await house.indexed("/0", "/4", "/8") == {chunk}
    assert (await house.compact()).retired == made.sources


async def test_one_made_of_others_that_are_gone_by_now_is_crawled_again(house: House) -> None:
    await house.begun()
    chunk, _ = await house.taken()
    assert await house.built(chunk)
    await house.load(chunk)
    assert (await house.compact()).retired
    await gone(house, chunk)
    assert await lose(house, chunk) == {chunk: "crawl"}
    assert await waiting(house) == ["/0", "/4", "/8"]
    assert (await house.states())[chunk] == "error"
    assert await seats(house, chunk) == []


# -- beside others


async def test_who_loads_it_meanwhile_is_believed(shared: Shared) -> None:
    chunk = await shared.crawl("/0", rows=())
    async with await connect(shared.dsn) as other:
        async with other.transaction():
            assert await placements.loaded(other, shared.servers[1], [chunk], now=NOW) == {chunk}
            losing = asyncio.create_task(in_one(shared, chunk))
            await asyncio.sleep(0.3)
            assert not losing.done()
        assert await losing == {}
    assert (await shared.states())[chunk] == "built"


async def test_who_loads_it_too_late_is_told_so(shared: Shared) -> None:
    chunk = await shared.crawl("/0", rows=())
    async with await connect(shared.dsn) as other:
        async with shared.conn.transaction():
            assert await lose(shared, chunk) == {chunk: "build"}
            loading = asyncio.create_task(loads(other, shared.servers[1], chunk))
            await asyncio.sleep(0.3)
            assert not loading.done()
        assert await loading == set()
    assert {state for _, state in await seats(shared, chunk)} == {"wanted"}


async def in_one(house: House, chunk: int) -> dict[int, LossResult]:
    async with house.conn.transaction():
        return await lose(house, chunk)


async def loads(conn: Connection, server: int, chunk: int) -> set[int]:
    async with conn.transaction():
        return await placements.loaded(conn, server, [chunk], now=NOW)


async def test_pages_are_found_by_index_however_many_there_are(house: House) -> None:
    await house.conn.execute("reset role")
    await house.run(
        "insert into work.guestbook (domain64, path, next_fetch, state, chunk_id, indexed_in) "
        "select domain64, '/many/' || n, %s, 'crawled', 1000 + n / 5, 1000 + n / 5 "
        "from work.hosts, generate_series(1, 20000) n",
        NOW,
    )
    await house.run("analyze work.guestbook")
    text = page_versions.store.lose_copies.text.rstrip().rstrip(";")
    given = {"chunks": [1001, 1002], "most": 3, "now": NOW}
    found = await (await house.conn.execute(f"explain {text}".encode(), given)).fetchall()
    plan = "\n".join(line for (line,) in found)
    assert "guestbook_chunk" in plan, plan
    assert "Seq Scan on guestbook" not in plan, plan
