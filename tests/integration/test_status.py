"""The status read from the tables: every stage, who leads, how far a host is; bounded whatever they hold."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.mgmt.admitted_pages import component
from usher.db.pool import Connection, connect
from usher.db.statements import Statements
from usher.door import hosts
from usher.mgmt import watchdog
from usher.observe import crawl_progress, stages
from usher.observe.crawl_progress import CrawlProgress
from usher.observe.stages import (
    MAX_COUNTED,
    ClosedHost,
    ComponentGroup,
    ForeignPageSource,
    HeldBackHost,
    JobTypeCounts,
    RestingHost,
    read_queue,
    read_work,
)
from usher.queue import scheduler

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MANY = 200_000
TABLES = {"guestbook", "chunk", "hosts"}
STATEMENTS: list[tuple[Statements, str, dict[str, Any]]] = [
    (stages.store, "pages", {"most": MAX_COUNTED}),
    (stages.store, "next_page", {"now": NOW, "hosts": stages.MAX_HOSTS_SEARCHED}),
    (stages.store, "closed_hosts", {"most": MAX_COUNTED, "n": 5}),
    (stages.store, "chunks", {"most": MAX_COUNTED}),
    (stages.store, "last_hour", {"since": NOW - stages.HOUR, "most": MAX_COUNTED}),
    (stages.store, "held_back", {"most": MAX_COUNTED, "n": 5}),
    (stages.store, "copies", {"most": MAX_COUNTED}),
    (stages.store, "suspects", {"lately": NOW - stages.RECENT, "most": MAX_COUNTED, "n": 5}),
]  # fmt: skip


async def run(conn: Connection, text: str, *given: object) -> list[tuple[Any, ...]]:
    rows = await conn.execute(text.encode(), given or None)
    return await rows.fetchall() if rows.description else []


async def host(conn: Connection, name: str, **known: object) -> int:
    found = await hosts.register(conn, names=[name], now=NOW)
    for column, value in known.items():
        await run(conn, f"update work.hosts set {column} = %s where name = %s", value, name)
    return found[name].domain64


async def page(conn: Connection, number: int, path: str, state: str, **known: object) -> int:
    given = {
        "domain64": number,
        "path": path,
        "state": state,
        "admitted_at": NOW,
        "next_fetch": NOW,
        **known,
    }
    names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
    text = f"insert into work.guestbook ({names}) values ({marks}) returning id"
    [(id_,)] = await run(conn, text, *given.values())
    return int(id_)


async def chunk(conn: Connection, crawler: int, **known: object) -> int:
    given = {"crawler_id": crawler, "claimed_at": NOW, "state": "crawled", **known}
    names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
    [(id_,)] = await run(
        conn, f"insert into work.chunk ({names}) values ({marks}) returning id", *given.values()
    )
    return int(id_)


async def test_an_empty_house(conn: Connection) -> None:
    work = await read_work(conn, now=NOW)
    assert (work.pages.waiting, work.pages.known, work.pages.exact) == (0, 0, True)
    assert (work.crews, work.failing, work.watched) == ([], [], False)
    queue = await read_queue(conn, now=NOW)
    assert (queue.types, queue.done, queue.next_run, queue.scheduled) == ([], 0, None, False)


async def test_pages_and_hosts(conn: Connection) -> None:
    ready = await host(conn, "ready.example", claim_at=NOW - MINUTE)
    first = await host(conn, "first.example", claim_at=NOW)
    tired = await host(conn, "tired.example", claim_at=NOW + MINUTE, troubles=2, trouble="HTTP 429")
    await host(conn, "held.example", claim_at=NOW + 9 * MINUTE, held_by=7, troubles=1)
    polite = await host(conn, "polite.example", claim_at=NOW + 5 * MINUTE)
    shut = await host(conn, "shut.example", claim_at=NOW, policy="paused", policy_reason="why not")
    await host(conn, "idle.example", claim_at=NOW + MINUTE, empty_checks=3)
    await page(conn, ready, "/new", "pending", admitted_at=NOW - MINUTE)
    await page(conn, ready, "/old", "pending", admitted_at=NOW - 9 * MINUTE, priority=2)
    await page(conn, first, "/", "pending", admitted_at=NOW - 3 * MINUTE)
    for number in (tired, polite, shut):
        await page(conn, number, "/", "pending", admitted_at=NOW - 60 * MINUTE)
    await page(conn, first, "/c", "crawling")
    await page(conn, first, "/e", "error")
    work = await read_work(conn, now=NOW)
    pages = work.pages
    assert (pages.waiting, pages.crawling, pages.failed, pages.known) == (6, 1, 1, 8)
    assert (pages.oldest, pages.oldest_url) == (NOW - 3 * MINUTE, "https://first.example/")
    found = work.hosts
    assert (found.ready, found.resting, found.held, found.troubled) == (2, 2, 1, 1)
    assert (found.paused, found.blocked, found.due) == (1, 0, 6)
    assert found.longest == [
        RestingHost("tired.example", NOW + MINUTE, 2, "HTTP 429"),
        RestingHost("polite.example", NOW + 5 * MINUTE, 0, ""),
    ]
    assert found.shut == [ClosedHost("shut.example", "paused", "why not", 1)]


async def test_chunks_and_copies(conn: Connection) -> None:
    crawler = await component(conn, "c:1")
    number = await host(conn, "x.example")
    await chunk(conn, crawler, state="crawling", lease_until=NOW)
    first = await chunk(conn, crawler, crawled_at=NOW - 5 * MINUTE)
    await chunk(conn, crawler, crawled_at=NOW - 6 * MINUTE)
    await chunk(conn, crawler, index_state="building", build_lease_until=NOW)
    built = await chunk(conn, crawler, index_state="built", built_at=NOW - MINUTE)
    await chunk(conn, crawler, index_state="parked")
    await chunk(conn, crawler, state="error")
    gone = await page(conn, number, "/gone", "crawled", chunk_id=first, last_fetched=NOW - MINUTE)
    await page(conn, number, "/failed", "error", chunk_id=first)
    text = "insert into work.stale_copy (page_id, chunk_id, at, held) values (%s, %s, %s, %s)"
    for one, held in ((first, "true"), (built, "false")):
        await run(conn, text, gone, one, NOW, held)
    await run(conn, "insert into work.retirement values (%s, %s, %s)", crawler, built, gone)
    await run(conn, "insert into work.query_stat (at, term, seconds) values (%s, 'cats', 1), (%s, 'dogs', 1)",
              NOW, NOW - timedelta(hours=2))  # fmt: skip
    work = await read_work(conn, now=NOW)
    found = work.chunks
    assert (found.crawling, found.to_build, found.building, found.parked, found.to_load) == (
        1,
        2,
        1,
        1,
        1,
    )
    assert (found.to_build_since, found.to_load_since) == (NOW - 5 * MINUTE, NOW - MINUTE)
    copies = work.copies
    assert (copies.to_retire, copies.unjudged, copies.held) == (1, 1, 1)
    assert copies.hosts == [HeldBackHost("x.example", 1)]
    last = work.last_hour
    assert (last.pages, last.pages_since, last.chunks, last.searches) == (1, None, 1, 1)


async def test_components(conn: Connection) -> None:
    for name, type_ in (("c:1", "crawler"), ("c:2", "crawler"), ("c:3", "crawler"), ("c:4", "crawler"),
                        ("c:5", "crawler"), ("s:1", "index-server")):  # fmt: skip
        await component(conn, name, type_)
    set_ = "update work.component set registered_at = %s, seen_at = %s"
    await run(conn, set_, NOW - timedelta(days=9), NOW)
    await run(conn, "update work.component set health = 'failure', health_since = %s, health_reason = 'no answer' "
              "where host = 'c:2'", NOW - MINUTE)  # fmt: skip
    await run(
        conn, "update work.component set seen_at = %s where host = 'c:3'", NOW - timedelta(days=2)
    )
    await run(conn, "update work.component set state = 'waiting', state_reason = 'stopped in order', "
              "health = 'failure', health_since = %s where host = 'c:4'", NOW)  # fmt: skip
    await run(conn, "update work.component set state = 'paused' where host = 'c:5'")
    await run(conn, "update work.component set \"row\" = 1 where host = 's:1'")
    work = await read_work(conn, now=NOW)
    assert ComponentGroup("crawler", None, "online", "healthy", silent=True, number=1) in work.crews
    assert (work.working("crawler"), work.answering(1), work.answering(2)) == (1, 1, 0)
    assert [(one.host, one.since, one.reason, one.held) for one in work.failing] == [
        ("c:2", NOW - MINUTE, "no answer", False)
    ]
    for name in ("c:3", "c:4"):
        [(id_,)] = await run(conn, "select id from work.component where host = %s", name)
        await chunk(conn, id_)
    held = {one.host for one in (await read_work(conn, now=NOW)).failing if one.held}
    assert held == {"c:3", "c:4"}


async def test_components_that_brought_foreign_pages(conn: Connection) -> None:
    names = {name: await component(conn, name) for name in ("c:1", "c:2")}
    reports = [
        ("c:1", 1, NOW - 3 * MINUTE, "first"),
        ("c:1", 2, NOW - MINUTE, "last"),
        ("c:1", 2, NOW - 2 * MINUTE, "middle"),
        ("c:2", 3, NOW - timedelta(days=2), "long ago"),
    ]
    for name, number, at, reason in reports:
        await run(
            conn,
            "insert into work.event (at, component_id, chunk_id, kind, reason) "
            "values (%s, %s, %s, 'foreign_pages', %s)",
            at,
            names[name],
            number,
            reason,
        )
    work = await read_work(conn, now=NOW)
    assert work.poisoned == [ForeignPageSource("c:1", "crawler", 2, NOW - MINUTE, "last")]


async def test_who_leads(database: str) -> None:
    async with await connect(database) as conn, await connect(database) as other:
        for lock in (watchdog.WATCHDOG_LOCK, scheduler.LEADER_LOCK):
            assert not await stages.has_leader(conn, lock)
            await run(other, "select pg_advisory_lock(%s)", lock)
            assert await stages.has_leader(conn, lock)


async def test_jobs(conn: Connection) -> None:
    add = "insert into control.job (type, program, scheduled, priority, state) values (%s, 'true', %s, %s, %s)"
    await run(conn, add, "a", NOW + MINUTE, 0, "pending")
    await run(conn, add, "a", NOW - MINUTE, 1, "pending")
    await run(conn, add, "a", NOW - 2 * MINUTE, 2, "pending")
    await run(conn, add, "b", NOW + MINUTE, 0, "pending")
    await run(conn, add, "c", NOW, 0, "temporary-error")
    await run(conn, "insert into control.job (type, program, state, claim, lease_until) "
              "values ('b', 'true', 'running', gen_random_uuid(), now())")  # fmt: skip
    await run(
        conn,
        "insert into control.task (type, program, periodicity, next_run) values ('a', 'true', '1h', %s)",
        NOW,
    )
    queue = await read_queue(conn, now=NOW)
    assert queue.types == [
        JobTypeCounts("a", 3, NOW - 2 * MINUTE, 0, 0),
        JobTypeCounts("b", 1, None, 1, 0),
        JobTypeCounts("c", 0, None, 0, 1),
    ]
    assert (queue.done, queue.failed, queue.next_run) == (0, 0, NOW)


async def large(conn: Connection) -> int:
    """So many pages of a few hosts, most of them of one, in all states and chunks."""
    names = [f"h{number}.example" for number in range(50)]
    found = await hosts.register(conn, names=names, now=NOW)
    await run(conn, "update work.hosts set claim_at = %s where id %% 5 > 0", NOW)
    await run(conn, "update work.hosts set policy = 'paused' where id % 5 = 0")
    crawler = await component(conn, "c:1")
    await run(conn, "insert into work.chunk (crawler_id, claimed_at, state, crawled_at) "
              "select %s, %s, 'crawled', %s from generate_series(1, 20000)", crawler, NOW, NOW)  # fmt: skip
    [(first,)] = await run(conn, "select min(id) from work.chunk")
    big = found["h7.example"].domain64
    await run(
        conn,
        "insert into work.guestbook (domain64, path, next_fetch, admitted_at, chunk_id, state) "
        "select case when n %% 10 = 0 then h.numbers[1 + n / 10 %% 50] else %s end, '/' || n, %s, %s, %s + n %% 20000, "
        "(array['pending', 'crawled', 'error', 'crawling', 'idle'])[1 + n %% 5] "
        "from generate_series(1, %s) n, (select array_agg(domain64) as numbers from work.hosts) h",
        big, NOW, NOW, first, MANY,
    )  # fmt: skip
    await run(conn, "insert into work.stale_copy (page_id, chunk_id, at, held) "
              "select id, chunk_id, %s, true from work.guestbook where id %% 10 = 0", NOW)  # fmt: skip
    return big


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every read of a large table in a plan."""
    if node.get("Relation Name") in TABLES:
        yield node
    for one in node.get("Plans", ()):
        yield from scans(one)


async def read_by(conn: Connection, store: Statements, name: str, given: dict[str, Any]) -> int:
    """How many rows of large tables a statement reads in all, none of them from end to end."""
    query = getattr(store, name).query
    rows = await conn.execute(b"explain (analyze, format json) " + query, given)
    [(plan,)] = await rows.fetchall()
    found = list(scans((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
    whole = {one["Relation Name"] for one in found if one["Node Type"] == "Seq Scan"}
    assert whole <= {"hosts"}, (
        name,
        whole,
    )  # there are few of them, and no index tells who is shut
    return int(
        sum(
            (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"]
            for one in found
        )
    )


async def test_a_look_reads_no_more_of_a_large_guestbook(
    conn: Connection, request: pytest.FixtureRequest
) -> None:
    """Neither before nor after the planner knows how large it is."""
    if "debian" in request.node.callspec.id:
        pytest.skip("once is enough for so many rows")
    big = await large(conn)
    await stages.store.prefer_indexes.tuples(conn)
    for text, known in (
        ("select 1", MAX_COUNTED),
        ("analyze work.guestbook, work.hosts, work.chunk", MANY),
    ):
        await run(conn, text)
        for store, name, given in STATEMENTS:
            assert await read_by(conn, store, name, given) <= 5 * MAX_COUNTED, name
        start = time.perf_counter()
        work = await read_work(conn, now=NOW)
        assert time.perf_counter() - start < 5
        assert (work.pages.waiting, work.pages.exact, work.copies.held) == (
            MAX_COUNTED,
            False,
            MAX_COUNTED,
        )
        assert work.pages.known >= known
        assert len(work.hosts.shut) == 5
        given = {"hosts": [big], "most": MAX_COUNTED}
        assert await read_by(conn, crawl_progress.store, "chunks", given) <= 12 * MAX_COUNTED


async def test_progress(conn: Connection) -> None:
    crawler = await component(conn, "c:1")
    mine, other = await host(conn, "x.example"), await host(conn, "y.example")
    assert await crawl_progress.read_progress(conn, [mine]) == CrawlProgress(
        0, 0, 0, 0, 0, 0, 0, 0, 0
    )
    assert (await crawl_progress.read_progress(conn, [])).done
    open_ = await chunk(conn, crawler, state="crawling", lease_until=NOW)
    unbuilt = await chunk(conn, crawler)
    building = await chunk(conn, crawler, index_state="building", build_lease_until=NOW)
    built = await chunk(conn, crawler, index_state="built")
    parked = await chunk(conn, crawler, index_state="parked")
    done = await chunk(conn, crawler, index_state="built", propagated_at=NOW)
    await page(conn, mine, "/1", "pending")
    await page(conn, mine, "/2", "crawling", chunk_id=open_)
    for path, number in (("/3", unbuilt), ("/4", building), ("/5", built), ("/6", done)):
        await page(conn, mine, path, "crawled", chunk_id=number, indexed_in=number)
    await page(conn, mine, "/7", "error", chunk_id=parked)
    await page(conn, mine, "/8", "crawled", chunk_id=done, reason="robots.txt: Disallow: /8")
    await page(conn, other, "/", "pending")
    await chunk(conn, crawler)
    found = await crawl_progress.read_progress(conn, [mine])
    assert found == CrawlProgress(1, 1, 4, 1, 1, 4, 1, 2, 1, unloaded=3)
    assert (found.fetched, found.done) == (False, False)
    assert (await crawl_progress.read_progress(conn, [mine, other])).waiting == 2
    await run(conn, "update work.guestbook set state = 'crawled' where domain64 = %s", mine)
    await run(
        conn, "update work.chunk set state = 'crawled', lease_until = null where id = %s", open_
    )
    assert (await crawl_progress.read_progress(conn, [mine])).fetched
    await run(conn, "update work.chunk set index_state = 'built', build_lease_until = null, propagated_at = %s "
              "where index_state is distinct from 'parked'", NOW)  # fmt: skip
    assert (await crawl_progress.read_progress(conn, [mine])).done
