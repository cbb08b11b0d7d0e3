"""Versions: which copies of pages are out of date, and which servers are to take them out of their index.

Comes from settled pages and loaded chunks; goes to servers, each of which is told until it says that it has done so. An
old copy stays until the row has the newer one. What disappears for good is looked at first: if much of a host would go
at once, it is held back until somebody has looked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.urls import Scheme, Url

store = load_statements(__file__)
DISAPPEARANCE_WINDOW: Final = timedelta(days=1)  # pages that disappear within it belong together
MAX_DISAPPEARING_SHARE: Final = 0.2  # of a host's pages that may disappear so
MAX_DISAPPEARING_PAGES: Final = 10  # pages, that may disappear of any host


@dataclass(frozen=True, slots=True)
class CopyToRemove:
    """A copy of a page in a chunk that is to be taken out."""

    chunk_id: int
    page_id: int
    url: str


async def record_stale_copies(
    conn: Connection, moved: Sequence[tuple[int, int, int | None]], *, now: datetime
) -> None:
    """Pages whose text was in one chunk and is in another now, or nowhere; the old chunks are looked at some time."""
    if not moved:
        return
    pages, before, after = (list(one) for one in zip(*moved, strict=True))
    await store.record_stale_copies.run(conn, pages=pages, before=before, after=after, now=now)


async def take_back(
    conn: Connection, chunks: Sequence[int], *, max_losses: int, now: datetime
) -> None:
    """Undo what these lost chunks brought: their pages are crawled again, and until then have their older copies.

    Call it after the chunks are in error, in the same transaction. A page lost more often than `max_losses` fails.
    """
    lost = list(chunks)
    if lost:
        await store.lose_copies.tuples(conn, chunks=lost, most=max_losses, now=now)
        await store.take_back.run(conn, chunks=lost)


async def loaded(conn: Connection, chunks: Sequence[int]) -> int:
    """A server has these chunks now: what they outdate, and what is outdated in them, may go."""
    [(told,)] = await store.retire_copies.tuples(conn, chunks=list(chunks))
    return int(told)


async def judge(conn: Connection, *, n: int, now: datetime) -> dict[int, bool]:
    """Look at pages that are to disappear: hosts, and whether theirs may go."""
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
    """Let what was held back of a host disappear; how many pages."""
    found = [chunk for (chunk,) in await store.release_host.tuples(conn, domain64=domain64)]
    if found:
        await loaded(conn, sorted(set(found)))
    return len(found)


async def held_back(conn: Connection, domain64: int) -> int:
    [(pages,)] = await store.held_back.tuples(conn, domain64=domain64)
    return int(pages)


async def to_retire(conn: Connection, server: int, *, n: int) -> list[CopyToRemove]:
    """What a server is to take out of its index."""
    return [
        CopyToRemove(chunk, page, str(Url(Scheme(scheme), host, path)))
        for chunk, page, host, scheme, path in await store.to_retire.tuples(
            conn, server=server, n=n
        )
    ]


async def retired(conn: Connection, server: int, done: Sequence[tuple[int, int]]) -> int:
    """A server has taken these out: chunk and page."""
    found = await store.retired.tuples(
        conn, server=server, chunks=[chunk for chunk, _ in done], pages=[page for _, page in done]
    )
    return len(found)
