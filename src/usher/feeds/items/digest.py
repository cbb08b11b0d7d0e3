"""Words taken and copies marked for all feeds by one job, so that polls need not wait for it.

Comes from processes that poll many feeds; goes to `texts`, feed by feed. What comes in while the job ends is digested
by the next one, which the next poll of that feed sends.
"""

from typing import Final

from usher.db.pool import Connection, Database
from usher.db.statements import beside
from usher.feeds.store import item_texts

store = beside(__file__)

PROGRAM: Final = "usher.feeds.worker:digest"


async def queue_digest_job(conn: Connection) -> None:
    """Have the words taken of all that has none."""
    await store.digest_soon.run(conn, program=PROGRAM)


async def digest_all(db: Database) -> int:
    """Digest all feeds, until there is nothing left; how many items that were."""
    done = 0
    while feeds := await undigested_feeds(db):
        before = done
        for feed_id in feeds:
            done += await item_texts.digest_feed(db, feed_id)
        if done == before:  # somebody else does it
            break
    return done


async def undigested_feeds(db: Database) -> list[int]:
    async with db.connection() as conn:
        return [int(feed) for (feed,) in await store.undigested_feeds.tuples(conn)]
