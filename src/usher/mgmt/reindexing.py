"""Re-indexing: pages whose anchors or site template changed much are indexed again, without fetching them.

The watchdog begins a merge of these pages, as compaction does: a builder takes their documents from the index chunks
and adds the new anchors and templates.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt import anchors, compaction, components, site_templates
from usher.mgmt.compaction import (
    MAX_SOURCES_PER_CHUNK,
    MERGE_TIMEOUT,
    PAGES_PER_MERGED_CHUNK,
    MergedChunk,
)
from usher.mgmt.components import NewEvent

store = load_statements(__file__)
MIN_PAGES: Final = 100  # of a merge, unless a page has waited for MAX_WAIT
MAX_WAIT: Final = timedelta(hours=1)
WAITING_INTERVAL: Final = timedelta(minutes=5)  # for pages whose chunk is not in every row yet


class DuePage(NamedTuple):
    """A page to index again since a time, and the chunk that has its text; None if no chunk has it."""

    page_id: int
    reindex_at: datetime
    chunk_id: int | None
    is_ready: bool | None


class ReindexPlan(NamedTuple):
    """The pages to merge by chunk, and when to check pages again."""

    sources: Mapping[int, list[int]]
    times: Mapping[int, datetime | None]


def plan(pages: Sequence[DuePage], *, now: datetime, by_hand: bool = False) -> ReindexPlan:
    """Choose pages of a limited number of chunks, if there are enough or one has waited for long.

    A page without a text in the index gets its anchors with its next visit. If the merge fails, its pages are due
    again after the timeout of merges.
    """
    ready = [page for page in pages if page.is_ready]
    is_late = any(page.reindex_at <= now - MAX_WAIT for page in ready)
    sources: dict[int, list[int]] = {}
    times: dict[int, datetime | None] = {
        page.page_id: now + WAITING_INTERVAL if page.chunk_id else None
        for page in pages
        if not page.is_ready
    }
    if len(ready) < MIN_PAGES and not is_late and not by_hand:
        return ReindexPlan({}, times)
    for page in ready:
        chunk = page.chunk_id or 0
        if chunk in sources or len(sources) < MAX_SOURCES_PER_CHUNK:
            sources.setdefault(chunk, []).append(page.page_id)
            times[page.page_id] = now + MERGE_TIMEOUT
    return ReindexPlan(sources, times)


async def reindex(conn: Connection, *, now: datetime, by_hand: bool = False) -> MergedChunk | None:
    """Begin to index due pages again, if compaction leaves a merge free; needs a transaction.

    `by_hand` checks all anchors and templates first, and includes pages for which they changed a moment ago.
    """
    if by_hand:
        await anchors.check_all_anchors(conn, now=now)
        await site_templates.update_all_templates(conn, now=now)
    if not await compaction.may_begin_merge(conn):
        return None
    due = datetime.max.replace(tzinfo=UTC) if by_hand else now
    pages = await store.due_pages.rows(conn, DuePage, n=PAGES_PER_MERGED_CHUNK, due=due)
    sources, times = plan(pages, now=now, by_hand=by_hand)
    if times:
        await store.schedule.run(conn, pages=list(times), times=list(times.values()))
    if not sources:
        return None
    merge = await compaction.begin_merge(conn, sources, now)
    # Without this, small chunks would pile up: compaction merges only chunks that had more pages.
    await store.add_candidate.run(conn, chunk=merge.chunk_id, pages=PAGES_PER_MERGED_CHUNK, now=now)
    reason = f"new anchors or templates for {compaction.describe(merge)}"
    event = NewEvent(now, "reindexing", reason=reason, chunk_id=merge.chunk_id)
    await components.add_events(conn, event)
    return merge
