"""After a fetch: what is learned, when the page comes again, when the host's crawl is over."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.models import revisit
from usher.db.pool import Connection, Database, connect
from usher.door import guestbook, hosts
from usher.door.doorkeeper import Doorkeeper
from usher.door.guestbook import FetchReport, GuestbookRow
from usher.door.rules import Knock

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
WEEK = timedelta(days=7)
NAME = "allthe.gov"
LEARNED = {
    "status": 200,
    "content_type": 2,
    "content_length": 10,
    "content_sha1": "aa",
    "etag": "e1",
}


async def crawling(conn: Connection, *paths: str, chunk: int | None = 7) -> int:
    """A weekly host with an open crawl and these pages on their way."""
    found = await hosts.register(conn, names=[NAME], now=NOW)
    number = found[NAME].domain64
    await conn.execute("update work.hosts set cadence = %s, crawl_started = %s", [WEEK, NOW])
    for path in paths:
        await conn.execute(
            "insert into work.guestbook (domain64, path, state, next_fetch, admitted_at, chunk_id) "
            "values (%s, %s, 'crawling', %s, %s, %s) on conflict (domain64, path) do update set state = 'crawling'",
            [number, path, NOW, NOW, chunk],
        )
    return number


async def guest(conn: Connection, number: int, path: str = "/") -> GuestbookRow:
    found = await guestbook.page(conn, domain64=number, path=path)
    assert found is not None
    return found


@pytest.mark.seed("003.14", "003.15", "003.16", "004.23", "004.32")
async def test_success(conn: Connection) -> None:
    number = await crawling(conn, "/")
    changed = NOW - timedelta(days=3)
    outcome = FetchReport(number, "/", "success", 7, **LEARNED, last_modified=changed)  # type: ignore[arg-type]
    assert len(await guestbook.settle(conn, reports=[outcome], now=NOW)) == 1
    page = await guest(conn, number)
    assert (page.state, page.failures, page.gone) == ("crawled", 0, False)
    assert (page.last_fetched, page.last_modified, page.next_fetch) == (NOW, changed, NOW + WEEK)
    assert (page.status, page.content_type, page.content_length, page.content_sha1, page.etag) == (
        200, "text/html", 10, "aa", "e1",
    )  # fmt: skip


@pytest.mark.seed("003.14")
async def test_without_the_servers_date_the_page_changed_when_it_was_fetched(
    conn: Connection,
) -> None:
    number = await crawling(conn, "/")
    await guestbook.settle(conn, reports=[FetchReport(number, "/", "success", 7)], now=NOW)
    assert (await guest(conn, number)).last_modified == NOW


async def test_not_modified_counts_as_success_and_keeps_the_content(conn: Connection) -> None:
    number = await crawling(conn, "/")
    report = FetchReport(number, "/", "success", 7, **LEARNED)  # type: ignore[arg-type]
    await guestbook.settle(conn, reports=[report], now=NOW)
    before = await guest(conn, number)
    await crawling(conn, "/")
    later = NOW + WEEK
    await guestbook.settle(
        conn, reports=[FetchReport(number, "/", "unchanged", 7, status=304)], now=later
    )
    page = await guest(conn, number)
    assert (page.state, page.status, page.last_fetched) == ("crawled", 304, later)
    assert page.next_fetch == later + WEEK
    kept = ("content_type", "content_length", "content_sha1", "etag", "last_modified")
    assert [getattr(page, name) for name in kept] == [getattr(before, name) for name in kept]


async def test_failures_come_again_ever_later_but_within_the_cadence(conn: Connection) -> None:
    number = await crawling(conn, "/")
    for failures in range(1, 15):
        await crawling(conn, "/")
        await guestbook.settle(
            conn, reports=[FetchReport(number, "/", "failure", 7, status=503)], now=NOW
        )
        page = await guest(conn, number)
        assert (page.state, page.failures, page.last_fetched) == ("error", failures, None)
        assert page.next_fetch == NOW + revisit.backoff(failures, WEEK)
    assert page.next_fetch == NOW + WEEK
    await crawling(conn, "/")
    await guestbook.settle(conn, reports=[FetchReport(number, "/", "success", 7)], now=NOW)
    assert (await guest(conn, number)).failures == 0


async def test_gone_is_marked_and_a_failure_does_not_bring_it_back(conn: Connection) -> None:
    number = await crawling(conn, "/")
    for result, gone in (("gone", True), ("failure", True), ("success", False)):
        await crawling(conn, "/")
        outcome = FetchReport(number, "/", result, 7)  # type: ignore[arg-type]
        await guestbook.settle(conn, reports=[outcome], now=NOW)
        assert (await guest(conn, number)).gone is gone


@pytest.mark.parametrize("state", ["idle", "pending", "crawled", "error"])
async def test_only_who_holds_the_page_may_settle_it(conn: Connection, state: str) -> None:
    number = await crawling(conn, "/", "/other")
    wrong = [
        FetchReport(number, "/", "success", 8),
        FetchReport(number, "/nowhere", "success", 7),
    ]
    assert await guestbook.settle(conn, reports=wrong, now=NOW) == []
    await conn.execute("update work.guestbook set state = %s where path = '/'", [state])
    before = await guest(conn, number)
    late = [FetchReport(number, "/", "failure", 7), FetchReport(number, "/other", "success", 7)]
    assert [page.path for page in await guestbook.settle(conn, reports=late, now=NOW)] == ["/other"]
    assert await guest(conn, number) == before


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    base=st.integers(3600, 10**7).map(lambda n: timedelta(seconds=n)),
    own=st.none() | st.integers(60, 10**8).map(lambda n: timedelta(seconds=n)),
    changed=st.booleans(),
)
async def test_the_adaptive_pace_is_that_of_the_pure_rule(
    conn: Connection, base: timedelta, own: timedelta | None, *, changed: bool
) -> None:
    async with conn.transaction(force_rollback=True):
        number = await crawling(conn, "/")
        await conn.execute("update work.hosts set adaptive = true, cadence = %s", [base])
        await conn.execute("update work.guestbook set cadence = %s, content_sha1 = 'aa'", [own])
        outcome = FetchReport(number, "/", "success", 7, content_sha1="bb" if changed else "aa")
        await guestbook.settle(conn, reports=[outcome], now=NOW)
        page = await guest(conn, number)
        expected = revisit.adapted(own or base, changed=changed, base=base)
        assert (page.cadence, page.next_fetch) == (expected, NOW + expected)


@pytest.mark.parametrize(
    ("result", "status", "is_indexed", "misses"),
    [
        ("gone", 404, True, 0),
        ("gone", 404, True, 1),
        ("gone", 404, False, 0),
        ("gone", 410, True, 0),
        ("failure", 503, True, 1),
        ("success", 200, True, 1),
        ("unchanged", 304, True, 1),
    ],
)
async def test_a_page_leaves_the_index_and_returns_as_the_model_says(
    conn: Connection, result: revisit.RevisitResult, status: int, misses: int, *, is_indexed: bool
) -> None:
    number = await crawling(conn, "/")
    await conn.execute(
        "update work.guestbook set indexed_in = %s, misses = %s",
        [6 if is_indexed else None, misses],
    )
    report = FetchReport(number, "/", result, 7, status=status)
    [settled] = await guestbook.settle(conn, reports=[report], now=NOW)
    before = revisit.RevisitState(NOW, misses=misses)
    after = revisit.after(
        before,
        result,
        changed=True,
        base=WEEK,
        adaptive=False,
        now=NOW,
        status=status,
        is_indexed=is_indexed,
    )
    gone = revisit.is_gone(result, status=status, is_indexed=is_indexed, misses=misses)
    page = await guest(conn, number)
    assert (page.next_fetch, page.failures, page.gone) == (after.next_fetch, after.failures, gone)
    assert (settled.after is None) == gone


async def test_the_index_has_no_page_whose_text_could_not_be_read(conn: Connection) -> None:
    """A crawler that reports no text and no reason may have one: it reports only what the seed asks for."""
    number = await crawling(conn, "/", "/broken", "/cut")
    reason = "it is not a readable PDF"
    reports = [
        FetchReport(number, "/", "success", 7),
        FetchReport(number, "/broken", "success", 7, 200, reason=reason),
        FetchReport(number, "/cut", "success", 7, reason=reason, text64=5),
    ]
    settled = await guestbook.settle(conn, reports=reports, now=NOW)
    assert {page.path: page.after for page in settled} == {"/": 7, "/broken": None, "/cut": 7}
    rows = await conn.execute("select path, work.page_result(g) from work.guestbook g")
    assert dict(await rows.fetchall()) == {"/": "indexed", "/broken": "empty", "/cut": "indexed"}
    await conn.execute("update work.guestbook set state = 'crawling', chunk_id = 7")
    await guestbook.settle(
        conn, reports=[FetchReport(number, "/broken", "unchanged", 7, status=304)], now=NOW
    )
    rows = await conn.execute(
        "select indexed_in, reason from work.guestbook where path = '/broken'"
    )
    assert await rows.fetchall() == [(None, reason)]


async def test_a_crawl_closes_when_nothing_waits(conn: Connection) -> None:
    number = await crawling(conn, "/a", "/b")
    await guestbook.settle(conn, reports=[FetchReport(number, "/a", "success", 7)], now=NOW)
    assert await guestbook.close_crawls(conn, domain64s=[number], now=NOW) == []
    later = NOW + timedelta(hours=1)
    await guestbook.settle(conn, reports=[FetchReport(number, "/b", "failure", 7)], now=later)
    assert await guestbook.close_crawls(conn, domain64s=[number], now=later) == [number]
    assert await guestbook.close_crawls(conn, domain64s=[number], now=later) == []
    (host,) = await hosts.find(conn, names=[NAME])
    assert host.next_fetch == NOW + WEEK


async def test_eight_who_settle_the_last_pages_at_once_close_the_crawl_once(database: str) -> None:
    async with await connect(database) as conn:
        number = await crawling(conn, *(f"/{page}" for page in range(64)))
    async with Database(database, size=8) as db:
        doorkeeper = Doorkeeper(db)
        work = (
            doorkeeper.settle(
                [FetchReport(number, f"/{page}", "success", 7) for page in range(first, first + 8)],
                now=NOW,
            )
            for first in range(0, 64, 8)
        )
        done = await asyncio.gather(*work)
    assert sum(len(settled) for settled, _ in done) == 64
    assert [closed for _, closed in done if closed] == [[number]]


@pytest.mark.seed("004.21")
async def test_the_nightly_round_knocks_for_every_due_host(database: str) -> None:
    async with Database(database) as db:
        doorkeeper = Doorkeeper(db)
        async with db.transaction() as conn:
            names = ["due.gov", "due.com", "later.gov", "blocked.gov"]
            await hosts.register(conn, names=names, now=NOW, schemes={"due.com": 2})
            await conn.execute(
                "update work.hosts set next_fetch = %s where name = 'later.gov'", [NOW + WEEK]
            )
            await conn.execute(
                "update work.hosts set policy = 'blocked' where name = 'blocked.gov'"
            )
        (came,) = [answers async for answers in doorkeeper.kick_off(now=NOW)]
        assert {answer.given for answer in came.answers} == {"https://due.gov/", "http://due.com/"}
        assert [answers async for answers in doorkeeper.kick_off(now=NOW)] == []
        again = await doorkeeper.knock(["https://due.gov/"], knock=Knock("full"), now=NOW)
        assert [answer.reason for answer in again.answers] == ["already_waiting"]


async def test_the_nightly_round_tries_failed_pages_again_when_they_are_due(database: str) -> None:
    paths = ["/deep", "/later", "/removed", "/well"]
    async with Database(database) as db:
        doorkeeper = Doorkeeper(db)
        urls = [f"https://{host}{path}" for host in ("open.gov", "blocked.gov") for path in paths]
        await doorkeeper.knock(urls, depth=3, now=NOW)
        async with db.transaction() as conn:
            await conn.execute(
                "update work.guestbook set state = case path when '/well' then 'crawled' else 'error' end, "
                "removed = path = '/removed', "
                "next_fetch = case path when '/later' then %s else %s end",
                [NOW + WEEK, NOW],
            )
            await conn.execute(
                "update work.hosts set crawl_started = null, next_fetch = %s", [NOW + WEEK]
            )
            await conn.execute(
                "update work.hosts set policy = 'blocked' where name = 'blocked.gov'"
            )
        (came,) = [answers async for answers in doorkeeper.kick_off(now=NOW)]
        assert [(answer.given, answer.reason) for answer in came.answers] == [
            ("https://open.gov/deep", "page_due")
        ]
        async with db.transaction() as conn:
            cursor = await conn.execute(
                "select state, depth from work.guestbook g join work.hosts h using (domain64) "
                "where name = 'open.gov' and path = '/deep'"
            )
            assert await cursor.fetchall() == [("pending", 3)]
        assert [answers async for answers in doorkeeper.kick_off(now=NOW)] == []
