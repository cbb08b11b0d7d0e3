"""The statements of placements that run for each chunk or poll find their rows by an index, whatever there is."""

import re
from typing import Any

import pytest

from support.mgmt.index_servers import NOW, built, grid
from usher.db.pool import Connection
from usher.db.statements import Statement
from usher.mgmt import placements

CHUNKS, ROWS, SERVERS = 8_000, 5, 4
FILL = """
insert into work.placement (component_id, chunk_id, row, state, since)
select s.id, k.id, s.row, case when k.id %% 100 < %s then 'wanted' else 'loaded' end, now()
from work.chunk k
join (
    select id, row, row_number() over (partition by row order by id) as place
    from work.component where type = 'index-server'
) s on s.place = k.id %% %s + 1
"""
OF_SERVER = {"placement_wanted", "placement_pkey"}
OF_CHUNK = {"placement_of_chunk", "placement_in_row"}
# What each may read its tables by.
INDEXES = {
    "wanted": [OF_SERVER, OF_CHUNK, {"chunk_pkey"}],
    "load": [OF_SERVER | OF_CHUNK],
    "chunks_to_place": [OF_CHUNK, {"chunk_pkey"}],
    "lock_chunks": [{"chunk_pkey"}],
    "propagate": [OF_CHUNK, {"chunk_pkey", "chunk_to_propagate"}],
    "leaving": [{"placement_leaving", "placement_pkey"}],
}


async def house(conn: Connection, wanted: int) -> dict[str, Any]:
    """Every chunk in every row, so many percent of them not loaded; returns what a statement may be asked."""
    servers = await grid(conn, ROWS, SERVERS)
    chunks = await built(conn, CHUNKS)
    await conn.execute(FILL, [wanted, SERVERS])
    await conn.execute("analyze work.placement, work.chunk, work.component")
    some = chunks[-105:-100]
    return {
        "server": servers[2][1],
        "chunks": some,
        "n": 5,
        "after": some[0],
        "around": True,
        "now": NOW,
        "before": NOW,
    }


async def plan(conn: Connection, statement: Statement, given: dict[str, Any]) -> str:
    used = {name: given[name] for name in re.findall(r"%\((\w+)\)s", statement.text)}
    found = await conn.execute(b"explain " + statement.query, used)
    return "\n".join(line for (line,) in await found.fetchall())


@pytest.mark.parametrize("wanted", [1, 100], ids=["few_wanted", "all_wanted"])
async def test_statements_read_by_their_index(conn: Connection, wanted: int) -> None:
    given = await house(conn, wanted)
    for name, kinds in INDEXES.items():
        text = await plan(conn, getattr(placements.store, name), given)
        assert not re.search(r"Seq Scan on (placement|chunk)\b", text), (name, text)
        used = set(re.findall(r"(?:Scan using|Index Scan on) (\w+)", text)) - {"component_pkey"}
        assert all(used & kind for kind in kinds), (name, text)


async def read(conn: Connection, statement: Statement, given: dict[str, Any]) -> int:
    """How many blocks it looks at."""
    used = {name: given[name] for name in re.findall(r"%\((\w+)\)s", statement.text)}
    found = await conn.execute(b"explain (analyze, buffers, format json) " + statement.query, used)
    [[[text]]] = await found.fetchall()
    return int(text["Plan"]["Shared Hit Blocks"]) + int(text["Plan"]["Shared Read Blocks"])


async def test_a_poll_reads_little_wherever_the_wanted_are(conn: Connection) -> None:
    """The last few of a server's chunks, among many that others want."""
    given = await house(conn, 100)
    await conn.execute(
        "update work.placement set state = 'loaded' where component_id = %s and chunk_id <= %s",
        [given["server"], given["after"]],
    )
    assert await read(conn, placements.store.wanted, {**given, "after": 0}) < 500
