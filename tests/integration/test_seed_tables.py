"""Tables as the seed documents define them: columns, defaults, keys."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from usher.db.pool import Connection, connect
from usher.door import hosts
from usher.feeds.model import Feed
from usher.feeds.parse.parser import parse
from usher.feeds.store.save_feed import CacheValidators, save_feed
from usher.queue import jobs
from usher.queue.job_states import JobState
from usher.queue.jobs import JobRequest, SettledRun

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
LEASE = timedelta(minutes=1)
REPLACED_COLUMNS = frozenset({"cancel_reason", "first_scheduled"})
JOB_COLUMNS = {
    "id": "bigint",
    "type": "text",
    "program": "text",
    "args": "ARRAY",
    "state": "text",
    "message": "text",
    "output": "text",
    "hostname": "text",
    "process_id": "integer",
    "exit_code": "integer",
    "completed": "boolean",
    "scheduled": "timestamp with time zone",
    "start": "timestamp with time zone",
    "end": "timestamp with time zone",
    "last_update": "timestamp with time zone",
}
FEED_ITEM_COLUMNS = [
    "id", "feed_id", "guid", "title", "summary", "content", "content_clean", "comments_url", "pub_date", "mod_date",
    "copyright", "language",
]  # fmt: skip
FEED = b"""<rss version="2.0"><channel><title>News</title><item>
    <guid>1</guid><title>A &lt;b&gt;bold&lt;/b&gt; step</title>
</item></channel></rss>"""
# Columns that refer to a row of another table.
REFERENCES = {
    ("chunk", "crawler_id", "component"),
    ("chunk", "builder_id", "component"),
    ("placement", "chunk_id", "chunk"),
    ("placement", "component_id", "component"),
}


async def columns(conn: Connection, schema: str, table: str) -> dict[str, str]:
    """Return the types of a table's columns."""
    rows = await conn.execute(
        "select column_name, data_type from information_schema.columns "
        "where table_schema = %s and table_name = %s order by ordinal_position",
        [schema, table],
    )
    return dict(await rows.fetchall())


async def primary_key(conn: Connection, table: str) -> list[str]:
    rows = await conn.execute(
        "select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey) "
        "where i.indisprimary and i.indrelid = %s::regclass",
        [table],
    )
    return [name for (name,) in await rows.fetchall()]


async def fetch_all(conn: Connection, query: str, *values: object) -> list[tuple[object, ...]]:
    rows = await conn.execute(query.encode(), values)
    return await rows.fetchall()


async def page_host(conn: Connection) -> int:
    registered = await hosts.register(conn, names=["www.example.gov"], now=NOW)
    return registered["www.example.gov"].domain64


@pytest.mark.seed("002.11", "002.12")
async def test_the_job_table_has_the_columns_of_the_seed(conn: Connection) -> None:
    present = await columns(conn, "control", "job")
    assert {name: present.get(name) for name in JOB_COLUMNS} == JOB_COLUMNS
    assert await primary_key(conn, "control.job") == ["id"]


@pytest.mark.seed("002.35")
async def test_the_log_has_the_columns_of_the_job_table(conn: Connection) -> None:
    """All but those that end in others: the reason of a cancel in `message`, the first time in `scheduled`."""
    job = await columns(conn, "control", "job")
    assert job.keys() >= REPLACED_COLUMNS
    kept = {name: type_ for name, type_ in job.items() if name not in REPLACED_COLUMNS}
    assert await columns(conn, "control", "job_log") == kept


@pytest.mark.seed("002.13", "002.19", "002.22", "002.24", "002.25", "002.31", "002.32", "002.34")
async def test_a_job_goes_from_pending_to_the_log(conn: Connection) -> None:
    """Its start and end are null until they happen; a claim takes only jobs of its type."""
    state = 'select state, completed, start, "end", hostname from control.'
    [job, _] = await jobs.enqueue(
        conn, [JobRequest("fetch", "p", ("x",)), JobRequest("clean", "p")], now=NOW
    )
    assert await fetch_all(conn, f"{state}job where id = %s", job.id) == [
        ("pending", False, None, None, None)
    ]
    [claimed] = await jobs.claim(conn, "fetch", "foo", 5, lease=LEASE, max_attempts=1, now=NOW)
    assert (claimed.id, claimed.type, claimed.args) == (job.id, "fetch", ["x"])
    assert await fetch_all(conn, f"{state}job where id = %s", job.id) == [
        ("running", False, NOW, None, "foo")
    ]
    later = NOW + timedelta(seconds=9)
    done = SettledRun(claimed.id, claimed.claim, JobState.COMPLETED, 0)
    assert await jobs.settle(conn, [done], now=later) == {job.id}
    assert await fetch_all(conn, "select type from control.job") == [("clean",)]
    assert await fetch_all(conn, f"{state}job_log where id = %s", job.id) == [
        ("completed", True, NOW, later, "foo")
    ]


@pytest.mark.seed("002.34")
async def test_a_permanent_error_goes_to_the_log(conn: Connection) -> None:
    [job] = await jobs.enqueue(conn, [JobRequest("t", "p")], now=NOW)
    [claimed] = await jobs.claim(conn, "t", "foo", 5, lease=LEASE, max_attempts=1, now=NOW)
    failed = SettledRun(claimed.id, claimed.claim, JobState.PERMANENT_ERROR, 2)
    assert await jobs.settle(conn, [failed], now=NOW) == {job.id}
    assert await fetch_all(conn, "select id from control.job") == []
    assert await fetch_all(conn, "select id, state, completed from control.job_log") == [
        (job.id, "permanent-error", True)
    ]


@pytest.mark.seed("002.26")
async def test_last_update_follows_every_change(database: str) -> None:
    query = "select last_update from control.job"
    async with await connect(database) as conn:
        await jobs.enqueue(conn, [JobRequest("t", "p")], now=datetime.now(UTC))
        await conn.execute("update control.job set last_update = now() - interval '1 hour'")
        [(before,)] = await fetch_all(conn, query)
        await conn.execute("update control.job set message = 'fetching foo'")
        [(after,)] = await fetch_all(conn, query)
    assert isinstance(before, datetime)
    assert isinstance(after, datetime)
    assert after > before + timedelta(minutes=59)


@pytest.mark.seed("002.28")
async def test_a_process_of_a_machine_runs_one_job(conn: Connection) -> None:
    await jobs.enqueue(conn, [JobRequest("t", "p")] * 3, now=NOW)
    for host, number in (("one", 2), ("two", 1)):
        assert await jobs.claim(conn, "t", host, number, lease=LEASE, max_attempts=1, now=NOW)
    with pytest.raises(psycopg.errors.UniqueViolation, match="job_process"):
        async with conn.transaction():
            await conn.execute("update control.job set process_id = 77 where hostname = 'one'")
    await conn.execute(
        "update control.job set process_id = 77 where id in (select min(id) from control.job group by hostname)"
    )


@pytest.mark.seed("003.5", "003.6", "003.7", "003.8", "003.9", "003.10", "003.11")
@pytest.mark.seed("003.12", "003.13")
@pytest.mark.seed("004.6", "004.8", "004.10", "004.11")
async def test_a_page_has_the_columns_and_defaults_of_the_seed(conn: Connection) -> None:
    number = await page_host(conn)
    insert = "insert into work.guestbook (domain64, path, next_fetch) values (%s, %s, %s)"
    await conn.execute(insert, [number, "/", NOW])
    page = "scheme, content_type, content_length, content_sha1, last_modified, last_fetched, next_fetch"
    assert await fetch_all(conn, f"select {page} from work.guestbook") == [
        (1, 1, 0, None, None, None, NOW)
    ]
    types = await columns(conn, "work", "guestbook")
    assert (types["id"], types["domain64"], types["path"]) == ("bigint", "bigint", "text")
    assert await primary_key(conn, "work.guestbook") == ["id"]
    with pytest.raises(psycopg.errors.UniqueViolation):
        async with conn.transaction():
            await conn.execute(insert, [number, "/", NOW])
    for values in ([None, "/x", NOW], [number, None, NOW], [number, "/x", None]):
        with pytest.raises(psycopg.errors.NotNullViolation):
            async with conn.transaction():
                await conn.execute(insert, values)
    for column in ("scheme", "content_type", "content_length"):
        with pytest.raises(psycopg.errors.NotNullViolation):
            async with conn.transaction():
                await conn.execute(f"update work.guestbook set {column} = null".encode())
    with pytest.raises(psycopg.errors.GeneratedAlways):
        await conn.execute("insert into work.guestbook (id) values (7)")


@pytest.mark.seed("004.9")
async def test_a_content_type_is_a_number_of_a_table(conn: Connection) -> None:
    names = await fetch_all(conn, "select code, name from work.content_type where code <= 3")
    assert sorted(names) == [
        (1, "application/octet-stream"), (2, "text/html"), (3, "application/pdf"),
    ]  # fmt: skip


@pytest.mark.seed("003.17", "003.18", "003.19", "003.20")
async def test_a_host_has_the_columns_and_limits_of_the_seed(conn: Connection) -> None:
    number = await page_host(conn)
    assert await primary_key(conn, "work.hosts") == ["id"]
    insert = "insert into work.hosts (domain64, name, next_fetch) values (%s, %s, %s)"
    for wrong in (0, -1):
        with pytest.raises(psycopg.errors.CheckViolation, match="domain64_domain"):
            async with conn.transaction():
                await conn.execute(insert, [wrong, "x", NOW])
    with pytest.raises(psycopg.errors.UniqueViolation):
        async with conn.transaction():
            await conn.execute(insert, [number, "x", NOW])
    with pytest.raises(psycopg.errors.NotNullViolation):
        async with conn.transaction():
            await conn.execute(insert, [number + 256, "x", None])
    assert await fetch_all(conn, "select work.max_bigint()") == [(2**63 - 1,)]
    with pytest.raises(psycopg.errors.GeneratedAlways):
        await conn.execute("insert into work.hosts (id) values (7)")


@pytest.mark.seed("002.40", "002.41", "002.42", "002.47")
async def test_a_feed_item_has_the_columns_of_the_seed(conn: Connection) -> None:
    present = await columns(conn, "feeds", "feed_item")
    assert set(FEED_ITEM_COLUMNS) <= set(present)
    assert await primary_key(conn, "feeds.feed_item") == ["id"]
    nullable = await fetch_all(
        conn,
        "select column_name from information_schema.columns where table_schema = 'feeds' "
        "and table_name = 'feed_item' and is_nullable = 'YES' and column_name = any(%s) order by 1",
        FEED_ITEM_COLUMNS,
    )
    assert nullable == [("comments_url",), ("content_clean",), ("guid",)]
    references = await fetch_all(
        conn,
        "select a.attname, c.confrelid::regclass::text from pg_constraint c "
        "join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1] "
        "where c.conrelid = 'feeds.feed_item'::regclass and c.contype = 'f'",
    )
    assert ("feed_id", "feeds.feed") in references


@pytest.mark.seed("000.6", "000.13")
async def test_chunks_and_placements_refer_to_rows_that_exist(conn: Connection) -> None:
    rows = await fetch_all(
        conn,
        "select c.conrelid::regclass::text, a.attname, c.confrelid::regclass::text from pg_constraint c "
        "join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1] where c.contype = 'f' "
        "and c.conrelid in ('work.chunk'::regclass, 'work.placement'::regclass)",
    )
    assert {tuple(str(name).removeprefix("work.") for name in row) for row in rows} >= REFERENCES
    assert await primary_key(conn, "work.chunk") == ["id"]


@pytest.mark.seed("002.43")
async def test_the_title_of_an_item_may_contain_html(conn: Connection) -> None:
    feed = parse(FEED, url="https://news.example/rss", now=NOW)
    assert isinstance(feed, Feed)
    await save_feed(conn, "https://news.example/rss", feed, CacheValidators(), id_=41, now=NOW)
    query = "select title, title_type from feeds.feed_item"
    assert await fetch_all(conn, query) == [("A <b>bold</b> step", "text/html")]
