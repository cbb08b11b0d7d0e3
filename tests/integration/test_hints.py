"""What sitemaps say of changes: pages come sooner, but not because a site says "now" each time it is asked."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.models.revisit import hinted
from usher.db.pool import Connection, Database
from usher.door import admin, guestbook, hosts
from usher.door.doorkeeper import Doorkeeper
from usher.door.guestbook import FetchReport

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SPANS = st.integers(-100, 100).map(lambda quarters: quarters * HOUR / 4)
QUIET = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PAGE = "https://a.gov/1"


@pytest.fixture
async def door(database: str) -> AsyncIterator[Doorkeeper]:
    async with Database(database, size=4, role="usher_door") as db:
        yield Doorkeeper(db)


async def visit(door: Doorkeeper, *urls: str, now: datetime) -> list[str]:
    """Knock and fetch what came in."""
    came = await door.knock(urls, now=now)
    async with door.db.transaction() as conn:
        rows = await conn.execute(
            "update work.guestbook set state = 'crawling' where state = 'pending' returning domain64, path"
        )
        taken = await rows.fetchall()
    await door.settle([FetchReport(number, path, "success") for number, path in taken], now=now)
    return [answer.reason.value for answer in came.answers]


async def test_a_page_that_changed_is_due_and_the_same_knock_lets_it_in(door: Doorkeeper) -> None:
    assert await visit(door, PAGE, "https://a.gov/2", now=NOW) == ["new_page"] * 2
    later = NOW + 10 * DAY
    assert await door.hint([(PAGE, later - DAY)], now=later) == 1
    assert await visit(door, PAGE, "https://a.gov/2", now=later) == ["page_due", "page_not_due"]
    assert await door.hint([(PAGE, later - DAY)], now=later + DAY) == 0


@pytest.mark.parametrize(
    "changed",
    [
        NOW - DAY,
        NOW,
        NOW + 10 * DAY + HOUR / 60,
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
    ],
)
async def test_times_that_say_nothing(door: Doorkeeper, changed: datetime) -> None:
    await visit(door, PAGE, now=NOW)
    assert await door.hint([(PAGE, changed)], now=NOW + 10 * DAY) == 0
    assert await visit(door, PAGE, now=NOW + 10 * DAY) == ["page_not_due"]


async def test_a_site_that_always_says_now_is_not_crawled_all_the_time(door: Doorkeeper) -> None:
    await visit(door, PAGE, now=NOW)
    visits = []
    for hour in range(10, 24 * 30, 10):
        now = NOW + hour * HOUR
        await door.hint([(PAGE, now)], now=now)
        if await visit(door, PAGE, now=now) == ["page_due"]:
            visits.append(hour)
    assert visits == [90, 180, 270, 360, 450, 540, 630]  # an eighth of 30 days apart


async def test_what_waits_failed_or_is_unknown_keeps_its_clock(door: Doorkeeper) -> None:
    later = NOW + 10 * DAY
    assert await door.hint([], now=NOW) == 0
    told = [(PAGE, later), ("https://unknown.gov/", later), ("nonsense:", later), ("", later)]
    assert await door.hint(told, now=later) == 0
    async with door.db.transaction() as conn:
        assert await hosts.find(conn, names=["unknown.gov"]) == []
    await door.knock([PAGE], now=NOW)
    assert await door.hint(told, now=later) == 0
    async with door.db.transaction() as conn:
        await conn.execute("update work.guestbook set state = 'error', last_fetched = %s", [NOW])
    assert await door.hint(told, now=later) == 0


async def test_urls_are_read_as_the_door_reads_them(door: Doorkeeper) -> None:
    await visit(door, "https://a.gov/?a=1&b=2", now=NOW)
    later = NOW + 10 * DAY
    same = ["https://A.gov/?b=2&a=1#top", "a.gov/?a=1&b=2&utm_source=map"]
    told = [(same[0], NOW - DAY), (same[1], later.replace(tzinfo=None)), (same[0], NOW - DAY)]
    assert await door.hint(told, now=later) == 1


async def test_a_large_sitemap_is_one_statement(door: Doorkeeper) -> None:
    urls = [f"https://a.gov/{number}" for number in range(5_000)]
    await visit(door, *urls, now=NOW)
    later = NOW + 10 * DAY
    assert await door.hint([(url, later - HOUR) for url in urls[::2]], now=later) == 2_500
    async with door.db.transaction() as conn:
        rows = await conn.execute(
            "select count(*) from work.guestbook where next_fetch = %s", [later]
        )
        assert await rows.fetchone() == (2_500,)


@QUIET
@given(
    st.lists(st.tuples(SPANS, SPANS, SPANS, SPANS), min_size=1, max_size=5),
    st.sampled_from([None, HOUR, 9 * HOUR, 7 * DAY]),
)
async def test_the_statement_is_the_rule(
    conn: Connection, told: list[tuple[timedelta, ...]], own: timedelta | None
) -> None:
    async with conn.transaction(force_rollback=True):
        found = await hosts.register(conn, names=["a.gov"], now=NOW)
        await admin.change_host(conn, names=["a.gov"], cadence=own)
        batch, expected = guestbook.PackedUrls(), []
        for number, (next_fetch, fetched, admitted, changed) in enumerate(told):
            await conn.execute(
                "insert into work.guestbook (domain64, path, state, next_fetch, last_fetched, admitted_at) "
                "values (%s, %s, 'crawled', %s, %s, %s)",
                [
                    found["a.gov"].domain64,
                    f"/{number}",
                    NOW + next_fetch,
                    NOW + fetched,
                    NOW + admitted,
                ],
            )
            batch.add(found["a.gov"].domain64, 1, f"/{number}", 1)
            last, base = NOW + max(fetched, admitted), own or 30 * DAY
            expected.append(hinted(NOW + next_fetch, last, NOW + changed, base=base, now=NOW))
        times = [NOW + changed for *_, changed in told]
        await guestbook.hint(conn, batch, changed=times, now=NOW)
        rows = await conn.execute("select next_fetch from work.guestbook order by path")
        assert [moment for (moment,) in await rows.fetchall()] == expected
