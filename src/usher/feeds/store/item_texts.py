"""What items are found by: their words, and the numbers that copies of one story nearly share.

Comes from items as stored or cleaned; goes to feeds.feed_item_text, and marks copies in feeds.feed_item. Whoever is
killed leaves items that are not digested, and the next poll of their feed digests them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import psycopg

from usher.crawl.page.fingerprint import line, simhash
from usher.db.pool import Connection, Database
from usher.db.statements import array, beside
from usher.feeds.items.clean import plain_text
from usher.search.merge import MAX_SIMHASH_DISTANCE

store = beside(__file__)

LOCK: Final = 0x7573_6865_7230  # "usher", 48: copies are looked for by one at a time
BATCH: Final = 100
MAX_ATTEMPTS: Final = 5
MAX_HTML_CHARS: Final = 400_000  # characters that the words are taken from
MAX_TEXT_CHARS: Final = 100_000  # characters of text: PostgreSQL keeps no more than 1 MB of words
MAX_TITLE_CHARS: Final = 1_000
MIN_COPY_CHARS: Final = (
    150  # characters of a text that has copies; two short ones are alike by chance
)
MAX_COPY_CANDIDATES: Final = 1_000  # looked at for one part of a number


@dataclass(frozen=True, slots=True)
class UndigestedItem:
    """As much of an item as its words are taken from."""

    id: int
    hash: UUID
    version: str
    title: str
    title_type: str
    body: str
    type: str


@dataclass(frozen=True, slots=True)
class ItemDigest:
    """The text of an item, and the number that near-copies nearly share, if it is long enough."""

    title: str
    body: str
    simhash: int | None


async def digest_feed(db: Database, feed_id: int) -> int:
    """Digest what is new or changed of a feed, a batch at a time; returns how many items that were."""
    done = failed = 0
    while failed <= MAX_ATTEMPTS:
        try:
            async with db.transaction() as conn:
                waiting = await undigested(conn, feed_id)
                written = await digest_items(conn, waiting)
        except psycopg.errors.DeadlockDetected:  # with a poll of the same feed
            failed += 1
            if failed > MAX_ATTEMPTS:
                raise
            continue
        done += written
        if written < len(waiting):  # the others changed meanwhile and are read again
            failed += 1
        elif len(waiting) < BATCH:
            break
    return done


async def undigested(conn: Connection, feed_id: int, *, n: int = BATCH) -> list[UndigestedItem]:
    """What is new or changed of a feed since its words were taken."""
    return await store.undigested.rows(conn, UndigestedItem, feed=feed_id, n=n, most=MAX_HTML_CHARS)


async def digest_items(conn: Connection, items: Sequence[UndigestedItem]) -> int:
    """Take the words of items of one feed and mark copies; returns how many items had not changed meanwhile."""
    if not items:
        return 0
    made = [digest_item(one) for one in items]
    ids = [one.id for one in items]
    written = await store.digest.run(
        conn,
        ids=ids,
        hashes=array([one.hash for one in items]),
        versions=[item.version for item in items],
        titles=[one.title for one in made],
        bodies=[one.body for one in made],
        simhashes=[one.simhash for one in made],
    )
    await store.turn.tuples(conn, lock=LOCK)
    await store.mark_copies.run(conn, ids=ids, near=MAX_SIMHASH_DISTANCE, most=MAX_COPY_CANDIDATES)
    return written


def digest_item(item: UndigestedItem) -> ItemDigest:
    title = line(plain_text(item.title[:MAX_TEXT_CHARS], item.title_type), MAX_TITLE_CHARS)
    body = plain_text(item.body, item.type)[:MAX_TEXT_CHARS]
    # With its title, for many feeds have the same few words where a text is to be paid for.
    number = simhash(f"{title} {body}") if len(body) >= MIN_COPY_CHARS else 0
    return ItemDigest(title, body, number or None)
