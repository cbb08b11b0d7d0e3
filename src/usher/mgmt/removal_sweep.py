"""The sweep of removals: the watchdog takes removed pages out of the index, and readmits those of undone removals.

Each batch is a transaction that stores how far it is, so a watchdog that is killed continues. Servers and compaction
then do the rest: servers remove the copies, and compaction writes the chunks without them.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import removals
from usher.mgmt import anchors, site_templates
from usher.removal_rules import RemovalRule

store = load_statements(__file__)
PAGES_PER_BATCH: Final = 1_000
MAX_SWEEP_SECONDS: Final = 2.0  # in one round: the watchdog has other work


@dataclass(frozen=True, slots=True)
class UnsweptRemoval:
    """A removal whose pages were not all changed yet, and how far its sweep is."""

    id: int
    host: str
    subdomains: bool
    paths: list[str]
    prefix: str | None
    undone: bool
    swept_host: int
    swept_path: str


async def sweep(
    conn: Connection,
    *,
    now: datetime,
    max_seconds: float = MAX_SWEEP_SECONDS,
    n: int = PAGES_PER_BATCH,
) -> int:
    """Sweep removals in batches of `n` pages, each in its own transaction; returns how many pages changed."""
    changed, deadline, is_over = 0, time.monotonic() + max_seconds, False
    while not is_over:
        async with conn.transaction():
            waiting = await store.to_sweep.rows(conn, UnsweptRemoval, n=1)
            changed += await _sweep_batch(conn, waiting[0], now, n) if waiting else 0
        is_over = not waiting or time.monotonic() >= deadline
    return changed


async def _sweep_batch(conn: Connection, removal: UnsweptRemoval, now: datetime, n: int) -> int:
    pages, host, path = [], removal.swept_host, removal.swept_path
    if not host and removal.paths:
        pages += await store.exact_pages.column(conn, host=removal.host, paths=removal.paths)
    is_last = True
    if removal.prefix is not None:
        rows = await _pages_with_prefix(conn, removal, n)
        is_last = len(rows) < n
        pages += [id_ for id_, _, _ in rows]
        if rows:
            _, host, path = rows[-1]
    number = await _change(conn, removal, pages, now) if pages else 0
    await store.record_sweep.column(
        conn,
        id=removal.id,
        host=host,
        path=path,
        pages=number,
        done=is_last,
        undone=removal.undone,
        now=now,
    )
    return number


async def _pages_with_prefix(
    conn: Connection, removal: UnsweptRemoval, n: int
) -> list[tuple[int, int, str]]:
    low, high = await removals.domain_range(conn, RemovalRule(removal.host))
    return await store.pages_with_prefix.tuples(
        conn,
        host=removal.host,
        subdomains=removal.subdomains,
        prefix=removal.prefix,
        low=low,
        high=high,
        swept_host=removal.swept_host,
        swept_path=removal.swept_path,
        n=n,
    )


async def _change(
    conn: Connection, removal: UnsweptRemoval, pages: list[int], now: datetime
) -> int:
    if removal.undone:
        return int(await store.readmit_removed.value(conn, pages=pages, now=now))
    await anchors.forget_anchors(conn, pages, now=now)
    await site_templates.forget_samples(conn, pages)
    return int(await store.withdraw_removed.value(conn, pages=pages, now=now))


async def last_swept(conn: Connection) -> int:
    """The number of the last removal whose pages are all out of the index; 0 if there is none."""
    return int(await store.last_swept.value(conn))
