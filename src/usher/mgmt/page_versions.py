"""Stale copies: which copies of pages are out of date, and which servers must remove them from their index.

A server is told until it confirms. An old copy stays until the row has the newer one. If many pages of a host would
disappear at once, they are held back until the operator decides.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.messages.index_server import StalePage
from usher.urls import url_text

store = load_statements(__file__)
DISAPPEARANCE_WINDOW: Final = timedelta(days=1)  # for the two limits below
MAX_DISAPPEARING_SHARE: Final = 0.2  # of the pages of a host
MAX_DISAPPEARING_PAGES: Final = 10  # of any host


async def record_stale_copies(
    conn: Connection, moved: Sequence[tuple[int, int, int | None]], *, now: datetime
) -> None:
    """Record the stale copies of pages (page, old chunk, new chunk or None); compaction checks the old chunks later."""
    if not moved:
        return
    pages, before, after = map(list, zip(*moved, strict=True))
    await store.record_stale_copies.run(conn, pages=pages, before=before, after=after, now=now)


async def take_back(
    conn: Connection, chunks: Sequence[int], *, max_losses: int, now: datetime
) -> None:
    """Have the pages of lost chunks crawled again; until then their older copies are valid again.

    Call it after the chunks are in error, in the same transaction. A page lost more than `max_losses` times fails.
    """
    lost = list(chunks)
    if lost:
        await store.lose_copies.tuples(conn, chunks=lost, most=max_losses, now=now)
        await store.take_back.run(conn, chunks=lost)


async def loaded(conn: Connection, chunks: Sequence[int]) -> int:
    """Tell servers to remove the stale copies that these loaded chunks replace or contain; returns how many."""
    return int(await store.retire_copies.value(conn, chunks=list(chunks)))


async def judge(conn: Connection, *, n: int, now: datetime) -> dict[int, bool]:
    """Decide about pages that are to disappear; returns whether those of each host may go."""
    verdicts: dict[int, bool] = {}
    rows = await store.to_judge.tuples(conn, n=n, since=now - DISAPPEARANCE_WINDOW)
    for number, chunks, pages, left, going in rows:
        may_go = going <= MAX_DISAPPEARING_PAGES or going <= MAX_DISAPPEARING_SHARE * (left + going)
        verdicts[number] = may_go
        if may_go:
            await store.approve_removal.tuples(conn, chunks=chunks, pages=pages)
            await loaded(conn, sorted(set(chunks)))
        else:
            await store.hold_back.run(conn, chunks=chunks, pages=pages)
    return verdicts


async def release(conn: Connection, domain64: int) -> int:
    """Let the held pages of a host disappear; returns how many."""
    released = await store.release_host.column(conn, domain64=domain64)
    if released:
        await loaded(conn, sorted(set(released)))
    return len(released)


async def held_back(conn: Connection, domain64: int) -> int:
    return int(await store.held_back.value(conn, domain64=domain64))


async def to_retire(conn: Connection, server: int, *, n: int) -> list[StalePage]:
    """The copies that a server must remove from its index."""
    return [
        StalePage(chunk, page, url_text(scheme, host, path), is_removed)
        for chunk, page, host, scheme, path, is_removed in await store.to_retire.tuples(
            conn, server=server, n=n
        )
    ]


async def retired(conn: Connection, server: int, done: Sequence[tuple[int, int]]) -> int:
    """Record that a server removed these copies (chunk, page); returns how many were expected."""
    rows = await store.retired.tuples(
        conn, server=server, chunks=[chunk for chunk, _ in done], pages=[page for _, page in done]
    )
    return len(rows)
