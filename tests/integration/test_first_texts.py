"""A page whose text another page had before names the first one. The look-up reads little, in both forms."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from psycopg.conninfo import make_conninfo

from usher.db.pool import Connection, connect
from usher.door import guestbook
from usher.door.guestbook import FetchReport
from usher.schema import partitions

NOW = datetime(2026, 11, 20, tzinfo=UTC)
CHUNK = 7
HOSTS = 30
FORMS = [1, 3]
TEXTS = (None, 1, 2, 3, 4, -5)
SETTLE = """
select * from work.settle(
    %s, %s, array_fill(7::bigint, array[%s]), array_fill('success'::text, array[%s]), null,
    array_fill(2::smallint, array[%s]), array_fill(1, array[%s]), null, null, null, %s,
    array_fill(false, array[%s]), null, null, now()
)
"""


@dataclass(slots=True)
class TextPage:
    """What decides which page had a text first."""

    id: int
    domain64: int
    path: str
    state: str
    text64: int | None
    same_as: int | None
    indexed_in: int | None


async def stored(conn: Connection) -> list[TextPage]:
    rows = await conn.execute(
        "select id, domain64, path, state, text64, same_as, indexed_in from work.guestbook order by id"
    )
    return [TextPage(*row) for row in await rows.fetchall()]


def firsts(before: Sequence[TextPage], texts: dict[int, int | None]) -> Iterator[tuple[int, int]]:
    """Yield each page of a batch whose text another page had before, and that page."""
    for page, text in texts.items():
        known = [
            other.id
            for other in before
            if other.text64 == text
            and other.same_as is None
            and other.indexed_in is not None
            and other.id != page
        ]
        batch = min(other for other, own in texts.items() if own == text)
        if text is not None and (known or batch != page):
            yield page, min(known, default=batch)


async def fill(conn: Connection, form: int, each: int) -> None:
    """Add hosts with pages that are being crawled; some have a text, some are in the index."""
    await conn.execute("insert into work.domain (tld, number, name) values (1, 1, 'many')")
    await conn.execute(
        f"""
        insert into work.hosts (domain64, name, next_fetch)
        select work.domain64_encode(1, 1, i), 'h' || i || '.many.gov', now() from generate_series(1, {HOSTS}) i;
        insert into work.guestbook (domain64, path, state, next_fetch, admitted_at, chunk_id)
        select domain64, '/' || i, 'crawling', now(), now(), {CHUNK}
        from work.hosts, generate_series(1, {each}) i order by i, domain64
        """.encode()
    )
    if form > 1:
        await partitions.convert(conn, (await partitions.plan_here(conn, form)).bounds)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(4))
async def test_a_page_names_the_one_that_had_its_text_first(
    database: str, form: int, seed: int
) -> None:
    """Texts in one batch, in earlier ones, of the page itself, and of pages that are not in the index."""
    draw = random.Random(seed)  # noqa: S311 - the same pages for the same seed
    async with await connect(make_conninfo(database, application_name="psql")) as conn:
        await fill(conn, form, each=4)
        for page in await stored(conn):
            await conn.execute(
                "update work.guestbook set text64 = %s, same_as = %s, indexed_in = %s where id = %s",
                [draw.choice(TEXTS), draw.choice((None, None, 1)), draw.choice((None, 5)), page.id],
            )
        for _ in range(6):
            await conn.execute("update work.guestbook set state = 'crawling', chunk_id = 7")
            before = await stored(conn)
            batch = draw.sample(before, draw.choice((1, 5, 20)))
            texts = {page.id: draw.choice(TEXTS) for page in batch}
            reports = [
                FetchReport(
                    page.domain64, page.path, "success", CHUNK, 200,
                    text64=texts[page.id], noindex=draw.random() < 0.2,
                )
                for page in batch
            ]  # fmt: skip
            assert len(await guestbook.settle(conn, reports=reports, now=NOW)) == len(batch)
            after = {page.id: page.same_as for page in await stored(conn)}
            assert {page: after[page] for page in texts if after[page]} == dict(
                firsts(before, texts)
            )


async def sequential_scans(conn: Connection) -> int:
    """Those of the session that it has not sent to the server yet."""
    rows = await conn.execute(
        "select coalesce(sum(seq_scan), 0)::int from pg_stat_xact_user_tables where relname like 'guestbook%'"
    )
    [(number,)] = await rows.fetchall()
    return int(number)


async def blocks_of_settle(conn: Connection, texts: Sequence[int | None]) -> int:
    """Report so many pages with texts, and roll back; return the read blocks. No table is read from end to end."""
    rows = await conn.execute(
        "select domain64, path from work.guestbook where state = 'crawling' order by id limit %s",
        [len(texts)],
    )
    hosts, paths = zip(*await rows.fetchall(), strict=True)
    given = [list(hosts), list(paths), *[len(texts)] * 4, list(texts), len(texts)]
    explain = f"explain (analyze, buffers, format json) {SETTLE}"
    async with conn.transaction(force_rollback=True):
        before = await sequential_scans(conn)
        [[[plan]]] = await (await conn.execute(explain.encode(), given)).fetchall()
        assert await sequential_scans(conn) == before
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indexed_in", [None, 5])
async def test_a_text_that_very_many_pages_have_is_found_by_index(
    database: str, form: int, indexed_in: int | None
) -> None:
    """They are copies of one page, or ask not to be indexed."""
    async with await connect(make_conninfo(database, application_name="psql")) as conn:
        await fill(conn, form, each=200)
        copy = "null" if indexed_in is None else "case when id > 1 then 1 end"
        await conn.execute(
            f"update work.guestbook set state = 'crawled', text64 = 9, indexed_in = %s, same_as = {copy} "
            "where id <= 5000".encode(),
            [indexed_in],
        )
        await conn.execute("vacuum (analyze) work.guestbook")
        await blocks_of_settle(conn, [9, 10])  # reads the catalogs
        without = await blocks_of_settle(conn, [None] * 5)
        blocks = await blocks_of_settle(conn, [9, 10, 11, 12, 13])
        # Five texts, three levels of an index of each partition, and the entries of the new texts.
        assert blocks - without < 5 * 4 * form + 40
