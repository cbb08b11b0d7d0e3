"""Old events and queries are deleted in bounded steps; of queries the sums of each day stay."""

from datetime import UTC, date, datetime, timedelta

import pytest

from support.mgmt.named_components import identify_by_host
from support.processes.commands import usher
from usher.db.pool import Connection, connect
from usher.door import hosts
from usher.mgmt import components, query_stats, retention, robots
from usher.mgmt import queries as look
from usher.mgmt.components import NewEvent
from usher.mgmt.retention import ROWS_PER_ROUND, TERMS_PER_DAY, PrunedCounts, Retention
from usher.mgmt.robots import MAX_SITEMAPS_PER_HOST
from usher.urls import Scheme, Url

NOW = datetime(2026, 11, 17, 15, 30, tzinfo=UTC)
DAY = timedelta(days=1)
KEEP = Retention(events=90 * DAY, queries=30 * DAY)


async def pruned(conn: Connection) -> PrunedCounts:
    return await retention.prune(conn, now=NOW, retention=KEEP)


async def add(conn: Connection, *queries: tuple[datetime, str, float]) -> None:
    me = await identify_by_host(conn, host="f:1", type="front-end", now=NOW)
    await query_stats.add(conn, [(*query, None) for query in queries], me.id)


async def test_events_are_kept_for_the_time_that_is_set(conn: Connection) -> None:
    for days in (1, 89, 91, 400):
        await components.add_events(conn, NewEvent(NOW - days * DAY, f"{days}", None))
    assert await pruned(conn) == PrunedCounts(events=2, queries=0)
    left = await conn.execute("select kind from work.event order by id")
    assert await left.fetchall() == [("1",), ("89",)]


async def test_old_queries_become_sums_of_whole_days(conn: Connection) -> None:
    old = datetime(2026, 10, 16, 23, 59, tzinfo=UTC)
    await add(
        conn,
        (old, "rare", 0.5),
        (old - timedelta(hours=3), "common", 0.1),
        (old, "common", 0.3),
        (datetime(2026, 10, 18, 0, 0, tzinfo=UTC), "kept", 0.2),  # of the first day that is kept
    )
    assert await pruned(conn) == PrunedCounts(events=0, queries=3)
    [day] = await look.query_days(conn, since=NOW - 60 * DAY)
    assert (day.day, day.number, day.slowest) == (date(2026, 10, 16), 3, 0.5)
    assert day.mean == pytest.approx(0.3)
    terms = await look.query_day_terms(conn, since=NOW - 60 * DAY)
    assert [(term.term, term.number, term.latest) for term in terms] == [
        ("common", 2, old),
        ("rare", 1, old),
    ]
    assert (await look.queries(conn, since=NOW - 60 * DAY)).number == 1


async def test_queries_that_arrive_late_are_added_to_their_day(conn: Connection) -> None:
    old = NOW - 40 * DAY
    for _ in range(2):
        await add(conn, (old, "words", 0.1))
        assert await pruned(conn) == PrunedCounts(events=0, queries=1)
    [day] = await look.query_days(conn, since=NOW - 60 * DAY)
    assert day.number == 2
    assert day.mean == pytest.approx(0.1)


async def test_a_round_deletes_a_bounded_number_and_keeps_the_most_frequent_terms(
    conn: Connection,
) -> None:
    old = NOW - 40 * DAY
    rare = [(old, f"rare {number}", 0.1) for number in range(ROWS_PER_ROUND)]
    await add(conn, *rare, *[(old, "common", 0.1)] * 10)
    assert (await pruned(conn)).queries == ROWS_PER_ROUND
    assert (await pruned(conn)).queries == 10
    terms = await look.query_day_terms(conn, since=NOW - 60 * DAY, n=1_000)
    assert len(terms) == TERMS_PER_DAY
    assert (terms[0].term, terms[0].number) == ("common", 10)
    [day] = await look.query_days(conn, since=NOW - 60 * DAY)
    assert day.number == ROWS_PER_ROUND + 10


async def test_sums_of_days_end_too(conn: Connection) -> None:
    await add(conn, (NOW - 2_000 * DAY, "ancient", 0.1))
    await pruned(conn)
    assert await look.query_days(conn, since=NOW - 3_000 * DAY) == []
    assert await look.query_day_terms(conn, since=NOW - 3_000 * DAY) == []


async def test_a_host_has_a_bounded_number_of_sitemaps(conn: Connection) -> None:
    await hosts.register(conn, names=["a.example", "b.example"], now=NOW)
    await conn.execute(
        "insert into work.sitemap (domain64, path, scheme, found_in, found_at) "
        "select domain64, '/' || n, 1, 'robots.txt', now() from work.hosts, generate_series(1, %s) n "
        "where name = 'a.example'",
        [MAX_SITEMAPS_PER_HOST],
    )
    urls = [Url(Scheme.HTTPS, name, "/new.xml") for name in ("a.example", "b.example")]
    assert await robots.add_sitemaps(conn, urls, found_in="robots.txt", now=NOW) == 1


async def test_the_command_shows_earlier_days(database: str) -> None:
    async with await connect(database) as conn:
        await add(conn, (NOW - 40 * DAY, "words", 0.25))
        await pruned(conn)
    words = ("stats", "queries", "--since", "2026-09-01T00:00")
    shown = usher(*words, environment={"DATABASE_URL": database})
    assert "2026-10-08" in shown.out
    assert "words" in shown.out
    report = usher(*words, "--json", environment={"DATABASE_URL": database}).json
    assert report["earlier_days"] == [
        {"day": "2026-10-08", "number": 1, "mean": 0.25, "slowest": 0.25}
    ]
    assert report["earlier_terms"][0]["term"] == "words"
