"""Digests the items of all feeds in one job, so that polls do not wait for it.

Items that arrive while the job ends are digested by the next one, which the next poll of their feed queues.
"""

from typing import Final

from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.feeds.store import item_texts

store = load_statements(__file__)

PROGRAM: Final = "usher.feeds.worker:digest"


async def queue_digest_job(conn: Connection) -> None:
    """Queue the job unless one is waiting or running."""
    await store.queue_digest_job.run(conn, program=PROGRAM)


async def digest_all(db: Database) -> int:
    """Digest the items of all feeds until none is left; returns the number of items."""
    total = 0
    while feeds := await undigested_feeds(db):
        done = sum([await item_texts.digest_feed(db, feed_id) for feed_id in feeds])
        if not done:  # another process digests them
            break
        total += done
    return total


async def undigested_feeds(db: Database) -> list[int]:
    async with db.connection() as conn:
        return await store.undigested_feeds.column(conn)
