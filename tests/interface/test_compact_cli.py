"""Compaction at the command line: what would be done, what is, and what chunks say of it."""

from pathlib import Path

from support.mgmt.compaction import House, paths
from support.processes.commands import Ran, usher
from support.processes.crawls import EMBEDDED
from usher.db.pool import connect

pytestmark = EMBEDDED


def at(dsn: str, *words: str | Path) -> Ran:
    ran = usher(*words, environment={"DATABASE_URL": dsn})
    assert ran.code == 0, ran.err
    return ran


async def test_chunks_are_compacted_by_hand(database: str) -> None:
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        assert "Nothing to compact." in at(database, "chunks", "compact").err
        sources = await house.sparse(2)
        empty = await house.crawl(*paths(5))
        await house.crawl(*paths(5))
        numbers = ", ".join(map(str, sources))
        said = at(database, "chunks", "compact", "--dry-run").out
        assert f"retired: chunk {empty}\n" in said
        assert f"2 pages of chunks {numbers}\n" in said
        assert (await house.states())[empty] == "built"
        done = at(database, "chunks", "compact", "--json").json
        assert (done["retired"], done["given_up"]) == ([empty], [])
        [begun] = done["begun"]
        made = begun["chunk_id"]
        assert begun == {"chunk_id": made, "sources": sources, "pages": 2}
        await house.taken()
        assert await house.built(made)
    assert f"chunks {numbers}" in at(database, "chunks", "show", str(made)).out
    assert f"chunk {made}" in at(database, "chunks", "show", str(sources[0])).out
    shown = at(database, "chunks", "show", "--json", str(made)).json
    assert (shown["crawler"], shown["made_of"], shown["merged_into"]) == (None, sources, [])
    assert [
        one["id"] for one in at(database, "chunks", "list", "--state", "retired", "--json").json
    ] == [empty]
    at(database, "chunks", "list")
    story = " ".join(at(database, "explain", "https://a.com/0").out.split())
    assert f"chunk {made}: built" in story
    assert "merged from other chunks" in story
    assert f"it was before, in chunk {sources[0]}" in story
