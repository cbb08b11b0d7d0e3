"""Compaction: the watchdog retires chunks without live pages and merges chunks with few of them.

Candidates are in work.compaction_candidate; each call checks a bounded number. Functions that write need a transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import components, placements
from usher.mgmt.compaction_merge import SPARSE_SHARE
from usher.mgmt.components import NewEvent

store = load_statements(__file__)
COMPACTION_LOCK: Final = 0x7573_6865_7224  # "usher", 36: one transaction at a time compacts
MIN_PROPAGATED_AGE: Final = timedelta(days=1)  # younger chunks still change during their crawl
PAGES_PER_MERGED_CHUNK: Final = 500  # approximately
MAX_SOURCES_PER_CHUNK: Final = 100
MAX_OPEN_MERGES: Final = 4
CANDIDATES_PER_ROUND: Final = 200
WAITING_CHECK_INTERVAL: Final = timedelta(minutes=5)  # for chunks that wait for servers
SETTLED_CHECK_INTERVAL: Final = timedelta(hours=1)  # for chunks with many pages, or single ones
MERGE_TIMEOUT: Final = timedelta(days=1)  # for a builder; then the sources pause as long
CandidateVerdict = Literal["over", "waits", "sparse", "dense", "gone"]


@dataclass(frozen=True, slots=True)
class CompactionCandidate:
    """A chunk that may be retired or merged."""

    chunk_id: int
    state: str
    propagated_at: datetime | None
    taken: bool  # an open merge has it as a source
    pages: int
    alive: int
    untold: int  # pages that may have a text here, because their report was incomplete
    over: bool
    purge: bool = False  # it holds the text of a page that the operator removed


@dataclass(frozen=True, slots=True)
class SparseChunk:
    """A chunk to merge: its live pages, how many merges of it failed, and whether it holds removed text."""

    chunk_id: int
    pages: list[int]
    failures: int = 0
    purge: bool = False


@dataclass(frozen=True, slots=True)
class MergedChunk:
    """A chunk that compaction makes, its sources, and how many of their pages it takes."""

    chunk_id: int
    sources: list[int]
    pages: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The chunks that a round retired, began to merge, found in every row, and gave up."""

    retired: list[int] = field(default_factory=list)
    begun: list[MergedChunk] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.retired or self.begun or self.made or self.given_up)


async def compact(
    conn: Connection, *, now: datetime, n: int = CANDIDATES_PER_ROUND, by_hand: bool = False
) -> CompactionResult:
    """Make one round; `by_hand` includes candidates that are not due and chunks that were propagated recently."""
    await _lock(conn)
    finished = await store.close_merges.column(conn, now=now)
    failed = await store.give_up_merges.tuples(
        conn, before=now - MERGE_TIMEOUT, again=now + MERGE_TIMEOUT
    )
    due = datetime.max.replace(tzinfo=UTC) if by_hand else now
    candidates = await store.check_candidates.rows(conn, CompactionCandidate, due=due, n=n)
    judged = {
        candidate.chunk_id: judge(candidate, now, timedelta(0) if by_hand else MIN_PROPAGATED_AGE)
        for candidate in candidates
    }
    retired = await _retire(conn, [id_ for id_, what in judged.items() if what == "over"], now)
    await _schedule_checks(conn, candidates, judged, now)
    begun = await _begin(conn, now)
    await components.add_events(
        conn,
        *(NewEvent(now, "compacted", chunk_id=id_) for id_ in finished),
        *(NewEvent(now, "compaction_failed", reason=why, chunk_id=id_) for id_, why in failed),
        *(NewEvent(now, "retired", reason="nothing was left", chunk_id=id_) for id_ in retired),
        *(
            NewEvent(now, "compacting", reason=describe(candidate), chunk_id=candidate.chunk_id)
            for candidate in begun
        ),
    )
    return CompactionResult(retired, begun, finished, [id_ for id_, _ in failed])


def judge(candidate: CompactionCandidate, now: datetime, min_age: timedelta) -> CandidateVerdict:
    """Decide what to do with a candidate."""
    if candidate.over:
        return "over"
    if candidate.state in ("error", "retired"):
        return "gone"
    if candidate.state != "built" or candidate.propagated_at is None or candidate.taken:
        return "waits"
    if not (candidate.alive or candidate.untold):
        return "waits"
    if candidate.purge and not candidate.untold:
        return "sparse"
    is_sparse = candidate.alive <= SPARSE_SHARE * candidate.pages and not candidate.untold
    return "sparse" if is_sparse and candidate.propagated_at <= now - min_age else "dense"


def describe(merge: MergedChunk) -> str:
    """The sources of a merge, for its event."""
    return f"{merge.pages} pages of chunks {', '.join(map(str, merge.sources))}"


async def _retire(conn: Connection, chunks: Sequence[int], now: datetime) -> list[int]:
    """Retire those chunks that are still obsolete; returns them."""
    if not chunks:
        return []
    return await store.retire_chunks.column(conn, chunks=list(chunks), now=now)


async def _schedule_checks(
    conn: Connection,
    candidates: Sequence[CompactionCandidate],
    judged: Mapping[int, CandidateVerdict],
    now: datetime,
) -> None:
    """Store when to check the remaining candidates again, and forget chunks that are gone."""
    if gone := [id_ for id_, what in judged.items() if what == "gone"]:
        await store.forget_candidates.run(conn, chunks=gone)
    if not candidates:
        return
    sparse = {
        candidate.chunk_id: candidate.alive
        for candidate in candidates
        if judged[candidate.chunk_id] == "sparse"
    }
    intervals = {"sparse": SETTLED_CHECK_INTERVAL, "dense": SETTLED_CHECK_INTERVAL}
    await store.schedule_checks.run(
        conn,
        chunks=list(judged),
        check_ats=[now + intervals.get(what, WAITING_CHECK_INTERVAL) for what in judged.values()],
        alive=[sparse.get(id_) for id_ in judged],
    )


async def _begin(conn: Connection, now: datetime) -> list[MergedChunk]:
    """Begin merges of sparse chunks up to the limit, if no row lacks a chunk."""
    begun: list[MergedChunk] = []
    open_merges = await store.count_open_merges.value(conn)
    while open_merges + len(begun) < MAX_OPEN_MERGES:
        sources = choose_sources(
            await store.sparse_chunks.rows(conn, SparseChunk, n=MAX_SOURCES_PER_CHUNK)
        )
        if not sources or (not begun and not await _complete(conn)):
            break
        begun.append(await begin_merge(conn, sources, now))
    return begun


async def may_begin_merge(conn: Connection) -> bool:
    """Whether another merge may begin; locks other planners out until the transaction ends."""
    await _lock(conn)
    open_merges = await store.count_open_merges.value(conn)
    return open_merges < MAX_OPEN_MERGES and await _complete(conn)


def choose_sources(sparse: Sequence[SparseChunk]) -> dict[int, list[int]]:
    """Choose sources that fill a new chunk: at least two, or one that holds removed text; else none.

    Each failure halves the number of sources, until a source that cannot be merged is alone. A chunk with removed text
    may be full of live pages, so others join it only as far as they fit.
    """
    ready = sorted(sparse, key=lambda source: (not source.purge, source.failures, source.chunk_id))
    if not ready or (len(ready) == 1 and not ready[0].purge):
        return {}
    is_purge = ready[0].purge
    failures = ready[0 if is_purge else 1].failures
    limit = max(1 if is_purge else 2, MAX_SOURCES_PER_CHUNK >> failures)
    taken: dict[int, list[int]] = {}
    number = 0
    for source in ready[:limit]:
        is_full = number >= PAGES_PER_MERGED_CHUNK and len(taken) > 1
        is_too_large = is_purge and taken and number + len(source.pages) > PAGES_PER_MERGED_CHUNK
        if source.failures > failures or is_full or is_too_large:
            break
        taken[source.chunk_id] = source.pages
        number += len(source.pages)
    return taken


async def begin_merge(
    conn: Connection, taken: Mapping[int, list[int]], now: datetime
) -> MergedChunk:
    """Create a chunk of these pages of other chunks."""
    pairs = [(source, page) for source, pages in taken.items() for page in pages]
    sources, pages = zip(*pairs, strict=True)
    id_ = await store.begin_merge.value(
        conn, sources=list(sources), pages=list(pages), now=now, again=now + WAITING_CHECK_INTERVAL
    )
    return MergedChunk(id_, sorted(taken), len(pairs))


async def _lock(conn: Connection) -> None:
    await store.compact_alone.tuples(conn, lock=COMPACTION_LOCK)
    # All writers of placements take this lock before they lock chunks, pages or candidates.
    await placements.plan_alone(conn)


async def _complete(conn: Connection) -> bool:
    return not any(row.unseated or row.wanted for row in await placements.row_shortages(conn))
