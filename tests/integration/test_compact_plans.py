"""Compaction by its rules, and its statements: they find their rows by what happened, however much there is."""

from datetime import timedelta
from typing import Any

from support.mgmt.admitted_pages import NOW
from support.mgmt.compaction import LATER, House
from usher.db.pool import Connection
from usher.db.statements import Statement
from usher.mgmt import (
    anchors,
    compaction,
    compaction_merge,
    page_keys,
    page_versions,
    reindexing,
)
from usher.mgmt.compaction import CompactionCandidate, SparseChunk, choose_sources, judge


def test_a_chunk_is_judged_by_what_is_left_of_it() -> None:
    def seen(
        alive: int,
        outdated: int,
        state: str = "built",
        *,
        untold: int = 0,
        over: bool = False,
        taken: bool = False,
        purge: bool = False,
    ) -> CompactionCandidate:
        at = NOW if state == "built" else None
        return CompactionCandidate(
            1, state, at, taken, alive + outdated, alive, untold, over, purge
        )

    day = timedelta(days=1)
    assert judge(seen(0, 4, over=True), LATER, day) == "over"
    assert judge(seen(0, 4), LATER, day) == "waits"
    assert judge(seen(1, 3), LATER, day) == "sparse"
    assert judge(seen(1, 3), NOW, day) == "dense"
    assert judge(seen(2, 5), LATER, day) == "dense"
    assert judge(seen(0, 5, untold=1), LATER, day) == "dense"
    assert judge(seen(1, 3, taken=True), LATER, day) == "waits"
    assert judge(seen(1, 3, "crawled"), LATER, day) == "waits"
    assert judge(seen(0, 4, "retired"), LATER, day) == "gone"
    assert judge(seen(9, 1, purge=True), NOW, day) == "sparse"
    assert judge(seen(9, 1, purge=True, untold=1), NOW, day) == "dense"
    assert judge(seen(9, 1, "crawled", purge=True), NOW, day) == "waits"


def test_enough_is_two_at_least_and_about_a_chunk() -> None:
    assert choose_sources([]) == choose_sources([SparseChunk(1, [7])]) == {}
    assert list(choose_sources([SparseChunk(1, [7]), SparseChunk(2, [8])])) == [1, 2]
    many = [SparseChunk(number, list(range(200))) for number in range(9)]
    assert list(choose_sources(many)) == [0, 1, 2]
    large = [SparseChunk(number, list(range(900))) for number in range(9)]
    assert list(choose_sources(large)) == [0, 1]


def test_a_chunk_with_removed_text_is_merged_alone_or_with_what_fits() -> None:
    alone = SparseChunk(5, list(range(900)), purge=True)
    small = SparseChunk(1, [7])
    assert list(choose_sources([alone])) == [5]
    assert list(choose_sources([small, alone])) == [5]
    assert list(choose_sources([small, SparseChunk(5, [8, 9], purge=True)])) == [5, 1]
    assert list(choose_sources([small, SparseChunk(2, [8]), alone])) == [5]
    failed = SparseChunk(6, [8], failures=7, purge=True)
    assert list(choose_sources([failed])) == [6]


def test_one_that_spoils_others_is_left_with_one_in_the_end() -> None:
    """Whatever is made with number 13 fails; all others are made in the end, but one at most."""
    left = dict.fromkeys(range(100), 0)
    for _ in range(200):
        sources = [SparseChunk(number, [number], failures) for number, failures in left.items()]
        taken = choose_sources(sources)
        for number in taken:
            if 13 in taken:
                left[number] += 1
            else:
                del left[number]
    assert 13 in left
    assert len(left) <= 2


PLANS: dict[Statement, dict[str, Any]] = {
    compaction.store.check_candidates: {"due": NOW, "n": 5},
    compaction.store.sparse_chunks: {"n": 5},
    compaction.store.give_up_merges: {"before": NOW, "again": NOW},
    compaction.store.close_merges: {"now": NOW},
    compaction_merge.store.note_if_sparse: {"chunk": 1, "share": 0.25, "now": NOW},
    compaction_merge.store.assign_pages: {"chunks": [1]},
    compaction_merge.store.manifest: {"chunks": [1]},
    compaction_merge.store.lock_pages: {"chunk": 1},
    page_versions.store.lose_copies: {"chunks": [1], "most": 3, "now": NOW},
    page_versions.store.take_back: {"chunks": [1]},
    page_keys.store.page_keys: {"chunks": [1], "server": 1},
    anchors.store.page_links: {"chunks": [1]},
    reindexing.store.due_pages: {"due": NOW, "n": 5},
    reindexing.store.schedule: {"pages": [1], "times": [NOW]},
    page_keys.store.suspects: {"chunks": [1], "reporter": 1, "prefix": "index-server s dropped "},
}


async def test_candidates_are_found_by_what_happened(conn: Connection) -> None:
    """Among many pages and chunks no statement searches for the few that changed."""
    house = House(conn)
    await house.begin()
    await house.run("alter table work.chunk alter column id restart with 1")
    await house.run(
        "insert into work.chunk (state, crawler_id, claimed_at, index_state, builder_id, propagated_at) "
        "select 'crawled', %s, now(), 'built', %s, now() from generate_series(1, 3000)",
        house.crawler,
        house.builder,
    )
    await house.run(
        "insert into work.guestbook (domain64, path, next_fetch, chunk_id, indexed_in) "
        "select domain64, '/x' || n, now(), 1 + n %% 2000, 1 + n %% 3000 from work.hosts, generate_series(1, 30000) n"
    )
    await house.run(
        "insert into work.stale_copy (page_id, chunk_id, newer, at) "
        "select g.id, 1 + g.id %% 3000, g.indexed_in, now() from work.guestbook g where g.indexed_in is not null"
    )
    await house.run(
        "insert into work.compaction_candidate (chunk_id, check_at, alive) "
        "select id, now(), case when id %% 9 = 0 then 1 end from work.chunk"
    )
    await house.run(
        "insert into work.chunk_source select id, id - 1, '{1,2,3}', '{1}', id %% 500 = 0 "
        "from work.chunk where id %% 2 = 0"
    )
    await house.run(
        "insert into work.anchor (page_id, seen_at, own_pages, other_pages, text) "
        "select id, now(), '{1}', '{}', 'text' from work.guestbook"
    )
    await house.run(
        "insert into work.anchored_page (page_id, reindex_at) "
        "select id, case when id %% 9 = 0 then now() end from work.guestbook"
    )
    await house.run("update work.chunk set page_ids = '{1,2,3}'")
    await house.run(
        "analyze work.chunk, work.guestbook, work.stale_copy, work.compaction_candidate, work.chunk_source, "
        "work.anchor, work.anchored_page"
    )
    for statement, given in PLANS.items():
        found = await house.conn.execute(b"explain " + statement.query, given)
        plan = "\n".join(line for (line,) in await found.fetchall())
        bad = (
            *("guestbook", "stale_copy", "chunk", "compaction_candidate", "chunk_source"),
            *("anchor", "anchored_page"),
        )
        assert not [one for one in bad if f"Seq Scan on {one}" in plan], (statement.name, plan)
