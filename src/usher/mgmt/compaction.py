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
COMPACTION_LOCK: Final = (
    0x7573_6865_7224  # "usher", 36: one at a time begins to make chunks of others
)
MIN_PROPAGATED_AGE: Final = timedelta(
    days=1
)  # since every row had it: a crawl that goes on changes it again
PAGES_PER_MERGED_CHUNK: Final = 500  # about so many in a chunk that is made of others
MAX_SOURCES_PER_CHUNK: Final = 100  # at most, of one chunk
MAX_OPEN_MERGES: Final = 4  # chunks made of others at once
CANDIDATES_PER_ROUND: Final = 200  # at once
WAITING_CHECK_INTERVAL: Final = timedelta(
    minutes=5
)  # until a chunk that waits for servers is looked at again
SETTLED_CHECK_INTERVAL: Final = timedelta(hours=1)  # of which much is alive, or which is alone
MERGE_TIMEOUT: Final = timedelta(
    days=1
)  # of which none could be made; and how long that may wait for a builder
CandidateVerdict = Literal["over", "waits", "sparse", "dense", "gone"]


@dataclass(frozen=True, slots=True)
class CompactionCandidate:
    """What was seen of a chunk."""

    chunk_id: int
    state: str
    propagated_at: datetime | None
    taken: bool  # another is being made of it
    pages: int
    alive: int
    untold: int  # pages whose crawler said too little to know whether they have a text here
    over: bool


@dataclass(frozen=True, slots=True)
class MergedChunk:
    """A chunk that is to be made of others, and how many pages it takes from them."""

    chunk_id: int
    sources: list[int]
    pages: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What became of chunks: retired ones, those begun, those that every row has now, and those given up."""

    retired: list[int] = field(default_factory=list)
    begun: list[MergedChunk] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.retired or self.begun or self.made or self.given_up)


async def compact(
    conn: Connection, *, now: datetime, n: int = CANDIDATES_PER_ROUND, by_hand: bool = False
) -> CompactionResult:
    """One round; `by_hand` looks also at what is not due yet, and what every row has only just got."""
    await store.compact_alone.tuples(conn, lock=COMPACTION_LOCK)
    # All who write places take this lock before they lock chunks and pages, and here rows of work.compaction_candidate.
    await placements.plan_alone(conn)
    made = [id_ for (id_,) in await store.close_merges.tuples(conn, now=now)]
    vain = await store.give_up_merges.tuples(
        conn, before=now - MERGE_TIMEOUT, again=now + MERGE_TIMEOUT
    )
    due = datetime.max.replace(tzinfo=UTC) if by_hand else now
    seen = await store.check_candidates.rows(conn, CompactionCandidate, due=due, n=n)
    judged = {
        one.chunk_id: judge(one, now, timedelta(0) if by_hand else MIN_PROPAGATED_AGE)
        for one in seen
    }
    retired = await _retire(conn, [id_ for id_, what in judged.items() if what == "over"], now)
    await _put_off(conn, seen, judged, now)
    begun = await _begin(conn, now)
    await components.add_events(
        conn,
        *(NewEvent(now, "compacted", chunk_id=id_) for id_ in made),
        *(NewEvent(now, "compaction_failed", reason=why, chunk_id=id_) for id_, why in vain),
        *(NewEvent(now, "retired", reason="nothing was left", chunk_id=id_) for id_ in retired),
        *(
            NewEvent(now, "compacting", reason=describe(one), chunk_id=one.chunk_id)
            for one in begun
        ),
    )
    return CompactionResult(retired, begun, made, [id_ for id_, _ in vain])


def judge(seen: CompactionCandidate, now: datetime, old: timedelta) -> CandidateVerdict:
    """What is to become of a chunk."""
    if seen.over:
        return "over"
    if seen.state in ("error", "retired"):
        return "gone"
    if seen.state != "built" or seen.propagated_at is None or seen.taken:
        return "waits"
    if not (seen.alive or seen.untold):
        return "waits"
    few = seen.alive <= SPARSE_SHARE * seen.pages and not seen.untold
    return "sparse" if few and seen.propagated_at <= now - old else "dense"


def describe(one: MergedChunk) -> str:
    """What a chunk is made of."""
    return f"{one.pages} pages of chunks {', '.join(map(str, one.sources))}"


async def _retire(conn: Connection, chunks: Sequence[int], now: datetime) -> list[int]:
    """Those of these that nobody needs leave."""
    if not chunks:
        return []
    return [id_ for (id_,) in await store.retire_chunks.tuples(conn, chunks=list(chunks), now=now)]


async def _put_off(
    conn: Connection,
    seen: Sequence[CompactionCandidate],
    judged: Mapping[int, CandidateVerdict],
    now: datetime,
) -> None:
    """Write down when to look at what stays."""
    if gone := [id_ for id_, what in judged.items() if what == "gone"]:
        await store.forget_candidates.run(conn, chunks=gone)
    if not seen:
        return
    sparse = {one.chunk_id: one.alive for one in seen if judged[one.chunk_id] == "sparse"}
    late = {"sparse": SETTLED_CHECK_INTERVAL, "dense": SETTLED_CHECK_INTERVAL}
    await store.schedule_checks.run(
        conn,
        chunks=list(judged),
        look_ats=[now + late.get(what, WAITING_CHECK_INTERVAL) for what in judged.values()],
        alive=[sparse.get(id_) for id_ in judged],
    )


async def _begin(conn: Connection, now: datetime) -> list[MergedChunk]:
    """New chunks of those with little left, as many at once as may be, if every row has all it should."""
    found: list[MergedChunk] = []
    [(under_way,)] = await store.count_open_merges.tuples(conn)
    while under_way + len(found) < MAX_OPEN_MERGES:
        taken = choose_sources(await store.sparse_chunks.tuples(conn, n=MAX_SOURCES_PER_CHUNK))
        if not taken or (not found and not await _complete(conn)):
            break
        found.append(await _make(conn, taken, now))
    return found


def choose_sources(sparse: Sequence[tuple[int, list[int], int]]) -> dict[int, list[int]]:
    """Chunks, their pages and their failures: about as many as fill a new chunk, and two at least; else nothing.

    After a failure half as many are taken at once, until the one that spoils it is left alone.
    """
    ready = sorted(sparse, key=lambda one: (one[2], one[0]))
    if len(ready) < 2:  # noqa: PLR2004 - alone it stays as it is
        return {}
    failures = ready[1][2]
    most = max(2, MAX_SOURCES_PER_CHUNK >> failures)
    taken: dict[int, list[int]] = {}
    number = 0
    for chunk, pages, failed in ready[:most]:
        if failed > failures or (number >= PAGES_PER_MERGED_CHUNK and len(taken) > 1):
            break
        taken[chunk] = pages
        number += len(pages)
    return taken


async def _make(conn: Connection, taken: Mapping[int, list[int]], now: datetime) -> MergedChunk:
    pairs = [(source, page) for source, pages in taken.items() for page in pages]
    sources, pages = zip(*pairs, strict=True)
    [(id_,)] = await store.begin_merge.tuples(
        conn, sources=list(sources), pages=list(pages), now=now, again=now + WAITING_CHECK_INTERVAL
    )
    return MergedChunk(id_, sorted(taken), len(pairs))


async def _complete(conn: Connection) -> bool:
    return not any(row.unseated or row.wanted for row in await placements.row_shortages(conn))
