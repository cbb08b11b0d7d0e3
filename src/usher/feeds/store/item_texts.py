"""Digests items: stores their search words and simhashes in feeds.feed_item_text, and marks near-copies.

A process that is killed leaves items undigested, and the next poll of their feed digests them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import psycopg

from usher.crawl.page.fingerprint import shorten, simhash
from usher.db.pool import Connection, Database
from usher.db.statements import array, load_statements
from usher.feeds.items.clean import plain_text
from usher.search.merge import MAX_SIMHASH_DISTANCE

store = load_statements(__file__)

LOCK: Final = 0x7573_6865_7230  # "usher" and 48, the advisory lock for marking copies
BATCH: Final = 100
MAX_ATTEMPTS: Final = 5
MAX_HTML_CHARS: Final = 400_000
MAX_TEXT_CHARS: Final = 100_000  # a tsvector holds at most 1 MB
MAX_TITLE_CHARS: Final = 1_000
MIN_COPY_CHARS: Final = 150  # shorter texts are alike by chance
MAX_COPY_CANDIDATES: Final = 1_000  # for each quarter of a simhash


@dataclass(frozen=True, slots=True)
class UndigestedItem:
    """The text of an item that is new or changed since its last digest."""

    id: int
    hash: UUID
    version: str
    title: str
    title_type: str
    body: str
    type: str


@dataclass(frozen=True, slots=True)
class ItemDigest:
    """The plain text of an item, and its simhash if the text is long enough."""

    title: str
    body: str
    simhash: int | None


async def digest_feed(db: Database, feed_id: int) -> int:
    """Digest the new and changed items of a feed in batches; returns their number."""
    done = failed = 0
    while failed <= MAX_ATTEMPTS:
        try:
            async with db.transaction() as conn:
                waiting = await undigested(conn, feed_id)
                written = await digest_items(conn, waiting)
        except psycopg.errors.DeadlockDetected:  # a poll of the same feed
            failed += 1
            if failed > MAX_ATTEMPTS:
                raise
            continue
        done += written
        if written < len(waiting):  # the others changed meanwhile; read them again
            failed += 1
        elif len(waiting) < BATCH:
            break
    return done


async def undigested(conn: Connection, feed_id: int, *, n: int = BATCH) -> list[UndigestedItem]:
    """The items of a feed that are new or changed since their last digest."""
    return await store.undigested.rows(conn, UndigestedItem, feed=feed_id, n=n, most=MAX_HTML_CHARS)


async def digest_items(conn: Connection, items: Sequence[UndigestedItem]) -> int:
    """Digest items of one feed and mark copies; returns how many had not changed meanwhile."""
    if not items:
        return 0
    digests = [digest_item(item) for item in items]
    ids = [item.id for item in items]
    written = await store.digest_items.run(
        conn,
        ids=ids,
        hashes=array([item.hash for item in items]),
        versions=[item.version for item in items],
        titles=[digest.title for digest in digests],
        bodies=[digest.body for digest in digests],
        simhashes=[digest.simhash for digest in digests],
    )
    await store.lock_copies.tuples(conn, lock=LOCK)
    await store.mark_copies.run(conn, ids=ids, near=MAX_SIMHASH_DISTANCE, most=MAX_COPY_CANDIDATES)
    return written


def digest_item(item: UndigestedItem) -> ItemDigest:
    title = shorten(plain_text(item.title[:MAX_TEXT_CHARS], item.title_type), MAX_TITLE_CHARS)
    body = plain_text(item.body, item.type)[:MAX_TEXT_CHARS]
    # The title counts, because the articles behind one paywall all show the same text.
    number = simhash(f"{title} {body}") if len(body) >= MIN_COPY_CHARS else 0
    return ItemDigest(title, body, number or None)
