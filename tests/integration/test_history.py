"""The rolling history: each minute is recorded once, hours and days add up, and old figures are pruned."""

import asyncio
from datetime import UTC, datetime, timedelta

from support.mgmt.admitted_pages import component
from usher.api.job_history import record_last_minute
from usher.db.pool import Connection, Database
from usher.mgmt import history
from usher.mgmt.history import JOB_METRICS, METRICS, Period
from usher.mgmt.watchdog import Watchdog

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def figures(conn: Connection, period: Period) -> dict[datetime, dict[str, float]]:
    result: dict[datetime, dict[str, float]] = {}
    for point in await history.points(conn, period, since=NOON - timedelta(days=900)):
        result.setdefault(point.at, {})[point.metric] = point.number
    return result


async def add_pages(conn: Connection, at: datetime) -> None:
    """A chunk with 3 indexed pages, a failed one and a moved one, and a page that waits."""
    crawler = await component(conn, f"c:{1 + at.minute}")
    rows = await conn.execute(
        "insert into work.chunk (state, crawler_id, claimed_at, crawled_at, index_state, built_at, propagated_at) "
        "values ('crawled', %s, %s, %s, 'built', %s, %s) returning id",
        (crawler, at, at, at, at + timedelta(seconds=30)),
    )
    [(chunk,)] = await rows.fetchall()
    await conn.execute(
        "insert into work.domain (tld, number, name) values (1, 1, 'x') on conflict do nothing"
    )
    await conn.execute(
        "insert into work.hosts (domain64, name, next_fetch) values (work.domain64_encode(1, 1, 1), 'x.com', now()) "
        "on conflict do nothing"
    )
    await conn.execute(
        """
        insert into work.guestbook
            (domain64, path, state, status, reason, next_fetch, admitted_at, last_fetched, failures, chunk_id,
            indexed_in, text64)
        select
            work.domain64_encode(1, 1, 1), '/' || %(chunk)s || p.path, p.state, p.status, p.reason, now(), now(), now(),
            case p.state when 'error' then 1 else 0 end, case p.state when 'pending' then null else %(chunk)s end,
            case when p.text then %(chunk)s end, case when p.text then %(chunk)s::bigint * 10 + p.i end
        from (values
            (1, 'a', 'crawled', 200, null, true), (2, 'b', 'crawled', 200, null, true),
            (3, 'c', 'crawled', 200, null, true),
            (4, 'd', 'error', 503, 'HTTP 503', false), (5, 'e', 'crawled', 404, 'HTTP 404', false),
            (6, 'f', 'pending', null, null, false)
        ) p (i, path, state, status, reason, text)
        """,
        {"chunk": chunk},
    )


async def test_a_minute_is_recorded_once_and_added_to_its_hour_and_day(conn: Connection) -> None:
    await add_pages(conn, NOON)
    for seconds in (0.1, 0.2, 0.9):
        await conn.execute(
            "insert into work.query_stat (at, term, seconds) values (%s, 'x', %s)", (NOON, seconds)
        )
    assert await history.record(conn, now=NOON + MINUTE)
    assert not await history.record(conn, now=NOON + MINUTE + timedelta(seconds=59))
    minute = (await figures(conn, "minute"))[NOON]
    assert minute.keys() == set(METRICS) - set(JOB_METRICS)
    assert minute["pages_indexed"] == 3
    assert minute["pages_failed"] == 1
    assert minute["pages_other"] == 1
    assert minute["errors_5xx"] == 1
    assert minute["errors_4xx"] == minute["errors_timeout"] == minute["errors_other"] == 0
    assert minute["pages_waiting"] == 1
    assert minute["seconds_to_search_p50"] == 30
    assert minute["queries"] == 3
    assert 0.2 < minute["query_seconds_p95"] <= 0.9
    await add_pages(conn, NOON + MINUTE)
    assert await history.record(conn, now=NOON + 2 * MINUTE)
    for period, start in (("hour", NOON), ("day", NOON.replace(hour=0))):
        row = (await figures(conn, "hour" if period == "hour" else "day"))[start]
        assert (row["pages_indexed"], row["queries"], row["pages_waiting"]) == (6, 3, 2)
    assert len(await figures(conn, "minute")) == 2


async def test_a_quiet_minute_has_no_times(conn: Connection) -> None:
    assert await history.record(conn, now=NOON)
    [row] = (await figures(conn, "minute")).values()
    counts = {metric: 0 for metric in METRICS if metric.startswith("errors_")}
    assert row == counts | {
        "pages_indexed": 0, "pages_failed": 0, "pages_other": 0, "pages_waiting": 0, "queries": 0,
    }  # fmt: skip


async def test_old_figures_are_pruned(conn: Connection) -> None:
    await conn.execute(
        """
        insert into work.history (period, metric, at, number)
        select p.period, 'queries', %(now)s - n * p.step, 1
        from (values
            ('minute', interval '1 minute'), ('hour', interval '1 hour'), ('day', interval '1 day')
        ) p (period, step)
        cross join generate_series(1, 3000) n
        """,
        {"now": NOON},
    )
    assert await history.record(conn, now=NOON + MINUTE)
    rows = await conn.execute(
        "select period, count(*) from work.history where metric = 'queries' group by period"
    )
    counts: dict[str, int] = dict(await rows.fetchall())
    assert 1_438 <= counts["minute"] <= 1_441
    assert 743 <= counts["hour"] <= 745
    assert 729 <= counts["day"] <= 731


async def test_a_round_of_the_watchdog_records_the_last_minute(conn: Connection) -> None:
    watchdog = Watchdog(conn.info.dsn)
    await watchdog.round(conn)
    await watchdog.round(conn)
    rows = await conn.execute("select count(distinct at) from work.history where period = 'minute'")
    [(minutes,)] = await rows.fetchall()
    assert minutes in (1, 2)  # the second round may be in the next minute


async def test_errors_are_counted_by_kind(conn: Connection) -> None:
    await add_pages(conn, NOON)
    for reason, metric in (
        ("HTTP 403", "errors_4xx"),
        ("no response within 30 s", "errors_timeout"),
        ("the name x.com does not exist", "errors_connection"),
        ("the connection was refused", "errors_connection"),
        ("something else: x", "errors_other"),
    ):
        await conn.execute("update work.guestbook set reason = %s where state = 'error'", (reason,))
        await conn.execute("delete from work.history")
        assert await history.record(conn, now=NOON + MINUTE)
        minute = (await figures(conn, "minute"))[NOON]
        assert [name for name in minute if name.startswith("errors_") and minute[name]] == [metric]


async def test_jobs_are_recorded_once_by_one_of_several_mgmts(database: str) -> None:
    async with Database(database) as db:
        minute = history.last_minute(db.clock.now())
        async with db.transaction() as conn:
            await conn.execute(
                "insert into control.job (type, program) select 'x', 'true' from generate_series(1, 3)"
            )
            await conn.execute(
                'insert into control.job_log (id, type, program, state, host_rule, start, "end") '
                "select 9, 'x', 'true', s.state, '', %s, %s "
                "from (values ('completed'), ('completed'), ('permanent-error')) s (state)",
                (minute, minute),
            )
        recorded = await asyncio.gather(*(record_last_minute(db, db) for _ in range(4)))
        # A minute may end meanwhile: then two are recorded.
        assert recorded.count(True) in (1, 2)
        async with db.connection() as conn:
            row = (await figures(conn, "minute"))[minute]
            assert row == {
                "jobs_waiting": 3,
                "jobs_running": 0,
                "jobs_completed": 2,
                "jobs_failed": 1,
            }
            hours = await figures(conn, "hour")
            assert sum(hour["jobs_completed"] for hour in hours.values()) == 2
