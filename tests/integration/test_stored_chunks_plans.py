"""Statements about chunks of one component look up all their files in the object store together, not each alone."""

import re
from datetime import timedelta
from typing import Any

import pytest

from support.mgmt.index_servers import NOW, maker
from usher.backup import chunk_copies
from usher.db.pool import Connection
from usher.db.statements import Statement
from usher.mgmt import chunks, queries

CHUNKS = 5_000
# Each file that is looked up alone costs three blocks: 15,000 to 30,000. Hash and merge joins read each table once.
MAX_BLOCKS = 6_000
JOIN = re.compile(r"(Anti|Left|Right|Left Anti|Right Anti) Join")
NEW_VERSION = (
    180_000  # PostgreSQL 15 takes a nested loop where there is a limit, which is still a join
)
FILL = """
with chunk as (
    insert into work.chunk
        (state, crawler_id, claimed_at, crawled_at, index_state, builder_id, built_at, sha256, index_sha256)
    select 'crawled', %s, %s, %s, %s, %s, %s, md5(n::text) || md5(n::text), md5(n::text) || md5((-n)::text)
    from generate_series(1, %s) n
    returning id, sha256, index_sha256
)
insert into work.chunk_object (kind, chunk_id, sha256, requested_at, stored_at)
select %s, id, case %s when 'index' then index_sha256 else sha256 end, %s, %s from chunk
"""
STATEMENTS: dict[str, Statement] = {
    "unpropagated": chunks.store.unpropagated,
    "rebuild": chunks.store.rebuild,
    "content_of": chunks.store.content_of,
    "claim_builds": chunks.store.claim_builds,
    "holdings": queries.store.holdings,
    "needed_files": chunk_copies.store.needed_files,
}


async def fill(conn: Connection) -> dict[str, Any]:
    """A crawler and a builder with stored chunks that not every row has; returns what a statement may be asked."""
    crawler, builder = await maker(conn, "crawler"), await maker(conn, "index-builder")
    await conn.execute(
        FILL, [crawler, NOW, NOW, None, None, None, CHUNKS, "content", "content", NOW, NOW]
    )
    await conn.execute(
        FILL, [crawler, NOW, NOW, "built", builder, NOW, CHUNKS, "index", "index", NOW, NOW]
    )
    await conn.execute("analyze work.chunk, work.chunk_object")
    return {
        "builder": builder,
        "component": builder,
        "crawler": crawler,
        "ids": [crawler, builder],
        "after": 0,
        "alone": True,
        "compact": True,
        "lease": timedelta(hours=1),
        "most": 1_000_000,
        "n": 100,
        "now": NOW,
        "why": "",
        "with_store": False,
    }


@pytest.mark.parametrize("name", STATEMENTS)
async def test_files_are_looked_up_together(conn: Connection, name: str) -> None:
    given, statement = await fill(conn), STATEMENTS[name]
    used = {key: given[key] for key in re.findall(r"%\((\w+)\)s", statement.text)}
    found = await conn.execute(b"explain (analyze, buffers) " + statement.query, used)
    lines = [line for (line,) in await found.fetchall()]
    plan = "\n".join(lines)
    assert JOIN.search(plan), plan
    if conn.info.server_version >= NEW_VERSION:
        first = next(line for line in lines if "Buffers: " in line)  # of the whole statement
        blocks = sum(map(int, re.findall(r"(?:hit|read)=(\d+)", first)))
        assert blocks < MAX_BLOCKS, plan
